/* polygamma: y = derivative n of digamma(x).          n >= 0, x (any shape, integers are computed in f32) -> y (same shape)
   Also a method: x:polygamma(n).
   gradient: dx = dy polygamma(n + 1, x).
   example: accel.polygamma(1, accel.tensor { 1.0, 2 }) --> { 1.644934, 0.644934 }
   example: accel.polygamma(2, accel.tensor { 1.0 }) --> { -2.404114 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) \
  ((T)((p)[0] == 0 ? aci_digamma((double)(x)) : aci_polygamma((double)(x), (double)(p)[0])))

static void grad(ac_grad *g) {
  ac_tensor *slope = x_polygamma_of(&g->x, ARG_T(g, 0), ARG_I(g, 1) + 1);
  ac_grad_set(g, 0, x_mul(&g->x, T(g->dout[0]), T(slope)));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (a[0].i < 0) {
    x->st = AC_FAIL(x->e, INVALID, "n must not be negative, got %lld", (long long)a[0].i);
    return 0;
  }
  out[0] = x_polygamma_of(x, a[1].tensor, a[0].i);
  return 1;
}

AC_MAP1(polygamma_of, FWD, .sig = "polygamma_of(x: tensor, n: int) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .flops_per_element = 100, .hidden = true);
AC_OP(polygamma, .sig = "polygamma(n: int, x: tensor) -> tensor", .composed = composed);
