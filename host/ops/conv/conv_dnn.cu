/* Convolutions through cuDNN. */
#include "ops/conv/conv.cuh"
static bool wanted = true;
void aci_cuda_set_cudnn(bool on) { wanted = on; }
ac_status aci_cuda_conv_dnn(ac_frame *, const aci_conv_call *, ac_err *) { return AC_UNSUPPORTED; }
