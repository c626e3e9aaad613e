/* frexp: mantissa and exponent of x = mantissa 2^exponent with 1/2 <= |mantissa| < 1. 0, infinities and NaN have
   the exponent 0.
   x (floating point, any shape) -> mantissa (same shape, dtype), exponent (same shape, i32)
   gradient: dx = dmantissa / 2^exponent.
   example: accel.tensor { 8.0, -0.375, 0 }:frexp() --> { 0.5, -0.75, 0 }, { 4, -1, 0 } */
#include "ops/map/map.h"

/* The exponent as a number. Denormals are scaled up first. */
static inline AC_HOSTDEV float exponent_f32(float x) {
  const float a = __builtin_fabsf(x);
  const uint32_t tiny = a < 0x1p-126f ? 1u : 0u;
  const int32_t e = (int32_t)(aci_bits32(tiny ? a * 0x1p24f : a) >> 23) - (tiny ? 150 : 126);
  return a > 0.0f && a < INFINITY ? (float)e : 0.0f;
}
static inline AC_HOSTDEV double exponent_f64(double x) {
  const double a = __builtin_fabs(x);
  const uint64_t tiny = a < 0x1p-1022 ? 1u : 0u;
  const int64_t e = (int64_t)(aci_bits64(tiny ? a * 0x1p54 : a) >> 52) - (tiny ? 1076 : 1022);
  return a > 0.0 && a < INFINITY ? (double)e : 0.0;
}
/* Two factors, of which neither over- nor underflows. */
static inline AC_HOSTDEV float mantissa_f32(float x) {
  const int32_t e = (int32_t)exponent_f32(x), h = -e / 2;
  return x * aci_pow2i(h) * aci_pow2i(-e - h);
}
static inline AC_HOSTDEV double mantissa_f64(double x) {
  const int64_t e = (int64_t)exponent_f64(x), h = -e / 2;
  return x * aci_float64((uint64_t)(h + 1023) << 52) * aci_float64((uint64_t)(1023 - e - h) << 52);
}
#define EXPONENT(T, p, x) ACI_VM1(x, exponent_f32, exponent_f64)
#define MANTISSA(T, p, x) ACI_VM1(x, mantissa_f32, mantissa_f64)

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *e = x_frexp_exponent(x, ARG_T(g, 0));
  ac_grad_set(g, 0, x_mul(x, T(g->dout[0]), T(x_exp2(x, x_neg(x, e)))));
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor;
  if (!ac_dtype_is_float((ac_dtype)t->dtype)) {
    x->st = AC_FAIL(x->e, DTYPE, "is for floating point, not %s; cast the tensor first",
                    ac_dtype_name((ac_dtype)t->dtype));
    return 0;
  }
  out[0] = x_frexp_mantissa(x, t);
  out[1] = x_cast(x, x_frexp_exponent(x, t), AC_I32);
  return 2;
}

AC_MAP1(frexp_mantissa, MANTISSA, .sig = "frexp_mantissa(x: tensor) -> tensor", .grad = grad,
        .save = AC_SAVE_IN(0), .hidden = true);
AC_MAP1(frexp_exponent, EXPONENT, .sig = "frexp_exponent(x: tensor) -> tensor", .nondiff = true,
        .hidden = true);
AC_OP(frexp, .sig = "frexp(x: tensor) -> (mantissa: tensor, exponent: tensor)",
      .composed = composed);
