/* cauchy_: x := independent values from the Cauchy distribution of this median and half width sigma.
   x (floating point, any shape)! -> x
   gradient: none to the old values.
   example: local x = accel.empty(10000):cauchy_(3, 0.5) return math.abs(x:median():item() - 3) < 0.1 --> true */
#include "ops/random/distributions.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (!(ARG_F(f, 2) > 0)) return AC_FAIL(e, INVALID, "sigma must be above 0, got %g", ARG_F(f, 2));
  return ac_frame_alias(f, 0, e);
}

static void draw32(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double *p = params;
  float *y = row;
  for (int64_t i = 0; i < n; i++) y[i] = fmaf(aci_cauchy_f32(w[i]), (float)p[1], (float)p[0]);
}
static void draw64(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double *p = params;
  double *y = row;
  for (int64_t i = 0; i < n; i++)
    y[i] = fma(aci_cauchy_f64(aci_u64_of(w[2 * i], w[2 * i + 1])), p[1], p[0]);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  const double p[2] = {ARG_F(f, 1), ARG_F(f, 2)};
  (void)e;
  if (x->dtype == AC_F64) aci_draw_fill(f, x, ACI_C_F64, 2, draw64, p);
  else aci_draw_fill(f, x, ACI_C_F32, 4, draw32, p);
  return AC_OK;
}

AC_OP(cauchy_,
      .sig = "cauchy_(x!: tensor, median: float = 0, sigma: float = 1, generator: generator?) -> "
             "tensor",
      .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad);
