/* Elements as numbers: see convert.h. Called by item, printing and all that write single values. */
#include "tensor/convert.h"

#include <math.h>
#include <string.h>

#include "base/vmath.h"

/* ---- 8-bit floats: sign, exponent with this bias, `man` bits of mantissa, subnormals as usual ---- */
static float f8_decode(uint8_t b, int man, int bias) {
  int exponent = (b & 0x7f) >> man, fraction = b & ((1 << man) - 1);
  float a = exponent == 0 ? ldexpf((float)fraction, 1 - bias - man)
                          : ldexpf((float)(fraction + (1 << man)), exponent - bias - man);
  return b & 0x80 ? -a : a;
}

/* Codes grow with the value, across exponents too: the code of a is its distance from 0 in units of
 * its own spacing, plus one binade's worth for every exponent above the smallest. */
static int f8_encode(float x, int man, int bias) {
  float a = fabsf(x);
  int exponent = 1 - bias;
  if (a > 0 && ilogbf(a) > exponent) exponent = ilogbf(a);
  return ((exponent - (1 - bias)) << man) + (int)rintf(ldexpf(a, man - exponent));
}

float aci_f8_e4m3_to_f32(uint8_t b) {
  return (b & 0x7f) == 0x7f ? copysignf(NAN, b & 0x80 ? -1.0f : 1.0f) : f8_decode(b, 3, 7);
}

float aci_f8_e5m2_to_f32(uint8_t b) {
  float special = (b & 3) != 0 ? NAN : INFINITY;
  return (b & 0x7c) == 0x7c ? copysignf(special, b & 0x80 ? -1.0f : 1.0f) : f8_decode(b, 2, 15);
}

uint8_t aci_f32_to_f8_e4m3(float x) {
  int code = isnan(x) ? 0x7f : fabsf(x) < 448 ? f8_encode(x, 3, 7) : 0x7e;
  return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}

uint8_t aci_f32_to_f8_e5m2(float x) {
  int code = isnan(x) ? 0x7f : fabsf(x) < 65536 ? f8_encode(x, 2, 15) : 0x7c;
  if (!isnan(x) && code > 0x7c) code = 0x7c;
  return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}

/* ---- loads ---- */
#define LOAD(type, expr)     \
  do {                       \
    type v;                  \
    memcpy(&v, p, sizeof v); \
    return (expr);           \
  } while (0)

static int64_t load_i64(ac_dtype d, const void *p) {
  switch (d) {
    case AC_I64: LOAD(int64_t, v);
    case AC_I32: LOAD(int32_t, v);
    case AC_I16: LOAD(int16_t, v);
    case AC_I8: LOAD(int8_t, v);
    case AC_U8: LOAD(uint8_t, v);
    case AC_U16: LOAD(uint16_t, v);
    case AC_U32: LOAD(uint32_t, v);
    case AC_BOOL: LOAD(uint8_t, v != 0);
    case AC_F64:
    case AC_F32:
    case AC_F16:
    case AC_BF16:
    case AC_F8_E4M3:
    case AC_F8_E5M2:
    case AC_C64:
    case AC_C128:
    case AC_DTYPE_COUNT: break;
  }
  return 0;
}

double aci_item_load_f64(ac_dtype d, const void *p) {
  switch (d) {
    case AC_C128: /* the real part, which comes first */
    case AC_F64: LOAD(double, v);
    case AC_C64:
    case AC_F32: LOAD(float, (double)v);
    case AC_F16: LOAD(uint16_t, (double)aci_f16_to_f32(v));
    case AC_BF16: LOAD(uint16_t, (double)aci_bf16_to_f32(v));
    case AC_F8_E4M3: LOAD(uint8_t, (double)aci_f8_e4m3_to_f32(v));
    case AC_F8_E5M2: LOAD(uint8_t, (double)aci_f8_e5m2_to_f32(v));
    case AC_I64:
    case AC_I32:
    case AC_I16:
    case AC_I8:
    case AC_U8:
    case AC_BOOL:
    case AC_U16:
    case AC_U32:
    case AC_DTYPE_COUNT: break;
  }
  return (double)load_i64(d, p);
}

ac_scalar aci_item_load(ac_dtype d, const void *p) {
  bool integer = ac_dtype_is_int(d) || d == AC_U16 || d == AC_U32;
  if (d == AC_BOOL || integer)
    return (ac_scalar){.kind = integer ? AC_SCALAR_INT : AC_SCALAR_BOOL, .i = load_i64(d, p)};
  return (ac_scalar){.kind = AC_SCALAR_FLOAT, .f = aci_item_load_f64(d, p)};
}

/* ---- stores ---- */
#define STORE(type, value)     \
  do {                         \
    type v_ = (value);         \
    memcpy(p, &v_, sizeof v_); \
  } while (0)

static void store_i64(ac_dtype d, void *p, int64_t i) {
  switch (d) {
    case AC_F64: STORE(double, (double)i); break;
    case AC_F32: STORE(float, (float)i); break;
    case AC_F16: STORE(uint16_t, aci_f32_to_f16((float)i)); break;
    case AC_BF16: STORE(uint16_t, aci_f32_to_bf16((float)i)); break;
    case AC_F8_E4M3: STORE(uint8_t, aci_f32_to_f8_e4m3((float)i)); break;
    case AC_F8_E5M2: STORE(uint8_t, aci_f32_to_f8_e5m2((float)i)); break;
    /* through unsigned: reducing modulo 2^n is defined there */
    case AC_I64: STORE(uint64_t, (uint64_t)i); break;
    case AC_I32:
    case AC_U32: STORE(uint32_t, (uint32_t)(uint64_t)i); break;
    case AC_I16:
    case AC_U16: STORE(uint16_t, (uint16_t)(uint64_t)i); break;
    case AC_I8:
    case AC_U8: STORE(uint8_t, (uint8_t)(uint64_t)i); break;
    case AC_BOOL: STORE(uint8_t, i != 0); break;
    case AC_C64:
    case AC_C128: aci_item_store_f64(d, p, (double)i); break;
    case AC_DTYPE_COUNT: break;
  }
}

void aci_item_store_f64(ac_dtype d, void *p, double v) {
  switch (d) {
    case AC_F64: STORE(double, v); return;
    case AC_F32: STORE(float, (float)v); return;
    case AC_F16: STORE(uint16_t, aci_f32_to_f16((float)v)); return;
    case AC_BF16: STORE(uint16_t, aci_f32_to_bf16((float)v)); return;
    case AC_F8_E4M3: STORE(uint8_t, aci_f32_to_f8_e4m3((float)v)); return;
    case AC_F8_E5M2: STORE(uint8_t, aci_f32_to_f8_e5m2((float)v)); return;
    case AC_BOOL: STORE(uint8_t, v != 0); return;
    case AC_C64: memcpy(p, &(float[2]){(float)v, 0}, 8); return;
    case AC_C128: memcpy(p, &(double[2]){v, 0}, 16); return;
    case AC_I64:
    case AC_I32:
    case AC_I16:
    case AC_I8:
    case AC_U8:
    case AC_U16:
    case AC_U32:
    case AC_DTYPE_COUNT: break;
  }
  store_i64(d, p, v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN);
}

void aci_item_store(ac_dtype d, void *p, ac_scalar s) {
  if (s.kind == AC_SCALAR_FLOAT) aci_item_store_f64(d, p, s.f);
  else store_i64(d, p, s.i);
}
