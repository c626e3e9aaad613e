/* tanh: y = tanh x.          x (any shape) -> y (same shape)
   gradient: dx = dy * (1 - y^2), in one pass by tanh_backward.
   example: accel.tensor { 0.0, 1 }:tanh() --> { 0, 0.761594 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_tanh(x))
#define BWD(T, p, dy, y) ((dy) * (1 - (y) * (y)))

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_tanh_backward(&g->x, g->dout[0], g->out[0])); }

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *y = a[1].tensor;
  out[0] = x_mul(x, T(dy), T(x_sub(x, F(1), T(x_mul(x, T(y), T(y))), aci_float(1))));
  return 1;
}

AC_MAP1(tanh, FWD, .sig = "tanh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 12);
AC_MAP2(tanh_backward, BWD, .sig = "tanh_backward(dy: tensor, y: tensor) -> tensor",
        .composed = plain_backward, .hidden = true);
