/* sort: the elements of x along dim in ascending (or descending) order, and the index each had. Equal elements
   keep their order whether or not stable is set. NaN counts as larger than every number.
   x (any shape) -> values (same shape, dtype), indices (same shape, i64, from 0)
   gradient: dx = dvalues at indices.
   example: accel.tensor { 3, 1, 2 }:sort() --> { 1, 2, 3 }, { 1, 2, 0 }
   example: accel.tensor { { 3, 1 }, { 2, 4 } }:sort(1, true) --> { { 3, 4 }, { 2, 1 } }, { { 0, 1 }, { 1, 0 } } */
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int d;
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_order_check(x, e));
  AC_TRY(ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e));
  return ac_frame_out(f, AC_I64, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_sort_lines(f, x, aci_wrap_dim(ARG_I(f, 1), x->ndim), ARG_B(f, 2), f->out[0], f->out[1],
                        e);
}

static void grad(ac_grad *g) { aci_sort_keys_grad(g, 1); }

AC_OP(sort,
      .sig = "sort(x: tensor, dim: dim = -1, descending: bool = false, stable: bool = false) -> "
             "(values: tensor, indices: tensor)",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_OUT(1));
