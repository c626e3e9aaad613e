/* div: y = x / other, broadcast. Integers are divided as floats.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy / other, dother = -dy * (x / other) / other, each summed over the dims that were
   broadcast.
   example: accel.tensor { 1, 3 }:div(2) --> { 0.5, 1.5 }
   example: accel.tensor { 1.0, -6 }:div(accel.tensor { 4.0, 3 }) --> { 0.25, -2 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) / (y))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  ac_operand other = aci_grad_operand(g, 1);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_div(x, T(dy), other)));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *q = x_div(x, T(x_div(x, aci_grad_operand(g, 0), other)), other);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, x_mul(x, T(dy), T(q)))));
}

/* by the larger part of the divisor, as in complex_div */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  const ac_operand p = aci_value_operand(&a[0]), q = aci_value_operand(&a[1]);
  if (aci_operand_is_complex(q)) out[0] = aci_complex_product(x, p, q, true);
  else out[0] = aci_join(x, x_div(x, aci_re_of(x, p), q), x_div(x, aci_im_of(x, p), q));
  return 1;
}

AC_MAP2(div, FWD, .sig = "div(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1}, .inplace = true,
        .alias = "divide true_divide", .on_complex = on_complex);
