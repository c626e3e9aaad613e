/* entr: y = -x ln x, a term of the entropy. 0 at 0, -inf for negative x.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = -dy (ln x + 1).
   example: accel.tensor { 0.5, 0, -1 }:entr() --> { 0.346574, 0, -inf } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) > 0 ? -(x)*m_log(x) : (x) == 0 ? (T)0 : (x) < 0 ? -(T)INFINITY : (x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *slope = x_add(x, T(x_log(x, ARG_T(g, 0))), F(1), aci_float(1));
  ac_grad_set(g, 0, x_neg(x, x_mul(x, T(g->dout[0]), T(slope))));
}

AC_MAP1(entr, FWD, .sig = "entr(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .flops_per_element = 12);
