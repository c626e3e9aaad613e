/* amax: y = the largest element of x over dim (all dims when none are given). NaN is larger than any number.
   x (any shape) -> y (without those dims, or 1 with keepdim)
   gradient: dy shared equally by the elements that are the largest.
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):amax() --> 7
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):amax(2) --> { 5, 7 } */
#include "ops/core/fuse.h"
#include "ops/reduce/minmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_minmax_values_run(f, false, e); }

AC_OP(amax, .sig = "amax(x: tensor, dim: dims?, keepdim: bool = false) -> tensor",
      .shape = aci_minmax_values_shape, .cpu = cpu, .data = &aci_fuse_reduces,
      .grad = aci_minmax_values_grad, .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0));
