/* masked_select: the elements of x with mask true, in row-major order. x and mask broadcast.
   x (any shape), mask (bool) -> y (m), m at most as many as the broadcast shape has elements
   gradient: dx = dy at the true positions in order, 0 elsewhere (masked_select_backward).
   example: accel.tensor({ 1, 2, 3 }):masked_select(accel.tensor { true, false, true }) --> { 1, 3 }
   example: accel.tensor({ { 1, 2 }, { 3, 4 } }):masked_select(accel.tensor { false, true }) --> { 2, 4 } */
#include "ops/index/mask.h"

static ac_status mask_check(const ac_tensor *mask, ac_err *e) {
  if (mask->dtype == AC_BOOL) return AC_OK;
  return AC_FAIL(e, DTYPE, "mask must be bool, got %s; compare it first (mask:ne(0))",
                 ac_dtype_name((ac_dtype)mask->dtype));
}

static ac_status joint_shape(const ac_frame *f, int *ndim, int64_t *shape, ac_err *e) {
  *ndim = 0;
  AC_TRY(aci_broadcast(ndim, shape, ARG_T(f, 0), e));
  return aci_broadcast(ndim, shape, ARG_T(f, 1), e);
}

static ac_status shape(ac_frame *f, ac_err *e) {
  int ndim;
  int64_t s[AC_MAX_DIMS], n = 1;
  AC_TRY(mask_check(ARG_T(f, 1), e));
  AC_TRY(joint_shape(f, &ndim, s, e));
  for (int d = 0; d < ndim; d++)
    if (__builtin_mul_overflow(n, s[d], &n))
      return AC_FAIL(e, SHAPE, "x and mask have too many elements together");
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, 1, &n, e);
}

typedef struct mask_job {
  size_t es;
  const uint8_t *mask;
  const int64_t *first;
  char *all, *some; /* as many as mask. As many as are true */
} mask_job;

enum { BLOCK = 512 };

/* Branch-free into a block on the stack: every element is written, the position advances if mask is
 * true. */
#define TAKE(T)                                                         \
  static void take_##T(const T *x, const uint8_t *m, int64_t n, T *y) { \
    T buf[BLOCK];                                                       \
    for (int64_t b = 0; b < n; b += BLOCK) {                            \
      int64_t c = n - b < BLOCK ? n - b : BLOCK, k = 0;                 \
      for (int64_t i = 0; i < c; i++) {                                 \
        buf[k] = x[b + i];                                              \
        k += m[b + i] != 0;                                             \
      }                                                                 \
      memcpy(y, buf, (size_t)k * sizeof *y);                            \
      y += k;                                                           \
    }                                                                   \
  }                                                                     \
  static void give_##T(const T *y, const uint8_t *m, int64_t n, T *x) { \
    for (int64_t i = 0; i < n; i++) {                                   \
      if (m[i]) x[i] = *y++;                                            \
      else x[i] = 0;                                                    \
    }                                                                   \
  }
TAKE(uint8_t)
TAKE(uint16_t)
TAKE(uint32_t)
TAKE(uint64_t)

#define EACH(FN, FROM, TO)                                   \
  switch (j->es) {                                           \
    case 1: FN##_uint8_t(FROM, m, end - begin, TO); break;   \
    case 2: FN##_uint16_t(FROM, m, end - begin, TO); break;  \
    case 4: FN##_uint32_t(FROM, m, end - begin, TO); break;  \
    default: FN##_uint64_t(FROM, m, end - begin, TO); break; \
  }

static void take_range(void *arg, int64_t begin, int64_t end) {
  const mask_job *j = arg;
  const uint8_t *m = j->mask + begin;
  const void *x = j->all + begin * (int64_t)j->es;
  void *y = j->some + j->first[begin / ACI_MASK_CHUNK] * (int64_t)j->es;
  EACH(take, x, y)
}

static void give_range(void *arg, int64_t begin, int64_t end) {
  const mask_job *j = arg;
  const uint8_t *m = j->mask + begin;
  void *x = j->all + begin * (int64_t)j->es;
  const void *y = j->some + j->first[begin / ACI_MASK_CHUNK] * (int64_t)j->es;
  EACH(give, y, x)
}

