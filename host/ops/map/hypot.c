/* hypot: y = sqrt(x^2 + other^2), the length of the hypotenuse, without overflow on the way.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy x / y, dother = dy other / y, each summed over the dims that were broadcast.
   example: accel.tensor { 3.0, 5 }:hypot(accel.tensor { 4.0, 12 }) --> { 5, 13 } */
#include "ops/map/map.h"

/* Squares of floats do not overflow in double. Doubles take libm. */
static inline AC_HOSTDEV float length_f32(float x, float y) {
  const double a = (double)x, b = (double)y;
  return __builtin_isinf(x) || __builtin_isinf(y) ? INFINITY : (float)__builtin_sqrt(a * a + b * b);
}
#define FWD(T, p, x, y) ACI_VM2(x, y, length_f32, hypot)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  for (int i = 0; i < 2; i++)
    if (ac_grad_needs(g, i)) {
      ac_tensor *part = x_div(x, T(x_mul(x, T(g->dout[0]), aci_grad_operand(g, i))), T(g->out[0]));
      ac_grad_set(g, i, ac_grad_reduce_to(g, i, part));
    }
}

AC_MAP2(hypot, FWD, .sig = "hypot(x: tensor, other: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1) | AC_SAVE_OUT(0), .inplace = true,
        .flops_per_element = 6);
