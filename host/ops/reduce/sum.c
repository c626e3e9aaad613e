/* sum: y = sum of x over dim (all dims when none are given).
   x (any shape) -> y (without those dims, or 1 with keepdim)
   Integers and bool give i64 unless dtype is given. The cast to dtype comes before the sum.
   gradient: dx = dy repeated along the reduced dims (a view).
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):sum() --> 15
   example: accel.tensor({ { 1, 5 }, { 7, 2 } }):sum(1) --> { 8, 7 } */
#include "ops/core/fuse.h"
#include "ops/reduce/reduce.h"

static ac_dtype result_dtype(const ac_frame *f) {
  ac_dtype dt = (ac_dtype)ARG_T(f, 0)->dtype;
  if (!ARG_NONE(f, 3)) return f->args[3].dtype;
  return ac_dtype_is_float(dt) ? dt : AC_I64;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  return aci_reduce_out(f, 1, 2, result_dtype(f), e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_reduce_sum(f, x, aci_reduce_mask(&f->args[1], x->ndim), 1, f->out[0], e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, aci_reduce_spread(g, &g->args[1], g->dout[0])); }

AC_OP(sum, .sig = "sum(x: tensor, dim: dims?, keepdim: bool = false, dtype: dtype?) -> tensor",
      .shape = shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .on_complex = aci_complex_parts);
