/* i1: y = I_1(x), the modified Bessel function of the first kind of order 1.
   x (any shape, integers are computed in f32) -> y (same shape)
   gradient: dx = dy (I_0(x) - y / x), dy / 2 at 0.
   example: accel.tensor { 0.0, 1, -2 }:i1() --> { 0, 0.565159, -1.590637 } */
#include "ops/map/map.h"
#include "ops/map/special.h"

#define FWD(T, p, x) ((T)(aci_i1e((double)(x)) * exp((double)m_abs(x))))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *in = ARG_T(g, 0), *zero = x_eq(x, T(in), F(0));
  ac_tensor *part = x_div(x, T(g->out[0]), T(x_masked_fill(x, in, zero, F(1))));
  part = x_masked_fill(x, part, zero, F(0.5));
  ac_tensor *slope = x_sub(x, T(x_i0(x, in)), T(part), aci_float(1));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(slope)));
}

AC_MAP1(i1, FWD, .sig = "i1(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0), .flops_per_element = 40);
