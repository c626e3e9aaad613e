/* log10: y = the logarithm of x to base 10.          x (any shape) -> y (same shape)
   gradient: dx = dy / (x ln 10).
   example: accel.tensor { 0.01, 1.0, 1000.0 }:log10() --> { -2, 0, 3 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_log10(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0,
              x_div(x, T(g->dout[0]), T(x_mul(x, T(ARG_T(g, 0)), F(2.30258509299404568402)))));
}

/* ln z / ln 10 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = x_mul(x, T(x_log(x, a[0].tensor)), F(0x1.bcb7b1526e50ep-2));
  return 1;
}

AC_MAP1(log10, FWD, .sig = "log10(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 15, .on_complex = on_complex);
