/* rsqrt: y = 1 / sqrt x.          x (any shape) -> y (same shape)
   gradient: dx = -dy * y^3 / 2.
   example: accel.tensor { 1.0, 4 }:rsqrt() --> { 1, 0.5 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (1 / m_sqrt(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_tensor *y = g->out[0];
  ac_grad_set(g, 0,
              x_mul(x, T(x_mul(x, T(dy), F(-0.5))), T(x_mul(x, T(y), T(x_mul(x, T(y), T(y)))))));
}

/* 1 / sqrt z */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_reciprocal(x, x_sqrt(x, a[0].tensor));
  return 1;
}

AC_MAP1(rsqrt, FWD, .sig = "rsqrt(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 5, .on_complex = on_complex);
