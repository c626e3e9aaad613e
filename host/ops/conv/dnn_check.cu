/* Compares the declarations of dnn.h with cuDNN's own header, if that is available. */
#include "ops/conv/dnn.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/signature.cuh"

#if !defined(ACI_CUDA_EMULATED) && __has_include(<cudnn.h>)
#pragma nv_diag_suppress 1444 /* the classic interface is deprecated */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cudnn.h>

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(ACI_DNN_FLOAT, CUDNN_DATA_FLOAT);
SAME(ACI_DNN_DOUBLE, CUDNN_DATA_DOUBLE);
SAME(ACI_DNN_HALF, CUDNN_DATA_HALF);
SAME(ACI_DNN_BFLOAT16, CUDNN_DATA_BFLOAT16);
SAME(ACI_DNN_NCHW, CUDNN_TENSOR_NCHW);
SAME(ACI_DNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION);
SAME(ACI_DNN_DEFAULT_MATH, CUDNN_DEFAULT_MATH);
SAME(ACI_DNN_TENSOR_MATH, CUDNN_TENSOR_OP_MATH);
SAME(ACI_DNN_CONVERTING_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
SAME(ACI_DNN_FMA_MATH, CUDNN_FMA_MATH);
SAME(ACI_DNN_DETERMINISTIC, CUDNN_DETERMINISTIC);
SAME(CUDNN_STATUS_SUCCESS, 0);
#if CUDNN_MAJOR >= 9
SAME(ACI_DNN_NOT_SUPPORTED, CUDNN_STATUS_NOT_SUPPORTED);
#else
SAME(ACI_DNN_NOT_SUPPORTED_8, CUDNN_STATUS_NOT_SUPPORTED);
#endif
#define SAME_ALGO(theirs)                                                   \
  SAME(sizeof(aci_dnn_algo), sizeof(theirs));                               \
  SAME(offsetof(aci_dnn_algo, algo), offsetof(theirs, algo));               \
  SAME(offsetof(aci_dnn_algo, status), offsetof(theirs, status));           \
  SAME(offsetof(aci_dnn_algo, memory), offsetof(theirs, memory));           \
  SAME(offsetof(aci_dnn_algo, determinism), offsetof(theirs, determinism)); \
  SAME(offsetof(aci_dnn_algo, math), offsetof(theirs, mathType))
SAME_ALGO(cudnnConvolutionFwdAlgoPerf_t);
SAME_ALGO(cudnnConvolutionBwdDataAlgoPerf_t);
SAME_ALGO(cudnnConvolutionBwdFilterAlgoPerf_t);
ACI_DNN_CALLS(ACI_SAME_CALL)
#endif
