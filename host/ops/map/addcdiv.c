/* addcdiv: y = x + value tensor1 / tensor2. Integers are divided as floats.
   x, tensor1, tensor2 (any shapes that broadcast) -> y
   gradient: dx = dy, dtensor1 = dy value / tensor2, dtensor2 = -dy value tensor1 / tensor2^2, each summed over the
   dims that were broadcast.
   example: accel.addcdiv(accel.ones(2), accel.tensor { 2.0, 3.0 }, accel.tensor { 4.0, 2.0 }, 2) --> { 2, 4 } */
#include "ops/map/map.h"

#define FWD(T, p, x, a, b) ((x) + p[0] * ((a) / (b)))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *b = ARG_T(g, 2);
  double value = aci_scalar_f(g->args[3].scalar);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  if (!ac_grad_needs(g, 1) && !ac_grad_needs(g, 2)) return;
  ac_tensor *d = x_div(x, T(dy), T(b));
  if (value != 1) d = x_mul(x, T(d), F(value));
  if (ac_grad_needs(g, 1)) ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, d));
  if (!ac_grad_needs(g, 2)) return;
  ac_tensor *q = x_div(x, T(ARG_T(g, 1)), T(b));
  ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, x_neg(x, x_mul(x, T(d), T(q)))));
}

/* x + value tensor1 / tensor2 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  ac_tensor *y = x_div(x, T(a[1].tensor), T(a[2].tensor));
  out[0] = x_add(x, T(a[0].tensor), T(y), a[3].scalar);
  return 1;
}

AC_MAP3(addcdiv, FWD,
        .sig = "addcdiv(x: tensor, tensor1: tensor, tensor2: tensor, value: scalar = 1) -> tensor",
        .grad = grad, .save = AC_SAVE_IN(1) | AC_SAVE_IN(2),
        .save_for = {0, 1 << 2, 1 << 1 | 1 << 2}, .inplace = true, .flops_per_element = 3,
        .on_complex = on_complex);
