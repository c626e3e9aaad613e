/* argmax: the index (0-based) of the largest element of x, the first of equal ones: along dim, or in x flattened (row-major)
   when dim is not given. NaN counts as the largest.
   x (any shape) -> y (i64, without dim, or 1 with keepdim).          No gradient.
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):argmax() --> 2
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):argmax(2) --> { 1, 0 } */
#include "ops/reduce/minmax.h"

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_minmax_index_run(f, false, e); }

AC_OP(argmax, .sig = "argmax(x: tensor, dim: dim?, keepdim: bool = false) -> tensor",
      .shape = aci_minmax_index_shape, .cpu = cpu, .nondiff = true);
