/* zeta: y = the sum of (other + k)^-x over k >= 0, the zeta function of Hurwitz. With other = 1 it is Riemann's.
   x, other (any shapes that broadcast, x > 1; integers are computed in f32) -> y
   gradient: dother = -dy x zeta(x + 1, other). None by x: backward raises, as in PyTorch.
   example: accel.tensor { 2.0, 4 }:zeta(1) --> { 1.644934, 1.082323 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x, q) ((T)aci_zeta((double)(x), (double)(q)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  if (ac_grad_needs(g, 0)) {
    x->st = AC_FAIL(x->e, UNSUPPORTED, "there is no gradient by the first argument");
    return;
  }
  ac_operand s = aci_grad_operand(g, 0);
  ac_operand next =
      s.tensor != NULL ? T(x_add(x, s, F(1), aci_float(1))) : F(aci_scalar_f(s.scalar) + 1);
  ac_tensor *slope = x_mul(x, T(x_zeta(x, next, T(ARG_T(g, 1)))), s);
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_neg(x, x_mul(x, T(g->dout[0]), T(slope)))));
}

AC_MAP2(zeta, FWD, .sig = "zeta(x: operand, other: operand) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .flops_per_element = 200);
