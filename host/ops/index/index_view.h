/* The key of t[{...}] without index tensors, as a list of numbers: three for each entry, in the
 * order of the dims.
 *   start, length, step    positions start, start + step, ... of the next dim
 *   position, SELECT, 0       one position of the next dim, which goes
 *   0, NEW, 0              a new dim of extent 1
 * Dims that no entry reaches stay whole. Called by index_view.c and slice.c, written by the
 * bindings too. */
#ifndef ACI_OPS_INDEX_VIEW_H
#define ACI_OPS_INDEX_VIEW_H
#include "ops/index/index.h"

enum { ACI_VIEW_SELECT = -1, ACI_VIEW_NEW = -2 };

/* Applies a spec to (ndim, shape, stride): the view's geometry, *offset in elements from the first
 * one. INVALID when the spec does not fit. */
ac_status aci_view_geometry(int ndim, const int64_t *shape, const int64_t *stride,
                            const ac_value *spec, int *out_ndim, int64_t *out_shape,
                            int64_t *out_stride, int64_t *offset, ac_err *e);

#endif
