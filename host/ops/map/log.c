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

/* ln |z| + i angle z */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = aci_join(x, x_log(x, x_abs(x, a[0].tensor)), x_angle(x, a[0].tensor));
  return 1;
}

AC_MAP1(log, FWD, .sig = "log(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 8, .on_complex = on_complex);
