/* Order on CUDA: elements as integers that compare as the CPU's keys do (sort_keys.h: NaN last, -0
 * as 0), lines of them sorted with the positions they had. Stable, and the same whatever the
 * scheduler does.
 *
 * Lines of up to ACI_ORDER_SMALL are sorted in shared memory (bitonic, several in a block). Longer
 * ones go digit by digit from the lowest: tiles count, a scan gives the start of each tile's share
 * of a digit, tiles deal their elements. */
#ifndef ACI_OPS_ORDER_CUH
#define ACI_OPS_ORDER_CUH
#include "ops/cuda/scan.cuh"
#include "ops/reduce/plan.h"

#ifdef ACI_CUDA_EMULATED
enum { ACI_ORDER_SMALL = 128 };
#else
enum { ACI_ORDER_SMALL = 2048 };
#endif

struct aci_order {
  int64_t lines, n;
  int bits;     /* of a key that differ */
  bool wide;    /* keys are uint64_t, else uint32_t */
  void *keys;   /* (lines, n): the caller fills them. Sorted they may be elsewhere */
  uint32_t *at; /* sorted: positions in the line */
  ac_block *block;
  void *other_keys;
  uint32_t *other_at, *counts;
};
ACI_DEVICE uint64_t aci_order_key_at(const aci_order &o, int64_t i) {
  return o.wide ? ((const uint64_t *)o.keys)[i] : ((const uint32_t *)o.keys)[i];
}
ACI_DEVICE void aci_order_put_key(const aci_order &o, int64_t i, uint64_t key) {
  if (o.wide) ((uint64_t *)o.keys)[i] = key;
  else ((uint32_t *)o.keys)[i] = (uint32_t)key;
}
/* Does an element begin (end) a run of equal keys of its line? i: position in all lines, k: in its
 * own. */
ACI_DEVICE bool aci_order_begins(const aci_order &o, int64_t i, int64_t k) {
  return k == 0 || aci_order_key_at(o, i - 1) != aci_order_key_at(o, i);
}
ACI_DEVICE bool aci_order_ends(const aci_order &o, int64_t i, int64_t k) {
  return k == o.n - 1 || aci_order_key_at(o, i + 1) != aci_order_key_at(o, i);
}

/* Memory for lines x n keys that differ in their lowest bits only. UNSUPPORTED above 2^32 - 1
 * elements a line. */
ac_status aci_order_open(ac_frame *f, int64_t lines, int64_t n, int bits, aci_order *o, ac_err *e);
ac_status aci_order_sort(ac_frame *f, aci_order *o, ac_err *e);
/* So that at least the `best` first of each line are in order: o->n, how far the lines lie apart,
 * may become smaller. */
ac_status aci_order_best(ac_frame *f, aci_order *o, int64_t best, ac_err *e);
static inline void aci_order_close(aci_order *o) { ac_block_free(o->block); }
/* Bits that numbers below n take. */
static inline int aci_order_bits(int64_t n) {
  int b = 1;
  while (b < 63 && (int64_t)1 << b < n) b++;
  return b;
}

/* X(dtype, its bits as an integer, sign bit or 0, infinity or 0: no float), as in sort_keys.c */
/* clang-format off */
#define ACI_ORDER_TYPES(X)                                                                                                \
  X(F64, uint64_t, 0x8000000000000000u, 0x7ff0000000000000u) X(I64, uint64_t, 0x8000000000000000u, 0)                     \
  X(F32, uint32_t, 0x80000000u, 0x7f800000u) X(F16, uint16_t, 0x8000u, 0x7c00u) X(BF16, uint16_t, 0x8000u, 0x7f80u)       \
  X(I32, uint32_t, 0x80000000u, 0) X(I16, uint16_t, 0x8000u, 0) X(I8, uint8_t, 0x80u, 0) X(U8, uint8_t, 0, 0) X(BOOL, uint8_t, 0, 0)
/* clang-format on */
template <class U> ACI_DEVICE U aci_order_key(U u, U sign, U infinity) {
  if (infinity == 0) return (U)(u ^ sign);
  if ((U)(u & (U)~sign) > infinity) return (U) ~(U)0;
  if (u == sign) return sign;
  return (U)(u ^ (u & sign ? (U) ~(U)0 : sign));
}
ACI_DEVICE uint64_t aci_order_load(ac_dtype dt, const void *x, int64_t i, bool descending) {
  switch (dt) {
#define ACI_ORDER_LOAD(D, U, SIGN, INF)                                   \
  case AC_##D: {                                                          \
    const U k = aci_order_key<U>(((const U *)x)[i], (U)(SIGN), (U)(INF)); \
    return descending ? (U)~k : k;                                        \
  }
    ACI_ORDER_TYPES(ACI_ORDER_LOAD)
#undef ACI_ORDER_LOAD
    default: return 0;
  }
}
/* The key of NaN, ascending. 0 for dtypes that have none. */
ACI_DEVICE uint64_t aci_order_nan(ac_dtype dt) {
  switch (dt) {
#define ACI_ORDER_NAN(D, U, SIGN, INF) \
  case AC_##D: return (INF) == 0 ? 0 : (uint64_t)(U) ~(U)0;
    ACI_ORDER_TYPES(ACI_ORDER_NAN)
#undef ACI_ORDER_NAN
    default: return 0;
  }
}

/* Lines [first, first + lines) of a plan whose reduced dims are one, the `best` first of each in
 * order. The caller closes o. */
ac_status aci_order_lines(ac_frame *f, const aci_reduce_plan *p, int64_t first, int64_t lines,
                          int64_t best, bool descending, aci_order *o, ac_err *e);
/* How many lines of n are sorted at a time, so that the memory has a bound. */
static inline int64_t aci_order_group(int64_t n) {
  return n >= 1 << 23 ? 1 : (1 << 23) / (n < 1 ? 1 : n);
}

#endif
