/* conj: the complex conjugate, a new tensor. A real tensor is its own.
   x (any shape) -> y (same shape, dtype)
   gradient: dx = conj dy.
   example: accel.complex(accel.tensor { 1.0 }, accel.tensor { 3.0 }):conj():imag() --> { -3 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *z = a[0].tensor;
  out[0] = aci_is_complex(z) ? aci_join(x, aci_re(x, z), x_neg(x, aci_im(x, z))) : z;
  return 1;
}

AC_OP(conj, .sig = "conj(x: tensor) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed, .inplace = true, .alias = "conj_physical");
