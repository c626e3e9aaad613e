/* scatter: x with the elements of src (or one number) written to the positions that index names along dim.
   x (a, n, b), dim 2, index (a', m, b') with a' <= a, b' <= b, src at least as large as index -> y = x, then
   y[i, index[i, j, k], k] = src[i, j, k]. Index values count from 0. If two indices are equal, the last one along
   dim counts.
   gradient: dx = dy with zeros at the positions written, dsrc = dy at its positions, zeros if overwritten.
   example: accel.zeros(2, 3):scatter(2, accel.tensor { { 2 }, { 0 } }, 5) --> { { 0, 0, 5 }, { 5, 0, 0 } }
   example: accel.zeros(3):scatter(1, accel.tensor { 1, 1 }, accel.tensor { 4.0, 6.0 }) --> { 0, 6, 0 } */
#include "ops/index/gather_scatter.h"
#include "ops/map/fill.h"
#include "ops/map/map.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_scatter_check(f, e));
  if (f->args[3].kind == AC_T_SCALAR)
    AC_TRY(aci_fill_check(f->args[3].scalar, (ac_dtype)x->dtype, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_tensor *y = f->out[0];
  int64_t number[1];
  const bool one = f->args[3].kind == AC_T_SCALAR;
  if (one) aci_scalar_bytes(f->args[3].scalar, (ac_dtype)x->dtype, number);
  if (!f->inplace) aci_copy_into(f->team, y, x);
  return aci_scatter(f, y, one ? NULL : ARG_T(f, 3), number, aci_wrap_dim(ARG_I(f, 1), x->ndim), 2,
                     e);
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *dy = g->dout[0], *index = ARG_T(g, 2);
  const int dim = aci_wrap_dim(ARG_I(g, 1), dy->ndim);
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_scatter(ex, dy, dim, index, ac_operand_int(0)));
  if (g->args[3].kind != AC_T_TENSOR || !ac_grad_needs(g, 3)) return;
  ac_tensor *last = x_scatter_last(ex, index, dim, dy->ndim > 0 ? dy->shape[dim] : 1);
  ac_tensor *d = x_where(ex, last, T(x_gather(ex, dy, dim, index)), F(0));
  ac_grad_set(g, 3, aci_scatter_source_grad(g, d));
}

/* scatter_last: true if no later element of index along dim has the same value. n: extent that
 * index addresses. */
static ac_status shape_last(ac_frame *f, ac_err *e) {
  const ac_tensor *index = ARG_T(f, 0);
  AC_TRY(aci_index_dtype(f, 0, e));
  if (ARG_I(f, 1) < 0 || ARG_I(f, 1) >= (index->ndim > 0 ? index->ndim : 1) || ARG_I(f, 2) < 0)
    return AC_FAIL(e, INVALID, "there is no such dim");
  return ac_frame_out(f, AC_BOOL, index->ndim, index->shape, e);
}

static ac_status cpu_last(ac_frame *f, ac_err *e) {
  const ac_tensor *index = ARG_T(f, 0);
  const int64_t *ids, n = index->ndim > 0 ? index->shape[ARG_I(f, 1)] : 1, bound = ARG_I(f, 2);
  int64_t inner = 1;
  uint8_t *y = aci_data(f->out[0]);
  ac_block *b1, *b2;
  if (index->numel == 0) return AC_OK;
  for (int d = (int)ARG_I(f, 1) + 1; d < index->ndim; d++) inner *= index->shape[d];
  AC_TRY(aci_index_values(f, 0, bound, "positions", &ids, &b1, e));
  ac_status st = ac_block_alloc(f->device, (size_t)bound * 8, AC_MEM_ACTIVATION, f->stream, &b2, e);
  if (st == AC_OK) {
    int64_t *seen = ac_block_ptr(b2); /* number of the line that named the position last */
    memset(seen, 0, (size_t)bound * 8);
    for (int64_t line = 0; line < index->numel / n; line++) {
      const int64_t at = line / inner * n * inner + line % inner;
      for (int64_t i = n - 1; i >= 0; i--) {
        int64_t *s = &seen[ids[at + i * inner]];
        y[at + i * inner] = *s != line + 1;
        *s = line + 1;
      }
    }
    ac_block_free(b2);
  }
  ac_block_free(b1);
  return st;
}

AC_OP(scatter, .sig = "scatter(x: tensor, dim: dim, index: tensor, src: operand) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
      .on_complex = aci_complex_parts);
AC_OP(scatter_last, .sig = "scatter_last(index: tensor, dim: int, n: int) -> tensor",
      .shape = shape_last, .cpu = cpu_last, .nondiff = true, .hidden = true);
