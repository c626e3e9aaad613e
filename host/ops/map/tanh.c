/* tanh: y = tanh x.          x (any shape) -> y (same shape)
   gradient: dx = dy * (1 - y^2), in one pass by tanh_backward.
   example: accel.tensor { 0.0, 1 }:tanh() --> { 0, 0.761594 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_tanh(x))
#define BWD(T, p, dy, y) ((dy) * (1 - (y) * (y)))

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_tanh_backward(&g->x, g->dout[0], g->out[0])); }

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *y = a[1].tensor;
  out[0] = x_mul(x, T(dy), T(x_sub(x, F(1), T(x_mul(x, T(y), T(y))), aci_float(1))));
  return 1;
}

/* with t = tanh a, u = tan b: (t (1 + u^2) + i u (1 - t^2)) / (1 + t^2 u^2) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *re = aci_re(x, a[0].tensor), *im = aci_im(x, a[0].tensor);
  ac_tensor *t = x_tanh(x, re), *u = x_tan(x, im), *tu = x_mul(x, T(t), T(u));
  ac_tensor *under = x_add(x, T(x_square(x, tu)), F(1), aci_float(1));
  ac_tensor *t2 = x_square(x, t), *u2 = x_square(x, u);
  ac_tensor *first = x_mul(x, T(t), T(x_add(x, T(u2), F(1), aci_float(1))));
  ac_tensor *second = x_mul(x, T(u), T(x_sub(x, F(1), T(t2), aci_float(1))));
  first = x_div(x, T(first), T(under));
  second = x_div(x, T(second), T(under));
  out[0] = aci_join(x, first, second);
  return 1;
}

AC_MAP1(tanh, FWD, .sig = "tanh(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 12, .on_complex = on_complex);
AC_MAP2(tanh_backward, BWD, .sig = "tanh_backward(dy: tensor, y: tensor) -> tensor",
        .composed = plain_backward, .hidden = true);
