/* softplus: y = ln(1 + e^(beta x)) / beta, a smooth relu. x itself if beta x > threshold.
   x (any shape) -> y (same shape)
   gradient: dx = dy sigmoid(beta x), dy if beta x > threshold, in one pass by softplus_backward.
   example: accel.tensor { -1.0, 0.0, 30.0 }:softplus() --> { 0.313262, 0.693147, 30 }
   example: accel.tensor { 0.0 }:softplus { beta = 2 } --> { 0.346574 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x)*p[0] > p[1] ? (x) : m_log1p(m_exp((x)*p[0])) / p[0])
#define BWD(T, p, dy, x) ((x)*p[0] > p[1] ? (dy) : (dy)*m_sigmoid((x)*p[0]))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_softplus_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_F(g, 1), ARG_F(g, 2)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *z = x_mul(x, T(a[1].tensor), F(a[2].f));
  out[0] = x_where(x, x_gt(x, T(z), F(a[3].f)), T(dy), T(x_mul(x, T(dy), T(x_sigmoid(x, z)))));
  return 1;
}

AC_MAP1(softplus, FWD,
        .sig = "softplus(x: tensor, beta: float = 1, threshold: float = 20) -> tensor",
        .grad = grad, .save = AC_SAVE_IN(0), .flops_per_element = 20);
AC_MAP2(softplus_backward, BWD,
        .sig = "softplus_backward(dy: tensor, x: tensor, beta: float, threshold: float) -> tensor",
        .composed = plain_backward, .hidden = true);
