/* A kernel of the CPU for a call whose tensors are on an accelerator: they are copied to the host
 * and back. For ops that have no kernel of the device yet. Such an op is marked .by_vtable. */
#ifndef ACI_OPS_ON_HOST_H
#define ACI_OPS_ON_HOST_H
#include "ops/core/op.h"

ac_status aci_run_on_host(ac_frame *f, ac_kernel kernel, ac_err *e);

/* Defines `cpu`, which runs KERNEL directly if the tensors are on the host, otherwise on copies
 * there. */
#define ACI_ON_HOST(KERNEL)                                                              \
  static ac_status cpu(ac_frame *f, ac_err *e) {                                         \
    return aci_is_accelerator(f->device) ? aci_run_on_host(f, KERNEL, e) : KERNEL(f, e); \
  }

#endif
