/* view_as_complex: a last dim of two floats as the parts of complex numbers.
   x (any shape, 2) in f32 or f64, the two next to each other in memory -> view of x (same shape, c64 or c128)
   gradient: dx = dy viewed as real.
   example: accel.tensor({ { 1.0, 3.0 }, { 2.0, 4.0 } }):view_as_complex():imag() --> { 3, 4 } */
#include "ops/core/op.h"

static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t st[AC_MAX_DIMS];
  char a[128];
  const int n = x->ndim - 1;
  if (x->dtype != AC_F32 && x->dtype != AC_F64)
    return AC_FAIL(e, DTYPE, "x must be f32 or f64, not %s; cast it",
                   ac_dtype_name((ac_dtype)x->dtype));
  if (n < 0 || x->shape[n] != 2)
    return AC_FAIL(e, SHAPE, "the last dim must have two positions, x has shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a));
  bool fits = x->stride[n] == 1 && x->offset % 2 == 0;
  for (int d = 0; d < n; d++) {
    fits = fits && (x->stride[d] % 2 == 0 || x->shape[d] <= 1);
    st[d] = x->stride[d] / 2;
  }
  if (!fits)
    return AC_FAIL(e, SHAPE,
                   "the parts of a number must be neighbours in memory at an even position, x has "
                   "strides %s and offset %lld; clone it",
                   aci_shape_str(x->ndim, x->stride, a, sizeof a), (long long)x->offset);
  return aci_frame_view_as(f, 0, aci_complex_dtype((ac_dtype)x->dtype), n, x->shape, st,
                           x->offset / 2, e);
}

static void grad(ac_grad *g) { ac_grad_set(g, 0, x_view_as_real(&g->x, g->dout[0])); }

AC_OP(view_as_complex, .sig = "view_as_complex(x: tensor) -> view(x)", .shape = shape,
      .grad = grad);
