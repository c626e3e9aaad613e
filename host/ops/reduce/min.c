/* min: the smallest element of x, or with dim the smallest along it and its index (0-based, the first of equal ones). NaN
   is smaller than any number.
   x (any shape) -> values () | values, indices (without dim, or 1 with keepdim)
   gradient: with dim, dx = dvalues at indices, 0 elsewhere. Without dim, dvalues shared equally by the elements
   that are the smallest.
   example: accel.tensor { 3, 9, 4 }:min() --> 3
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):min(2) --> { 1, 2 }, { 0, 1 } */
#include "ops/reduce/minmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_minmax_pair_run(f, true, e); }

AC_OP(
    min,
    .sig = "min(x: tensor, dim: dim?, keepdim: bool = false) -> (values: tensor, indices: tensor?)",
    .shape = aci_minmax_pair_shape, .cpu = cpu, .grad = aci_minmax_pair_grad,
    .save = AC_SAVE_IN(0) | AC_SAVE_OUT(0) | AC_SAVE_OUT(1));
