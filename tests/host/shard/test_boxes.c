/* Ranges as boxes: for every range of many small tensors the boxes hold exactly its elements, in order, and are no more than a
 * brute-force search needs; extents of 1 and 0, rank 0 and large ranks.
 * tier: every change, memory */
#include "support/test.h"

#include <string.h>

#include "shard/shard.h"

static int64_t total(int ndim, const int64_t *shape) {
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= shape[d];
  return n;
}

/* The flat position of element k of a box. */
static int64_t element(int ndim, const int64_t *shape, const aci_box *b, int64_t k) {
  int64_t index[AC_MAX_DIMS], at = 0;
  for (int d = ndim - 1; d >= 0; d--) {
    index[d] = b->offset[d] + k % b->shape[d];
    k /= b->shape[d];
  }
  for (int d = 0; d < ndim; d++) at = at * shape[d] + index[d];
  return at;
}

/* Is [from, to) one box? Its elements span a box of extents max - min + 1, which must then have as many elements. */
static bool is_box(int ndim, const int64_t *shape, int64_t from, int64_t to) {
  int64_t lo[AC_MAX_DIMS], hi[AC_MAX_DIMS], n = 1;
  for (int64_t at = from; at < to; at++) {
    int64_t rest = at;
    for (int d = ndim - 1; d >= 0; d--) {
      const int64_t i = rest % shape[d];
      rest /= shape[d];
      if (at == from || i < lo[d]) lo[d] = i;
      if (at == from || i > hi[d]) hi[d] = i;
    }
  }
  for (int d = 0; d < ndim; d++) n *= hi[d] - lo[d] + 1;
  return n == to - from;
}

/* The fewest boxes, one behind the other, by dynamic programming over all cuts. */
static int fewest(int ndim, const int64_t *shape, int64_t from, int64_t to) {
  int best[256];
  assert_true(to - from < 255);
  best[0] = 0;
  for (int64_t n = 1; n <= to - from; n++) {
    best[n] = 1000;
    for (int64_t m = 0; m < n; m++)
      if (best[m] + 1 < best[n] && is_box(ndim, shape, from + m, from + n)) best[n] = best[m] + 1;
  }
  return best[to - from];
}

static void check(int ndim, const int64_t *shape, int64_t from, int64_t count, bool search) {
  aci_box b[ACI_MAX_BOXES];
  const int n = aci_boxes(ndim, shape, from, count, b);
  assert_true(n <= (ndim > 0 ? 2 * ndim - 1 : 1));
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    assert_int_equal(b[i].at, at);
    for (int d = 0; d < ndim; d++) assert_true(b[i].shape[d] > 0 && b[i].offset[d] + b[i].shape[d] <= shape[d]);
    assert_int_equal(b[i].count, total(ndim, b[i].shape));
    for (int64_t k = 0; k < b[i].count; k++) assert_int_equal(element(ndim, shape, &b[i], k), from + at + k);
    at += b[i].count;
  }
  assert_int_equal(at, count);
  if (search && count > 0) assert_int_equal(n, fewest(ndim, shape, from, from + count));
}

static void all_ranges(void **state) {
  static const struct {
    int ndim;
    int64_t shape[5];
  } cases[] = {{1, {7}},          {2, {3, 4}},       {2, {1, 5}},    {2, {5, 1}},          {3, {2, 3, 4}},
               {3, {3, 1, 5}},    {3, {1, 4, 1}},    {4, {2, 2, 2, 3}}, {4, {3, 1, 2, 2}}, {5, {2, 1, 2, 3, 2}}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    const int64_t all = total(cases[c].ndim, cases[c].shape);
    for (int64_t from = 0; from <= all; from++)
      for (int64_t count = 0; from + count <= all; count++) check(cases[c].ndim, cases[c].shape, from, count, true);
  }
}

static void scalars_and_nothing(void **state) {
  aci_box b[ACI_MAX_BOXES];
  check(0, NULL, 0, 1, false);
  assert_int_equal(aci_boxes(2, (int64_t[]){0, 4}, 0, 0, b), 0);
}

/* The most boxes there are: both ends in the middle of every dim. */
static void most(void **state) {
  int64_t shape[AC_MAX_DIMS];
  aci_box b[ACI_MAX_BOXES];
  for (int d = 0; d < AC_MAX_DIMS; d++) shape[d] = 4;
  const int64_t all = total(AC_MAX_DIMS, shape);
  assert_int_equal(aci_boxes(AC_MAX_DIMS, shape, 1, all - 2, b), ACI_MAX_BOXES);
  int64_t at = 0;
  for (int i = 0; i < ACI_MAX_BOXES; i++) {
    assert_int_equal(element(AC_MAX_DIMS, shape, &b[i], 0), 1 + at);
    at += b[i].count;
    assert_int_equal(element(AC_MAX_DIMS, shape, &b[i], b[i].count - 1), at);
  }
  assert_int_equal(at, all - 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_ranges), cmocka_unit_test(scalars_and_nothing),
                                     cmocka_unit_test(most)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
