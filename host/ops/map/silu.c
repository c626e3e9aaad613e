/* silu: y = x sigmoid(x).          x (any shape) -> y (same shape)
   gradient: dx = dy s (1 + x (1 - s)) with s = sigmoid x, in one pass by silu_backward.
   example: accel.tensor { 0.0, 1 }:silu() --> { 0, 0.731059 } */
#include "ops/map/map.h"

static inline AC_INLINE float slope_f32(float x) {
  float s = m_sigmoid(x);
  return s * (1 + x * (1 - s));
}
static inline AC_INLINE double slope_f64(double x) {
  double s = m_sigmoid(x);
  return s * (1 + x * (1 - s));
}
#define FWD(T, p, x) ((x)*m_sigmoid(x))
#define BWD(T, p, dy, x) ((dy)*ACI_VM1(x, slope_f32, slope_f64))

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_silu_backward(&g->x, g->dout[0], ARG_T(g, 0))); }

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  out[0] = x_mul(e, T(a[0].tensor), T(x_sigmoid(e, a[0].tensor)));
  return 1;
}

AC_MAP1(silu, FWD, .sig = "silu(x: tensor) -> tensor", .grad = grad, .composed = plain,
        .save = AC_SAVE_IN(0), .inplace = true, .flops_per_element = 11);
AC_MAP2(silu_backward, BWD, .sig = "silu_backward(dy: tensor, x: tensor) -> tensor",
        .hidden = true);
