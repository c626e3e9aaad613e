/* Shared by max, min, amax, amin, argmax and argmin. */
#ifndef ACI_OPS_MINMAX_H
#define ACI_OPS_MINMAX_H
#include "ops/reduce/reduce.h"

/* Largest (min: smallest) element under each output, and its first position in the list of reduced
 * elements. NaN is beyond everything. values has the dtype of x, indices is i64. Either may be
 * NULL, both are contiguous. */
ac_status aci_minmax(ac_frame *f, const ac_tensor *x, uint32_t mask, bool min, ac_tensor *values,
                     ac_tensor *indices, ac_err *e);
/* The same for values alone, for short lists of floats. */
ac_status aci_minmax_short(ac_frame *f, const ac_tensor *x, uint32_t mask, bool min,
                           ac_tensor *values, ac_err *e);
/* SHAPE when outputs would have nothing to choose from. */
ac_status aci_minmax_check(const ac_frame *f, uint32_t mask, ac_err *e);

/* max and min: (x, dim?, keepdim) -> values, or values and indices with dim. */
ac_status aci_minmax_pair_shape(ac_frame *f, ac_err *e);
ac_status aci_minmax_pair_run(ac_frame *f, bool min, ac_err *e);
void aci_minmax_pair_grad(ac_grad *g);
/* amax and amin: (x, dims?, keepdim) -> values. */
ac_status aci_minmax_values_shape(ac_frame *f, ac_err *e);
ac_status aci_minmax_values_run(ac_frame *f, bool min, ac_err *e);
void aci_minmax_values_grad(ac_grad *g);
/* argmax and argmin: (x, dim?, keepdim) -> indices. */
ac_status aci_minmax_index_shape(ac_frame *f, ac_err *e);
ac_status aci_minmax_index_run(ac_frame *f, bool min, ac_err *e);

#endif
