/* masked_fill: y = value where mask, else x.          x, mask (bool; shapes that broadcast) -> y (dtype of x)
   gradient: dx = dy where not mask, else 0, summed over the dims of x that were broadcast.
   example: accel.tensor({ 1.0, 2, 3 }):masked_fill(accel.tensor { true, false, true }, -1) --> { -1, 2, -1 } */
#include "ops/map/map.h"

#define FWD(T, p, x, m) ((m) != 0 ? p[0] : (x))
ACI_LOOP2(masked_fill, float, f32, FWD)
ACI_LOOP2(masked_fill, double, f64, FWD)
ACI_LOOP2(masked_fill, int64_t, i64, FWD)
static const aci_map masked_fill_map = {2, masked_fill_f32, masked_fill_f64, masked_fill_i64};

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *m = ARG_T(f, 1);
  ac_scalar v = f->args[2].scalar;
  if (m->dtype != AC_BOOL)
    return AC_FAIL(e, DTYPE, "the mask has to be bool, not %s", ac_dtype_name((ac_dtype)m->dtype));
  if (!ac_dtype_is_float((ac_dtype)x->dtype) && v.kind == AC_SCALAR_FLOAT && !(fabs(v.f) < 0x1p63))
    return AC_FAIL(e, DTYPE, "the value %g cannot be stored in a tensor of dtype %s", v.f,
                   ac_dtype_name((ac_dtype)x->dtype));
  return aci_map_shape(f, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_masked_fill(&g->x, g->dout[0], ARG_T(g, 1), aci_float(0))));
}

AC_OP(masked_fill, .sig = "masked_fill(x: tensor, mask: tensor, value: scalar) -> tensor", .shape = shape,
      .cpu = aci_map_cpu, .data = &masked_fill_map, .grad = grad, .save = AC_SAVE_IN(1), .inplace = true);
