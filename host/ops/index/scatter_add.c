/* scatter_add: x with the elements of src added at the positions index names along dim.
   x (a, n, b), dim 1, index (a', m, b'), src at least as large as index -> y = x, then
   y[i, index[i, j, k], k] += src[i, j, k]. Additions are made in the order of index, whatever the threads.
   gradient: dx = dy, dsrc = dy picked by index.
   example: accel.zeros(3):scatter_add(1, accel.tensor { 0, 2, 0 }, accel.tensor { 1.0, 2, 3 }) --> { 4, 0, 2 } */
#include "ops/index/gather_scatter.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_scatter_check(f, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) { return aci_scatter_join_cpu(f, ACI_SCATTER_SUM, e); }

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, g->dout[0]);
  if (ac_grad_needs(g, 3))
    ac_grad_set(g, 3,
                aci_scatter_source_grad(g, x_gather(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2))));
}

AC_OP(scatter_add, .sig = "scatter_add(x: tensor, dim: dim, index: tensor, src: tensor) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
      .on_complex = aci_complex_parts);
