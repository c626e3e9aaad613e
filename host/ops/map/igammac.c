/* igammac: y = the upper regularised incomplete gamma function Q(x, other) = 1 - P(x, other): the probability that a
   gamma distributed number of shape x is above other. NaN unless x >= 0 and other >= 0.
   x, other (floating point, any shapes that broadcast) -> y
   gradient: dother = -dy e^(-other) other^(x - 1) / gamma(x). None by x: backward raises, as in PyTorch.
   example: accel.tensor { 1.0, 4 }:igammac(accel.tensor { 1.0, 4 }) --> { 0.367879, 0.43347 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, a, x) ((T)aci_gamma_part((double)(a), (double)(x), 1))

static void grad(ac_grad *g) {
  ac_expr *e = &g->x;
  if (ac_grad_needs(g, 0)) {
    e->st = AC_FAIL(e->e, UNSUPPORTED, "there is no gradient by the first argument");
    return;
  }
  ac_tensor *a = ARG_T(g, 0), *x = ARG_T(g, 1);
  ac_tensor *power = x_xlogy(e, T(x_sub(e, T(a), F(1), aci_float(1))), T(x));
  ac_tensor *log =
      x_sub(e, T(power), T(x_add(e, T(x), T(x_lgamma(e, a)), aci_float(1))), aci_float(1));
  ac_tensor *part = x_mul(e, T(g->dout[0]), T(x_exp(e, log)));
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(e, part)));
}

AC_MAP2(igammac, FWD, .sig = "igammac(x: tensor, other: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .inplace = true, .flops_per_element = 200);
