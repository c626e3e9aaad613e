/* Shared by vstack and hstack: tensors are brought to a minimum rank (a number becomes one element,
 * a vector one row), then joined. */
#ifndef ACI_OPS_CAT_ATLEAST_H
#define ACI_OPS_CAT_ATLEAST_H
#include <stdlib.h>

#include "ops/core/op.h"

static inline ac_tensor *aci_cat_atleast(ac_expr *x, const ac_value *list, int rank, int64_t dim) {
  const int n = list->n;
  if (n <= 0) {
    x->st = AC_FAIL(x->e, INVALID, "needs at least one tensor");
    return NULL;
  }
  ac_tensor **ts = malloc((size_t)n * sizeof *ts), *y = NULL;
  if (ts == NULL) {
    x->st = AC_FAIL(x->e, OOM, "no memory for a list of %d tensors", n);
    return NULL;
  }
  for (int i = 0; i < n; i++) {
    ac_tensor *t = list->tensors[i];
    for (int d = t->ndim; t != NULL && d < rank; d++) t = x_unsqueeze(x, t, 0);
    ts[i] = t;
  }
  if (x->st == AC_OK) y = x_cat(x, ts, n, dim);
  free(ts);
  return y;
}

#endif
