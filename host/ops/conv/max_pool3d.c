/* max_pool3d: the largest element of every box of kernel_size. NaN is larger than any number. stride defaults to
   kernel_size. padding, at most half of the box, never wins. With ceil_mode a box may reach over the end.
   x (N, C, D, H, W) | (C, D, H, W) -> values (N, C, D', H', W') | (C, D', H', W'), and with return_indices the
   positions of the elements in their volume (i64, row-major, from 0). Lists are one number or one per dim. Floating
   point only.
   gradient: dx = dvalues added at the positions of the elements.
   example: accel.max_pool3d(accel.arange(8.0):view(1, 2, 2, 2), 2, { return_indices = true }) --> { { { { 7 } } } }, { { { { 7 } } } } */
#include "ops/conv/pool3d.h"

enum { KERNEL = 1, STRIDE, PADDING, DILATION, CEIL, INDICES };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *in = NULL, *deep = NULL;
  const bool indices = a[INDICES].b;
  int64_t k[3], s[3], p[3], d[3];
  if (!aci_pool3_list(x, a, KERNEL, "kernel_size", k) ||
      !aci_pool3_list(x, a, a[STRIDE].kind == AC_T_NONE ? KERNEL : STRIDE, "stride", s) ||
      !aci_pool3_list(x, a, PADDING, "padding", p) ||
      !aci_pool3_list(x, a, DILATION, "dilation", d))
    return 1;
  ac_tensor *y = x_max_pool2d(x, aci_pool3_planes(x, t), k + 1, 2, s + 1, 2, p + 1, 2, d + 1, 2,
                              a[CEIL].b, indices, &in);
  ac_tensor *z =
      x_max_pool2d(x, aci_pool3_columns(x, y), (int64_t[]){k[0], 1}, 2, (int64_t[]){s[0], 1}, 2,
                   (int64_t[]){p[0], 0}, 2, (int64_t[]){d[0], 1}, 2, a[CEIL].b, indices, &deep);
  out[0] = aci_pool3_result(x, t, y, z);
  if (!indices) return 1;
  out[1] = aci_pool3_positions(x, t, in, deep);
  return 2;
}

AC_OP(
    max_pool3d,
    .sig =
        "max_pool3d(x: tensor, kernel_size: ints, stride: ints?, padding: ints = [0], dilation: ints = [1], "
        "ceil_mode: bool = false, return_indices: bool = false) -> (values: tensor, indices: tensor?)",
    .composed = composed);
