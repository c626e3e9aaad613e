/* index_copy: x with the slices of source along dim written over the slices that index names.
   x (a, n, b), dim 2, index (m), source (a, m, b) -> y = x, then y[:, index[j], :] = source[:, j, :]
   Index values count from 0. If two are equal, the last one counts.
   gradient: dx = dy with zeros at the positions written, dsource = dy at its positions, zeros if overwritten.
   example: accel.zeros(3):index_copy(1, accel.tensor { 2, 0 }, accel.tensor { 5.0, 6.0 }) --> { 6, 0, 5 } */
#include "ops/index/index_last.h"
#include "ops/index/advanced_index.h"

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  aci_advanced_index p;
  const int64_t *offsets;
  const void *values;
  ac_block *b1 = NULL, *b2 = NULL;
  ac_status st;
  AC_TRY(aci_advanced_index_plan(f, 2, 1, x->ndim, x->shape, &p, e));
  AC_GOTO(done, st, aci_advanced_index_offsets(f, &p, 2, x->shape, y->stride, &offsets, &b1, e));
  AC_GOTO(done, st, aci_contiguous_data(f, ARG_T(f, 3), &values, &b2, e));
  if (!f->inplace) aci_copy_into(f->team, y, x);
  aci_advanced_index_put(f, &p, y, values, false, offsets);
done:
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0], *index = ARG_T(g, 2);
  const int d = aci_wrap_dim(ARG_I(g, 1), dy->ndim);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_index_fill(&g->x, dy, d, index, F(0)));
  if (!ac_grad_needs(g, 3)) return;
  ac_tensor *picked = x_index_select(&g->x, dy, d, index),
            *row = x_reshape(&g->x, index, (const int64_t[]){-1}, 1);
  if (dy->ndim == 0) ac_grad_set(g, 3, picked);
  else ac_grad_set(g, 3, aci_where_last(&g->x, picked, &row, 1, &dy->shape[d], dy->ndim - 1 - d));
}

AC_OP(index_copy, .sig = "index_copy(x: tensor, dim: dim, index: tensor, source: tensor) -> tensor",
      .shape = aci_rows_source_shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2),
      .inplace = true, .on_complex = aci_complex_parts);
