/* layer_norm and rms_norm on CUDA, between the files: norm_kernel.cu reads calls and takes rows of
 * any strides, norm_lines.cu those that lie in runs. */
#ifndef ACI_OPS_NORM_ROWS_CUH
#define ACI_OPS_NORM_ROWS_CUH
#include "ops/reduce/rows.cuh"

struct norm_args {
  aci_reduce_plan x, dy, out;
  /* forward: x, which is sum, := residual + addend first. backward: dsum */
  aci_reduce_plan residual, addend;
  aci_reduce_plan w, b; /* as one list each */
  bool has_residual, has_addend, has_w, has_b;
  bool rms;
  double eps;
  void *part;              /* [piece][which][column] */
  int64_t piece, n_pieces; /* rows */
};

/* Results of the frame: y, or dx and the existing ones of dweight and dbias. UNSUPPORTED, without a
 * message: not in runs. */
ac_status aci_cuda_norm_lines(ac_frame *f, const norm_args *a, bool back, ac_err *e);

#endif
