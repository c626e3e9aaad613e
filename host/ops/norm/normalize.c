/* normalize: y = x / max(|x|_p, eps), the norms taken over dim.
   x (any shape) -> y (same shape). dim: one or several, the second by default. Dtypes: floats.
   gradient: as for its component ops. A vector of zeros gets dy / eps.
   example: accel.tensor({ { 3.0, 4.0 } }):normalize() --> { { 0.6, 0.8 } }
   example: accel.tensor({ 1.0, 3.0 }):normalize { p = 1, dim = 1 } --> { 0.25, 0.75 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_operand least = F(a[3].f);
  ac_tensor *in = a[0].tensor;
  const ac_dtype dt = (ac_dtype)in->dtype;
  const bool narrow = dt == AC_BF16 || dt == AC_F16; /* rounded once, at the end */
  if (narrow) in = x_cast(x, in, AC_F32);
  ac_tensor *norm = x_norm(x, in, aci_float(a[1].f), a[2].ints, a[2].n, true);
  ac_tensor *y = x_div(x, T(in), T(x_clamp(x, norm, &least, NULL)));
  out[0] = narrow ? x_cast(x, y, dt) : y;
  return 1;
}

AC_OP(normalize,
      .sig = "normalize(x: tensor, p: float = 2, dim: dims = [1], eps: float = 1e-12) -> tensor",
      .composed = composed);
