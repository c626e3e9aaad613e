/* Copies of ranges of elements between strided tensors on CUDA, the implementation of
 * aci_range_copy. */
#ifndef ACI_OPS_RANGE_CUH
#define ACI_OPS_RANGE_CUH
#include "accel/opdef.h"

/* A range of elements. Strides are in elements. As in index.h. */
typedef struct aci_range {
  void *ptr;
  ac_dtype dtype;
  int64_t stride[AC_MAX_DIMS];
} aci_range;

ac_status aci_cuda_copy_range(ac_frame *f, int ndim, const int64_t *shape, const aci_range *dst,
                              const aci_range *src, ac_err *e);
/* aci_remap_run, for dims without runs of their own. */
struct aci_remap;
ac_status aci_cuda_remap(ac_frame *f, const ac_tensor *y, const void *x, const struct aci_remap *m,
                         const void *fill, ac_err *e);
/* y := x, of one shape. Converted when the dtypes differ. */
ac_status aci_cuda_copy_tensor(ac_frame *f, const ac_tensor *y, const ac_tensor *x, ac_err *e);
/* t in a run: its own memory, or a copy in *block (freed by the caller. NULL is fine). */
ac_status aci_cuda_in_a_run(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block,
                            ac_err *e);
/* A run of n elements at a multiple of 16 bytes, as kernels of libraries read it: *p itself, or a
 * copy in *block, as above. */
ac_status aci_cuda_aligned(ac_frame *f, const void **p, int64_t n, ac_dtype dt, ac_block **block,
                           ac_err *e);

#endif