/* Counts mask (argument 1, broadcast). The caller frees both blocks in every case. */
static ac_status prepare(ac_frame *f, int ndim, const int64_t *s, int64_t *n, mask_job *j,
                         int64_t *total, ac_block **b1, ac_block **b2, ac_err *e) {
  const void *mask;
  *n = 1;
  *b1 = *b2 = NULL;
  for (int d = 0; d < ndim; d++) *n *= s[d];
  AC_TRY(aci_broadcast_data(f, ARG_T(f, 1), ndim, s, &mask, b1, e));
  AC_TRY(ac_block_alloc(f->device, (size_t)(aci_mask_chunks(*n) + 1) * 8, AC_MEM_ACTIVATION,
                        f->stream, b2, e));
  j->mask = mask;
  j->first = ac_block_ptr(*b2);
  *total = aci_mask_count(f->team, mask, *n, ac_block_ptr(*b2));
  return AC_OK;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  mask_job j = {.es = aci_dsize((ac_dtype)x->dtype)};
  ac_block *b1, *b2, *b3 = NULL;
  const void *data;
  int64_t s[AC_MAX_DIMS], n, total;
  int ndim;
  AC_TRY(joint_shape(f, &ndim, s, e));
  ac_status st = prepare(f, ndim, s, &n, &j, &total, &b1, &b2, e);
  if (st == AC_OK) st = aci_broadcast_data(f, x, ndim, s, &data, &b3, e);
  if (st == AC_OK) st = aci_frame_size(f, 0, 1, &total, e);
  if (st == AC_OK && total > 0) {
    j.all = (char *)(uintptr_t)data;
    j.some = aci_data(f->out[0]);
    ac_parallel_for(f->team, n, ACI_MASK_CHUNK, take_range, &j);
  }
  ac_block_free(b3);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

/* dy goes back into the broadcast shape. Sums over repeated dims of x. */
static void grad(ac_grad *g) {
  const ac_tensor *mask = ARG_T(g, 1);
  const int64_t *xs = ac_grad_shape(g, 0, 0);
  const int xn = ac_grad_ndim(g, 0, 0), n = xn > mask->ndim ? xn : mask->ndim;
  int64_t s[AC_MAX_DIMS];
  for (int d = 0; d < n; d++) {
    int64_t a = d < n - xn ? 1 : xs[d - (n - xn)],
            b = d < n - mask->ndim ? 1 : mask->shape[d - (n - mask->ndim)];
    s[d] = a == 1 ? b : a;
  }
  ac_grad_set(
      g, 0,
      ac_grad_reduce_to(g, 0, x_masked_select_backward(&g->x, g->dout[0], ARG_T(g, 1), s, n)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, f->args[2].n, f->args[2].ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  mask_job j = {.es = aci_dsize((ac_dtype)dy->dtype), .all = aci_data(f->out[0])};
  ac_block *b1, *b2, *b3 = NULL;
  const void *data;
  int64_t n, total;
  ac_status st = prepare(f, f->args[2].n, f->args[2].ints, &n, &j, &total, &b1, &b2, e);
  if (st == AC_OK && total != dy->numel)
    st = AC_FAIL(e, SHAPE, "dy has %lld elements, mask selects %lld", (long long)dy->numel,
                 (long long)total);
  if (st == AC_OK) st = aci_contiguous_data(f, dy, &data, &b3, e);
  if (st == AC_OK) {
    j.some = (char *)(uintptr_t)data;
    ac_parallel_for(f->team, n, ACI_MASK_CHUNK, give_range, &j);
  }
  ac_block_free(b3);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_masked_select(&g->x, g->dout[0], ARG_T(g, 1)));
}

AC_OP(masked_select, .sig = "masked_select(x: tensor, mask: tensor) -> dynamic", .shape = shape,
      .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(1), .on_complex = aci_complex_parts);
AC_OP(masked_select_backward,
      .sig = "masked_select_backward(dy: tensor, mask: tensor, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(1),
      .hidden = true, .on_complex = aci_complex_parts);
