/* mean: y = mean of x over dim (all dims when none are given). NaN over nothing.
   x (any shape, floating point or with a floating dtype given) -> y (without those dims, or 1 with keepdim)
   gradient: dx = dy / n repeated along the reduced dims, n the number of elements under one output.
   example: accel.tensor({ { 1.0, 5 }, { 7, 2 } }):mean() --> 3.75
   example: accel.tensor({ { 1.0, 5 }, { 7, 2 } }):mean(2, true) --> { { 3 }, { 4.5 } } */
#include "ops/core/fuse.h"
#include "ops/reduce/reduce.h"

static int64_t count(const int64_t *shape, uint32_t mask, int ndim) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++)
    if (mask >> d & 1) n *= shape[d];
  return n;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  ac_dtype dt = ARG_NONE(f, 3) ? (ac_dtype)ARG_T(f, 0)->dtype : f->args[3].dtype;
  if (!ac_dtype_is_float(dt))
    return AC_FAIL(e, DTYPE, "a mean must be floating point, not %s; pass dtype or cast the tensor",
                   ac_dtype_name(dt));
  return aci_reduce_out(f, 1, 2, dt, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  uint32_t mask = aci_reduce_mask(&f->args[1], x->ndim);
  return aci_reduce_sum(f, x, mask, (double)count(x->shape, mask, x->ndim), f->out[0], e);
}

static void grad(ac_grad *g) {
  int n = ac_grad_ndim(g, 0, 0);
  double under = (double)count(ac_grad_shape(g, 0, 0), aci_reduce_mask(&g->args[1], n), n);
  ac_grad_set(g, 0, aci_reduce_spread(g, &g->args[1], x_div(&g->x, T(g->dout[0]), F(under))));
}

AC_OP(mean, .sig = "mean(x: tensor, dim: dims?, keepdim: bool = false, dtype: dtype?) -> tensor",
      .shape = shape, .cpu = cpu, .data = &aci_fuse_reduces, .grad = grad,
      .on_complex = aci_complex_parts);
