/* Matrix products on CUDA: what aci_product_run is there. */
#ifndef ACI_OPS_PRODUCT_CUH
#define ACI_OPS_PRODUCT_CUH
#include "accel/opdef.h"
#include "ops/matmul/plan.h"

ac_status aci_cuda_product(ac_frame *f, const aci_product *p, ac_err *e);
/* Through cuBLASLt; UNSUPPORTED, without a message, for what it does not take: the tiles of product.cu do. */
ac_status aci_cuda_product_lt(ac_frame *f, const aci_product *p, ac_err *e);

#endif
