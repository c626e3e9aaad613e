/* index_fill: x with a number written to the slices along dim that index names.
   x (a, n, b), dim 2, index (m) -> y = x, then y[:, index[j], :] = value.          Index values count from 0.
   gradient: dx = dy with zeros in those slices.
   example: accel.tensor { 1, 2, 3 }:index_fill(1, accel.tensor { 0, 2 }, 9) --> { 9, 2, 9 } */
#include "ops/index/advanced_index.h"
#include "ops/map/fill.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2);
  int d;
  char a[128];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  if (index->ndim > 1 || x->ndim == 0)
    return AC_FAIL(
        e, SHAPE, "takes an index of one dim and a tensor of at least one, got %s and %s",
        aci_shape_str(index->ndim, index->shape, a, sizeof a), x->ndim == 0 ? "rank 0" : "more");
  AC_TRY(aci_fill_check(f->args[3].scalar, (ac_dtype)x->dtype, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  aci_advanced_index p;
  const int64_t *offsets;
  int64_t number[1];
  ac_block *block;
  AC_TRY(aci_advanced_index_plan(f, 2, 1, x->ndim, x->shape, &p, e));
  AC_TRY(aci_advanced_index_offsets(f, &p, 2, x->shape, y->stride, &offsets, &block, e));
  if (!f->inplace) aci_copy_into(f->team, y, x);
  aci_scalar_bytes(f->args[3].scalar, (ac_dtype)x->dtype, number);
  aci_advanced_index_put(f, &p, y, number, true, offsets);
  ac_block_free(block);
  return AC_OK;
}

static void grad(ac_grad *g) {
  const ac_scalar zero = {.kind = AC_SCALAR_INT, .i = 0};
  ac_grad_set(g, 0, x_index_fill(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2), zero));
}

AC_OP(index_fill, .sig = "index_fill(x: tensor, dim: dim, index: tensor, value: scalar) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
      .on_complex = aci_complex_parts);
