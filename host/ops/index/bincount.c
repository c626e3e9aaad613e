/* bincount: how often each value from 0 on occurs in x, or the sum of the weights at its occurrences. On
   the meta device the length is minlength, since values are not known there.
   x (n, integers, not negative), weights (n) -> y (m), m = the largest value + 1, at least minlength. i64, with
   weights f32 for f32 ones, else f64. Weights are added in f64 in the order of x.          No gradient.
   example: accel.bincount(accel.tensor { 0, 1, 1, 3 }) --> { 1, 2, 0, 1 }
   example: accel.bincount(accel.tensor { 0, 2 }, accel.tensor { 0.5, 2 }, { minlength = 4 }) --> { 0.5, 0, 2, 0 } */
#include "device/meta/meta_flags.h"
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_NONE(f, 1) ? NULL : ARG_T(f, 1);
  const bool zeros = f->device->kind == AC_DEV_META && ac_frame_flag(f, ACI_META_ZEROS);
  const int64_t least = zeros && ARG_I(f, 2) == 0 ? 1 : ARG_I(f, 2);
  char a[128], b[128];
  if (!ac_dtype_is_int((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "x must hold integers, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (x->ndim != 1)
    return AC_FAIL(e, SHAPE, "x must have one dim, got shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  if (w != NULL && !aci_same_shape(x, w))
    return AC_FAIL(e, SHAPE, "weights of shape %s do not match x of shape %s",
                   aci_shape_str(w->ndim, w->shape, a, sizeof a),
                   aci_shape_str(x->ndim, x->shape, b, sizeof b));
  if (w != NULL && w->dtype > AC_BOOL)
    return AC_FAIL(e, DTYPE, "weights are %s, a storage dtype; cast them first",
                   ac_dtype_name((ac_dtype)w->dtype));
  if (least < 0)
    return AC_FAIL(e, INVALID, "minlength is %lld, it cannot be negative", (long long)least);
  if (least == 0 && f->device->kind == AC_DEV_META)
    return AC_FAIL(e, INVALID, "the largest value is unknown on the meta device; give minlength");
  return ac_frame_out(f, w == NULL ? AC_I64 : w->dtype == AC_F32 ? AC_F32 : AC_F64, 1, &least, e);
}

static void count(const ac_tensor *w, const int64_t *ids, int64_t n, double *sum, int64_t *times) {
  enum { BLOCK = 512 };
  double buf[BLOCK];
  for (int64_t i = 0; w == NULL && i < n; i++) times[ids[i]]++;
  for (int64_t b = 0; w != NULL && b < n; b += BLOCK) {
    int64_t c = n - b < BLOCK ? n - b : BLOCK;
    aci_elems_load(w, ACI_C_F64, b, c, buf);
    for (int64_t i = 0; i < c; i++) sum[ids[b + i]] += buf[i];
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_NONE(f, 1) ? NULL : ARG_T(f, 1);
  const int64_t *ids;
  ac_block *b1, *b2 = NULL;
  int64_t m = ARG_I(f, 2);
  AC_TRY(aci_index_values(f, 0, INT64_MAX, "values", &ids, &b1, e));
  for (int64_t i = 0; i < x->numel; i++)
    if (ids[i] >= m) m = ids[i] + 1;
  ac_status st = aci_frame_size(f, 0, 1, &m, e);
  if (st == AC_OK && m > 0) {
    void *y = aci_data(f->out[0]), *sum = y;
    bool narrow = f->out[0]->dtype == AC_F32;
    if (narrow) st = ac_block_alloc(f->device, (size_t)m * 8, AC_MEM_ACTIVATION, f->stream, &b2, e);
    if (narrow && st == AC_OK) sum = ac_block_ptr(b2);
    if (st == AC_OK) {
      memset(sum, 0, (size_t)m * 8);
      count(w, ids, x->numel, sum, sum);
      if (narrow) aci_store(ACI_C_F64, sum, AC_F32, y, 1, m);
    }
  }
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

AC_OP(bincount, .sig = "bincount(x: tensor, weights: tensor?, minlength: int = 0) -> dynamic",
      .shape = shape, .cpu = cpu, .nondiff = true);
