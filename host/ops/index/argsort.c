/* argsort: the indices, from 0, that sort x along dim. Equal elements
   keep their order whether or not stable is set. NaN counts as larger than every number.
   x (any shape) -> y (same shape, i64).          No gradient.
   example: accel.tensor { 3, 1, 2 }:argsort() --> { 1, 2, 0 }
   example: accel.tensor { 0.5, 2.5, 0.5 }:argsort { descending = true } --> { 1, 0, 2 } */
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_order_check(x, e));
  return ac_frame_out(f, AC_I64, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_sort_lines(f, x, aci_wrap_dim(ARG_I(f, 1), x->ndim), ARG_B(f, 2), NULL, f->out[0], e);
}

AC_OP(
    argsort,
    .sig =
        "argsort(x: tensor, dim: dim = -1, descending: bool = false, stable: bool = false) -> tensor",
    .shape = shape, .cpu = cpu, .nondiff = true);
