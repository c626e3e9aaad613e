/* sinc: y = sin(pi x) / (pi x), and 1 at 0.          x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy (cos(pi x) - y) / x, 0 at 0.
   example: accel.tensor { 0.0, 0.5, 1.5 }:sinc() --> { 1, 0.63662, -0.212207 } */
#include "ops/map/map.h"

#define PI 3.14159265358979323846
/* sin(pi x) / (pi x) in double, exactly 0 at integers: the sine of the distance from the nearest integer. */
static inline AC_HOSTDEV double ratio(double x) {
  const double r = x - __builtin_rint(x), s = sin(PI * r);
  const double half = __builtin_rint(x) / 2;
  return x == 0 ? 1 : (half == __builtin_rint(half) ? s : -s) / (PI * x);
}
/* The derivative. Near 0, where the difference cancels, by its series. */
static inline AC_HOSTDEV double slope(double x) {
  const double t = PI * x, q = t * t;
  const double near =
      -t / 3 * (1 - q / 10 * (1 - q / 28 * (1 - q / 54 * (1 - q / 88 * (1 - q / 130)))));
  return __builtin_fabs(t) < 0.8 ? PI * near : (cos(t) - ratio(x)) / x;
}
#define FWD(T, p, x) ((T)ratio((double)(x)))
#define BWD(T, p, dy, x) ((T)((double)(dy)*slope((double)(x))))

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_sinc_backward(&g->x, g->dout[0], ARG_T(g, 0))); }

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[1].tensor, *zero = x_eq(x, T(in), F(0));
  ac_tensor *t = x_mul(x, T(in), F(PI)), *safe = x_masked_fill(x, in, zero, F(1));
  ac_tensor *own = x_div(x, T(x_sin(x, t)), T(x_mul(x, T(safe), F(PI))));
  ac_tensor *rate = x_div(x, T(x_sub(x, T(x_cos(x, t)), T(own), aci_float(1))), T(safe));
  out[0] = x_mul(x, T(a[0].tensor), T(x_masked_fill(x, rate, zero, F(0))));
  return 1;
}

AC_MAP1(sinc, FWD, .sig = "sinc(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_IN(0),
        .inplace = true, .flops_per_element = 20);
AC_MAP2(sinc_backward, BWD, .sig = "sinc_backward(dy: tensor, x: tensor) -> tensor",
        .composed = plain_backward, .hidden = true, .flops_per_element = 30);
