/* Copies between planes and columns, shared by unfold and fold. plan.h lays out their windows. */
#ifndef ACI_OPS_PATCHES_H
#define ACI_OPS_PATCHES_H
#include "ops/conv/conv.h"

/* Pushes the shape of the columns for a tensor of ndim dims. */
ac_status aci_patches_out(ac_frame *f, const aci_patches *p, int ndim, ac_dtype dt, ac_err *e);
ac_status aci_patches_unfold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y,
                             ac_err *e);
ac_status aci_patches_fold(ac_frame *f, const aci_patches *p, const ac_tensor *x, ac_tensor *y,
                           ac_err *e);

#endif
