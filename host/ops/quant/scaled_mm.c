/* scaled_mm: the product of matrices in 8 bits under one scale each, as torch._scaled_mm:
   y = (x scale_x) (other scale_other) + bias.          x (m, k), other (k, n): f8_e4m3 or f8_e5m2, any strides. scale_x, scale_other: one
   f32, the scale_inv of fp8_cast. bias (n, f32, f16, bf16)? -> y (m, n) of dtype f32, f16 or bf16. Sums are f32. No gradient.
   cuBLASLt multiplies on chips that can (fp8.cu). Elsewhere it is emulated: every value of both formats is one of bf16, so that a product of
   bf16 with sums in f32 is the same, and the scales are applied to its result before that is rounded.
   example: local y, inv = accel.fp8_cast(accel.tensor { { 1.0, 2 } }) return accel.scaled_mm(y, y:t(), inv, inv, { dtype = "f32" }) --> { { 5 } } */
#include "ops/index/index.h"
#include "ops/map/convert.h"
#include "ops/matmul/product.h"
#include "ops/core/on_host.h"

enum { X, OTHER, SCALE_X, SCALE_OTHER, BIAS, DTYPE };

static bool is_f8(const ac_tensor *t) { return t->dtype == AC_F8_E4M3 || t->dtype == AC_F8_E5M2; }
static bool is_result(ac_dtype d) { return d == AC_F32 || d == AC_F16 || d == AC_BF16; }

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X), *w = ARG_T(f, OTHER);
  const ac_dtype dt = f->args[DTYPE].dtype;
  char a[160], b[160];
  if (!is_f8(x) || !is_f8(w) || x->ndim != 2 || w->ndim != 2)
    return AC_FAIL(e, DTYPE,
                   "needs matrices of f8_e4m3 or f8_e5m2, which fp8_cast makes, got %s and %s",
                   aci_tensor_str(x, a, sizeof a), aci_tensor_str(w, b, sizeof b));
  if (x->shape[1] != w->shape[0]) return aci_product_mismatch(x, w, x->shape[1], w->shape[0], e);
  for (int i = SCALE_X; i <= SCALE_OTHER; i++)
    if (ARG_T(f, i)->numel != 1 || ARG_T(f, i)->dtype != AC_F32)
      return AC_FAIL(e, SHAPE, "%s must be one f32, got %s",
                     i == SCALE_X ? "scale_x" : "scale_other",
                     aci_tensor_str(ARG_T(f, i), a, sizeof a));
  if (!is_result(dt))
    return AC_FAIL(e, DTYPE, "results are f32, f16 or bf16, not %s", ac_dtype_name(dt));
  if (!ARG_NONE(f, BIAS)) {
    const ac_tensor *bias = ARG_T(f, BIAS);
    if (bias->ndim != 1 || bias->shape[0] != w->shape[1] || !is_result((ac_dtype)bias->dtype))
      return AC_FAIL(e, SHAPE, "bias must be (%lld) of f32, f16 or bf16, got %s",
                     (long long)w->shape[1], aci_tensor_str(bias, a, sizeof a));
  }
  return ac_frame_out(f, dt, 2, (int64_t[]){x->shape[0], w->shape[1]}, e);
}

typedef struct unpack_job {
  const ac_tensor *t;
  uint16_t *to;
  int64_t rows, cols, row_stride; /* in memory order: columns next to one another */
} unpack_job;

static void unpack_rows(void *arg, int64_t begin, int64_t end) {
  const unpack_job *j = arg;
  float row[1024];
  for (int64_t r = begin; r < end; r++)
    for (int64_t c = 0; c < j->cols; c += 1024) {
      const int64_t n = j->cols - c < 1024 ? j->cols - c : 1024;
      aci_load(ACI_C_F32, row, (ac_dtype)j->t->dtype,
               (const uint8_t *)aci_data(j->t) + r * j->row_stride + c, 1, n);
      aci_store(ACI_C_F32, row, AC_BF16, j->to + r * j->cols + c, 1, n);
    }
}

