/* exp2: y = 2^x.          x (any shape) -> y (same shape)
   gradient: dx = dy y ln 2.
   example: accel.tensor { -1.0, 0.0, 10.0 }:exp2() --> { 0.5, 1, 1024 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_exp2(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0, x_mul(x, T(x_mul(x, T(g->dout[0]), T(g->out[0]))), F(0.69314718055994530942)));
}

/* e^(z ln 2) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_exp(x, x_mul(x, T(a[0].tensor), F(0x1.62e42fefa39efp-1)));
  return 1;
}

AC_MAP1(exp2, FWD, .sig = "exp2(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 12, .on_complex = on_complex);
