/* exponential_: x := independent values from the exponential distribution of this rate, all above 0.
   x (floating point, any shape)! -> x
   gradient: none to the old values.
   example: local x = accel.empty(10000):exponential_(2) return math.abs(x:mean():item() - 0.5) < 0.05 --> true */
#include "device/cpu/isa.h"
#include "ops/random/distributions.h"
#include "ops/random/draw.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (!ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "needs a float tensor, got %s", ac_dtype_name((ac_dtype)x->dtype));
  if (!(ARG_F(f, 1) > 0)) return AC_FAIL(e, INVALID, "lambd must be above 0, got %g", ARG_F(f, 1));
  return ac_frame_alias(f, 0, e);
}

AC_ISA_FN(exponential32, (int64_t n, const uint32_t *restrict w, float scale, float *restrict y),
          (n, w, scale, y)) {
  for (int64_t i = 0; i < n; i++) y[i] = aci_exponential_f32(w[i]) * scale;
}
static void draw32(int64_t n, const uint32_t *w, const void *params, void *row) {
  exponential32(n, w, (float)*(const double *)params, row);
}
static void draw64(int64_t n, const uint32_t *w, const void *params, void *row) {
  const double scale = *(const double *)params;
  double *y = row;
  for (int64_t i = 0; i < n; i++)
    y[i] = aci_exponential_f64(aci_u64_of(w[2 * i], w[2 * i + 1])) * scale;
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->out[0];
  const double scale = 1 / ARG_F(f, 1);
  (void)e;
  if (x->dtype == AC_F64) aci_draw_fill(f, x, ACI_C_F64, 2, draw64, &scale);
  else aci_draw_fill(f, x, ACI_C_F32, 4, draw32, &scale);
  return AC_OK;
}

AC_OP(exponential_,
      .sig = "exponential_(x!: tensor, lambd: float = 1, generator: generator?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = aci_draw_no_grad);
