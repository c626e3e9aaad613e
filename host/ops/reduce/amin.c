/* amin: y = the smallest element of x over dim (all dims when none are given). NaN is smaller than any
   number.
   x (any shape) -> y (without those dims, or 1 with keepdim)
   gradient: dy shared equally by the elements that are the smallest.
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):amin(1, true) --> { { 1, 2 } } */
#include "ops/core/fuse.h"
#include "ops/reduce/minmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_minmax_values_run(f, true, e); }

AC_OP(amin, .sig = "amin(x: tensor, dim: dims?, keepdim: bool = false) -> tensor",
      .shape = aci_minmax_values_shape, .cpu = cpu, .data = &aci_fuse_reduces,
      .grad = aci_minmax_values_grad, .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0));
