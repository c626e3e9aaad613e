/* logaddexp: y = ln(e^x + e^other), without overflow.          x, other (any shapes that broadcast) -> y
   gradient: dx = dy sigmoid(x - other), dother = dy sigmoid(other - x), each in one pass by logaddexp_backward and
   summed over the dims that were broadcast.
   example: accel.tensor { 0.0, 1000.0 }:logaddexp(accel.tensor { 0.0, 999.0 }) --> { 0.693147, 1000.313262 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) \
  ((x) == (y) ? (x) + (T)0.69314718055994530942 : m_max(x, y) + m_log1p(m_exp(-m_abs((x) - (y)))))
#define BWD(T, p, dy, x, y) ((x) == (y) ? (dy) * (T)0.5 : (dy)*m_sigmoid((x) - (y)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  for (int i = 0; i < 2; i++)
    if (ac_grad_needs(g, i))
      ac_grad_set(g, i,
                  ac_grad_reduce_to(g, i,
                                    x_logaddexp_backward(x, g->dout[0], aci_grad_operand(g, i),
                                                         aci_grad_operand(g, 1 - i))));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *way = x_sub(x, aci_value_operand(&a[1]), aci_value_operand(&a[2]), aci_float(1));
  out[0] = x_mul(x, T(a[0].tensor), T(x_sigmoid(x, way)));
  return 1;
}

AC_MAP2(logaddexp, FWD, .sig = "logaddexp(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops_per_element = 20);
AC_MAP3(logaddexp_backward, BWD,
        .sig = "logaddexp_backward(dy: tensor, x: operand, other: operand) -> tensor",
        .composed = plain_backward, .hidden = true);
