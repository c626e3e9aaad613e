/* multi_dot: the product of a chain of matrices, in the order that takes the fewest multiplications (found by
   dynamic programming over the splits of every part of the chain).
   tensors: at least 2 matrices whose extents fit, the first and the last may be vectors: (k), (k, n), ..., (m) ->
   y (m, n), without the dims of vectors. Dtypes: floats and integers.
   gradient: as for matmul.
   example: accel.multi_dot { accel.ones(2, 3), accel.ones(3, 4), accel.ones(4) } --> { 12, 12 } */
#include "ops/matmul/check.h"

enum { MAX_CHAIN = 64 };

typedef struct chain {
  ac_expr *x;
  ac_tensor *m[MAX_CHAIN];
  /* the best last product of i..j is (i..split) (split+1..j) */
  uint8_t split[MAX_CHAIN][MAX_CHAIN];
} chain;

static ac_tensor *multiply(chain *c, int i, int j) {
  if (i == j) return c->m[i];
  int k = c->split[i][j];
  return x_matmul(c->x, multiply(c, i, k), multiply(c, k + 1, j));
}

/* extent: rows of each matrix, then the columns of the last. */
static void plan(chain *c, int n, const int64_t *extent) {
  static const double unknown = 1e300;
  double cost[MAX_CHAIN][MAX_CHAIN];
  for (int i = 0; i < n; i++) cost[i][i] = 0;
  for (int length = 2; length <= n; length++)
    for (int i = 0; i + length <= n; i++) {
      int j = i + length - 1;
      cost[i][j] = unknown;
      c->split[i][j] = (uint8_t)i;
      for (int k = i; k < j; k++) {
        double product = (double)extent[i] * (double)extent[k + 1] * (double)extent[j + 1],
               total = cost[i][k] + cost[k + 1][j] + product;
        if (total >= cost[i][j]) continue;
        cost[i][j] = total;
        c->split[i][j] = (uint8_t)k;
      }
    }
}

/* Matrix i is (extent[i], extent[i + 1]). A vector at the front counts as a row, one at the end as
 * a column, and that dim is removed from the result. */
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  const int n = a[0].n;
  chain c = {.x = x};
  int64_t extent[MAX_CHAIN + 1];
  char s[128], t[128];
  if (n < 2 || n > MAX_CHAIN) {
    x->st = AC_FAIL(x->e, INVALID, "needs 2 to %d tensors, got %d", MAX_CHAIN, n);
    return 0;
  }
  const bool row = a[0].tensors[0]->ndim == 1, column = a[0].tensors[n - 1]->ndim == 1;
  for (int i = 0; i < n; i++) {
    ac_tensor *m = a[0].tensors[i];
    const bool end = i == 0 || i == n - 1;
    if (m->ndim != 2 && !(end && m->ndim == 1)) {
      x->st = AC_FAIL(x->e, SHAPE, "tensor %d of %d has shape %s; it must be a matrix%s", i + 1, n,
                      aci_shape_str(m->ndim, m->shape, s, sizeof s), end ? " or a vector" : "");
      return 0;
    }
    if (m->ndim == 1) m = x_unsqueeze(x, m, i == 0 ? 0 : 1);
    if (m == NULL) return 0;
    if (i > 0 && m->shape[0] != extent[i]) {
      const ac_tensor *before = a[0].tensors[i - 1], *here = a[0].tensors[i];
      x->st = AC_FAIL(
          x->e, SHAPE,
          "tensors %d and %d of shapes %s and %s cannot be multiplied: %lld and %lld must be "
          "equal",
          i, i + 1, aci_shape_str(before->ndim, before->shape, s, sizeof s),
          aci_shape_str(here->ndim, here->shape, t, sizeof t), (long long)extent[i],
          (long long)m->shape[0]);
      return 0;
    }
    c.m[i] = m;
    extent[i] = m->shape[0];
    extent[i + 1] = m->shape[1];
  }
  plan(&c, n, extent);
  ac_tensor *y = multiply(&c, 0, n - 1);
  const int64_t first = 0, last = -1;
  if (row && y != NULL) y = x_squeeze(x, y, &first, 1);
  if (column && y != NULL) y = x_squeeze(x, y, &last, 1);
  out[0] = y;
  return 1;
}

AC_OP(multi_dot, .sig = "multi_dot(tensors: tensors) -> tensor", .composed = composed,
      .on_complex = aci_complex_composed);
