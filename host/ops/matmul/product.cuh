/* Matrix products on CUDA: the implementation of aci_product_run. */
#ifndef ACI_OPS_PRODUCT_CUH
#define ACI_OPS_PRODUCT_CUH
#include "accel/opdef.h"
#include "ops/matmul/plan.h"

ac_status aci_cuda_product(ac_frame *f, const aci_product *p, ac_err *e);
/* Through cuBLASLt. UNSUPPORTED, without a message, for products it does not take: the tiles of
 * product.cu run those. */
ac_status aci_cuda_product_lt(ac_frame *f, const aci_product *p, ac_err *e);

#endif
