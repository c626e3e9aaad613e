/* mixed_product: y = x other, with other rounded to x's dtype as it is read, and sums in f32 for wide results. The
   gradients of linear, addmm and mlp use it if autocast left their weights in f32.
   x (..., m, k), other (k, n) of x's dtype, or f32 if that is bf16 -> y (..., m, n) of x's dtype, with wide = true
   f32 if that has 16 bits.
   gradient: with dy in x's dtype, dx = dy other^T and dother = x^T dy, which is f32 if other is. */
#include "ops/matmul/product.h"

enum { X, OTHER, WIDE };

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, X), *w = ARG_T(f, OTHER);
  char a[128], b[128];
  int64_t s[AC_MAX_DIMS];
  if (x->ndim < 2 || w->ndim != 2)
    return AC_FAIL(e, SHAPE, "needs matrices, got shapes %s and %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(w->ndim, w->shape, b, sizeof b));
  AC_TRY(aci_product_dtypes(f, X, OTHER, e));
  if (x->shape[x->ndim - 1] != w->shape[0])
    return aci_product_mismatch(x, w, x->shape[x->ndim - 1], w->shape[0], e);
  const bool wide = ARG_B(f, WIDE) && (x->dtype == AC_BF16 || x->dtype == AC_F16);
  memcpy(s, x->shape, (size_t)x->ndim * 8);
  s[x->ndim - 1] = w->shape[1];
  return ac_frame_out(f, wide ? AC_F32 : (ac_dtype)x->dtype, x->ndim, s, e);
}

static ac_status run(ac_frame *f, ac_err *e) {
  aci_product p;
  aci_product_rows(&p, ARG_T(f, X), ARG_T(f, OTHER), true);
  p.c = aci_data(f->out[0]);
  p.wide = f->out[0]->dtype != ARG_T(f, X)->dtype;
  return aci_product_run(f, &p, e);
}

static int64_t flops(const ac_frame *f) { return 2 * f->out[0]->numel * ARG_T(f, OTHER)->shape[0]; }

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  const ac_dtype dt = ac_grad_dtype(g, X, 0);
  ac_tensor *dy = g->dout[0];
  if ((ac_dtype)dy->dtype != dt) dy = x_cast(x, dy, dt);
  if (ac_grad_needs(g, X)) ac_grad_set(g, X, aci_product_as(x, dy, x_t(x, ARG_T(g, OTHER)), dt));
  if (ac_grad_needs(g, OTHER))
    ac_grad_set(g, OTHER,
                aci_product_as(x, x_t(x, aci_product_flat(x, ARG_T(g, X))), aci_product_flat(x, dy),
                               ac_grad_dtype(g, OTHER, 0)));
}

AC_OP(mixed_product, .sig = "mixed_product(x: tensor, other: tensor, wide: bool) -> tensor",
      .shape = shape, .cpu = run, .any_device = true, .grad = grad, .flops = flops,
      .save = AC_SAVE_IN(X) | AC_SAVE_IN(OTHER), .save_for = {1 << OTHER, 1 << X},
      .weights = 1 << OTHER, .hidden = true);
