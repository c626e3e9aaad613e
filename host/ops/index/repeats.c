/* Sums over repeats, as a sum over dims of a view: see repeats.h. */
#include "ops/index/repeats.h"

/* dims split in one pass: with the dims between they stay within AC_MAX_DIMS */
enum { AT_ONCE = 5 };

ac_tensor *aci_sum_repeats(ac_expr *x, ac_tensor *dy, int ndim, const int64_t *shape,
                           const int64_t *times, bool blocks) {
  int64_t left[AC_MAX_DIMS];
  memcpy(left, times, (size_t)ndim * 8);
  for (;;) {
    int64_t split[AC_MAX_DIMS], sums[AT_ONCE];
    int n = 0, k = 0;
    bool open = false; /* the last extent of split can take in the next dim */
    for (int d = 0; d < ndim; d++) {
      if (left[d] == 1 || k == AT_ONCE) {
        if (open) split[n - 1] *= left[d] * shape[d];
        else split[n++] = left[d] * shape[d];
        open = true;
        continue;
      }
      sums[k++] = blocks ? n : n + 1;
      split[n++] = blocks ? left[d] : shape[d];
      split[n++] = blocks ? shape[d] : left[d];
      left[d] = 1;
      open = false;
    }
    if (k == 0) return x_reshape(x, dy, shape, ndim);
    dy = x_sum(x, x_reshape(x, dy, split, n), sums, k, false, NULL);
  }
}
