/* heaviside: y = 0 if x < 0, values if x is 0, 1 if x > 0.
   x, values (any shapes that broadcast, of one dtype) -> y          No gradient.
   example: accel.tensor { -1.5, 0, 2 }:heaviside(accel.tensor { 0.5 }) --> { 0, 0.5, 1 } */
#include "ops/map/map.h"

#define FWD(T, p, x, y) ((x) == 0 ? (y) : (T)((x) > 0))

ACI_LOOP2(heaviside, float, f32, FWD)
ACI_LOOP2(heaviside, double, f64, FWD)
ACI_LOOP2(heaviside, int64_t, i64, FWD)
static const aci_map heaviside_map = {2, heaviside_f32, heaviside_f64, heaviside_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *v = ARG_T(f, 1);
  if (x->dtype != v->dtype)
    return AC_FAIL(e, DTYPE, "x is %s and values %s; cast one of them",
                   ac_dtype_name((ac_dtype)x->dtype), ac_dtype_name((ac_dtype)v->dtype));
  return aci_map_shape(f, e);
}

AC_OP(heaviside, .sig = "heaviside(x: tensor, values: tensor) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .elementwise = true, .data = &heaviside_map, .nondiff = true,
      .inplace = true);
