/* permute: the dims of x in another order.          x (n dims), dims a permutation of them -> view of x
   gradient: dx = dy permuted back.
   example: accel.zeros(2, 3, 4):permute(3, 1, 2).shape --> { 4, 2, 3 } */
#include "ops/core/op.h"

static ac_status order(const ac_frame *f, const ac_tensor *x, int *perm, ac_err *e) {
  const ac_value *v = &f->args[1];
  uint32_t mask;
  char a[128];
  if (v->n != x->ndim)
    return AC_FAIL(e, SHAPE, "%d dims given for a tensor of shape %s", v->n,
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  AC_TRY(ac_frame_dims(f, 1, x->ndim, &mask, e));
  for (int i = 0; i < v->n; i++)
    perm[i] = (int)(v->ints[i] < 0 ? v->ints[i] + x->ndim : v->ints[i]);
  return AC_OK;
}

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int perm[AC_MAX_DIMS];
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  AC_TRY(order(f, x, perm, e));
  for (int i = 0; i < x->ndim; i++) {
    s[i] = x->shape[perm[i]];
    st[i] = x->stride[perm[i]];
  }
  return ac_frame_view(f, 0, x->ndim, s, st, x->offset, e);
}

static void grad(ac_grad *g) {
  int64_t back[AC_MAX_DIMS];
  int n = g->args[1].n;
  for (int i = 0; i < n; i++)
    back[g->args[1].ints[i] < 0 ? g->args[1].ints[i] + n : g->args[1].ints[i]] = i;
  ac_grad_set(g, 0, x_permute(&g->x, g->dout[0], back, n));
}

AC_OP(permute, .sig = "permute(x: tensor, dims: dims) -> view(x)", .shape = shape, .grad = grad);
