/* cos: y = cos x.          x (any shape) -> y (same shape)
   gradient: dx = -dy * sin x.
   example: accel.tensor { 0.0, 1 }:cos() --> { 1, 0.540302 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_cos(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_grad_set(g, 0, x_mul(x, T(dy), T(x_neg(x, x_sin(x, ARG_T(g, 0))))));
}

/* cos a cosh b - i sin a sinh b */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  out[0] = aci_join(x, x_mul(x, T(x_cos(x, re)), T(x_cosh(x, im))),
                    x_neg(x, x_mul(x, T(x_sin(x, re)), T(x_sinh(x, im)))));
  return 1;
}

AC_MAP1(cos, FWD, .sig = "cos(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20, .on_complex = on_complex);
