/* Reductions of n buffers by a fixed pairwise tree (reduce.h): blocks that stay in the first cache,
 * so that every buffer is read once whatever the number of ranks. */
#include "comm/reduce.h"

#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "device/device_impl.h"

/* bytes of a block's sums. Sources at most */
enum { BLOCK = 8192, LEVELS = 14, MOST = 1 << (LEVELS - 2) };

/* d[i] = a[i] and b[i] joined, divided by `by` for the mean. d may be one of the sources. Sums of
 * 16-bit floats are f32. */
typedef void (*join_fn)(void *d, const void *a, const void *b, int64_t count, double by);

/* Two sources, two targets: the everyday case of two ranks. */
typedef void (*twice_fn)(void *d0, void *d1, const void *a, const void *b, int64_t count,
                         double by);

typedef struct kernels {
  join_fn both;                                         /* elements to elements */
  join_fn lift;                                         /* elements to sums */
  join_fn join;                                         /* sums to sums */
  join_fn close;                                        /* sums to elements */
  void (*widen)(void *d, const void *a, int64_t count); /* NULL: sums are elements */
  twice_fn twice;                                       /* NULL: both, and a copy */
} kernels;

/* Loops may store to the address they load from, at the same index only. */
#if defined(__clang__)
#define NO_CARRY _Pragma("clang loop vectorize(assume_safety)")
#else
#define NO_CARRY _Pragma("GCC ivdep")
#endif

/* From: type of the sources, LOAD converts it to a number. To: type of the result, STORE converts a
 * number to it. */
#define JOIN(name, From, LOAD, To, STORE, OP)                                          \
  AC_ISA_FN(name, (void *out, const void *x, const void *y, int64_t count, double by), \
            (out, x, y, count, by)) {                                                  \
    To *d = out;                                                                       \
    const From *a = x, *b = y;                                                         \
    (void)by;                                                                          \
    NO_CARRY                                                                           \
    for (int64_t i = 0; i < count; i++) d[i] = STORE(OP(LOAD(a[i]), LOAD(b[i])));      \
  }
#define TWICE(name, From, LOAD, STORE, OP)                                                         \
  AC_ISA_FN(name, (void *out, void *out2, const void *x, const void *y, int64_t count, double by), \
            (out, out2, x, y, count, by)) {                                                        \
    From *d = out, *d2 = out2;                                                                     \
    const From *a = x, *b = y;                                                                     \
    (void)by;                                                                                      \
    NO_CARRY                                                                                       \
    for (int64_t i = 0; i < count; i++) d[i] = d2[i] = STORE(OP(LOAD(a[i]), LOAD(b[i])));          \
  }
#define SAME(x) (x)

/* ---- the scalar operations ---- */
#define F_SUM(x, y) ((x) + (y))
#define F_PROD(x, y) ((x) * (y))
#define F_MEAN64(x, y) (((x) + (y)) / by)
#define F_MEAN32(x, y) (((x) + (y)) / (float)by)
/* a NaN on either side wins */
#define F_MIN(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))
#define F_MAX(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define I_MIN(x, y) ((x) < (y) ? (x) : (y))
#define I_MAX(x, y) ((x) > (y) ? (x) : (y))
/* Integers wrap: unsigned arithmetic, 32 bits at least. */
#define I64_SUM(x, y) ((int64_t)((uint64_t)(x) + (uint64_t)(y)))
#define I64_PROD(x, y) ((int64_t)((uint64_t)(x) * (uint64_t)(y)))
#define I32_SUM(x, y) ((int32_t)((uint32_t)(x) + (uint32_t)(y)))
#define I32_PROD(x, y) ((int32_t)((uint32_t)(x) * (uint32_t)(y)))
#define I16_SUM(x, y) ((int16_t)(uint16_t)((uint32_t)(x) + (uint32_t)(y)))
#define I16_PROD(x, y) ((int16_t)(uint16_t)((uint32_t)(x) * (uint32_t)(y)))
#define I8_SUM(x, y) ((int8_t)(uint8_t)((uint32_t)(x) + (uint32_t)(y)))
#define I8_PROD(x, y) ((int8_t)(uint8_t)((uint32_t)(x) * (uint32_t)(y)))
#define U8_SUM(x, y) ((uint8_t)((uint32_t)(x) + (uint32_t)(y)))
#define U8_PROD(x, y) ((uint8_t)((uint32_t)(x) * (uint32_t)(y)))

