/* any: y = true if an element of x under the output is not 0 (NaN is not), over dim (all dims when none are given).
   false over nothing.          x (any dtype, any shape) -> y (bool, without those dims, or 1 with keepdim)
   No gradient.
   example: accel.tensor { { 0.0, 1.0 }, { 0.0, 0.0 } }:any(2) --> { true, false } */
#include "ops/reduce/count.h"

static void finish(aci_word *y, const aci_word *s, int64_t n, int64_t count, double p) {
  (void)count, (void)p;
  for (int64_t i = 0; i < n; i++) y[i].u = s[i].u != 0;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_reduction_check(f, e));
  return aci_reduce_out(f, 1, 2, AC_BOOL, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) { return aci_count_run(f, finish, e); }

/* of the elements that are not 0 */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  out[0] = aci_complex_again(x, op, a, x_ne(x, T(a[0].tensor), F(0)));
  return 1;
}

AC_OP(any, .sig = "any(x: tensor, dim: dims?, keepdim: bool = false) -> tensor", .shape = shape,
      .cpu = cpu, .nondiff = true, .on_complex = on_complex);
