/* cumsum: y = along dim, the sum of x up to and including each element.
   x (any shape) -> y (same shape, integers and bool give i64). With dtype, x is read as that dtype.
   gradient: dx = along dim, the sum of dy from each element on.
   example: accel.tensor { { 1.0, 2.0, 3.0 }, { 4.0, 5.0, 6.0 } }:cumsum(2) --> { { 1, 3, 6 }, { 4, 9, 15 } }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:cumsum(1) --> { { 1, 2 }, { 4, 6 } } */
#include "ops/reduce/scan.h"

static int dim_of(int64_t d, int ndim) { return (int)(d < 0 && ndim > 0 ? d + ndim : d); }

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_scan_run(f, x, dim_of(ARG_I(f, 1), x->ndim), false, false, f->out[0], e);
}
static ac_status cpu_backward(ac_frame *f, ac_err *e) {
  return aci_scan_run(f, ARG_T(f, 0), (int)ARG_I(f, 1), false, true, f->out[0], e);
}

static void grad(ac_grad *g) {
  ac_tensor *dx = x_cumsum_backward(&g->x, g->dout[0], dim_of(ARG_I(g, 1), ac_grad_ndim(g, 0, 0)));
  ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, dx));
}
static void grad_backward(ac_grad *g) {
  ac_grad_set(g, 0, x_cumsum(&g->x, g->dout[0], ARG_I(g, 1), NULL));
}

AC_OP(cumsum, .sig = "cumsum(x: tensor, dim: dim, dtype: dtype?) -> tensor",
      .shape = aci_scan_shape, .cpu = cpu, .grad = grad, .flops_per_element = 1, .inplace = true,
      .copy_back = true, .on_complex = aci_complex_parts);
AC_OP(cumsum_backward, .sig = "cumsum_backward(dy: tensor, dim: int) -> tensor",
      .shape = aci_shape_like0, .cpu = cpu_backward, .grad = grad_backward, .hidden = true,
      .flops_per_element = 1, .on_complex = aci_complex_parts);
