/* An internal check that failed (ac_fault in accel/base.h). A context looks at the flag when it
 * begins a call. The first one that does claims the fault, and refuses every call from then on.
 * Used by ops/core/ctx.c, ops/core/call.c and the bindings' hosts. err.c has the functions. */
#ifndef ACI_FAULT_H
#define ACI_FAULT_H
#include "accel/base.h"

typedef struct aci_fault {
  const char *expr, *file; /* literals. Expr NULL: none */
  int line;
} aci_fault;

bool aci_fault_claim(aci_fault *f);
ac_status aci_fault_err(aci_fault f, ac_err *e); /* AC_INTERNAL with the place */

/* kernels in CUDA C++ include the context's header, and have no use for the flag */
#ifndef __cplusplus
#include <stdatomic.h>
extern atomic_bool aci_fault_pending;
#endif
#endif
