/* where: y = a if cond, else b, broadcast.          cond (bool), a, b (any shapes that broadcast) -> y
   gradient: da = dy if cond, else 0. db = dy if not cond, each summed over the dims that were
   broadcast.
   example: accel.where(accel.tensor { true, false }, accel.tensor { 1, 2 }, accel.tensor { 3, 4 }) --> { 1, 4 }
   example: accel.where(accel.tensor { true, false }, accel.tensor { 1.5, 2.5 }, 0) --> { 1.5, 0 } */
#include "ops/map/map.h"

#define FWD(T, p, c, a, b) ((c) != 0 ? (a) : (b))
ACI_LOOP3(where, float, f32, FWD)
ACI_LOOP3(where, double, f64, FWD)
ACI_LOOP3(where, int64_t, i64, FWD)
static const aci_map where_map = {3, where_f32, where_f64, where_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *c = ARG_T(f, 0);
  if (c->dtype != AC_BOOL)
    return AC_FAIL(e, DTYPE, "the condition must be bool, not %s",
                   ac_dtype_name((ac_dtype)c->dtype));
  return aci_map_shape(f, e);
}

static void grad(ac_grad *g) {
  ac_tensor *c = ARG_T(g, 0), *dy = g->dout[0];
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_where(&g->x, c, T(dy), F(0))));
  if (ac_grad_needs(g, 2))
    ac_grad_set(g, 2, ac_grad_reduce_to(g, 2, x_where(&g->x, c, F(0), T(dy))));
}

AC_OP(where, .sig = "where(cond: tensor, a: operand, b: operand) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .data = &where_map, .grad = grad, .save = AC_SAVE_IN(0),
      .on_complex = aci_complex_parts);
