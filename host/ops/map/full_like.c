/* full_like: a new tensor of one value with the shape of x.
   x (any shape) -> y (same shape, dtype and device as x unless given)
   No gradient.
   example: accel.tensor({ 1.0, 2 }):full_like(7) --> { 7, 7 } */
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_fill_check(f->args[1].scalar,
                        ARG_NONE(f, 2) ? (ac_dtype)ARG_T(f, 0)->dtype : f->args[2].dtype, e));
  return aci_like_shape(f, 2, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_fill(f, f->args[1].scalar, e); }

AC_OP(full_like,
      .sig = "full_like(x: tensor, value: scalar, dtype: dtype?, device: device?) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .nondiff = true,
      .complex_as = AC_COMPLEX_NATIVE);
