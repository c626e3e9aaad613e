/* prelu: y = x if x > 0, else weight x. weight is one number for all or one per channel (dim 2 of x).
   x (any shape), weight (1 or x.shape[2] elements) -> y (same shape as x)
   gradient: dx = dy if x > 0, else weight dy. dweight = the sum of dy x over the elements that are not.
   example: accel.tensor { -2.0, 3.0 }:prelu(accel.tensor { 0.25 }) --> { -0.5, 3 } */
#include "ops/map/map.h"

#define FWD(T, p, x, w) ((x) > 0 ? (x) : (x) * (w))

/* Here the weight broadcasts to x. */
static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *in = ARG_T(g, 0), *up = x_gt(x, T(in), F(0));
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0, x_where(x, up, T(dy), T(x_mul(x, T(dy), T(ARG_T(g, 1))))));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_masked_fill(x, x_mul(x, T(dy), T(in)), up, F(0))));
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor, *w = a[1].tensor;
  const int64_t channels = x->ndim >= 2 ? x->shape[1] : 1;
  int64_t shape[AC_MAX_DIMS];
  char p[128], q[128];
  if (w->ndim > 1 || (w->numel != 1 && w->numel != channels)) {
    e->st = AC_FAIL(
        e->e, SHAPE,
        "the weight has shape %s, and x %s: it takes one element, or one per channel (%lld)",
        aci_shape_str(w->ndim, w->shape, p, sizeof p),
        aci_shape_str(x->ndim, x->shape, q, sizeof q), (long long)channels);
    return 0;
  }
  for (int d = 0; d < x->ndim; d++) shape[d] = d == 1 ? w->numel : 1;
  out[0] = x_prelu_apply(e, x, x_reshape(e, w, shape, x->ndim));
  return 1;
}

AC_OP(prelu, .sig = "prelu(x: tensor, weight: tensor) -> tensor", .composed = plain);
AC_MAP2(prelu_apply, FWD, .sig = "prelu_apply(x: tensor, weight: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .hidden = true);
