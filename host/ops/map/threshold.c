/* threshold: y = x if x > threshold, else value. NaN stays NaN. Integers stay integers.          x (any shape) -> y (same shape)
   gradient: dx = 0 if x <= threshold, else dy.
   example: accel.tensor { 0.5, 2.0 }:threshold(1, 7) --> { 7, 2 }
   example: accel.tensor { 0.5, 2.0 }:threshold { threshold = 1, value = 0 } --> { 0, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) <= p[0] ? p[1] : (x))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_grad_set(g, 0, x_where(x, x_le(x, T(ARG_T(g, 0)), F(ARG_F(g, 1))), F(0), T(g->dout[0])));
}

ACI_LOOP1(threshold, float, f32, FWD)
ACI_LOOP1(threshold, double, f64, FWD)
ACI_LOOP1(threshold, int64_t, i64, FWD)
static const aci_map threshold_map = {1, threshold_f32, threshold_f64, threshold_i64};

AC_OP(threshold, .sig = "threshold(x: tensor, threshold: float, value: float) -> tensor",
      .shape = aci_map_shape_nobool, .cpu = aci_map_cpu, .elementwise = true,
      .data = &threshold_map, .grad = grad, .save = AC_SAVE_IN(0), .inplace = true,
      .flops_per_element = 2);
