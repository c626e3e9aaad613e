/* add: y = x + alpha * other, broadcast.          x, other (any shapes that broadcast) -> y
   gradient: dx = dy, dother = alpha * dy, each summed over the dims that were broadcast. */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) + p[0] * (y))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  double alpha = aci_scalar_f(g->args[2].scalar);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, alpha == 1 ? dy : x_mul(x, T(dy), F(alpha))));
}

AC_MAP2N(add, FWD, .sig = "add(x: operand, other: operand, alpha: scalar = 1) -> tensor", .grad = grad, .inplace = true);
