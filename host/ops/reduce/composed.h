/* Helpers of reductions that are composed of other ops: a dim or a list of dims as an argument of the
 * composition, resolved and checked. */
#ifndef ACI_OPS_COMPOSED_H
#define ACI_OPS_COMPOSED_H
#include "ops/core/op.h"

/* The dim as 0 .. n-1, 0 for rank 0. -1 after a fault, which x holds. */
static inline int64_t aci_composed_dim(ac_expr *x, ac_tensor *t, int64_t dim) {
  const int64_t n = t->ndim > 0 ? t->ndim : 1;
  if (dim < -n || dim >= n) {
    x_flip(x, t, &dim, 1); /* reports the fault of dim */
    return -1;
  }
  return dim < 0 ? dim + n : dim;
}

/* The list of a dims argument for calls of other ops: NULL for all dims. */
static inline const int64_t *aci_composed_dims(const ac_value *v, int *n) {
  *n = v->kind == AC_T_NONE ? 0 : v->n;
  return v->kind == AC_T_NONE ? NULL : v->ints;
}

/* x->st of a fault in the dtype: is it floating point? */
static inline bool aci_composed_float(ac_expr *x, const ac_tensor *t) {
  if (ac_dtype_is_float((ac_dtype)t->dtype)) return true;
  x->st = AC_FAIL(x->e, DTYPE, "is for floating point, not %s; cast the tensor first",
                  ac_dtype_name((ac_dtype)t->dtype));
  return false;
}

#endif
