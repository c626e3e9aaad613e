/* uniform_: x := independent values from the uniform distribution on [from, to).          x (any shape)! -> x
   gradient: none to the old values.
   example: accel.empty(3):uniform_(2, 2) --> { 2, 2, 2 }
   example: local x = accel.empty(1000):uniform_(-1, 1) return x:amin():item() >= -1, x:amax():item() < 1 --> true, true */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/random/draw.h"

typedef struct range {
  double from, to;
  ac_dtype dt;
} range;

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  double from = ARG_F(f, 1), to = ARG_F(f, 2);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (!(from <= to) || isinf(to - from))
    return AC_FAIL(e, INVALID, "from %g and to %g do not bound a range", from, to);
  return ac_frame_alias(f, 0, e);
}

AC_ISA_FN(uniform32,
          (int64_t n, const uint32_t *restrict w, float from, float to, int drop,
           float *restrict y),
          (n, w, from, to, drop, y)) {
  float unit = 1.0f / (float)(1u << (32 - drop)), d = to - from;
  for (int64_t i = 0; i < n; i++) {
    float v = aci_fma32((float)(int32_t)(w[i] >> drop) * unit, d, from);
    y[i] = v >= to ? from : v; /* rounding may reach the end, which does not belong */
  }
}

static void draw32(int64_t n, const uint32_t *w, const void *params, void *row) {
  const range *r = params;
  float *y = row, from = (float)r->from, to = (float)r->to;
  /* as many random bits as the dtype's significand holds */
  uniform32(n, w, from, to, r->dt == AC_BF16 ? 24 : r->dt == AC_F16 ? 21 : 8, y);
  if (r->dt == AC_BF16)
    for (int64_t i = 0; i < n; i++)
      y[i] = aci_bf16_to_f32(aci_f32_to_bf16(y[i])) >= to ? from : y[i];
  if (r->dt == AC_F16)
    for (int64_t i = 0; i < n; i++) y[i] = aci_f16_to_f32(aci_f32_to_f16(y[i])) >= to ? from : y[i];
}

static void draw64(int64_t n, const uint32_t *w, const void *params, void *row) {
  const range *r = params;
  double *y = row, d = r->to - r->from;
  for (int64_t i = 0; i < n; i++) {
    double v = aci_fma64(aci_uniform_f64(aci_u64_of(w[2 * i], w[2 * i + 1])), d, r->from);
    y[i] = v >= r->to ? r->from : v;
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  range r = {ARG_F(f, 1), ARG_F(f, 2), (ac_dtype)x->dtype};
  (void)e;
  if (x->dtype == AC_F64) aci_draw_fill(f, x, ACI_C_F64, 2, draw64, &r);
  else aci_draw_fill(f, x, ACI_C_F32, 4, draw32, &r);
  return AC_OK;
}

/* both parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *f = x_view_as_real(x, x_zeros_like(x, a[0].tensor, NULL, NULL));
  f = x_uniform_(x, f, a[1].f, a[2].f, a[3].kind == AC_T_NONE ? NULL : a[3].generator);
  out[0] = x_copy_(x, a[0].tensor, x_view_as_complex(x, f));
  return 1;
}

AC_OP(
    uniform_,
    .sig = "uniform_(x!: tensor, from: float = 0, to: float = 1, generator: generator?) -> tensor",
    .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad, .on_complex = on_complex);
