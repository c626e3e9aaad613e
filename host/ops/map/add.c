/* add: y = x + alpha * other, broadcast.          x, other (any shapes that broadcast) -> y
   gradient: dx = dy, dother = alpha * dy, each summed over the dims that were broadcast.
   example: accel.tensor { 1, 2 }:add(accel.tensor { 10, 20 }) --> { 11, 22 }
   example: accel.add(accel.tensor { 1.0, 2 }, 3, { alpha = 0.5 }) --> { 2.5, 3.5 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) + p[0] * (y))
ACI_LOOP2(add, float, f32, FWD)
ACI_LOOP2(add, double, f64, FWD)
ACI_LOOP2(add, int64_t, i64, FWD)
static const aci_map add_map = {2, add_f32, add_f64, add_i64};

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0];
  double alpha = aci_scalar_f(g->args[2].scalar);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, alpha == 1 ? dy : x_mul(x, T(dy), F(alpha))));
}

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_map_shape(f, e));
  return aci_factor_check(f, 2, (ac_dtype)f->out[0]->dtype, e);
}

AC_OP(add, .sig = "add(x: operand, other: operand, alpha: scalar = 1) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .data = &add_map, .grad = grad, .inplace = true, .flops_per_element = 1,
      .on_complex = aci_complex_pairs);
