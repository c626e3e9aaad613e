/* relu: y = max(x, 0). NaN stays NaN.          x (any shape, not bool) -> y (same shape, dtype)
   gradient: dx = dy if y > 0, else 0, in one pass by relu_backward.
   example: accel.tensor { -1.0, 2 }:relu() --> { 0, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) <= 0 ? 0 : (x))
#define BWD(T, p, dy, y) ((y) <= 0 ? 0 : (dy))
ACI_LOOP1(relu, float, f32, FWD)
ACI_LOOP1(relu, double, f64, FWD)
ACI_LOOP1(relu, int64_t, i64, FWD)
static const aci_map relu_map = {1, relu_f32, relu_f64, relu_i64};

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_relu_backward(&g->x, g->dout[0], g->out[0])); }
static void grad_backward(ac_grad *g) { /* linear in dy, constant in y almost everywhere */
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_relu_backward(&g->x, g->dout[0], ARG_T(g, 1)));
  aci_grad_zero(g, 1);
}

AC_OP(relu, .sig = "relu(x: tensor) -> tensor", .shape = aci_map_shape_nobool, .cpu = aci_map_cpu,
      .data = &relu_map, .grad = grad, .save = AC_SAVE_OUT(0), .inplace = true,
      .flops_per_element = 1);
AC_MAP2(relu_backward, BWD, .sig = "relu_backward(dy: tensor, y: tensor) -> tensor",
        .grad = grad_backward, .save = AC_SAVE_IN(1), .hidden = true);
