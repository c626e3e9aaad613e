/* sinh: y = (e^x - e^-x) / 2, accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy cosh x.
   example: accel.tensor { -1.0, 0.0, 2.0 }:sinh() --> { -1.175201, 0, 3.626860 } */
#include "ops/map/map.h"

/* Small: by e^|x| - 1. Large: the square of e^(|x| / 2), which does not overflow before the result
 * does. */
static inline AC_INLINE float sinh_one(float x) {
  float a = m_abs(x), u = aci_expm1f(a > 20.0f ? 20.0f : a), h = aci_expf(0.5f * a);
  float y = a > 20.0f ? (0.5f * h) * h : 0.5f * (u + u / (u + 1.0f));
  y = m_copysign(y, x);
  return x != x ? x : y;
}
#define FWD(T, p, x) ACI_VM1(x, sinh_one, sinh)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_cosh(x, ARG_T(g, 0)))));
}

/* sinh a cos b + i cosh a sin b */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = aci_join(x, x_mul(x, T(x_sinh(x, re)), T(x_cos(x, im))),
                    x_mul(x, T(x_cosh(x, re)), T(x_sin(x, im))));
  return 1;
}

AC_MAP1(sinh, FWD, .sig = "sinh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 25, .on_complex = on_complex);
