/* A tensor seen as kept times reduced dims (see reduce.h), for reductions on the CPU and in device
 * modules. */
#ifndef ACI_OPS_REDUCE_PLAN_H
#define ACI_OPS_REDUCE_PLAN_H
#include "accel/opdef.h"
#include "ops/map/convert.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The mask that aci_reduce_out worked with, for kernels and gradients (arguments are checked by
 * then). */
ACI_MODULE_API uint32_t aci_reduce_mask(const ac_value *dims, int ndim);

typedef struct aci_reduce_plan {
  const char *ptr; /* element 0 */
  ac_dtype dt;
  aci_ctype ct;
  int n_keep, n_red; /* dims left after joining neighbours. At least 1 each */
  int64_t keep_shape[AC_MAX_DIMS], keep_stride[AC_MAX_DIMS];
  int64_t red_shape[AC_MAX_DIMS], red_stride[AC_MAX_DIMS];
  int64_t n_out, n_reduced;
  /* NULL, or the source of elements other than memory (ops/core/fuse.h): n of them from offset `at` on,
   * adjacent there, as f32. */
  void (*source)(const void *from, int64_t at, int64_t n, float *to);
  const void *from;
} aci_reduce_plan;
ACI_MODULE_API void aci_reduce_plan_make(aci_reduce_plan *p, const ac_tensor *x, uint32_t mask,
                                         aci_ctype ct);

#ifdef __cplusplus
}
#endif
#endif
