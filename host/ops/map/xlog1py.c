/* xlog1py: y = x ln(1 + other), and 0 if x is 0 and other is not NaN.
   x, other (any shapes that broadcast; integers are computed in f32) -> y
   gradient: dx = dy ln(1 + other), 0 if x is 0 and other is at most -1. dother = dy x / (1 + other). Each is summed over the
   dims that were broadcast.
   example: accel.tensor { 0.0, 2.0 }:xlog1py(accel.tensor { -1.0, 2.0 }) --> { 0, 2.197225 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) == 0 && (y) == (y) ? (T)0 : (x)*m_log1p(y))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_operand a = aci_grad_operand(g, 0), b = aci_grad_operand(g, 1);
  if (ac_grad_needs(g, 0)) {
    ac_operand log = b.tensor != NULL ? T(x_log1p(x, b.tensor)) : F(log1p(aci_scalar_f(b.scalar)));
    ac_tensor *part = x_mul(x, T(g->dout[0]), log);
    ac_operand under = b.tensor != NULL ? T(x_le(x, b, F(-1))) : F(aci_scalar_f(b.scalar) <= -1);
    ac_tensor *none = x_logical_and(x, T(x_eq(x, a, F(0))), under);
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_masked_fill(x, part, none, F(0))));
  }
  if (ac_grad_needs(g, 1)) {
    ac_tensor *part = x_mul(x, T(g->dout[0]), a);
    ac_tensor *one = x_add(x, T(ARG_T(g, 1)), F(1), aci_float(1));
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_div(x, T(part), T(one))));
  }
}

AC_MAP2(xlog1py, FWD, .sig = "xlog1py(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops_per_element = 12);
