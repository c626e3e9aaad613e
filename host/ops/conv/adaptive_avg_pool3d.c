/* adaptive_avg_pool3d: the means of output_size boxes per dim, box o of a dim of size n reaching from
   floor(o n / size) to ceil((o + 1) n / size).
   x (N, C, D, H, W) | (C, D, H, W) -> y (N, C, output_size) | (C, output_size). Floating point only.
   An output size of false keeps the input's.
   gradient: dx = every dy, divided by the size of its box, added to the elements of the box.
   example: accel.adaptive_avg_pool3d(accel.arange(8.0):view(1, 2, 2, 2), 1) --> { { { { 3.5 } } } }
   example: accel.adaptive_avg_pool3d(accel.ones(1, 2, 3, 4), { 1, false, 2 }).shape --> { 1, 1, 3, 2 } */
#include "ops/conv/pool3d.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *in = aci_pool3_planes(x, t);
  const bool narrow = /* rounded once, at the end */
      t->dtype == AC_BF16 || t->dtype == AC_F16;
  int64_t size[3];
  if (!aci_pool3_list(x, a, 1, "output_size", size)) return 1;
  if (narrow) in = x_cast(x, in, AC_F32);
  ac_tensor *y = x_adaptive_avg_pool2d(x, in, size + 1, 2);
  ac_tensor *z =
      x_adaptive_avg_pool2d(x, aci_pool3_columns(x, y), (int64_t[]){size[0], AC_INT_NONE}, 2);
  z = aci_pool3_result(x, t, y, z);
  out[0] = narrow ? x_cast(x, z, (ac_dtype)t->dtype) : z;
  return 1;
}

AC_OP(adaptive_avg_pool3d,
      .sig = "adaptive_avg_pool3d(x: tensor, output_size: ints|none) -> tensor",
      .composed = composed);
