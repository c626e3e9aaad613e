/* Compares the declarations of nvrtc.h with the toolkit's own header, if that is available. */
#include "ops/cuda/nvrtc.h"
#include "ops/cuda/signature.cuh"

#if !defined(ACI_CUDA_EMULATED) && __has_include(<nvrtc.h>)
#include <nvrtc.h>

static_assert((int)NVRTC_SUCCESS == 0 && (int)NVRTC_ERROR_COMPILATION == (int)ACI_NVRTC_REFUSED,
              "statuses");
ACI_NVRTC_CALLS(ACI_SAME_CALL)
#endif
