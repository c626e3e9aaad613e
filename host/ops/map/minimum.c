/* minimum: y = the smaller of x and other, NaN if either is.
   x, other (any shapes that broadcast) -> y
   gradient: dy goes to the smaller one, half to each if they are equal, summed over the dims that were broadcast.
   example: accel.tensor { 1, 5 }:minimum(accel.tensor { 3, 4 }) --> { 1, 4 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ACI_BY_INT((x) + (y), (x) < (y) ? (x) : (y), m_min(x, y))
#define BWD(T, p, dy, x, y) ((x) == (y) ? (dy) * (T)0.5 : (x) > (y) ? 0 : (dy))

static void grad(ac_grad *g) {
  for (int i = 0; i < 2; i++)
    if (ac_grad_needs(g, i))
      ac_grad_set(g, i,
                  ac_grad_reduce_to(g, i,
                                    x_minimum_backward(&g->x, g->dout[0], aci_grad_operand(g, i),
                                                       aci_grad_operand(g, 1 - i))));
}

/* linear in dy, constant in x and other almost everywhere */
static void grad_backward(ac_grad *g) {
  ac_expr *x = &g->x;
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                x_minimum_backward(x, g->dout[0], aci_grad_operand(g, 1), aci_grad_operand(g, 2)));
  aci_grad_zero(g, 1);
  aci_grad_zero(g, 2);
}

AC_MAP2N(minimum, FWD, .sig = "minimum(x: operand, other: operand) -> tensor", .grad = grad,
         .save = AC_SAVE_IN(0) | AC_SAVE_IN(1));
AC_MAP3(minimum_backward, BWD,
        .sig = "minimum_backward(dy: tensor, x: operand, other: operand) -> tensor",
        .grad = grad_backward, .save = AC_SAVE_IN(1) | AC_SAVE_IN(2), .hidden = true);
