/* max: the largest element of x, or with dim the largest along it and its index (0-based, the first of equal ones). NaN
   is larger than any number.
   x (any shape) -> values () | values, indices (without dim, or 1 with keepdim)
   gradient: with dim, dx = dvalues at indices, 0 elsewhere. Without dim, dvalues shared equally by the elements
   that are the largest.
   example: accel.tensor { 3, 9, 4 }:max() --> 9
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):max(2) --> { 5, 7 }, { 1, 0 } */
#include "ops/reduce/minmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_minmax_pair_run(f, false, e); }

AC_OP(
    max,
    .sig = "max(x: tensor, dim: dim?, keepdim: bool = false) -> (values: tensor, indices: tensor?)",
    .shape = aci_minmax_pair_shape, .cpu = cpu, .grad = aci_minmax_pair_grad,
    .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0) | AC_SAVE_OUT(1));
