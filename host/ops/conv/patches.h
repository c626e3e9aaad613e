/* What unfold and fold share: a window over the planes of (N, C, H, W), and the copies between planes and
 * columns. */
#ifndef ACI_OPS_PATCHES_H
#define ACI_OPS_PATCHES_H
#include "ops/conv/conv.h"

typedef struct aci_patches {
  int64_t planes, channels; /* planes = batch * channels */
  int64_t in[2], out[2], k[2], dil[2], pad[2], stride[2];
} aci_patches;

/* Window arguments (kernel_size, dilation, padding, stride) from argument `at` on, over a tensor of this
 * shape. */
ac_status aci_patches_make(const ac_frame *f, int at, const int64_t *shape, int ndim, aci_patches *p,
                           ac_err *e);
/* Pushes the shape of the columns for a tensor of ndim dims. */
ac_status aci_patches_out(ac_frame *f, const aci_patches *p, int ndim, ac_dtype dt, ac_err *e);
ac_status aci_patches_unfold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y, ac_err *e);
ac_status aci_patches_fold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y, ac_err *e);

#endif
