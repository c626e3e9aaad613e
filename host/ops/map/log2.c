/* log2: y = the logarithm of x to base 2.          x (any shape) -> y (same shape)
   gradient: dx = dy / (x ln 2).
   example: accel.tensor { 0.25, 1.0, 8.0 }:log2() --> { -2, 0, 3 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_log2(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0,
              x_div(x, T(g->dout[0]), T(x_mul(x, T(ARG_T(g, 0)), F(0.69314718055994530942)))));
}

/* ln z / ln 2 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_mul(x, T(x_log(x, a[0].tensor)), F(0x1.71547652b82fep+0));
  return 1;
}

AC_MAP1(log2, FWD, .sig = "log2(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 15, .on_complex = on_complex);
