/* neg: y = -x.          x (any shape, not bool) -> y (same shape, dtype)
   gradient: dx = -dy.
   example: accel.tensor { 1, -2 }:neg() --> { -1, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (-(x))
ACI_LOOP1(neg, float, f32, FWD)
ACI_LOOP1(neg, double, f64, FWD)
ACI_LOOP1(neg, int64_t, i64, FWD)
static const aci_map neg_map = {1, neg_f32, neg_f64, neg_i64};

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_neg(&g->x, g->dout[0])); }

AC_OP(neg, .sig = "neg(x: tensor) -> tensor", .shape = aci_map_shape_nobool, .cpu = aci_map_cpu,
      .data = &neg_map, .grad = grad, .inplace = true, .flops_per_element = 1, .alias = "negative",
      .on_complex = aci_complex_pairs);
