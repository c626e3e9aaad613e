/* Checks of the fixed-rank products (mm, mv, bmm, ...) on their operands before they call
 * matmul. */
#ifndef ACI_OPS_MATMUL_CHECK_H
#define ACI_OPS_MATMUL_CHECK_H
#include "ops/core/op.h"

/* False, with SHAPE in the expression, unless a has na dims and b has nb. */
static inline bool aci_product_ranks(ac_expr *x, const ac_tensor *a, int na, const ac_tensor *b,
                                     int nb, const char *instead) {
  char s[128], t[128];
  if (a->ndim == na && b->ndim == nb) return true;
  x->st = AC_FAIL(x->e, SHAPE, "needs tensors of %d and %d dims, got shapes %s and %s; %s", na, nb,
                  aci_shape_str(a->ndim, a->shape, s, sizeof s),
                  aci_shape_str(b->ndim, b->shape, t, sizeof t), instead);
  return false;
}

#endif
