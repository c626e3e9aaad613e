/* Keys from elements and elements from keys: see sort_keys.h. One loop per dtype. Loads of
 * contiguous lines vectorise. */
#include "ops/index/sort_keys.h"

#include "device/cpu/isa.h"

/* X(dtype, its bits as an integer, sign bit or 0, infinity or 0: no float). Truth values are bytes
 * 0 and 1. */
#define WIDE(X)                                              \
  X(F64, uint64_t, 0x8000000000000000u, 0x7ff0000000000000u) \
  X(I64, uint64_t, 0x8000000000000000u, 0)
#define NARROW(X)                            \
  X(F32, uint32_t, 0x80000000u, 0x7f800000u) \
  X(F16, uint16_t, 0x8000u, 0x7c00u)         \
  X(BF16, uint16_t, 0x8000u, 0x7f80u)        \
  X(I32, uint32_t, 0x80000000u, 0)           \
  X(I16, uint16_t, 0x8000u, 0) X(I8, uint8_t, 0x80u, 0) X(U8, uint8_t, 0, 0) X(BOOL, uint8_t, 0, 0)

/* u: bits of an element. Expressions of constants are folded. */
#define KEY(U, u, SIGN, INF)                                     \
  ((INF) == 0                             ? (U)((u) ^ (U)(SIGN)) \
   : (U)((u) & (U) ~(U)(SIGN)) > (U)(INF) ? (U) ~(U)0            \
   : (u) == (U)(SIGN)                     ? (U)(SIGN)            \
                                          : (U)((u) ^ ((u) & (U)(SIGN) ? (U) ~(U)0 : (U)(SIGN))))
/* Back from keys that determine the element. Zeros and NaNs are looked up. */
#define IS_PLAIN(U, k, SIGN, INF) ((INF) == 0 || ((k) != (U)(SIGN) && (k) != (U) ~(U)0))
#define UNKEY(U, k, SIGN, INF) \
  ((INF) == 0 ? (U)((k) ^ (U)(SIGN)) : (U)((k) ^ ((k) & (U)(SIGN) ? (U)(SIGN) : (U) ~(U)0)))

#define LOAD_NARROW(D, U, SIGN, INF)                                                           \
  AC_ISA_FN(load_##D,                                                                          \
            (const U *restrict x, int64_t stride, uint64_t at, U flip, int64_t n,              \
             uint64_t *restrict key),                                                          \
            (x, stride, at, flip, n, key)) {                                                   \
    if (stride == 1)                                                                           \
      for (int64_t i = 0; i < n; i++)                                                          \
        key[i] = (uint64_t)(U)(KEY(U, x[i], SIGN, INF) ^ flip) << 32 | (at + (uint64_t)i);     \
    else                                                                                       \
      for (int64_t i = 0; i < n; i++)                                                          \
        key[i] =                                                                               \
            (uint64_t)(U)(KEY(U, x[i * stride], SIGN, INF) ^ flip) << 32 | (at + (uint64_t)i); \
  }
#define LOAD_WIDE(D, U, SIGN, INF)                                                          \
  static void load_##D(const U *restrict x, int64_t stride, uint64_t at, U flip, int64_t n, \
                       aci_wide_key *restrict key) {                                        \
    for (int64_t i = 0; i < n; i++)                                                         \
      key[i] = (aci_wide_key){KEY(U, x[i * stride], SIGN, INF) ^ flip, at + (uint64_t)i};   \
  }
#define STORE(D, U, SIGN, INF, K, KEY_OF, AT_OF)                                          \
  static void store_##D(const K *restrict key, U flip, int64_t n, const U *restrict x,    \
                        int64_t stride, U *restrict y, int64_t y_stride) {                \
    for (int64_t i = 0; i < n; i++) {                                                     \
      U k = (U)((U)KEY_OF(key[i]) ^ flip);                                                \
      y[i * y_stride] =                                                                   \
          IS_PLAIN(U, k, SIGN, INF) ? UNKEY(U, k, SIGN, INF) : x[AT_OF(key[i]) * stride]; \
    }                                                                                     \
  }
