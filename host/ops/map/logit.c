/* logit: y = ln(x / (1 - x)), the inverse of sigmoid. With eps >= 0 x is first cut to eps .. 1 - eps. Without eps,
   outside 0 .. 1 the result is NaN.
   x (any shape) -> y (same shape)
   gradient: dx = dy / (x (1 - x)), 0 if x was cut, NaN if y is.
   example: accel.tensor { 0.5, 0.9, 0.1 }:logit() --> { 0, 2.197225, -2.197225 }
   example: accel.tensor { 0.0, 1.5 }:logit(0.25) --> { -1.098612, 1.098612 } */
#include "ops/map/map.h"

#define CUT(T, e, x) ((e) < 0 ? (x) : (x) < (e) ? (e) : (x) > (T)1 - (e) ? (T)1 - (e) : (x))
#define ODDS(T, x) m_log((x) / ((T)1 - (x)))
#define FWD(T, p, x) ODDS(T, CUT(T, (p)[0], x))
#define BWD(T, p, dy, x)                                                    \
  ((p)[0] < 0 ? ((x) < 0 || (x) > 1 ? (T)NAN : (dy) / ((x) * ((T)1 - (x)))) \
              : ((x) < (p)[0] || (x) > (T)1 - (p)[0] ? (T)0 : (dy) / ((x) * ((T)1 - (x)))))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_logit_backward(&g->x, g->dout[0], ARG_T(g, 0), ARG_F(g, 1)));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[1].tensor, *slope = x_mul(x, T(in), T(x_sub(x, F(1), T(in), aci_float(1))));
  const double e = a[2].f < 0 ? 0 : a[2].f;
  ac_tensor *cut = x_logical_or(x, T(x_lt(x, T(in), F(e))), T(x_gt(x, T(in), F(1 - e))));
  out[0] = x_where(x, cut, F(a[2].f < 0 ? NAN : 0), T(x_div(x, T(a[0].tensor), T(slope))));
  return 1;
}

AC_MAP1(logit, FWD, .sig = "logit(x: tensor, eps: float = -1) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .flops_per_element = 12, .inplace = true);
AC_MAP2(logit_backward, BWD, .sig = "logit_backward(dy: tensor, x: tensor, eps: float) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 4);
