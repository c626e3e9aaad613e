/* tan: y = tan x.          x (any shape) -> y (same shape)
   gradient: dx = dy (1 + y^2).
   example: accel.tensor { 0.0, 0.785398163 }:tan() --> { 0, 1 } */
#include "ops/map/map.h"

/* With x = r + q pi/2, tan x is tan r for even q, else -1 / tan r. */
static inline AC_INLINE float tan_one(float x) {
  aci_angle g = aci_reduce_angle(x);
  float s = aci_sin_poly(g.r), c = aci_cos_poly(g.r);
  float over = g.q & 1u ? -c : s, under = g.q & 1u ? s : c;
  float y = over / under;
  y = aci_float32(aci_bits32(y) ^ (aci_bits32(x) & 0x80000000u));
  return (aci_bits32(x) & 0x7f800000u) == 0x7f800000u ? x - x : y;
}
#define FWD(T, p, x) ACI_VM1(x, tan_one, tan)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *y = g->out[0];
  ac_grad_set(g, 0, x_addcmul(x, dy, x_mul(x, T(dy), T(y)), y, aci_float(1)));
}

/* with t = tanh b, u = tan a: (u (1 - t^2) + i t (1 + u^2)) / (1 + t^2 u^2) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  ac_tensor *t = x_tanh(x, im), *u = x_tan(x, re), *tu = x_mul(x, T(t), T(u));
  ac_tensor *under = x_add(x, T(x_square(x, tu)), F(1), aci_float(1));
  ac_tensor *t2 = x_square(x, t), *u2 = x_square(x, u);
  ac_tensor *first = x_mul(x, T(t), T(x_add(x, T(u2), F(1), aci_float(1))));
  ac_tensor *second = x_mul(x, T(u), T(x_sub(x, F(1), T(t2), aci_float(1))));
  first = x_div(x, T(first), T(under));
  second = x_div(x, T(second), T(under));
  out[0] = aci_join(x, second, first);
  return 1;
}

AC_MAP1(tan, FWD, .sig = "tan(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 30, .on_complex = on_complex);
