/* softshrink: y = x moved towards 0 by lambd, 0 if it is nearer than that.          x (any shape) -> y (same shape)
   gradient: dx = dy if |x| > lambd, else 0.
   example: accel.tensor { -2.0, 0.25, 1.0 }:softshrink() --> { -1.5, 0, 0.5 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ((x) > p[0] ? (x)-p[0] : (x) < -p[0] ? (x) + p[0] : (x) - (x))
ACI_LOOP1(softshrink, float, f32, FWD)
ACI_LOOP1(softshrink, double, f64, FWD)
static const aci_map softshrink_map = {1, softshrink_f32, softshrink_f64, NULL};

static ac_status shape(ac_frame *f, ac_err *e) {
  if (!(ARG_F(f, 1) >= 0))
    return AC_FAIL(e, INVALID, "lambd must be 0 or more, not %g", ARG_F(f, 1));
  return aci_map_shape(f, e);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *beyond = x_gt(x, T(x_abs(x, ARG_T(g, 0))), F(ARG_F(g, 1)));
  ac_grad_set(g, 0, x_where(x, beyond, T(g->dout[0]), F(0)));
}

AC_OP(softshrink, .sig = "softshrink(x: tensor, lambd: float = 0.5) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .elementwise = true, .data = &softshrink_map, .grad = grad,
      .save = AC_SAVE_IN(0), .flops_per_element = 2);
