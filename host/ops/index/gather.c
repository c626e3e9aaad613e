/* gather: the elements of x along dim at index.
   x (a, n, b), dim 1, index (a', m, b') with a' <= a, b' <= b -> y (a', m, b'),
   y[i, j, k] = x[i, index[i, j, k], k]. Index values count from 0.
   gradient: dx = dy added to the positions it came from (gather_backward).
   example: accel.tensor({ { 1.0, 2 }, { 3, 4 } }):gather(2, accel.tensor { { 1 }, { 0 } }) --> { { 2 }, { 3 } } */
#include "ops/index/gather_scatter.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2);
  int d;
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  AC_TRY(aci_gather_check(f, x, index, d, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, index->ndim, index->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  return aci_gather(f, f->out[0], x, aci_wrap_dim(ARG_I(f, 1), x->ndim), 2, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0,
              x_gather_backward(&g->x, g->dout[0], aci_wrap_dim(ARG_I(g, 1), ac_grad_ndim(g, 0, 0)),
                                ARG_T(g, 2), ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, f->args[3].n, f->args[3].ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  ac_tensor *dx = f->out[0];
  if (dx->numel == 0) return AC_OK;
  memset(aci_data(dx), 0, (size_t)dx->numel * aci_dsize((ac_dtype)dx->dtype));
  return aci_scatter_join_run(f, dx, ARG_T(f, 0), (int)ARG_I(f, 1), 2, ACI_SCATTER_SUM, e);
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_gather(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2)));
}

AC_OP(gather, .sig = "gather(x: tensor, dim: dim, index: tensor) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .on_complex = aci_complex_parts);
AC_OP(gather_backward,
      .sig = "gather_backward(dy: tensor, dim: int, index: tensor, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(2),
      .hidden = true, .on_complex = aci_complex_parts);