/* t's values as bf16 in scratch, and the strides that its rows and columns have there. */
static ac_status unpack(ac_frame *f, const ac_tensor *t, ac_block **block, int64_t *rs, int64_t *cs,
                        ac_err *e) {
  AC_TRY(
      ac_block_alloc(f->device, (size_t)t->numel * 2 + 1, AC_MEM_ACTIVATION, f->stream, block, e));
  unpack_job j = {.t = t, .to = (*block)->ptr};
  const bool turned = t->stride[0] == 1 && t->stride[1] >= t->shape[0] && t->shape[0] > 1;
  const int r = turned ? 1 : 0, c = 1 - r;
  if (t->stride[c] == 1 || t->shape[c] <= 1) {
    j.rows = t->shape[r];
    j.cols = t->shape[c];
    j.row_stride = t->stride[r];
    ac_parallel_for(f->team, j.rows, 1 + 16384 / (j.cols + 1), unpack_rows, &j);
  } else { /* columns that lie apart */
    float v;
    for (int64_t i = 0; i < t->numel; i++) {
      aci_elems_load(t, ACI_C_F32, i, 1, &v);
      aci_store(ACI_C_F32, &v, AC_BF16, j.to + i, 1, 1);
    }
    j.cols = t->shape[1];
  }
  *rs = turned ? 1 : j.cols;
  *cs = turned ? j.cols : 1;
  return AC_OK;
}

/* y := sums, rounded. */
typedef struct finish_job {
  const float *sums;
  ac_tensor *y;
} finish_job;

static void finish_rows(void *arg, int64_t begin, int64_t end) {
  const finish_job *j = arg;
  const int64_t n = j->y->shape[1];
  for (int64_t r = begin; r < end; r++) aci_elems_store(j->y, ACI_C_F32, r * n, n, j->sums + r * n);
}

static ac_status multiply(ac_frame *f, aci_product *p, ac_err *e) {
  ac_tensor *y = f->out[0];
  ac_block *sums = NULL, *bias = NULL;
  float *widened = NULL;
  ac_status st = AC_OK;
  if (!ARG_NONE(f, BIAS)) {
    st = ac_block_alloc(f->device, (size_t)p->n * 4 + 1, AC_MEM_ACTIVATION, f->stream, &bias, e);
    if (st != AC_OK) return st;
    widened = bias->ptr;
    aci_elems_load(ARG_T(f, BIAS), ACI_C_F32, 0, p->n, widened);
    p->bias = widened;
    p->bias_dtype = AC_F32;
  }
  p->wide = true;
  if (y->dtype == AC_F32) {
    p->c = aci_data(y);
    st = aci_product_run(f, p, e);
  } else {
    st =
        ac_block_alloc(f->device, (size_t)y->numel * 4 + 1, AC_MEM_ACTIVATION, f->stream, &sums, e);
    if (st == AC_OK) {
      p->c = sums->ptr;
      st = aci_product_run(f, p, e);
    }
    if (st == AC_OK) {
      finish_job j = {.sums = sums->ptr, .y = y};
      ac_parallel_for(f->team, y->shape[0], 1 + 16384 / (y->shape[1] + 1), finish_rows, &j);
    }
  }
  ac_block_free(sums);
  ac_block_free(bias);
  return st;
}

static ac_status run(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X), *w = ARG_T(f, OTHER);
  aci_product p = {.dtype = AC_BF16, .m = x->shape[0], .k = x->shape[1], .n = w->shape[1]};
  ac_block *a = NULL, *b = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  ac_status st = unpack(f, x, &a, &p.a_rs, &p.a_cs, e);
  if (st == AC_OK) st = unpack(f, w, &b, &p.b_rs, &p.b_cs, e);
  if (st == AC_OK) {
    p.a = a->ptr;
    p.b = b->ptr;
    p.alpha = (double)(*(const float *)aci_data(ARG_T(f, SCALE_X)) *
                       *(const float *)aci_data(ARG_T(f, SCALE_OTHER)));
    st = multiply(f, &p, e);
  }
  ac_block_free(b);
  ac_block_free(a);
  return st;
}
ACI_ON_HOST(run)

static int64_t flops(const ac_frame *f) { return 2 * f->out[0]->numel * ARG_T(f, X)->shape[1]; }

AC_OP(
    scaled_mm,
    .sig =
        "scaled_mm(x: tensor, other: tensor, scale_x: tensor, scale_other: tensor, bias: tensor?, dtype: dtype = bf16) -> tensor",
    .shape = shape, .cpu = cpu, .by_vtable = true, .nondiff = true, .flops = flops);