/* clang-format off */
#define PLAIN(t, T, S, P, MIN, MAX)           \
  JOIN(t##_sum, T, SAME, T, SAME, S)          \
  JOIN(t##_prod, T, SAME, T, SAME, P)         \
  JOIN(t##_min, T, SAME, T, SAME, MIN)        \
  JOIN(t##_max, T, SAME, T, SAME, MAX)
PLAIN(f64, double, F_SUM, F_PROD, F_MIN, F_MAX)
PLAIN(f32, float, F_SUM, F_PROD, F_MIN, F_MAX)
PLAIN(i64, int64_t, I64_SUM, I64_PROD, I_MIN, I_MAX)
PLAIN(i32, int32_t, I32_SUM, I32_PROD, I_MIN, I_MAX)
PLAIN(i16, int16_t, I16_SUM, I16_PROD, I_MIN, I_MAX)
PLAIN(i8, int8_t, I8_SUM, I8_PROD, I_MIN, I_MAX)
PLAIN(u8, uint8_t, U8_SUM, U8_PROD, I_MIN, I_MAX)
JOIN(f64_mean, double, SAME, double, SAME, F_MEAN64)
JOIN(f32_mean, float, SAME, float, SAME, F_MEAN32)
TWICE(f64_sum_twice, double, SAME, SAME, F_SUM)
TWICE(f64_mean_twice, double, SAME, SAME, F_MEAN64)
TWICE(f32_sum_twice, float, SAME, SAME, F_SUM)
TWICE(f32_mean_twice, float, SAME, SAME, F_MEAN32)

#define HALF_OP(t, LOAD, STORE, op, OP)                             \
  JOIN(t##_##op, uint16_t, LOAD, uint16_t, STORE, OP)               \
  JOIN(t##_##op##_lift, uint16_t, LOAD, float, SAME, OP)            \
  JOIN(t##_##op##_close, float, SAME, uint16_t, STORE, OP)
#define HALF(t, LOAD, STORE)                                        \
  HALF_OP(t, LOAD, STORE, sum, F_SUM)                               \
  HALF_OP(t, LOAD, STORE, prod, F_PROD)                             \
  HALF_OP(t, LOAD, STORE, min, F_MIN)                               \
  HALF_OP(t, LOAD, STORE, max, F_MAX)                               \
  JOIN(t##_mean, uint16_t, LOAD, uint16_t, STORE, F_MEAN32)         \
  JOIN(t##_mean_close, float, SAME, uint16_t, STORE, F_MEAN32)      \
  TWICE(t##_sum_twice, uint16_t, LOAD, STORE, F_SUM)                \
  TWICE(t##_mean_twice, uint16_t, LOAD, STORE, F_MEAN32)            \
  AC_ISA_FN(t##_widen, (void *out, const void *x, int64_t count), (out, x, count)) { \
    float *d = out;                                                 \
    const uint16_t *a = x;                                          \
    for (int64_t i = 0; i < count; i++) d[i] = LOAD(a[i]);          \
  }
HALF(bf16, aci_bf16_to_f32, aci_f32_to_bf16)
HALF(f16, aci_f16_to_f32, aci_f32_to_f16)

#define ROW(t, op) {.both = t##_##op, .lift = t##_##op, .join = t##_##op, .close = t##_##op}
#define FLOAT_ROWS(t)                                                                                  \
  {[AC_REDUCE_SUM] = {t##_sum, t##_sum, t##_sum, t##_sum, NULL, t##_sum_twice},                        \
   [AC_REDUCE_MEAN] = {t##_mean, t##_sum, t##_sum, t##_mean, NULL, t##_mean_twice},                    \
   [AC_REDUCE_MIN] = ROW(t, min), [AC_REDUCE_MAX] = ROW(t, max), [AC_REDUCE_PROD] = ROW(t, prod)}
#define ROWS(t) [AC_REDUCE_SUM] = ROW(t, sum), [AC_REDUCE_MIN] = ROW(t, min), [AC_REDUCE_MAX] = ROW(t, max), \
                [AC_REDUCE_PROD] = ROW(t, prod)
#define HALF_ROW(t, op, last, two) {t##_##last, t##_##op##_lift, f32_##op, t##_##last##_close, t##_widen, two}
#define HALF_ROWS(t) {[AC_REDUCE_SUM] = HALF_ROW(t, sum, sum, t##_sum_twice),                                  \
                      [AC_REDUCE_MEAN] = HALF_ROW(t, sum, mean, t##_mean_twice),                               \
                      [AC_REDUCE_MIN] = HALF_ROW(t, min, min, NULL), [AC_REDUCE_MAX] = HALF_ROW(t, max, max, NULL), \
                      [AC_REDUCE_PROD] = HALF_ROW(t, prod, prod, NULL)}
/* clang-format on */
static const kernels table[AC_DTYPE_COUNT][AC_REDUCE_OPS] = {
    [AC_F64] = FLOAT_ROWS(f64),
    [AC_F32] = FLOAT_ROWS(f32),
    [AC_F16] = HALF_ROWS(f16),
    [AC_BF16] = HALF_ROWS(bf16),
    [AC_I64] = {ROWS(i64)},
    [AC_I32] = {ROWS(i32)},
    [AC_I16] = {ROWS(i16)},
    [AC_I8] = {ROWS(i8)},
    [AC_U8] = {ROWS(u8)},
    /* or, including for sums: no count */
    [AC_BOOL] = {[AC_REDUCE_SUM] = ROW(u8, max),
                 [AC_REDUCE_MAX] = ROW(u8, max),
                 [AC_REDUCE_PROD] = ROW(u8, min),
                 [AC_REDUCE_MIN] = ROW(u8, min)}, /* and */
};

typedef struct scratch {
  _Alignas(64) unsigned char sums[LEVELS][BLOCK];
} scratch;

/* The largest power of two below n: the tree over n sources is cut there. */
static int cut(int n) {
  int p = 1;
  while (p * 2 < n) p *= 2;
  return p;
}

/* Sums of n sources, in room[0] or, for one plain source, in place. Uses room[1..]. */
static const void *tree(const kernels *k, int n, const void *const *src, int64_t count,
                        unsigned char (*room)[BLOCK]) {
  if (n == 1 && k->widen == NULL) return src[0];
  if (n == 1) k->widen(room[0], src[0], count);
  else if (n == 2) k->lift(room[0], src[0], src[1], count, 0);
  else {
    const int p = cut(n);
    const void *a = tree(k, p, src, count, room);
    const void *b = tree(k, n - p, src + p, count, room + 1);
    k->join(room[0], a, b, count, 0);
  }
  return room[0];
}

/* One block's elements into out. */
static void block(const kernels *k, void *out, int n, const void *const *src, int64_t count,
                  double by, scratch *s) {
  if (n == 2) {
    k->both(out, src[0], src[1], count, by);
    return;
  }
  const int p = cut(n);
  const void *a = tree(k, p, src, count, s->sums);
  const void *b = tree(k, n - p, src + p, count, s->sums + 1);
  k->close(out, a, b, count, by);
}

/* One source: every reduction is the source. */
static void copy(const void *src, int n_dst, void *const *dst, size_t bytes) {
  for (int i = 0; i < n_dst; i++)
    if (dst[i] != src) memmove(dst[i], src, bytes);
}

void aci_reduce(ac_dtype dt, ac_reduce_op op, int n, const void *const *src, int n_dst,
                void *const *dst, int64_t count, bool streamed) {
  if (!AC_HOLDS(n >= 1 && n <= MOST && n_dst >= 0 && (unsigned)dt < AC_DTYPE_COUNT &&
                (unsigned)op < AC_REDUCE_OPS))
    return;
  const int64_t size = (int64_t)ac_dtype_bytes(dt);
  if (n_dst == 0 || count <= 0) return;
  if (n == 1) {
    copy(src[0], n_dst, dst, (size_t)(count * size));
    return;
  }
  const kernels *k = &table[dt][op];
  if (!AC_HOLDS(k->both != NULL)) return;
  /* the two everyday cases of two sources need no scratch */
  const double by = n;
  if (n == 2 && n_dst == 1 && !streamed) {
    k->both(dst[0], src[0], src[1], count, by);
    return;
  }
  if (n == 2 && n_dst == 2 && !streamed && k->twice != NULL) {
    k->twice(dst[0], dst[1], src[0], src[1], count, by);
    return;
  }
  scratch s;
  _Alignas(64) unsigned char result[BLOCK];
  const void *at[MOST];
  const int64_t step = BLOCK / (k->widen != NULL ? (int64_t)sizeof(float) : size);
  for (int64_t i = 0; i < count; i += step) {
    const int64_t m = count - i < step ? count - i : step;
    for (int r = 0; r < n; r++) at[r] = (const char *)src[r] + i * size;
    /* a block is reduced once and copied from the cache to the other targets. Streamed targets have
     * a block of their own, since a target that bypasses the caches cannot be read back cheaply */
    unsigned char *first = (unsigned char *)dst[0] + i * size;
    block(k, streamed ? result : first, n, at, m, by, &s);
    for (int r = streamed ? 0 : 1; r < n_dst; r++) {
      char *d = (char *)dst[r] + i * size;
      if (streamed) aci_copy_streamed(d, result, (size_t)(m * size));
      else memcpy(d, first, (size_t)(m * size));
    }
  }
}
