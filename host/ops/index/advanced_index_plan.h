/* The positions that several index tensors name, for the kernels of the CPU (advanced_index.h) and
 * of device modules. */
#ifndef ACI_OPS_ADVANCED_INDEX_PLAN_H
#define ACI_OPS_ADVANCED_INDEX_PLAN_H
#include "accel/opdef.h"
#include "base/hostdev.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a tensor is seen: (outer, batch, inner) in the result, the indexed dims of the tensor between
 * outer and inner. If the indexed dims are not adjacent, outer is empty and inner holds all other
 * dims. */
typedef struct aci_advanced_index {
  int n_index; /* index tensors, in the order of their dims */
  int arg[AC_MAX_DIMS], dim[AC_MAX_DIMS];
  int n_outer, n_inner, outer[AC_MAX_DIMS], inner[AC_MAX_DIMS]; /* dims of the tensor */
  int n_batch;
  int64_t batch[AC_MAX_DIMS];
  int64_t n_outer_elems, n, n_inner_elems, n_dst; /* n_dst: product of the indexed extents */
  bool side_by_side;
  bool rank_0; /* the tensor has no dims and counts as one of a single position */
} aci_advanced_index;

/* Dims and shapes of x[indices] with index tensors in argument `arg` (a list or one tensor) for
 * dims `dims` (a list, one dim, or NONE: the first ones). shape is x's. Checks dtypes, dims and
 * broadcasting. */
ACI_MODULE_API ac_status aci_advanced_index_plan(const ac_frame *f, int arg, int dims, int ndim,
                                                 const int64_t *shape, aci_advanced_index *p,
                                                 ac_err *e);
/* The shape of the result. Returns its rank, which the plan has checked. */
ACI_MODULE_API int aci_advanced_index_shape(const aci_advanced_index *p, const int64_t *shape,
                                            int64_t *out);

#ifdef __cplusplus
}
#endif
#endif
