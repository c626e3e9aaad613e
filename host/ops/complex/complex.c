/* complex: complex numbers of their real and imaginary parts.
   real, imag (one shape, both f32 or both f64) -> z (same shape, c64 or c128)
   gradient: dreal = the real part of dz, dimag = its imaginary part.
   example: accel.complex(accel.tensor { 1.0, 2.0 }, accel.tensor { 3.0, 4.0 }):abs() --> { 3.162278, 4.472136 } */
#include "ops/core/op.h"

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const ac_tensor *re = a[0].tensor, *im = a[1].tensor;
  if (re->dtype != im->dtype || (re->dtype != AC_F32 && re->dtype != AC_F64)) {
    x->st = AC_FAIL(x->e, DTYPE, "both parts must be f32 or both f64, got %s and %s",
                    ac_dtype_name((ac_dtype)re->dtype), ac_dtype_name((ac_dtype)im->dtype));
    return 0;
  }
  int nd = 0;
  int64_t s[AC_MAX_DIMS];
  x->st = aci_broadcast(&nd, s, re, x->e);
  if (x->st == AC_OK) x->st = aci_broadcast(&nd, s, im, x->e);
  if (x->st != AC_OK) return 0;
  out[0] = aci_join(x, x_expand(x, a[0].tensor, s, nd), x_expand(x, a[1].tensor, s, nd));
  return 1;
}

AC_OP(complex, .sig = "complex(real: tensor, imag: tensor) -> tensor", .composed = composed);
