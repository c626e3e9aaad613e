/* nonzero: the indices (from 0) of the elements of x that are not zero, one row each, in row-major order. NaN is not zero.
   Scripts may ask for one tensor per dim: x:nonzero { as_tuple = true }.
   x (rank r) -> y (m, r, i64), m at most as many as x has elements.          No gradient.
   example: accel.tensor { { 1, 0 }, { 0, 3 } }:nonzero() --> { { 0, 0 }, { 1, 1 } }
   example: accel.tensor { 0, 5, 7 }:nonzero() --> { { 1 }, { 2 } } */
#include "ops/index/sort_keys.h"
#include "ops/index/mask.h"

enum { BLOCK = 512 };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_order_check(x, e));
  return ac_frame_out(f, AC_I64, 2, (const int64_t[]){x->numel, x->ndim}, e);
}

typedef struct nonzero_job {
  const ac_tensor *x;
  aci_ctype ct;
  uint8_t *mask;
  const int64_t *first;
  int64_t *out;
} nonzero_job;

#define MARK(T)                                                 \
  do {                                                          \
    const T *v = (const T *)(const void *)buf;                  \
    for (int64_t i = 0; i < c; i++) j->mask[b + i] = v[i] != 0; \
  } while (0)

static void mark_range(void *arg, int64_t begin, int64_t end) {
  const nonzero_job *j = arg;
  _Alignas(64) char buf[BLOCK * 8];
  for (int64_t b = begin; b < end; b += BLOCK) {
    int64_t c = end - b < BLOCK ? end - b : BLOCK;
    aci_elems_load(j->x, j->ct, b, c, buf);
    if (j->ct == ACI_C_F32) MARK(float);
    else if (j->ct == ACI_C_F64) MARK(double);
    else MARK(int64_t);
  }
}

/* Runs along the last dim, so that a position costs no division. */
static void put_range(void *arg, int64_t begin, int64_t end) {
  const nonzero_job *j = arg;
  const ac_tensor *x = j->x;
  const int last = x->ndim - 1;
  int64_t at[AC_MAX_DIMS], r = begin;
  int64_t *out = j->out + j->first[begin / ACI_MASK_CHUNK] * x->ndim;
  for (int d = last; d >= 0; d--) {
    at[d] = r % x->shape[d];
    r /= x->shape[d];
  }
  while (begin < end) {
    int64_t n = x->shape[last] - at[last] < end - begin ? x->shape[last] - at[last] : end - begin;
    for (int64_t i = 0; i < n; i++) {
      if (!j->mask[begin + i]) continue;
      for (int d = 0; d < last; d++) *out++ = at[d];
      *out++ = at[last] + i;
    }
    begin += n;
    at[last] += n;
    for (int d = last; d > 0 && at[d] == x->shape[d]; d--) {
      at[d] = 0;
      at[d - 1]++;
    }
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t n = x->numel, chunks = aci_mask_chunks(n);
  ac_block *block;
  nonzero_job j = {.x = x, .ct = aci_ctype_of((ac_dtype)x->dtype)};
  AC_TRY(ac_block_alloc(f->device, (size_t)(chunks + 1) * 8 + (size_t)n, AC_MEM_ACTIVATION,
                        f->stream, &block, e));
  int64_t *first = ac_block_ptr(block);
  j.first = first;
  j.mask = (uint8_t *)(first + chunks + 1);
  ac_parallel_for(f->team, n, ACI_MASK_CHUNK, mark_range, &j);
  int64_t total = aci_mask_count(f->team, j.mask, n, first);
  ac_status st = aci_frame_size(f, 0, 2, (const int64_t[]){total, x->ndim}, e);
  if (st == AC_OK && f->out[0]->numel > 0) {
    j.out = aci_data(f->out[0]);
    ac_parallel_for(f->team, n, ACI_MASK_CHUNK, put_range, &j);
  }
  ac_block_free(block);
  return st;
}

/* of the elements that are not 0 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  out[0] = aci_complex_again(x, op, a, x_ne(x, T(a[0].tensor), F(0)));
  return 1;
}

AC_OP(nonzero, .sig = "nonzero(x: tensor) -> dynamic", .shape = shape, .cpu = cpu, .nondiff = true,
      .alias = "argwhere", .on_complex = on_complex);
