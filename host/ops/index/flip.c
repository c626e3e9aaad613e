/* flip: the elements of x in reverse order along dims.
   x (any shape), dims -> y (same shape), y[i] = x[n + 1 - i] along each of them. A copy, not a view.
   gradient: dx = dy flipped back.
   example: accel.tensor { 1, 2, 3 }:flip(1) --> { 3, 2, 1 }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:flip { 1, 2 } --> { { 4, 3 }, { 2, 1 } } */
#include "ops/index/remap.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  uint32_t mask;
  AC_TRY(ac_frame_dims(f, 1, ARG_T(f, 0)->ndim, &mask, e));
  return aci_shape_like0(f, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_remap m;
  uint32_t mask;
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &mask, e));
  aci_remap_init(&m, x->ndim, x->shape, x->stride, 0);
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    aci_remap_begin(&m.dim[d], x->shape[d]);
    aci_remap_add(&m.dim[d], 0, x->shape[d] - 1, -1, x->shape[d]);
  }
  return aci_remap_run(f, f->out[0], aci_data(x), &m, NULL, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, x_flip(&g->x, g->dout[0], g->args[1].ints, g->args[1].n));
}

AC_OP(flip, .sig = "flip(x: tensor, dims: dims) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .grad = grad, .on_complex = aci_complex_parts);
