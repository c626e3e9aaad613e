/* reshape: x under another shape: a view if the memory allows it, otherwise a copy. One extent may be -1.
   x (any shape), shape -> y (shape).          gradient: through view and clone.
   example: accel.arange(6):reshape(2, -1) --> { { 0, 1, 2 }, { 3, 4, 5 } } */
#include "ops/index/index.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  int64_t shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  x->st = aci_infer_shape(t, a[1].ints, a[1].n, shape, x->e);
  if (x->st != AC_OK) return 0;
  bool fits = aci_view_strides(t, a[1].n, shape, stride);
  out[0] = x_view(x, fits ? t : x_clone(x, t), shape, a[1].n);
  return 1;
}

AC_OP(reshape, .sig = "reshape(x: tensor, shape: shape) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
