/* index: the elements of x at the positions that several index tensors give together, as NumPy's x[i, j].
   x (a, b, c), indices {i, j} of shapes that broadcast to (m, n) -> y (m, n, c), y[p, q, :] = x[i[p, q], j[p, q], :]
   dims lists the dims that the tensors address (by default the first ones). These dims become (m, n), at the
   position of the first of them if they are adjacent, otherwise in front. Values count from 0, negative ones from
   the end.
   gradient: dx = dy added to its positions, in their order (index_backward).
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:index { accel.tensor { 0, 1 }, accel.tensor { 1, 0 } } --> { 2, 3 }
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:index({ accel.tensor { 1, 1, -2 } }, 2) --> { { 2, 2, 1 }, { 4, 4, 3 } } */
#include "ops/index/advanced_index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_advanced_index p;
  int64_t s[AC_MAX_DIMS];
  AC_TRY(aci_advanced_index_plan(f, 1, 2, x->ndim, x->shape, &p, e));
  int n = aci_advanced_index_shape(&p, x->shape, s);
  return ac_frame_out(f, (ac_dtype)x->dtype, n, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  aci_advanced_index p;
  const int64_t *offsets;
  ac_block *block;
  AC_TRY(aci_advanced_index_plan(f, 1, 2, x->ndim, x->shape, &p, e));
  AC_TRY(aci_advanced_index_offsets(f, &p, 1, x->shape, x->stride, &offsets, &block, e));
  if (f->out[0]->numel > 0) aci_advanced_index_gather(f, &p, f->out[0], x, offsets);
  ac_block_free(block);
  return AC_OK;
}

static void grad(ac_grad *g) {
  const ac_value *v = &g->args[1], *dims = &g->args[2];
  ac_grad_set(g, 0,
              x_index_backward(&g->x, g->dout[0], v->tensors, v->n,
                               dims->kind == AC_T_NONE ? NULL : dims->ints, dims->n,
                               ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0)));
}

/* ---- dy added to its positions in zeros ---- */
static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  const ac_value *want = &f->args[3];
  aci_advanced_index p;
  int64_t s[AC_MAX_DIMS];
  AC_TRY(ac_frame_out(f, (ac_dtype)dy->dtype, want->n, want->ints, e));
  AC_TRY(aci_advanced_index_plan(f, 1, 2, want->n, want->ints, &p, e));
  int n = aci_advanced_index_shape(&p, want->ints, s);
  if (n != dy->ndim || memcmp(s, dy->shape, (size_t)n * 8) != 0)
    return AC_FAIL(e, SHAPE, "dy does not have the shape of the positions");
  return AC_OK;
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  enum { ROW = 8 }; /* from here on sums row by row, shared among threads, are worth the sorting */
  const ac_tensor *dy = ARG_T(f, 0);
  ac_tensor *dx = f->out[0];
  aci_advanced_index p;
  const void *values;
  const int64_t *ids;
  ac_block *b1 = NULL, *b2 = NULL;
  ac_status st;
  if (dx->numel == 0) return AC_OK;
  AC_TRY(aci_advanced_index_plan(f, 1, 2, dx->ndim, dx->shape, &p, e));
  AC_GOTO(done, st, aci_contiguous_data(f, dy, &values, &b1, e));
  if (p.side_by_side && p.n_inner_elems >= ROW && p.n < INT32_MAX && p.n_dst < INT32_MAX) {
    int64_t weight[AC_MAX_DIMS], step = 1;
    for (int k = p.n_index - 1; k >= 0; k--) {
      weight[p.dim[k]] = step;
      step *= dx->shape[p.dim[k]];
    }
    AC_GOTO(done, st, aci_advanced_index_offsets(f, &p, 1, dx->shape, weight, &ids, &b2, e));
    st = aci_rows_add(f, (ac_dtype)dx->dtype, aci_data(dx), NULL, values, ids, p.n_outer_elems, p.n,
                      p.n_dst, p.n_inner_elems, 1, -1, e);
  } else {
    memset(aci_data(dx), 0, (size_t)dx->numel * aci_dsize((ac_dtype)dx->dtype));
    st = aci_advanced_index_add(f, &p, 1, dx, values, false, e);
  }
done:
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad_back(ac_grad *g) {
  const ac_value *v = &g->args[1], *dims = &g->args[2];
  ac_grad_set(g, 0,
              x_index(&g->x, g->dout[0], v->tensors, v->n,
                      dims->kind == AC_T_NONE ? NULL : dims->ints, dims->n));
}

AC_OP(index, .sig = "index(x: tensor, indices: tensors, dims: dims?) -> tensor", .shape = shape,
      .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(1), .on_complex = aci_complex_parts);
AC_OP(index_backward,
      .sig = "index_backward(dy: tensor, indices: tensors, dims: dims?, shape: shape) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(1),
      .hidden = true, .on_complex = aci_complex_parts);
