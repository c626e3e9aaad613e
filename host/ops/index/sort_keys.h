/* Elements as integers that compare as the elements do, with their positions. sort, topk, median
 * and unique work on them.
 *
 * NaN of either sign has the largest key, -0 has the key of 0. For descending order every bit is
 * inverted. An element of up to four bytes becomes one word, key << 32 | position. A wider one
 * becomes a pair. Position decides ties, so that the order is total: sorting is stable and every
 * method gives the same result, whatever the cut into pieces. */
#ifndef ACI_OPS_SORT_KEYS_H
#define ACI_OPS_SORT_KEYS_H
#include "ops/core/op.h"
#include "ops/reduce/slots.h"

typedef struct aci_wide_key {
  uint64_t key, at;
} aci_wide_key;

typedef struct aci_sort_keys {
  ac_dtype dt;
  bool wide, descending; /* wide: aci_wide_key, else uint64_t */
  int digits;            /* bytes of a key */
  size_t bytes;          /* of a key with its position */
} aci_sort_keys;

/* For lines of n elements of dtype dt. UNSUPPORTED when n positions do not fit. */
ac_status aci_sort_keys_of(ac_dtype dt, int64_t n, bool descending, aci_sort_keys *k, ac_err *e);
static inline void *aci_sort_keys_at(const aci_sort_keys *k, void *keys, int64_t i) {
  return (char *)keys + i * (int64_t)k->bytes;
}

/* Keys of elements [begin, begin + n) of a line. x is the line's first element, stride in
 * elements. */
void aci_sort_keys_load(const aci_sort_keys *k, const void *x, int64_t stride, int64_t begin,
                        int64_t n, void *keys);
/* The elements of n keys of a line, and their positions. Either may be omitted (NULL). */
void aci_sort_keys_store(const aci_sort_keys *k, const void *keys, int64_t n, const void *x,
                         int64_t stride, void *values, int64_t values_stride, int64_t *at,
                         int64_t at_stride);
/* Whether key i stands for NaN, which no key is larger than (ascending). */
bool aci_sort_keys_is_nan(const aci_sort_keys *k, const void *keys, int64_t i);
int64_t aci_sort_keys_index(const aci_sort_keys *k, const void *keys, int64_t i);

/* Sorts n keys that are in the order of their positions. tmp has room for as many. */
void aci_sort_keys_sort(const aci_sort_keys *k, void *keys, void *tmp, int64_t n);
/* Sorts keys that stand in any order. */
void aci_sort_keys_sort_unordered(const aci_sort_keys *k, void *keys, void *tmp, int64_t n);
/* aci_sort_keys_sort by all threads, for long lines. */
ac_status aci_sort_keys_sort_long(ac_frame *f, const aci_sort_keys *k, void *keys, void *tmp,
                                  int64_t n, ac_err *e);
enum { ACI_SORT_KEYS_LONG = 1 << 16 }; /* from this length on a line is worth it */
/* Moves the m smallest of n keys to the front, the largest of them to position m - 1. 1 <= m <=
 * n. */
void aci_sort_keys_select(const aci_sort_keys *k, void *keys, int64_t n, int64_t m);
/* The min(m, n) smallest keys among elements [begin, begin + n) of a line, in no order, at the
 * front of buf. Returns their number. buf has room for aci_sort_keys_topk_room(n, m). */
int64_t aci_sort_keys_topk(const aci_sort_keys *k, const void *x, int64_t stride, int64_t begin,
                           int64_t n, int64_t m, void *buf);
int64_t aci_sort_keys_topk_room(int64_t n, int64_t m);

/* The lines of x along dim, sorted: elements into values, positions into indices (contiguous, of
 * x's shape. Either may be NULL). */
ac_status aci_sort_lines(ac_frame *f, const ac_tensor *x, int dim, bool descending,
                         ac_tensor *values, ac_tensor *indices, ac_err *e);

/* Gradient of sort and topk: dvalues back at the indices, result 1, along the dim of this
 * argument. */
void aci_sort_keys_grad(ac_grad *g, int dim_arg);

/* Start of line o (row-major over the other dims) of a contiguous tensor with `extent` elements
 * along dim and `inner` after each. The stride along dim is inner. */
static inline int64_t aci_line_base(int64_t o, int64_t extent, int64_t inner) {
  return o / inner * extent * inner + o % inner;
}

/* DTYPE for dtypes that cannot be ordered. */
ac_status aci_order_check(const ac_tensor *x, ac_err *e);

#endif
