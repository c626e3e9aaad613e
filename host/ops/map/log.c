/* log: y = ln x.          x (any shape) -> y (same shape)
   gradient: dx = dy / x.
   example: accel.tensor { 1.0, 10 }:log() --> { 0, 2.302585 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_log(x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_grad_set(g, 0, x_div(x, T(dy), T(ARG_T(g, 0))));
}

AC_MAP1(log, FWD, .sig = "log(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 8);
