/* matmul: the matrix product, by PyTorch's rules for ranks.
   x (..., m, k), other (..., k, n), leading dims broadcast -> y (..., m, n). A 1-d x is a row, a 1-d other a
   column. That dim is not in the result. Transposed and strided views are read in place.
   gradient: dx = dy other^T, dother = x^T dy, each summed over the dims that were broadcast.
   example: accel.tensor({ { 1.0, 2 }, { 3, 4 } }):matmul(accel.tensor { 1.0, 10 }) --> { 21, 43 }
   example: accel.matmul(accel.ones(5, 2, 3), accel.ones(3, 4)).shape --> { 5, 2, 4 } */
#include "ops/matmul/product.h"

/* The product of the two arguments by PyTorch's rules. out gets the result's shape. */
static ac_status plan(const ac_frame *f, aci_product *p, int *ndim, int64_t *out, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0), *y = ARG_T(f, 1);
  char a[128], b[128];
  if (x->ndim == 0 || y->ndim == 0)
    return AC_FAIL(e, SHAPE, "shapes %s and %s: both must have at least one dim",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(y->ndim, y->shape, b, sizeof b));
  AC_TRY(aci_product_dtypes(f, 0, 1, e));
  bool row = x->ndim == 1, col = y->ndim == 1;
  int xb = row ? 0 : x->ndim - 2, yb = col ? 0 : y->ndim - 2, nb = xb > yb ? xb : yb;
  *p = (aci_product){.dtype = (ac_dtype)x->dtype, .alpha = 1};
  p->m = row ? 1 : x->shape[x->ndim - 2];
  p->k = x->shape[x->ndim - 1];
  p->n = col ? 1 : y->shape[y->ndim - 1];
  int64_t ky = col ? y->shape[0] : y->shape[y->ndim - 2];
  if (p->k != ky) return aci_product_mismatch(x, y, p->k, ky, e);
  p->a_rs = row ? 0 : x->stride[x->ndim - 2];
  p->a_cs = x->stride[x->ndim - 1];
  p->b_rs = y->stride[col ? 0 : y->ndim - 2];
  p->b_cs = col ? 0 : y->stride[y->ndim - 1];
  p->n_batch_dims = nb;
  for (int d = 0; d < nb; d++) {
    int i = d - (nb - xb), j = d - (nb - yb);
    int64_t ex = i < 0 ? 1 : x->shape[i], ey = j < 0 ? 1 : y->shape[j];
    if (ex != ey && ex != 1 && ey != 1)
      return AC_FAIL(
          e, SHAPE,
          "shapes %s and %s cannot be multiplied: leading dims of %lld and %lld do not broadcast",
          aci_shape_str(x->ndim, x->shape, a, sizeof a),
          aci_shape_str(y->ndim, y->shape, b, sizeof b), (long long)ex, (long long)ey);
    out[d] = p->batch[d] = ex == 1 ? ey : ex;
    p->a_batch[d] = ex == 1 ? 0 : x->stride[i];
    p->b_batch[d] = ey == 1 ? 0 : y->stride[j];
  }
  *ndim = nb;
  if (!row) out[(*ndim)++] = p->m;
  if (!col) out[(*ndim)++] = p->n;
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  aci_product p;
  int ndim;
  int64_t s[AC_MAX_DIMS];
  AC_TRY(plan(f, &p, &ndim, s, e));
  return ac_frame_out(f, p.dtype, ndim, s, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  aci_product p;
  int ndim;
  int64_t s[AC_MAX_DIMS];
  AC_TRY(plan(f, &p, &ndim, s, e));
  p.a = aci_data(ARG_T(f, 0));
  p.b = aci_data(ARG_T(f, 1));
  p.c = aci_data(f->out[0]);
  return aci_product_run(f, &p, e);
}

static int64_t flops(const ac_frame *f) {
  const ac_tensor *x = ARG_T(f, 0);
  return 2 * f->out[0]->numel * x->shape[x->ndim - 1];
}

static void grad(ac_grad *g) {
  ac_expr *ex = &g->x;
  ac_tensor *x = ARG_T(g, 0), *y = ARG_T(g, 1), *dy = g->dout[0];
  const int nx = ac_grad_ndim(g, 0, 0), ny = ac_grad_ndim(g, 1, 0);
  const bool row = nx == 1, col = ny == 1;
  if (col) { /* columns and rows become matrices */
    if (y != NULL) y = x_unsqueeze(ex, y, -1);
    dy = x_unsqueeze(ex, dy, -1);
  }
  if (row) {
    if (x != NULL) x = x_unsqueeze(ex, x, 0);
    dy = x_unsqueeze(ex, dy, -2);
  }
  if (ex->st != AC_OK) return;
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, x_matmul(ex, dy, x_transpose(ex, y, -2, -1))));
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *d;
  if (nx > 2 && ny <= 2) { /* other was shared by all rows: one product over all of them */
    int64_t k = x->shape[nx - 1], n = dy->shape[dy->ndim - 1], m = 1;
    for (int i = 0; i < nx - 1; i++) m *= x->shape[i];
    int64_t xs[2] = {m, k}, ds[2] = {m, n};
    d = x_matmul(ex, x_t(ex, x_reshape(ex, x, xs, 2)), x_reshape(ex, dy, ds, 2));
  } else {
    d = x_matmul(ex, x_transpose(ex, x, -2, -1), dy);
  }
  int64_t last = -1;
  ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, col && d != NULL ? x_squeeze(ex, d, &last, 1) : d));
}

/* four products of parts */
static int on_complex(ac_expr *x, const ac_op *op, const ac_value *a, ac_tensor **out) {
  (void)op;
  const ac_tensor *const t = a[0].tensor, *const o = a[1].tensor;
  if (t->dtype != o->dtype) {
    x->st = AC_FAIL(x->e, DTYPE, "expected both to have one dtype, got %s and %s; cast one of them",
                    ac_dtype_name((ac_dtype)t->dtype), ac_dtype_name((ac_dtype)o->dtype));
    return 0;
  }
  ac_tensor *p = a[0].tensor, *q = a[1].tensor;
  ac_tensor *re = x_matmul(x, aci_re(x, p), aci_re(x, q)), *im;
  if (!aci_is_complex(p)) im = x_matmul(x, p, aci_im(x, q));
  else im = x_matmul(x, aci_im(x, p), aci_re(x, q));
  if (aci_is_complex(p) && aci_is_complex(q)) {
    im = x_add(x, T(im), T(x_matmul(x, aci_re(x, p), aci_im(x, q))), aci_float(1));
    re = x_sub(x, T(re), T(x_matmul(x, aci_im(x, p), aci_im(x, q))), aci_float(1));
  }
  out[0] = aci_join(x, re, im);
  return 1;
}

AC_OP(matmul, .sig = "matmul(x: tensor, other: tensor) -> tensor", .shape = shape, .cpu = cpu,
      .any_device = true, .grad = grad, .flops = flops, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1),
      .save_for = {1 << 1, 1 << 0}, .autocast = AC_CAST_LOWER, .on_complex = on_complex);
