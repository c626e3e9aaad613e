/* adaptive_max_pool3d: the largest elements of output_size boxes per dim, box o of a dim of size n reaching from
   floor(o n / size) to ceil((o + 1) n / size).
   x (N, C, D, H, W) | (C, D, H, W) -> values (N, C, output_size) | (C, output_size), and with return_indices the
   positions of the elements in their volume (i64, row-major, from 0). Floating point only.
   An output size of false keeps the input's.
   gradient: dx = dvalues added at the positions of the elements.
   example: accel.adaptive_max_pool3d(accel.arange(12.0):view(1, 1, 3, 4), { 1, 1, 2 }) --> { { { { 9, 11 } } } } */
#include "ops/conv/pool3d.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *in = NULL, *deep = NULL;
  const bool indices = a[2].b;
  int64_t size[3];
  if (!aci_pool3_list(x, a, 1, "output_size", size)) return 1;
  ac_tensor *y = x_adaptive_max_pool2d(x, aci_pool3_planes(x, t), size + 1, 2, indices, &in);
  ac_tensor *z = x_adaptive_max_pool2d(x, aci_pool3_columns(x, y),
                                       (int64_t[]){size[0], AC_INT_NONE}, 2, indices, &deep);
  out[0] = aci_pool3_result(x, t, y, z);
  if (!indices) return 1;
  out[1] = aci_pool3_positions(x, t, in, deep);
  return 2;
}

AC_OP(adaptive_max_pool3d,
      .sig =
          "adaptive_max_pool3d(x: tensor, output_size: ints|none, return_indices: bool = false) -> "
          "(values: tensor, indices: tensor?)",
      .composed = composed);
