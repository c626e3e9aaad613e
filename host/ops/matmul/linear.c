/* linear: y = x weight^T + bias.          x (..., in), weight (out, in), bias (out)? -> y (..., out)
   gradient: dx = dy weight, dweight = dy^T x and dbias = the sum of dy, both over all rows.
   example: accel.linear(accel.tensor { 1.0, 2 }, accel.tensor { { 1.0, 1 }, { 0, 3 } }, accel.tensor { 10.0, 20 }) --> { 13, 26 } */
#include "ops/index/index.h"
#include "ops/matmul/product.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *w = ARG_T(f, 1);
  char a[128], b[128];
  int64_t s[AC_MAX_DIMS];
  if (x->ndim == 0 || w->ndim != 2)
    return AC_FAIL(
        e, SHAPE, "needs an input of at least one dim and a weight (out, in), got shapes %s and %s",
        aci_shape_str(x->ndim, x->shape, a, sizeof a),
        aci_shape_str(w->ndim, w->shape, b, sizeof b));
  AC_TRY(aci_product_dtypes(f, 0, 2, e));
  if (x->shape[x->ndim - 1] != w->shape[1])
    return aci_product_mismatch(x, w, x->shape[x->ndim - 1], w->shape[1], e);
  if (!ARG_NONE(f, 2)) {
    const ac_tensor *bias = ARG_T(f, 2);
    if (bias->ndim != 1 || bias->shape[0] != w->shape[0])
      return AC_FAIL(e, SHAPE, "a weight of shape %s needs a bias of shape (%lld), got %s",
                     aci_shape_str(w->ndim, w->shape, a, sizeof a), (long long)w->shape[0],
                     aci_shape_str(bias->ndim, bias->shape, b, sizeof b));
  }
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - 1] = w->shape[0];
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  aci_product p;
  ac_block *block = NULL;
  aci_product_rows(&p, ARG_T(f, 0), ARG_T(f, 1), false);
  p.c = aci_data(f->out[0]);
  if (!ARG_NONE(f, 2)) {
    AC_TRY(aci_contiguous_data(f, ARG_T(f, 2), &p.bias, &block, e));
    p.bias_dtype = (ac_dtype)ARG_T(f, 2)->dtype;
  }
  ac_status st = aci_product_run(f, &p, e);
  ac_block_free(block);
  return st;
}

static int64_t flops(const ac_frame *f) { return 2 * f->out[0]->numel * ARG_T(f, 1)->shape[1]; }

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *x = ARG_T(g, 0), *w = ARG_T(g, 1), *dy = g->dout[0];
  int64_t rows = 0; /* first: if dy is still to be computed, it is summed in that pass (fuse.h) */
  if (ac_grad_needs(g, 2))
    ac_grad_set(g, 2, x_sum(ex, aci_product_flat(ex, dy), &rows, 1, false, NULL));
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, aci_product_as(ex, dy, w, ac_grad_dtype(g, 0, 0)));
  dy = aci_product_flat(ex, dy);
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1,
                aci_product_as(ex, x_t(ex, dy), aci_product_flat(ex, x), ac_grad_dtype(g, 1, 0)));
}

/* x W^T + b */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  if (a[1].tensor->ndim != 2) {
    x->st = AC_FAIL(x->e, SHAPE, "needs weight (out, in), got one of %d dims", a[1].tensor->ndim);
    return 0;
  }
  out[0] = x_matmul(x, a[0].tensor, x_transpose(x, a[1].tensor, 0, 1));
  if (a[2].kind == AC_T_TENSOR) out[0] = x_add(x, T(out[0]), T(a[2].tensor), aci_float(1));
  return 1;
}

AC_OP(linear, .sig = "linear(x: tensor, weight: tensor, bias: tensor?) -> tensor", .shape = shape,
      .cpu = cpu, .any_device = true, .grad = grad, .flops = flops,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .save_for = {1 << 1, 1 << 0}, .weights = 1 << 1,
      .autocast = AC_CAST_LOWER, .on_complex = on_complex);
