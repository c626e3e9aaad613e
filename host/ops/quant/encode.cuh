/* Quantisation on CUDA, and rows of it in int8: encode.cu, for its ops and linear_quantized.cu. */
#ifndef ACI_QUANT_ENCODE_CUH
#define ACI_QUANT_ENCODE_CUH
#include "ops/quant/layout.cuh"

/* Elements of a tensor of any float dtype and layout, by row-major position. */
struct aci_source {
  const void *p;
  ac_dtype dt;
  int ndim; /* 0: contiguous */
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
};
static inline aci_source aci_source_of(const ac_tensor *x) {
  aci_source s = {};
  s.p = aci_data(x);
  s.dt = (ac_dtype)x->dtype;
  s.n = x->numel;
  if (aci_is_contiguous(x)) return s;
  s.ndim = x->ndim;
  memcpy(s.shape, x->shape, 8 * (size_t)x->ndim);
  memcpy(s.stride, x->stride, 8 * (size_t)x->ndim);
  return s;
}
ACI_DEVICE float aci_source_at(const aci_source &x, int64_t i) {
  return aci_get<float>(x.dt, x.p,
                        x.ndim == 0 ? i : aci_element_offset(i, x.ndim, x.shape, x.stride));
}

/* rows_int8.h's numbers: rows of n values, each as n of `stride` bytes, the others 0. */
struct aci_rows_int8 {
  aci_source x;
  int64_t rows, n, stride;
  float below;      /* larger magnitudes are outliers, 0 in q. INFINITY: none */
  bool through_f16; /* values are rounded to f16 first, if that holds them */
  int8_t *q;
  float *absmax;
  uint8_t *outlier; /* columns with outliers. NULL: not wanted */
};
ACI_DEVICE float aci_row_value(const aci_rows_int8 &a, int64_t i) {
  const float v = aci_source_at(a.x, i);
  return a.through_f16 && v > -65504.0f && v < 65504.0f ? aci_f16_value(aci_f16_bits(v)) : v;
}
ac_status aci_cuda_rows_int8(ac_frame *f, const aci_rows_int8 &a, ac_err *e);
/* Values of a quantised tensor, row after row at y. */
ac_status aci_cuda_dequantize(ac_frame *f, const ac_tensor *t, const ac_layout *l, ac_dtype dt,
                              void *y, ac_err *e);

#endif
