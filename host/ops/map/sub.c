/* sub: y = x - alpha * other, broadcast.          x, other (any shapes that broadcast, not bool) -> y
   gradient: dx = dy, dother = -alpha * dy, each summed over the dims that were broadcast.
   example: accel.tensor { 10, 20 }:sub(accel.tensor { 1, 2 }) --> { 9, 18 }
   example: accel.sub(1, accel.tensor { 0.5, 2 }, { alpha = 2 }) --> { 0, -3 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x)-p[0] * (y))
ACI_LOOP2(sub, float, f32, FWD)
ACI_LOOP2(sub, double, f64, FWD)
ACI_LOOP2(sub, int64_t, i64, FWD)
static const aci_map sub_map = {2, sub_f32, sub_f64, sub_i64};

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0];
  double alpha = aci_scalar_f(g->args[2].scalar);
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dy));
  if (ac_grad_needs(g, 1))
    ac_grad_set(
        g, 1,
        ac_grad_reduce_to(g, 1, alpha == 1 ? x_neg(&g->x, dy) : x_mul(&g->x, T(dy), F(-alpha))));
}

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_map_shape_nobool(f, e));
  return aci_factor_check(f, 2, (ac_dtype)f->out[0]->dtype, e);
}

AC_OP(sub, .sig = "sub(x: operand, other: operand, alpha: scalar = 1) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .data = &sub_map, .grad = grad, .inplace = true, .flops_per_element = 1,
      .alias = "subtract", .on_complex = aci_complex_pairs);
