/* xlogy: y = x ln(other), and 0 if x is 0 and other is not NaN. Used in entropies and
   divergences, whose terms are 0 for impossible events.             x, other (any shapes that broadcast) -> y
   gradient: dx = dy ln(other), 0 if x is 0 and other is not positive, in one pass by xlogy_backward.
   dother = dy x / other, which is NaN if both are 0, as PyTorch's. Each is summed over the dims that were broadcast.
   example: accel.tensor { 0.0, 2.0 }:xlogy(accel.tensor { 0.0, 3.0 }) --> { 0, 2.197225 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) == 0 && (y) == (y) ? (T)0 : (x)*m_log(y))
#define BWD(T, p, dy, x, y) ((x) == 0 && (y) <= 0 ? (T)0 : FWD(T, p, dy, y))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_operand other = aci_grad_operand(g, 1);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_xlogy_backward(x, g->dout[0], ARG_T(g, 0), other)));
  if (ac_grad_needs(g, 1)) {
    ac_tensor *part = x_mul(x, T(g->dout[0]), aci_grad_operand(g, 0));
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_div(x, T(part), other)));
  }
}

/* xlogy of dy without the elements that have no gradient: it is 0 for a dy of 0. */
static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_operand other = aci_value_operand(&a[2]);
  ac_operand under =
      other.tensor == NULL ? F(aci_scalar_f(other.scalar) <= 0) : T(x_le(x, other, F(0)));
  ac_tensor *none = x_logical_and(x, T(x_eq(x, T(a[1].tensor), F(0))), under);
  out[0] = x_xlogy(x, T(x_masked_fill(x, a[0].tensor, none, F(0))), other);
  return 1;
}

AC_MAP2(xlogy, FWD, .sig = "xlogy(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .inplace = true, .flops_per_element = 12);
AC_MAP3(xlogy_backward, BWD,
        .sig = "xlogy_backward(dy: tensor, x: tensor, other: operand) -> tensor",
        .composed = plain_backward, .hidden = true);
