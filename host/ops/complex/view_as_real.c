/* view_as_real: the parts of complex numbers as a last dim of two.
   x (any shape, c64 or c128) -> view of x (same shape, 2) in f32 or f64
   gradient: dx = dy viewed as complex.
   example: accel.complex(accel.tensor { 1.0, 2.0 }, accel.tensor { 3.0, 4.0 }):view_as_real() --> { { 1, 3 }, { 2, 4 } } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t s[AC_MAX_DIMS], st[AC_MAX_DIMS];
  const int n = x->ndim;
  if (!aci_is_complex(x))
    return AC_FAIL(e, DTYPE, "x must be c64 or c128, not %s", ac_dtype_name((ac_dtype)x->dtype));
  if (n == AC_MAX_DIMS) return AC_FAIL(e, SHAPE, "a tensor has at most %d dims", AC_MAX_DIMS);
  for (int d = 0; d < n; d++) {
    s[d] = x->shape[d];
    st[d] = x->stride[d] * 2;
  }
  s[n] = 2;
  st[n] = 1;
  return aci_frame_view_as(f, 0, aci_part_dtype((ac_dtype)x->dtype), n + 1, s, st, x->offset * 2,
                           e);
}

static void grad(ac_grad *g) {
  ac_tensor *dy = g->dout[0];
  if (dy == NULL) return;
  const bool fits = dy->stride[dy->ndim - 1] == 1 && dy->offset % 2 == 0;
  bool even = fits;
  for (int d = 0; d < dy->ndim - 1; d++) even = even && dy->stride[d] % 2 == 0;
  ac_grad_set(g, 0, x_view_as_complex(&g->x, even ? dy : x_clone(&g->x, dy)));
}

AC_OP(view_as_real, .sig = "view_as_real(x: tensor) -> view(x)", .shape = shape, .grad = grad);
