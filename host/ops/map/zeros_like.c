/* zeros_like: a new tensor of 0s with the shape of x.
   x (any shape) -> y (same shape, dtype and device as x unless given)
   No gradient.
   example: accel.tensor({ 5.0, 6 }):zeros_like() --> { 0, 0 } */
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) { return aci_like_shape(f, 1, e); }
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_fill(f, aci_float(0), e); }

AC_OP(zeros_like, .sig = "zeros_like(x: tensor, dtype: dtype?, device: device?) -> tensor",
      .shape = shape, .cpu = cpu, .any_device = true, .nondiff = true,
      .complex_as = AC_COMPLEX_NATIVE);
