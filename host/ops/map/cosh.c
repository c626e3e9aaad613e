/* cosh: y = (e^x + e^-x) / 2.          x (any shape) -> y (same shape)
   gradient: dx = dy sinh x.
   example: accel.tensor { -1.0, 0.0, 2.0 }:cosh() --> { 1.543081, 1, 3.762196 } */
#include "ops/map/map.h"

/* Large: the square of e^(|x| / 2), which does not overflow before the result does. */
static inline AC_INLINE float cosh_one(float x) {
  float a = m_abs(x), z = aci_expf(a > 80.0f ? 80.0f : a), h = aci_expf(0.5f * a);
  float y = a > 80.0f ? (0.5f * h) * h : 0.5f * (z + 1.0f / z);
  return x != x ? x : y;
}
#define FWD(T, p, x) ACI_VM1(x, cosh_one, cosh)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_sinh(x, ARG_T(g, 0)))));
}

/* cosh a cos b + i sinh a sin b */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = aci_join(x, x_mul(x, T(x_cosh(x, re)), T(x_cos(x, im))),
                    x_mul(x, T(x_sinh(x, re)), T(x_sin(x, im))));
  return 1;
}

AC_MAP1(cosh, FWD, .sig = "cosh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20, .on_complex = on_complex);
