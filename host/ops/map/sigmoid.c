/* sigmoid: y = 1 / (1 + e^-x).          x (any shape) -> y (same shape)
   gradient: dx = dy * y * (1 - y), in one pass by sigmoid_backward.
   example: accel.tensor { 0.0, 1 }:sigmoid() --> { 0.5, 0.731059 } */
#include "ops/map/map.h"

#define FWD(T, p, x) (m_sigmoid(x))
#define BWD(T, p, dy, y) ((dy) * (1 - (y)) * (y))

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_sigmoid_backward(&g->x, g->dout[0], g->out[0]));
}

static int plain_backward(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *dy = a[0].tensor, *y = a[1].tensor;
  out[0] = x_mul(x, T(x_mul(x, T(dy), T(x_sub(x, F(1), T(y), aci_float(1))))), T(y));
  return 1;
}

/* 1 / (1 + e^-z) */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *e = x_exp(x, x_neg(x, a[0].tensor));
  out[0] = x_reciprocal(x, x_add(x, T(e), F(1), aci_float(1)));
  return 1;
}

AC_MAP1(sigmoid, FWD, .sig = "sigmoid(x: tensor) -> tensor", .grad = grad, .save = AC_SAVE_OUT(0),
        .inplace = true, .flops_per_element = 10, .on_complex = on_complex);
AC_MAP2(sigmoid_backward, BWD, .sig = "sigmoid_backward(dy: tensor, y: tensor) -> tensor",
        .composed = plain_backward, .hidden = true);
