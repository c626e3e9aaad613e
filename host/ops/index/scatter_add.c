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

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  const int64_t *ids;
  ac_block *block;
  int d = aci_wrap_dim(ARG_I(f, 1), x->ndim);
  if (f->inplace) { /* nothing may be written when an index is bad */
    AC_TRY(aci_index_values(f, 2, x->ndim > 0 ? x->shape[d] : 1, "positions", &ids, &block, e));
    ac_block_free(block);
  } else {
    aci_range dst = {.ptr = aci_data(y), .dtype = (ac_dtype)y->dtype},
              src = {.ptr = aci_data(x), .dtype = (ac_dtype)x->dtype};
    memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
    memcpy(src.stride, x->stride, (size_t)x->ndim * 8);
    aci_range_copy_cpu(f->team, x->ndim, x->shape, &dst, &src);
  }
  return aci_scatter_add(f, y, ARG_T(f, 3), d, 2, e);
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0, g->dout[0]);
  if (ac_grad_needs(g, 3))
    ac_grad_set(g, 3,
                aci_scatter_source_grad(g, x_gather(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2))));
}

AC_OP(scatter_add, .sig = "scatter_add(x: tensor, dim: dim, index: tensor, src: tensor) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
      .on_complex = aci_complex_parts);
