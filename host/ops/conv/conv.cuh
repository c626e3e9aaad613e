/* Convolutions on CUDA, between the files: conv.cu reads calls and takes products, conv_gemm.cu and
 * conv_direct.cu are kernels of our own, conv_dnn.cu goes through cuDNN. */
#ifndef ACI_OPS_CONV_CUH
#define ACI_OPS_CONV_CUH
#include "ops/conv/plan.h"

enum aci_conv_kind { ACI_CONV_FORWARD, ACI_CONV_INPUT, ACI_CONV_WEIGHT };

/* All operands contiguous and of dtype dt.
 *   FORWARD  a = x,  b = w, bias (groups * co) or NULL -> y
 *   INPUT    a = dy, b = w, bias (groups * ci) or NULL -> y = dx: also the transposed convolutions
 *   WEIGHT   a = dy, b = x                             -> y = dw */
struct aci_conv_call {
  aci_conv_kind kind;
  aci_conv c;
  ac_dtype dt;
  const void *a, *b, *bias;
  void *y;
  int64_t numel; /* of y, above 0 */
  int64_t plane; /* elements of y per channel, that bias is the same for */
};

AC_HOSTDEV static inline int64_t aci_conv_volume(const int64_t *extents) {
  return extents[0] * extents[1] * extents[2];
}

/* Through cuDNN. UNSUPPORTED, without a message, for calls that it does not take or if it is
 * missing. */
ac_status aci_cuda_conv_dnn(ac_frame *f, const aci_conv_call *k, ac_err *e);
ac_status aci_cuda_conv_gemm(ac_frame *f, const aci_conv_call *k, ac_err *e);
/* For few channels a group: a thread per result. */
bool aci_cuda_conv_is_direct(const aci_conv_call *k);
ac_status aci_cuda_conv_direct(ac_frame *f, const aci_conv_call *k, ac_err *e);
/* y := the bias of its channel, bit for bit, for kernels that add to it (beta = 1). */
ac_status aci_cuda_conv_bias(ac_frame *f, const aci_conv_call *k, ac_err *e);
/* y := the sum of n_parts sums of its size (float, or double of f64) in their order, plus bias. */
ac_status aci_cuda_conv_join(ac_frame *f, const aci_conv_call *k, const void *part, int64_t n_parts,
                             ac_err *e);

#endif
