/* slice_scatter: x with src written over a slice of it (see slice).
   x (..., n, ...), src (the slice's shape, or broadcasts to it) -> y (shape of x)
   gradient: dx = dy with zeros in the slice, dsrc = the slice of dy.
   example: accel.zeros(4):slice_scatter(accel.tensor { 1.0, 2.0 }, 1, 2, 3) --> { 0, 1, 2, 0 }
   example: accel.zeros(2, 3):slice_scatter(accel.ones(2, 2), 2, { step = 2 }) --> { { 1, 0, 1 }, { 1, 0, 1 } } */
#include "ops/index/index_view.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int64_t *stop = a[4].kind == AC_T_NONE ? NULL : &a[4].i;
  /* the slice checks the positions, and has their shape */
  const ac_tensor *t = a[0].tensor, *part = x_slice(x, a[0].tensor, a[2].i, a[3].i, stop, a[5].i);
  if (part == NULL) return 0;
  const int dim = aci_wrap_dim(a[2].i, t->ndim);
  int64_t spec[3 * AC_MAX_DIMS];
  for (int d = 0; d <= dim; d++) {
    spec[3 * d] = d < dim ? 0 : a[3].i < 0 ? a[3].i + t->shape[d] : a[3].i;
    spec[3 * d + 1] = part->shape[d];
    spec[3 * d + 2] = d < dim ? 1 : a[5].i;
  }
  out[0] = x_index_view_put_(x, x_clone(x, a[0].tensor), T(a[1].tensor), spec, 3 * (dim + 1));
  return 1;
}

AC_OP(
    slice_scatter,
    .sig =
        "slice_scatter(x: tensor, src: tensor, dim: dim = 0, start: pos = 0, stop: pos?, step: int = 1) "
        "-> tensor",
    .composed = composed, .on_complex = aci_complex_parts);
