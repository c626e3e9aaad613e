/* hardswish: y = x min(max(x + 3, 0), 6) / 6, a silu of straight lines and one parabola.
   x (any shape) -> y (same shape)
   gradient: dx = dy (x / 3 + 1/2) if -3 < x < 3, dy above, 0 below, in one pass by hardswish_backward.
   example: accel.tensor { -4.0, 1.0, 5.0 }:hardswish() --> { 0, 0.666667, 5 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) * (m_min(m_max((x) + 3, (T)0), (T)6) / 6))
#define BWD(T, p, dy, x) ((x) <= -3 ? 0 : (x) >= 3 ? (dy) : (dy) * ((x) / 3 + (T)0.5))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_hardswish_backward(&g->x, g->dout[0], ARG_T(g, 0)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[1].tensor;
  ac_tensor *slope = x_add(x, T(x_div(x, T(in), F(3))), F(0.5), aci_float(1));
  slope = x_where(x, x_ge(x, T(in), F(3)), F(1), T(slope));
  out[0] = x_mul(x, T(a[0].tensor), T(x_where(x, x_le(x, T(in), F(-3)), F(0), T(slope))));
  return 1;
}

AC_MAP1(hardswish, FWD, .sig = "hardswish(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 4);
AC_MAP2(hardswish_backward, BWD, .sig = "hardswish_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true);
