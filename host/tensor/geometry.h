/* Shapes and strides as numbers, with the overflow-safe arithmetic that untrusted shapes need.
 * Beside tensor_impl.h, for the tensor stage and for shape rules. */
#ifndef ACI_TENSOR_GEOMETRY_H
#define ACI_TENSOR_GEOMETRY_H
#include "tensor/tensor_impl.h"

/* Product of the extents, -1 when one is negative or the elements (without the empty dims) cannot
 * be counted in 62 bits. */
int64_t aci_numel(int ndim, const int64_t *shape);
/* Strides of a row-major tensor of this shape. Returns the same number. */
int64_t aci_contiguous(int ndim, const int64_t *shape, int64_t *stride);
/* SHAPE when there are more than AC_MAX_DIMS dims, a negative extent or too many elements. */
ac_status aci_shape_check(int ndim, const int64_t *shape, ac_err *e);
/* Distance in elements from the first to one past the last element that the strides reach. 0
 * without elements, -1 when a stride is negative or the span does not fit in 62 bits. */
int64_t aci_span(int ndim, const int64_t *shape, const int64_t *stride);
/* Position of element i of the row-major order, in elements from the storage's start. */
int64_t aci_position(const ac_tensor *t, int64_t i);

#endif
