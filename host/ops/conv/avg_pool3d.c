/* avg_pool3d: the mean of every box of kernel_size. stride defaults to kernel_size. padding counts as zeros unless
   count_include_pad is false. With ceil_mode a box may reach over the end. divisor_override is used instead of the
   number of elements.
   x (N, C, D, H, W) | (C, D, H, W) -> y (N, C, D', H', W') | (C, D', H', W'). Lists are one number or one per dim.
   Floating point only.
   gradient: dx = every dy, divided likewise, added to the elements of its box.
   example: accel.avg_pool3d(accel.arange(8.0):view(1, 2, 2, 2), 2) --> { { { { 3.5 } } } }
   example: accel.avg_pool3d(accel.ones(1, 2, 2, 2), 2, { divisor_override = 4 }) --> { { { { 2 } } } } */
#include "ops/conv/pool3d.h"

enum { KERNEL = 1, STRIDE, PADDING, CEIL, COUNT, DIVISOR };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *in = aci_pool3_planes(x, t);
  const bool narrow = /* rounded once, at the end */
      t->dtype == AC_BF16 || t->dtype == AC_F16;
  const bool ceil_mode = a[CEIL].b, count = a[COUNT].b, by = a[DIVISOR].kind != AC_T_NONE;
  const int64_t one = 1;
  int64_t k[3], s[3], p[3];
  if (!aci_pool3_list(x, a, KERNEL, "kernel_size", k) ||
      !aci_pool3_list(x, a, a[STRIDE].kind == AC_T_NONE ? KERNEL : STRIDE, "stride", s) ||
      !aci_pool3_list(x, a, PADDING, "padding", p))
    return 1;
  for (int i = 0; x->st == AC_OK && i < 3; i++) /* padding does not count, as in PyTorch */
    if (t->shape[t->ndim - 3 + i] < k[i])
      x->st = AC_FAIL(x->e, SHAPE, "a box of %lld does not fit into %lld elements", (long long)k[i],
                      (long long)t->shape[t->ndim - 3 + i]);
  if (narrow) in = x_cast(x, in, AC_F32);
  /* the sum of the planes is not divided, so that the divisor is used once */
  ac_tensor *y =
      x_avg_pool2d(x, in, k + 1, 2, s + 1, 2, p + 1, 2, ceil_mode, count, by ? &one : NULL);
  ac_tensor *z =
      x_avg_pool2d(x, aci_pool3_columns(x, y), (int64_t[]){k[0], 1}, 2, (int64_t[]){s[0], 1}, 2,
                   (int64_t[]){p[0], 0}, 2, ceil_mode, count, by ? &a[DIVISOR].i : NULL);
  z = aci_pool3_result(x, t, y, z);
  out[0] = narrow ? x_cast(x, z, (ac_dtype)t->dtype) : z;
  return 1;
}

AC_OP(
    avg_pool3d,
    .sig =
        "avg_pool3d(x: tensor, kernel_size: ints, stride: ints?, padding: ints = [0], ceil_mode: bool = false, "
        "count_include_pad: bool = true, divisor_override: int?) -> tensor",
    .composed = composed);
