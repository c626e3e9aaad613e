/* Ops whose results have shapes that depend on data ("-> dynamic").
 *
 * Their shape rule gives the bound, which the meta device returns. On other devices the results
 * have no bytes when the kernel starts: it counts first, then gives each one its shape and its
 * bytes by this call, before anything is written. */
#ifndef ACI_OPS_DYNAMIC_H
#define ACI_OPS_DYNAMIC_H
#include "accel/opdef.h"
#include "base/hostdev.h"

#ifdef __cplusplus
extern "C" {
#endif
ACI_MODULE_API ac_status aci_frame_size(ac_frame *f, int result, int ndim, const int64_t *shape,
                                        ac_err *e);
#ifdef __cplusplus
}
#endif
#endif
