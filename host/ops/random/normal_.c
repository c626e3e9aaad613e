/* normal_: x := independent values from the normal distribution of this mean and standard deviation.
   x (any shape)! -> x
   gradient: none to the old values.
   example: accel.empty(3):normal_(5, 0) --> { 5, 5, 5 }
   example: local x = accel.empty(10000):normal_() return math.abs(x:mean():item()) < 0.1 --> true */
#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (!(ARG_F(f, 2) >= 0))
    return AC_FAIL(e, INVALID, "std must not be negative, got %g", ARG_F(f, 2));
  return ac_frame_alias(f, 0, e);
}

AC_ISA_FN(normal32,
          (int64_t n, const uint32_t *restrict w, float mean, float std, float *restrict y),
          (n, w, mean, std, y)) {
  for (int64_t i = 0; i < n / 2; i++) {
    float a, b;
    aci_normal2_f32(w[2 * i], w[2 * i + 1], &a, &b);
    y[2 * i] = aci_fma32(a, std, mean);
    y[2 * i + 1] = aci_fma32(b, std, mean);
  }
}

static void draw32(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double *p = params;
  normal32(n, w, (float)p[0], (float)p[1], row);
}

static void draw64(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double *p = params;
  double *y = row;
  for (int64_t i = 0; i < n; i += 2) {
    aci_normal2_f64(aci_u64_of(w[2 * i], w[2 * i + 1]), aci_u64_of(w[2 * i + 2], w[2 * i + 3]),
                    &y[i], &y[i + 1]);
    y[i] = aci_fma64(y[i], p[1], p[0]);
    y[i + 1] = aci_fma64(y[i + 1], p[1], p[0]);
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  double p[2] = {ARG_F(f, 1), ARG_F(f, 2)};
  (void)e;
  if (x->dtype == AC_F64) aci_draw_fill(f, x, ACI_C_F64, 2, draw64, p);
  else aci_draw_fill(f, x, ACI_C_F32, 4, draw32, p);
  return AC_OK;
}

/* both parts, each with half of the variance */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *f = x_view_as_real(x, x_zeros_like(x, a[0].tensor, NULL, NULL));
  if (a[1].f != 0) {
    x->st = AC_FAIL(x->e, DTYPE, "complex numbers are drawn around 0, mean is %g; add it", a[1].f);
    return 0;
  }
  f = x_normal_(x, f, 0, a[2].f * 0x1.6a09e667f3bcdp-1,
                a[3].kind == AC_T_NONE ? NULL : a[3].generator);
  out[0] = x_copy_(x, a[0].tensor, x_view_as_complex(x, f));
  return 1;
}

AC_OP(
    normal_,
    .sig = "normal_(x!: tensor, mean: float = 0, std: float = 1, generator: generator?) -> tensor",
    .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad, .on_complex = on_complex);
