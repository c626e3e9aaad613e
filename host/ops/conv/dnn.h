/* The part of cuDNN's classic interface (versions 8 and 9) that conv_dnn.cu calls, declared from
 * its documentation. The library is loaded if present, and is not needed to build. The twin's
 * stand-in (tests/cuda/twin/cudnn.cpp) defines the same functions. Enumerations are ints, and every
 * call returns a status, 0 for success. */
#ifndef ACI_OPS_CONV_DNN_H
#define ACI_OPS_CONV_DNN_H
#include <stddef.h>

/* cudnnDataType_t */
enum { ACI_DNN_FLOAT = 0, ACI_DNN_DOUBLE = 1, ACI_DNN_HALF = 2, ACI_DNN_BFLOAT16 = 9 };
/* cudnnTensorFormat_t */
enum { ACI_DNN_NCHW = 0 };
/* cudnnConvolutionMode_t */
enum { ACI_DNN_CROSS_CORRELATION = 1 };
/* cudnnMathType_t */
enum {
  ACI_DNN_DEFAULT_MATH = 0,
  ACI_DNN_TENSOR_MATH = 1,
  ACI_DNN_CONVERTING_MATH = 2,
  ACI_DNN_FMA_MATH = 3
};
/* cudnnDeterminism_t */
enum { ACI_DNN_DETERMINISTIC = 1 };
/* cudnnStatus_t */
enum {
  ACI_DNN_NOT_SUPPORTED_8 = 9,
  ACI_DNN_NOT_SUPPORTED = 3000,
  ACI_DNN_NOT_SUPPORTED_END = 4000
};

typedef struct cudnnContext *aci_dnn_handle;
typedef struct cudnnTensorStruct *aci_dnn_tensor;
typedef struct cudnnFilterStruct *aci_dnn_filter;
typedef struct cudnnConvolutionStruct *aci_dnn_conv;

/* cudnnConvolutionFwdAlgoPerf_t and its two variants: a heuristic's entry for an algorithm. */
typedef struct aci_dnn_algo {
  int algo, status;
  float time;
  size_t memory;
  int determinism, math;
  int reserved[3];
} aci_dnn_algo;

/* X(name, parameters) */
/* clang-format off */
#define ACI_DNN_CALLS(X)                                                                                                       \
  X(cudnnCreate, (aci_dnn_handle *))                                                                                           \
  X(cudnnSetStream, (aci_dnn_handle, cudaStream_t))                                                                            \
  X(cudnnCreateTensorDescriptor, (aci_dnn_tensor *))                                                                           \
  X(cudnnSetTensorNdDescriptor, (aci_dnn_tensor, int type, int n, const int *extents, const int *strides))                     \
  X(cudnnDestroyTensorDescriptor, (aci_dnn_tensor))                                                                            \
  X(cudnnCreateFilterDescriptor, (aci_dnn_filter *))                                                                           \
  X(cudnnSetFilterNdDescriptor, (aci_dnn_filter, int type, int format, int n, const int *extents))                             \
  X(cudnnDestroyFilterDescriptor, (aci_dnn_filter))                                                                            \
  X(cudnnCreateConvolutionDescriptor, (aci_dnn_conv *))                                                                        \
  X(cudnnSetConvolutionNdDescriptor,                                                                                           \
    (aci_dnn_conv, int n, const int *pad, const int *stride, const int *dilation, int mode, int compute))                      \
  X(cudnnSetConvolutionGroupCount, (aci_dnn_conv, int groups))                                                                 \
  X(cudnnSetConvolutionMathType, (aci_dnn_conv, int math))                                                                     \
  X(cudnnDestroyConvolutionDescriptor, (aci_dnn_conv))                                                                         \
  X(cudnnGetConvolutionForwardAlgorithm_v7,                                                                                    \
    (aci_dnn_handle, aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv, aci_dnn_tensor y, int want, int *got, aci_dnn_algo *))  \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7,                                                                               \
    (aci_dnn_handle, aci_dnn_filter w, aci_dnn_tensor dy, aci_dnn_conv, aci_dnn_tensor dx, int want, int *got, aci_dnn_algo *)) \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7,                                                                             \
    (aci_dnn_handle, aci_dnn_tensor x, aci_dnn_tensor dy, aci_dnn_conv, aci_dnn_filter dw, int want, int *got, aci_dnn_algo *)) \
  X(cudnnGetConvolutionForwardWorkspaceSize,                                                                                   \
    (aci_dnn_handle, aci_dnn_tensor x, aci_dnn_filter w, aci_dnn_conv, aci_dnn_tensor y, int algo, size_t *bytes))             \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize,                                                                              \
    (aci_dnn_handle, aci_dnn_filter w, aci_dnn_tensor dy, aci_dnn_conv, aci_dnn_tensor dx, int algo, size_t *bytes))           \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize,                                                                            \
    (aci_dnn_handle, aci_dnn_tensor x, aci_dnn_tensor dy, aci_dnn_conv, aci_dnn_filter dw, int algo, size_t *bytes))           \
  X(cudnnConvolutionForward,                                                                                                   \
    (aci_dnn_handle, const void *alpha, aci_dnn_tensor, const void *x, aci_dnn_filter, const void *w, aci_dnn_conv, int algo,  \
     void *workspace, size_t bytes, const void *beta, aci_dnn_tensor, void *y))                                                \
  X(cudnnConvolutionBackwardData,                                                                                              \
    (aci_dnn_handle, const void *alpha, aci_dnn_filter, const void *w, aci_dnn_tensor, const void *dy, aci_dnn_conv, int algo, \
     void *workspace, size_t bytes, const void *beta, aci_dnn_tensor, void *dx))                                               \
  X(cudnnConvolutionBackwardFilter,                                                                                            \
    (aci_dnn_handle, const void *alpha, aci_dnn_tensor, const void *x, aci_dnn_tensor, const void *dy, aci_dnn_conv, int algo, \
     void *workspace, size_t bytes, const void *beta, aci_dnn_filter, void *dw))
/* clang-format on */

#endif
