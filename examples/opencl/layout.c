/* Walks over strided operands, and copies in one run: see layout.h. */
#include "layout.h"

#include <string.h>

#include "kernels.h"

void ocl_broadcast(const ac_tensor *t, int ndim, const int64_t *shape, int64_t *stride) {
  const int lead = t != NULL ? ndim - ac_tensor_ndim(t) : ndim;
  for (int d = 0; d < ndim; d++) {
    const bool own = d >= lead && !(ac_tensor_shape(t)[d - lead] == 1 && shape[d] != 1);
    stride[d] = own ? ac_tensor_stride(t)[d - lead] : 0;
  }
}

ac_status ocl_layout_make(ocl_layout *l, int ndim, const int64_t *shape, int n_operands, const int64_t stride[][AC_MAX_DIMS], ac_err *e) {
  int64_t s[AC_MAX_DIMS + 1], st[OCL_OPERANDS][AC_MAX_DIMS + 1];
  int w = -1;
  memset(l, 0, sizeof *l);
  l->n = 1;
  for (int d = 0; d < ndim; d++) {
    l->n *= shape[d];
    if (shape[d] == 1) continue;
    bool join = w >= 0;
    for (int k = 0; k < n_operands && join; k++) join = st[k][w] == stride[k][d] * shape[d];
    if (join) s[w] *= shape[d];
    else s[++w] = shape[d];
    for (int k = 0; k < n_operands; k++) st[k][w] = stride[k][d];
  }
  if (w < 0) { /* one element */
    w = 0;
    s[0] = 1;
    for (int k = 0; k < n_operands; k++) st[k][0] = 1;
  }
  l->ndim = w + 1;
  if (l->ndim > OCL_DIMS) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices take strided tensors of at most %d dims; call contiguous()", OCL_DIMS);
  if (l->ndim > 1 && l->n > UINT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "OpenCL devices take strided tensors of less than 2^32 elements; call contiguous()");
  memcpy(l->shape, s, sizeof *s * (size_t)l->ndim);
  for (int k = 0; k < n_operands; k++) memcpy(l->stride[k], st[k], sizeof *s * (size_t)l->ndim);
  return AC_OK;
}

ac_status ocl_copy(ac_frame *f, int ndim, const int64_t *shape, void *dst, ac_dtype dst_dtype, const int64_t *dst_stride, const void *src,
                   ac_dtype src_dtype, const int64_t *src_stride, ac_err *e) {
  int64_t stride[2][AC_MAX_DIMS] = {{0}};
  ocl_layout l;
  ocl_call c;
  const char *type;
  memcpy(stride[0], dst_stride, sizeof *dst_stride * (size_t)ndim);
  if (src != NULL) memcpy(stride[1], src_stride, sizeof *src_stride * (size_t)ndim);
  AC_TRY(ocl_layout_make(&l, ndim, shape, src != NULL ? 2 : 1, (const int64_t(*)[AC_MAX_DIMS])stride, e));
  if (l.n == 0) return AC_OK;
  AC_TRY(ocl_type(f, dst_dtype, &type, e));
  AC_TRY(ocl_type(f, src_dtype, &type, e));
  ocl_begin(&c, f, ocl_copy_cl, src != NULL ? "copy" : "zero");
  ocl_define(&c, "#define DST %s\n#define SRC %s\n", ac_dtype_name(dst_dtype), ac_dtype_name(src_dtype));
  ocl_value(&c, &l, sizeof l);
  ocl_memory(&c, dst);
  if (src != NULL) ocl_memory(&c, src);
  return ocl_run(&c, l.n, OCL_GROUP, e);
}

ac_status ocl_scratch(ac_frame *f, size_t bytes, ac_block **block, ac_err *e) {
  return ac_block_alloc(f->device, bytes, AC_MEM_ACTIVATION, f->stream, block, e);
}

ac_status ocl_contiguous(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block, ac_err *e) {
  int64_t stride[AC_MAX_DIMS], all = 1;
  *block = NULL;
  *data = ac_tensor_data(t);
  if (ac_tensor_is_contiguous(t) || ac_tensor_numel(t) == 0) return AC_OK;
  for (int d = ac_tensor_ndim(t) - 1; d >= 0; d--) {
    stride[d] = all;
    all *= ac_tensor_shape(t)[d];
  }
  const ac_dtype dt = ac_tensor_dtype(t);
  AC_TRY(ocl_scratch(f, (size_t)(all * ocl_size(t)), block, e));
  *data = ac_block_ptr(*block);
  const ac_status st = ocl_copy(f, ac_tensor_ndim(t), ac_tensor_shape(t), ac_block_ptr(*block), dt, stride, ac_tensor_data(t), dt,
                                ac_tensor_stride(t), e);
  if (st == AC_OK) return AC_OK;
  ac_block_free(*block);
  *block = NULL;
  return st;
}

uint32_t ocl_mask(const ac_value *v, int ndim) {
  uint32_t mask = 0;
  if (v->kind == AC_T_NONE) return (uint32_t)((UINT64_C(1) << ndim) - 1);
  if (v->kind == AC_T_DIM || v->kind == AC_T_INT) return ndim > 0 ? 1u << ocl_dim(v->i, ndim) : 0;
  for (int i = 0; i < v->n && ndim > 0; i++) mask |= 1u << ocl_dim(v->ints[i], ndim);
  return mask;
}

void ocl_around(int ndim, const int64_t *shape, int dim, int64_t *outer, int64_t *n, int64_t *inner) {
  *outer = *n = *inner = 1;
  for (int d = 0; d < ndim; d++) *(d < dim ? outer : d == dim ? n : inner) *= shape[d];
}
