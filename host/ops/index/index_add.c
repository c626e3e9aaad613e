/* index_add: x with alpha times the slices of source along dim added to the slices of x that index names.
   x (a, n, b), dim 1, index (m), source (a, m, b) -> y = x, then y[:, index[j], :] += alpha * source[:, j, :]
   in the order of j.
   gradient: dx = dy, dsource = alpha * dy selected by index.
   example: accel.zeros(3):index_add(1, accel.tensor { 0, 2, 0 }, accel.tensor { 1.0, 2, 3 }) --> { 4, 0, 2 } */
#include "ops/core/ctx_impl.h"
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_rows_source_shape(f, e));
  return aci_factor_check(f, 4, (ac_dtype)ARG_T(f, 0)->dtype, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *y = f->out[0];
  const int d = aci_wrap_dim(ARG_I(f, 1), x->ndim);
  const int64_t *ids;
  const void *base, *src;
  ac_block *b1 = NULL, *b2 = NULL, *b3 = NULL;
  int64_t outer = 1, row = 1;
  const int64_t n = x->ndim > 0 ? x->shape[d] : 1;
  ac_status st;
  for (int i = 0; i < x->ndim; i++) {
    if (i < d) outer *= x->shape[i];
    if (i > d) row *= x->shape[i];
  }
  AC_GOTO(done, st, aci_index_values(f, 2, n, "positions", &ids, &b1, e));
  AC_GOTO(done, st, aci_contiguous_data(f, x, &base, &b2, e));
  AC_GOTO(done, st, aci_contiguous_data(f, ARG_T(f, 3), &src, &b3, e));
  st = aci_rows_add(f, (ac_dtype)y->dtype, aci_data(y), base, src, ids, outer, ARG_T(f, 2)->numel,
                    n, row, aci_scalar_f(f->args[4].scalar), -1, e);
done:
  ac_block_free(b3);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static void grad(ac_grad *g) {
  double alpha = aci_scalar_f(g->args[4].scalar);
  ac_grad_set(g, 0, g->dout[0]);
  if (!ac_grad_needs(g, 3)) return;
  ac_tensor *d = x_index_select(&g->x, g->dout[0], ARG_I(g, 1), ARG_T(g, 2));
  ac_grad_set(g, 3, alpha == 1 ? d : x_mul(&g->x, T(d), F(alpha)));
}

AC_OP(
    index_add,
    .sig =
        "index_add(x: tensor, dim: dim, index: tensor, source: tensor, alpha: scalar = 1) -> tensor",
    .shape = shape, .cpu = cpu, .grad = grad, .save = AC_SAVE_IN(2), .inplace = true,
    .copy_back = true, .on_complex = aci_complex_parts);
