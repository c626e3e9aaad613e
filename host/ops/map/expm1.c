/* expm1: y = e^x - 1, accurate near 0.          x (any shape) -> y (same shape)
   gradient: dx = dy * (y + 1).
   example: accel.tensor { 0.0, 1 }:expm1() --> { 0, 1.718282 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_expm1(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_scalar one = aci_float(1);
  ac_grad_set(g, 0, x_mul(x, T(dy), T(x_add(x, T(g->out[0]), F(1), one))));
}

/* (e^a - 1) cos b - 2 sin^2(b / 2) + i e^a sin b */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  ac_tensor *half = x_square(x, x_sin(x, x_mul(x, T(im), F(0.5))));
  ac_tensor *first = x_mul(x, T(x_expm1(x, re)), T(x_cos(x, im)));
  out[0] = aci_join(x, x_sub(x, T(first), T(half), aci_float(2)),
                    x_mul(x, T(x_exp(x, re)), T(x_sin(x, im))));
  return 1;
}

AC_MAP1(expm1, FWD, .sig = "expm1(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 8, .on_complex = on_complex);
