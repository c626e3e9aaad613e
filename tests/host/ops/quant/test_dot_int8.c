/* Products of rows of int8 by the instructions of this CPU, exact against a plain sum, for lengths around those of vectors and pieces,
 * every number of rows at a time, and the least value, -128, everywhere. */
#include "ops/quant/dot.h"

#include <stdlib.h>

#include "support/test.h"

static uint32_t state = 12345;
static int8_t any_byte(void) {
  state = state * 1664525u + 1013904223u;
  return (int8_t)(state >> 24);
}

static void check(int64_t n, int m, int64_t k, int64_t stride, bool least) {
  int8_t *w = malloc((size_t)(n * k)), *x = malloc((size_t)(m * stride));
  int64_t sums[ACI_DOT_ROWS] = {0}, y[ACI_DOT_ROWS * 9];
  for (int64_t i = 0; i < n * k; i++) w[i] = least ? -128 : any_byte();
  for (int64_t i = 0; i < m * stride; i++) x[i] = least ? -128 : any_byte();
  for (int r = 0; r < m; r++)
    for (int64_t i = 0; i < k; i++) sums[r] += x[r * stride + i];
  aci_dot_int8(w, n, x, stride, sums, m, k, y);
  for (int r = 0; r < m; r++)
    for (int64_t j = 0; j < n; j++) {
      int64_t want = 0;
      for (int64_t i = 0; i < k; i++) want += w[j * k + i] * x[r * stride + i];
      assert_int_equal(y[r * n + j], want);
    }
  free(w);
  free(x);
}

static void exact(void **unused) {
  (void)unused;
  static const int64_t lengths[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 200, 4095, 4096, 4097, 32768, 32769, 70000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    for (int m = 1; m <= ACI_DOT_ROWS; m++) {
      const int64_t k = lengths[i];
      for (int64_t n = 1; n <= (k > 1000 ? 3 : 9); n++) check(n, m, k, k + 3, false);
      check(2, m, k, k, true);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(exact)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
