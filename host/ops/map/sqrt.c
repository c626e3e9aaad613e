/* sqrt: y = sqrt x. NaN below 0.          x (any shape) -> y (same shape)
   gradient: dx = dy / (2 y).
   example: accel.tensor { 1.0, 2 }:sqrt() --> { 1, 1.414214 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_sqrt(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_grad_set(g, 0, x_div(x, T(dy), T(x_mul(x, T(g->out[0]), F(2)))));
}

/* sqrt |z| at half the angle */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *z = a[0].tensor;
  out[0] = x_polar(x, x_sqrt(x, x_abs(x, z)), x_mul(x, T(x_angle(x, z)), F(0.5)));
  return 1;
}

AC_MAP1(sqrt, FWD, .sig = "sqrt(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 4, .on_complex = on_complex);
