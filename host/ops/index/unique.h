/* The two halves of unique: single elements (unique.c) and the slices along a dim
 * (unique_slices.c). */
#ifndef ACI_OPS_UNIQUE_H
#define ACI_OPS_UNIQUE_H
#include "ops/index/index.h"
#include "ops/index/sort_keys.h"

/* Sizes and fills the three results: distinct slices of x along dim, in ascending order element by
 * element. */
ac_status aci_unique_slices(ac_frame *f, const ac_tensor *x, int dim, ac_err *e);

/* values, inverse and counts that return_inverse and return_counts ask for: all without either, otherwise
 * the values and those that are true. Returns their number. */
int aci_unique_results(ac_tensor *const all[3], const ac_value *inverse, const ac_value *counts,
                       ac_tensor **out);

#endif
