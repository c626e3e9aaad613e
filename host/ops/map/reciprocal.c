/* reciprocal: y = 1 / x.          x (any shape) -> y (same shape)
   gradient: dx = -dy * y^2.
   example: accel.tensor { 2.0, -4 }:reciprocal() --> { 0.5, -0.25 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (1 / (x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_tensor *y = g->out[0];
  ac_grad_set(g, 0, x_neg(x, x_mul(x, T(dy), T(x_mul(x, T(y), T(y))))));
}

/* 1 / z */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_div(x, F(1), T(a[0].tensor));
  return 1;
}

AC_MAP1(reciprocal, FWD, .sig = "reciprocal(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_OUT(0), .inplace = true, .flops_per_element = 1, .on_complex = on_complex);
