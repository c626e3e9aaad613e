/* Row conversions: one loop per (dtype, compute type), vectorised for unit strides. */
#include "ops/map/convert.h"

#include <string.h>

#include "base/float8.h"
#include "device/cpu/isa.h"

#define SAME(x) (x)
#define NONZERO(x) ((x) != 0)
#define BF16_LOAD(x) aci_bf16_to_f32(x)
#define F16_LOAD(x) aci_f16_to_f32(x)
#define BF16_STORE(x) aci_f32_to_bf16((float)(x))
#define F16_STORE(x) aci_f32_to_f16((float)(x))

/* A negative float has no unsigned value, and CPUs differ: its integer wraps, as in PyTorch. */
#define WRAP32(x) ((int32_t)(x))
#define WRAP64(x) ((int64_t)(x))

#define E4M3_LOAD(x) aci_e4m3_value(x)
#define E5M2_LOAD(x) aci_e5m2_value(x)
#define E4M3_STORE(x) aci_e4m3_bits((float)(x))
#define E5M2_STORE(x) aci_e5m2_bits((float)(x))

/* X(dtype, C type of its bytes, load expression, store expression) */
#define DTYPES(X)                          \
  X(F64, double, SAME, SAME)               \
  X(F32, float, SAME, SAME)                \
  X(F16, uint16_t, F16_LOAD, F16_STORE)    \
  X(BF16, uint16_t, BF16_LOAD, BF16_STORE) \
  X(I64, int64_t, SAME, SAME)              \
  X(I32, int32_t, SAME, SAME)              \
  X(I16, int16_t, SAME, SAME)              \
  X(I8, int8_t, SAME, SAME)                \
  X(U8, uint8_t, SAME, WRAP32)             \
  X(BOOL, uint8_t, NONZERO, NONZERO)       \
  X(U16, uint16_t, SAME, WRAP32)           \
  X(U32, uint32_t, SAME, WRAP64)           \
  X(F8_E4M3, uint8_t, E4M3_LOAD, E4M3_STORE) X(F8_E5M2, uint8_t, E5M2_LOAD, E5M2_STORE)

#define ROWS(dt, S, C, sfx, LOAD, STORE)                                                        \
  AC_ISA_FN(load_##dt##_##sfx, (C *restrict d, const char *restrict s, int64_t st, int64_t n),  \
            (d, s, st, n)) {                                                                    \
    const S *p = (const S *)(const void *)s;                                                    \
    if (st == 1)                                                                                \
      for (int64_t i = 0; i < n; i++) d[i] = (C)LOAD(p[i]);                                     \
    else                                                                                        \
      for (int64_t i = 0; i < n; i++) d[i] = (C)LOAD(p[i * st]);                                \
  }                                                                                             \
  AC_ISA_FN(store_##dt##_##sfx, (const C *restrict s, char *restrict d, int64_t st, int64_t n), \
            (s, d, st, n)) {                                                                    \
    S *p = (S *)(void *)d;                                                                      \
    if (st == 1)                                                                                \
      for (int64_t i = 0; i < n; i++) p[i] = (S)STORE(s[i]);                                    \
    else                                                                                        \
      for (int64_t i = 0; i < n; i++) p[i * st] = (S)STORE(s[i]);                               \
  }

#define ALL_ROWS(dt, S, LOAD, STORE)    \
  ROWS(dt, S, float, f32, LOAD, STORE)  \
  ROWS(dt, S, double, f64, LOAD, STORE) \
  ROWS(dt, S, int64_t, i64, LOAD, STORE)
DTYPES(ALL_ROWS)

#define FILL(C)                                        \
  do {                                                 \
    C v = ((C *)dst)[0];                               \
    for (int64_t i = 1; i < n; i++) ((C *)dst)[i] = v; \
  } while (0)

void aci_load(aci_ctype c, void *dst, ac_dtype dt, const void *src, int64_t stride, int64_t n) {
  int64_t m = stride == 0 && n > 1 ? 1 : n;
  switch (dt) {
#define LOAD_CASE(D, S, L, W)                                     \
  case AC_##D:                                                    \
    if (c == ACI_C_F32) load_##D##_f32(dst, src, stride, m);      \
    else if (c == ACI_C_F64) load_##D##_f64(dst, src, stride, m); \
    else load_##D##_i64(dst, src, stride, m);                     \
    break;
    DTYPES(LOAD_CASE)
    default: memset(dst, 0, (size_t)n * aci_ctype_bytes(c));
  }
  if (m == n) return;
  if (c == ACI_C_F32) FILL(float);
  else if (c == ACI_C_F64) FILL(double);
  else FILL(int64_t);
}

void aci_store(aci_ctype c, const void *src, ac_dtype dt, void *dst, int64_t stride, int64_t n) {
  switch (dt) {
#define STORE_CASE(D, S, L, W)                                     \
  case AC_##D:                                                     \
    if (c == ACI_C_F32) store_##D##_f32(src, dst, stride, n);      \
    else if (c == ACI_C_F64) store_##D##_f64(src, dst, stride, n); \
    else store_##D##_i64(src, dst, stride, n);                     \
    break;
    DTYPES(STORE_CASE)
    default: break;
  }
}

void aci_scalar_bytes(ac_scalar v, ac_dtype dt, void *bytes) {
  if (ac_dtype_is_float(dt) || (dt == AC_BOOL && v.kind == AC_SCALAR_FLOAT)) {
    double d = v.kind == AC_SCALAR_FLOAT ? v.f : (double)v.i;
    aci_store(ACI_C_F64, &d, dt, bytes, 1, 1);
  } else {
    int64_t i = v.kind == AC_SCALAR_FLOAT ? (int64_t)v.f : v.i;
    aci_store(ACI_C_I64, &i, dt, bytes, 1, 1);
  }
}
