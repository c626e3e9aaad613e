/* round: y = nearest integer, halves to the even one. With decimals, the nearest multiple of 10^-decimals. Integers stay
   unchanged, and take no negative decimals.
   x (any shape) -> y (same shape, dtype)
   gradient: dx = 0.
   example: accel.tensor { 0.5, 1.5, -1.7 }:round() --> { 0, 2, -2 }
   example: accel.tensor({ 1.2345, -0.125 }, { dtype = "f64" }):round { decimals = 2 } --> { 1.23, -0.12 } */
#include "ops/map/map.h"

#define FWD(T, p, x) ACI_BY_INT(x, x, m_rint(x))
/* p[0] = 10^|decimals| */
#define PLACES(T, p, x) (m_rint((x)*p[0]) / p[0])
#define TENS(T, p, x) (m_rint((x) / p[0]) * p[0])
ACI_LOOP1(round, float, f32, FWD)
ACI_LOOP1(round, double, f64, FWD)
ACI_LOOP1(round, int64_t, i64, FWD)
ACI_LOOP1(places, float, f32, PLACES)
ACI_LOOP1(places, double, f64, PLACES)
ACI_LOOP1(tens, float, f32, TENS)
ACI_LOOP1(tens, double, f64, TENS)
static const aci_map round_map = {1, round_f32, round_f64, round_i64};
static const aci_map places_map = {1, places_f32, places_f64, round_i64};
static const aci_map tens_map = {1, tens_f32, tens_f64, NULL};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  if (ARG_I(f, 1) < 0 && !ac_dtype_is_float((ac_dtype)x->dtype))
    return AC_FAIL(e, DTYPE, "%s takes no negative decimals; cast it to a float dtype first",
                   ac_dtype_name((ac_dtype)x->dtype));
  return aci_map_shape(f, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const int64_t d = ARG_I(f, 1);
  if (d == 0 || !ac_dtype_is_float((ac_dtype)ARG_T(f, 0)->dtype))
    return aci_map_run(f, &round_map, e);
  ac_value args[2] = {f->args[0], {.kind = AC_T_FLOAT, .f = pow(10, (double)(d < 0 ? -d : d))}};
  ac_frame g = *f;
  g.args = args;
  return aci_map_run(&g, d > 0 ? &places_map : &tens_map, e);
}

static void grad(ac_grad *g) { aci_grad_zero(g, 0); }

AC_OP(round, .sig = "round(x: tensor, decimals: int = 0) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .elementwise = true, .data = &round_map, .grad = grad, .inplace = true,
      .flops_per_element = 1);
