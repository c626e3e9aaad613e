/* What the margin losses of classes share: input (N, C) or (C), of rank 0 one class, and targets of whole rows. Called
 * by multi_margin_loss, multilabel_margin_loss and multilabel_soft_margin_loss. */
#ifndef ACI_OPS_LOSS_CLASSES_H
#define ACI_OPS_LOSS_CLASSES_H
#include "ops/loss/elementwise.h"

/* DTYPE or SHAPE unless input is floats of one or two dims, with at least one class. */
static inline ac_status aci_classes_input(ac_expr *x, const ac_tensor *in) {
  char s[128];
  if (x->st != AC_OK) return x->st;
  if (!ac_dtype_is_float((ac_dtype)in->dtype))
    return x->st = AC_FAIL(x->e, DTYPE, "input must be floating point, got %s",
                           ac_dtype_name((ac_dtype)in->dtype));
  if (in->ndim > 2 || (in->ndim > 0 && in->shape[in->ndim - 1] == 0))
    return x->st =
               AC_FAIL(x->e, SHAPE, "expected an input (N, C) or (C) with classes, got shape %s",
                       aci_shape_str(in->ndim, in->shape, s, sizeof s));
  return AC_OK;
}

/* Classes of an input. */
static inline int64_t aci_classes_of(const ac_tensor *in) {
  return in->ndim == 0 ? 1 : in->shape[in->ndim - 1];
}

/* DTYPE or SHAPE unless weight has a float for each class. */
static inline ac_status aci_classes_weight(ac_expr *x, const ac_value *weight, int64_t classes) {
  char s[128];
  if (x->st != AC_OK || weight->kind != AC_T_TENSOR) return x->st;
  const ac_tensor *w = weight->tensor;
  if (!ac_dtype_is_float((ac_dtype)w->dtype))
    return x->st = AC_FAIL(x->e, DTYPE, "weight must be floating point, got %s",
                           ac_dtype_name((ac_dtype)w->dtype));
  if (w->ndim != 1 || w->shape[0] != classes)
    return x->st = AC_FAIL(x->e, SHAPE, "weight of shape %s does not fit %lld classes",
                           aci_shape_str(w->ndim, w->shape, s, sizeof s), (long long)classes);
  return AC_OK;
}

#endif
