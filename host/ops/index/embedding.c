/* embedding: rows of weight by their numbers.
   ids (any shape, i64 or i32), weight (v, d) -> y (ids' shape, d)
   gradient: dweight = every dy added to its row, dense and in the order of ids (embedding_backward). Row
   padding_idx gets none.
   Ids count from 0. padding_idx may count from the end.
   example: accel.embedding(accel.tensor { 2, 0 }, accel.tensor { { 1.0, 2 }, { 3, 4 }, { 5, 6 } }) --> { { 5, 6 }, { 1, 2 } } */
#include "ops/index/index.h"

static ac_status padding(const ac_frame *f, int arg, int64_t rows, int64_t *pad, ac_err *e) {
  *pad = -1;
  if (ARG_NONE(f, arg)) return AC_OK;
  *pad = ARG_I(f, arg) < 0 ? ARG_I(f, arg) + rows : ARG_I(f, arg);
  if (*pad < 0 || *pad >= rows)
    return AC_FAIL(e, INDEX, "padding_idx %lld is out of range for %lld rows",
                   (long long)ARG_I(f, arg), (long long)rows);
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *ids = ARG_T(f, 0), *w = ARG_T(f, 1);
  int64_t s[AC_MAX_DIMS], pad;
  char a[128];
  AC_TRY(aci_index_dtype(f, 0, e));
  if (w->ndim != 2)
    return AC_FAIL(e, SHAPE, "weight must have 2 dims, got %s",
                   aci_shape_str(w->ndim, w->shape, a, sizeof a));
  if (ids->ndim == AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  AC_TRY(padding(f, 2, w->shape[0], &pad, e));
  memcpy(s, ids->shape, (size_t)ids->ndim * 8);
  s[ids->ndim] = w->shape[1];
  return ac_frame_out(f, (ac_dtype)w->dtype, ids->ndim + 1, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *ids = ARG_T(f, 0), *w = ARG_T(f, 1);
  const int64_t *values;
  const void *rows;
  ac_block *b1, *b2;
  AC_TRY(aci_index_values(f, 0, w->shape[0], "rows in weight", &values, &b1, e));
  ac_status st = aci_contiguous_data(f, w, &rows, &b2, e);
  if (st == AC_OK)
    aci_rows_take(f->team, aci_data(f->out[0]), rows, values, 1, ids->numel, w->shape[0],
                  w->shape[1] * (int64_t)aci_dsize((ac_dtype)w->dtype));
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  const int64_t *pad = ARG_NONE(g, 2) ? NULL : &g->args[2].i;
  ac_grad_set(g, 1,
              x_embedding_backward(&g->x, g->dout[0], ARG_T(g, 0), ac_grad_shape(g, 1, 0)[0], pad));
}

static ac_status shape_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0);
  int64_t s[2] = {ARG_I(f, 2), dy->shape[dy->ndim - 1]};
  return ac_frame_out(f, (ac_dtype)dy->dtype, 2, s, e);
}

static ac_status cpu_back(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = ARG_T(f, 0), *ids = ARG_T(f, 1), *dw = f->out[0];
  const int64_t *values;
  const void *rows;
  int64_t pad;
  ac_block *b1, *b2;
  AC_TRY(padding(f, 3, dw->shape[0], &pad, e));
  AC_TRY(aci_index_values(f, 1, dw->shape[0], "rows in weight", &values, &b1, e));
  ac_status st = aci_contiguous_data(f, dy, &rows, &b2, e);
  if (st == AC_OK)
    st = aci_rows_add(f, (ac_dtype)dw->dtype, aci_data(dw), NULL, rows, values, 1, ids->numel,
                      dw->shape[0], dw->shape[1], 1, pad, e);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

/* Linear in dy: its gradient looks the rows up again, padding rows as zeros. */
static void grad_back(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *ids = ARG_T(g, 1), *d = x_embedding(ex, ids, g->dout[0], NULL);
  if (!ARG_NONE(g, 3) && d != NULL) {
    int64_t rows = ARG_I(g, 2), pad = ARG_I(g, 3) < 0 ? ARG_I(g, 3) + rows : ARG_I(g, 3);
    ac_tensor *is_pad = x_unsqueeze(ex, x_eq(ex, T(ids), ac_operand_int(pad)), -1);
    d = x_masked_fill(ex, d, is_pad, F(0));
  }
  ac_grad_set(g, 0, d);
}

AC_OP(embedding, .sig = "embedding(ids: tensor, weight: tensor, padding_idx: int?) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(0),
      .on_complex = aci_complex_parts);
AC_OP(embedding_backward,
      .sig = "embedding_backward(dy: tensor, ids: tensor, rows: int, padding_idx: int?) -> tensor",
      .shape = shape_back, .cpu = cpu_back, .grad = grad_back, .save = AC_SAVE_IN(1),
      .hidden = true, .on_complex = aci_complex_parts);
