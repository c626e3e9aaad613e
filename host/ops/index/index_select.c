/* index_select: the slices of x along dim that index names (from 0), in its order.
   x (a, n, b), dim 1, index (m) -> y (a, m, b).
   gradient: dx = dy added to the slices it came from (index_select_backward).
   example: accel.tensor({ { 1.0, 2 }, { 3, 4 } }):index_select(2, accel.tensor { 1, 1, 0 }) --> { { 2, 2, 1 }, { 4, 4, 3 } } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *index = ARG_T(f, 2);
  int d;
  char a[128];
  int64_t s[AC_MAX_DIMS];
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  AC_TRY(aci_index_dtype(f, 2, e));
  if (index->ndim > 1)
    return AC_FAIL(e, SHAPE, "index must have one dim, got shape %s",
                   aci_shape_str(index->ndim, index->shape, a, sizeof a));
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  if (x->ndim > 0) s[d] = index->numel;
  else if (index->numel != 1)
    return AC_FAIL(e, SHAPE, "a tensor of rank 0 has one position, index has %lld",
                   (long long)index->numel);
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

/* x seen as (outer, n, row). */
static void split_dims(int ndim, const int64_t *shape, int dim, int64_t *outer, int64_t *n,
                       int64_t *row) {
  *outer = *row = *n = 1;
  for (int d = 0; d < ndim; d++) {
    if (d < dim) *outer *= shape[d];
    else if (d == dim) *n = shape[d];
    else *row *= shape[d];
  }
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t *ids;
  const void *data;
  ac_block *b1, *b2;
  int64_t outer, n, row;
  split_dims(x->ndim, x->shape, aci_wrap_dim(ARG_I(f, 1), x->ndim), &outer, &n, &row);
  AC_TRY(aci_index_values(f, 2, n, "positions", &ids, &b1, e));
  ac_status st = aci_contiguous_data(f, x, &data, &b2, e);
  if (st == AC_OK)
    aci_rows_take(f->team, aci_data(f->out[0]), data, ids, outer, ARG_T(f, 2)->numel, n,
                  row * (int64_t)aci_dsize((ac_dtype)x->dtype));
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  ac_grad_set(g, 0,
              x_index_select_backward(&g->x, g->dout[0],
                                      aci_wrap_dim(ARG_I(g, 1), ac_grad_ndim(g, 0, 0)), ARG_T(g, 2),
                                      ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  return ac_frame_out(f, (ac_dtype)ARG_T(f, 0)->dtype, f->args[3].n, f->args[3].ints, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *dx = f->out[0];
  const int64_t *ids;
  const void *data;
  ac_block *b1, *b2;
  int64_t outer, n, row;
  split_dims(dx->ndim, dx->shape, (int)ARG_I(f, 1), &outer, &n, &row);
  AC_TRY(aci_index_values(f, 2, n, "positions", &ids, &b1, e));
  ac_status st = aci_contiguous_data(f, dy, &data, &b2, e);
  if (st == AC_OK)
    st = aci_rows_add(f, (ac_dtype)dx->dtype, aci_data(dx), NULL, data, ids, outer,
                      ARG_T(f, 2)->numel, n, row, 1, -1, e);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad_back(ac_grad *g) {
  ac_grad_set(g, 0, x_index_select(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2)));
}

AC_OP(index_select, .sig = "index_select(x: tensor, dim: dim, index: tensor) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2),
      .on_complex = aci_complex_parts);
AC_OP(index_select_backward,
      .sig = "index_select_backward(dy: tensor, dim: int, index: tensor, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(2),
      .hidden = true, .on_complex = aci_complex_parts);
