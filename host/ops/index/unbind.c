/* unbind: the slices of x along dim, each without that dim.
   x (a, n, b), dim 2 -> n views of x (a, b)
   gradient: dx = the dys stacked along dim, in one pass.
   example: accel.tensor { { 1, 2 }, { 3, 4 } }:unbind(2)[1] --> { 1, 3 } */
#include "ops/index/index.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  int d, w = 0;
  if (x->ndim == 0) return AC_FAIL(e, SHAPE, "a tensor of rank 0 cannot be cut");
  AC_TRY(ac_frame_dim(f, 1, x->ndim, &d, e));
  if (x->shape[d] > AC_MAX_RESULTS)
    return AC_FAIL(e, INVALID,
                   "%lld pieces; an op has at most %d results (use t:select(dim, i) or t[i])",
                   (long long)x->shape[d], AC_MAX_RESULTS);
  for (int k = 0; k < x->ndim; k++) {
    if (k == d) continue;
    s[w] = x->shape[k];
    st[w++] = x->stride[k];
  }
  for (int64_t i = 0; i < x->shape[d]; i++)
    AC_TRY(ac_frame_view(f, 0, w, s, st, x->offset + i * x->stride[d], e));
  return AC_OK;
}

/* Runs only to say that a dim without positions is cut into no views. */
static ac_status cpu(ac_frame *f, ac_err *e) {
  (void)f;
  (void)e;
  return AC_OK;
}

static void grad(ac_grad *g) {
  const int nd = ac_grad_ndim(g, 0, 0), d = aci_wrap_dim(ARG_I(g, 1), nd);
  const int64_t *s = ac_grad_shape(g, 0, 0);
  ac_tensor *dy[AC_MAX_RESULTS];
  int64_t start[AC_MAX_RESULTS];
  int n = 0;
  for (int64_t i = 0; i < s[d]; i++) {
    if (g->dout[i] == NULL) continue;
    dy[n] = x_unsqueeze(&g->x, g->dout[i], d);
    start[n++] = i;
  }
  if (n > 0) ac_grad_set(g, 0, x_slice_backward(&g->x, dy, n, s, nd, d, start, n));
}

AC_OP(unbind, .sig = "unbind(x: tensor, dim: dim = 0) -> tensors", .shape = shape, .cpu = cpu,
      .grad = grad, .complex_as = AC_COMPLEX_NATIVE);
