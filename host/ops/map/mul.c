/* mul: y = x * other, broadcast.          x, other (any shapes that broadcast) -> y
   gradient: dx = dy * other, dother = dy * x, each summed over the dims that were broadcast.
   example: accel.tensor { 1, 2 }:mul(accel.tensor { { 10 }, { 20 } }) --> { { 10, 20 }, { 20, 40 } } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) * (y))

static void grad(ac_grad *g) {
  for (int i = 0; i < 2; i++)
    if (ac_grad_needs(g, i))
      ac_grad_set(g, i,
                  ac_grad_reduce_to(g, i, x_mul(&g->x, T(g->dout[0]), aci_grad_operand(g, 1 - i))));
}

/* (a + bi)(c + di), or both parts times a real factor */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  out[0] = aci_complex_product(x, aci_value_operand(&a[0]), aci_value_operand(&a[1]), false);
  return 1;
}

AC_MAP2N(mul, FWD, .sig = "mul(x: operand, other: operand) -> tensor", .grad = grad,
         .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1, 1 << 0}, .inplace = true,
         .alias = "multiply", .on_complex = on_complex);
