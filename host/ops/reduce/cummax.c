/* cummax: along dim, the largest element up to and including each position, and its index (of equal ones
   the last, from 0). From the first NaN on it is NaN.
   x (any shape) -> values (same shape, dtype), indices (same shape, i64)
   gradient: dx = dvalues added to their source positions.
   example: accel.tensor { 1.0, 3, 2, 3 }:cummax(1) --> { 1, 3, 3, 3 }, { 0, 1, 1, 3 }
   example: accel.tensor { { 1, 5 }, { 2, 4 } }:cummax(1) --> { { 1, 5 }, { 2, 5 } }, { { 0, 0 }, { 1, 0 } } */
#include "ops/reduce/cumminmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_cumminmax_run(f, false, e); }

AC_OP(cummax, .sig = "cummax(x: tensor, dim: dim) -> (values: tensor, indices: tensor)",
      .shape = aci_cumminmax_shape, .cpu = cpu, .grad = aci_cumminmax_grad, .save = AC_SAVE_OUT(1),
      .flops_per_element = 1);
