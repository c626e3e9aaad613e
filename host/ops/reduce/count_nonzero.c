/* count_nonzero: y = how many elements of x are not 0 (NaN is not), over dim (all dims when none are given).
   x (any dtype, any shape) -> y (i64, without those dims)
   No gradient.
   example: accel.tensor { { 0.0, 1.0 }, { 2.0, 3.0 } }:count_nonzero(2) --> { 1, 2 } */
#include "ops/reduce/count.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t shape[AC_MAX_DIMS];
  uint32_t mask;
  AC_TRY(aci_reduction_check(f, e));
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &mask, e));
  int n = aci_reduce_shape(x, aci_reduce_mask(&f->args[1], x->ndim), false, shape);
  return ac_frame_out(f, AC_I64, n, shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_count_run(f, NULL, e); }

/* of the elements that are not 0 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  out[0] = aci_complex_again(x, op, a, x_ne(x, T(a[0].tensor), F(0)));
  return 1;
}

AC_OP(count_nonzero, .sig = "count_nonzero(x: tensor, dim: dims?) -> tensor", .shape = shape,
      .cpu = cpu, .nondiff = true, .on_complex = on_complex);
