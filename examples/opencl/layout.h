/* Operands of a kernel laid out: the same walk over all of them, with dims joined as far as their strides allow; `struct layout` of
 * prelude.cl. */
#ifndef OCL_LAYOUT_H
#define OCL_LAYOUT_H
#include "device.h"

enum { OCL_DIMS = 8, OCL_OPERANDS = 5 };

typedef struct ocl_layout {
  int64_t n, ndim;
  int64_t shape[OCL_DIMS], stride[OCL_OPERANDS][OCL_DIMS];
} ocl_layout;

/* Strides of t (NULL: a number, 0 all over) as an operand of a walk over ndim dims: 0 where it is repeated. */
void ocl_broadcast(const ac_tensor *t, int ndim, const int64_t *shape, int64_t *stride);
/* UNSUPPORTED: more dims are left than kernels take, or 2^32 strided elements. */
ac_status ocl_layout_make(ocl_layout *l, int ndim, const int64_t *shape, int n_operands, const int64_t stride[][AC_MAX_DIMS], ac_err *e);

/* dst := src, elementwise, for any dtypes and strides; the tensors' own addresses. src NULL: zeros. */
ac_status ocl_copy(ac_frame *f, int ndim, const int64_t *shape, void *dst, ac_dtype dst_dtype, const int64_t *dst_stride, const void *src,
                   ac_dtype src_dtype, const int64_t *src_stride, ac_err *e);
/* t's elements in one run: where they lie, or a copy in *block, which the caller frees (NULL is fine). */
ac_status ocl_contiguous(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block, ac_err *e);
ac_status ocl_scratch(ac_frame *f, size_t bytes, ac_block **block, ac_err *e);

/* Bytes of one element. */
static inline int64_t ocl_size(const ac_tensor *t) { return (int64_t)ac_dtype_bytes(ac_tensor_dtype(t)); }
/* A dim of an argument from 0, and the mask of its dims; NONE: all of them. */
static inline int ocl_dim(int64_t d, int ndim) { return (int)(d < 0 ? d + (ndim > 0 ? ndim : 1) : d); }
uint32_t ocl_mask(const ac_value *dims, int ndim);
/* x as (outer, n, inner) around a dim. */
void ocl_around(int ndim, const int64_t *shape, int dim, int64_t *outer, int64_t *n, int64_t *inner);

#endif
