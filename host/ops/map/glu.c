/* glu: y = a sigmoid(b) for the halves a and b of x along dim.
   x (even extent along dim) -> y (half of it)
   gradient: da = dy s, db = dy a s (1 - s) with s = sigmoid(b).
   example: accel.tensor { 1.0, 2.0, 0.0, 100.0 }:glu() --> { 0.5, 2 } */
#include "ops/map/map.h"

#define FWD(T, p, a, b) ((a)*m_sigmoid(b))

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *dy = g->dout[0], *s = x_sigmoid(x, ARG_T(g, 1)), *da = x_mul(x, T(dy), T(s));
  ac_grad_set(g, 0, da);
  if (!ac_grad_needs(g, 1)) return;
  ac_tensor *slope = x_mul(x, T(ARG_T(g, 0)), T(x_sub(x, F(1), T(s), aci_float(1))));
  ac_grad_set(g, 1, x_mul(x, T(da), T(slope)));
}

static int plain(ac_expr *e, const ac_value *a, ac_tensor **out) {
  ac_tensor *x = a[0].tensor;
  const int64_t d = a[1].i < 0 ? a[1].i + x->ndim : a[1].i;
  char s[128];
  if (d < 0 || d >= x->ndim) {
    x_select(e, x, a[1].i, 0); /* reports a fault of dim */
    return 0;
  }
  if (x->shape[d] % 2 != 0) {
    e->st = AC_FAIL(e->e, SHAPE, "x of shape %s has no halves: its extent along dim must be even",
                    aci_shape_str(x->ndim, x->shape, s, sizeof s));
    return 0;
  }
  const int64_t half = x->shape[d] / 2;
  out[0] = x_glu_gate(e, x_narrow(e, x, d, 0, half), x_narrow(e, x, d, half, half));
  return 1;
}

AC_OP(glu, .sig = "glu(x: tensor, dim: dim = -1) -> tensor", .composed = plain);
AC_MAP2(glu_gate, FWD, .sig = "glu_gate(a: tensor, b: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .hidden = true, .flops_per_element = 11);