#define WORD_KEY(w) ((w) >> 32)
#define WORD_AT(w) ((int64_t)((w)&0xffffffffu))
#define PAIR_KEY(p) ((p).key)
#define PAIR_AT(p) ((int64_t)(p).at)

#define WIDE_FNS(D, U, SIGN, INF) \
  LOAD_WIDE(D, U, SIGN, INF) STORE(D, U, SIGN, INF, aci_wide_key, PAIR_KEY, PAIR_AT)
#define NARROW_FNS(D, U, SIGN, INF) \
  LOAD_NARROW(D, U, SIGN, INF) STORE(D, U, SIGN, INF, uint64_t, WORD_KEY, WORD_AT)
WIDE(WIDE_FNS)
NARROW(NARROW_FNS)

ac_status aci_order_check(const ac_tensor *x, ac_err *e) {
  if (x->dtype <= AC_BOOL) return AC_OK;
  return AC_FAIL(e, DTYPE, "%s is a storage dtype; cast it first",
                 ac_dtype_name((ac_dtype)x->dtype));
}

ac_status aci_sort_keys_of(ac_dtype dt, int64_t n, bool descending, aci_sort_keys *k, ac_err *e) {
  k->dt = dt;
  k->descending = descending;
  k->digits = (int)aci_dsize(dt);
  k->wide = k->digits == 8;
  k->bytes = k->wide ? sizeof(aci_wide_key) : sizeof(uint64_t);
  if (!k->wide && n > UINT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "%lld elements along dim; %s can be ordered up to 2^32",
                   (long long)n, ac_dtype_name(dt));
  return AC_OK;
}

void aci_sort_keys_load(const aci_sort_keys *k, const void *x, int64_t stride, int64_t begin,
                        int64_t n, void *keys) {
  const char *from = (const char *)x + begin * stride * k->digits;
  const uint64_t flip = k->descending ? ~(uint64_t)0 : 0;
  switch (k->dt) {
#define CASE(D, U, SIGN, INF)                                                           \
  case AC_##D:                                                                          \
    load_##D((const U *)(const void *)from, stride, (uint64_t)begin, (U)flip, n, keys); \
    break;
    WIDE(CASE)
    NARROW(CASE)
#undef CASE
    default: break;
  }
}

void aci_sort_keys_store(const aci_sort_keys *k, const void *keys, int64_t n, const void *x,
                         int64_t stride, void *values, int64_t values_stride, int64_t *at,
                         int64_t at_stride) {
  const uint64_t flip = k->descending ? ~(uint64_t)0 : 0;
  if (values != NULL) {
    switch (k->dt) {
#define CASE(D, U, SIGN, INF) \
  case AC_##D: store_##D(keys, (U)flip, n, x, stride, values, values_stride); break;
      WIDE(CASE)
      NARROW(CASE)
#undef CASE
      default: break;
    }
  }
  if (at == NULL) return;
  if (k->wide)
    for (int64_t i = 0; i < n; i++) at[i * at_stride] = PAIR_AT(((const aci_wide_key *)keys)[i]);
  else
    for (int64_t i = 0; i < n; i++) at[i * at_stride] = WORD_AT(((const uint64_t *)keys)[i]);
}

bool aci_sort_keys_is_nan(const aci_sort_keys *k, const void *keys, int64_t i) {
  if (!ac_dtype_is_float(k->dt)) return false;
  uint64_t nan = k->wide ? ~(uint64_t)0 : ((uint64_t)1 << 8 * k->digits) - 1;
  uint64_t key =
      k->wide ? ((const aci_wide_key *)keys)[i].key : WORD_KEY(((const uint64_t *)keys)[i]);
  return key == (k->descending ? 0 : nan);
}

int64_t aci_sort_keys_index(const aci_sort_keys *k, const void *keys, int64_t i) {
  return k->wide ? PAIR_AT(((const aci_wide_key *)keys)[i]) : WORD_AT(((const uint64_t *)keys)[i]);
}
