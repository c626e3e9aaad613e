/* atan2: y = the angle of the point (other, x), in (-pi, pi]: arctan(x / other) in the right quadrant.
   x, other (any shapes that broadcast) -> y
   gradient: dx = dy other / (x^2 + other^2), dother = -dy x / (x^2 + other^2), 0 at the origin, each in one pass by
   atan2_backward and summed over the dims that were broadcast.
   example: accel.tensor { 1.0, -1.0 }:atan2(accel.tensor { 1.0, -1.0 }) --> { 0.785398, -2.356194 } */
#include "ops/map/angle.h"
#include "ops/map/map.h"

#define FWD(T, p, y, x) ACI_VM2(y, x, aci_atan2f, atan2)

/* dy b / (a^2 + b^2). Squares of floats do not overflow in double */
static inline AC_INLINE double slope(double dy, double a, double b) {
  double r = a * a + b * b;
  return r == 0 ? 0 : dy * (b / r);
}
#define BWD(T, p, dy, a, b) slope((double)(dy), (double)(a), (double)(b))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_operand a = aci_grad_operand(g, 0), b = aci_grad_operand(g, 1);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_atan2_backward(x, g->dout[0], a, b)));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, x_atan2_backward(x, g->dout[0], b, a))));
}

static ac_operand squared(ac_expr *x, ac_operand a) {
  const double v = a.tensor == NULL ? aci_scalar_f(a.scalar) : 0;
  return a.tensor != NULL ? T(x_square(x, a.tensor)) : F(v * v);
}
static int plain_backward(ac_expr *x, const ac_value *v, ac_tensor **out) {
  ac_operand a = aci_value_operand(&v[1]), b = aci_value_operand(&v[2]);
  ac_tensor *r = x_add(x, squared(x, a), squared(x, b), aci_float(1));
  out[0] = x_mul(x, T(v[0].tensor), T(x_div(x, b, T(r))));
  return 1;
}

AC_MAP2(atan2, FWD, .sig = "atan2(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .inplace = true, .flops_per_element = 30,
        .alias = "arctan2");
AC_MAP3(atan2_backward, BWD, .sig = "atan2_backward(dy: tensor, a: operand, b: operand) -> tensor",
        .composed = plain_backward, .hidden = true);
