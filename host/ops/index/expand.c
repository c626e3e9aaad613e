/* expand: x repeated along dims of extent 1 and new leading dims, without copying. -1 keeps an extent.
   x (broadcasts to shape) -> view of x (shape).          gradient: dx = dy summed over the repeated dims.
   example: accel.tensor({ { 1 }, { 2 } }):expand(-1, 3) --> { { 1, 1, 1 }, { 2, 2, 2 } } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t *want = f->args[1].ints;
  int n = f->args[1].n, lead = n - x->ndim;
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  char a[128], b[128];
  bool ok = lead >= 0 && n <= AC_MAX_DIMS;
  for (int d = 0; ok && d < n; d++) {
    int64_t have = d < lead ? 1 : x->shape[d - lead];
    s[d] = want[d] == -1 && d >= lead ? have : want[d];
    ok = s[d] >= 0 && (s[d] == have || have == 1);
    st[d] = d < lead || (have == 1 && s[d] != 1) ? 0 : x->stride[d - lead];
  }
  if (!ok)
    return AC_FAIL(e, SHAPE, "shape %s cannot be expanded to %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a),
                   aci_shape_str(n, want, b, sizeof b));
  return ac_frame_view(f, 0, n, s, st, x->offset, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, ac_grad_reduce_to(g, 0, g->dout[0])); }

AC_OP(expand, .sig = "expand(x: tensor, shape: shape) -> view(x)", .shape = shape, .grad = grad,
      .alias = "broadcast_to");
