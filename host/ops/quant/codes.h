/* Shared by the ops on quantised tensors: results with a layout, values into codes and back.
 *
 * Map of the folder. One op, one file of its name:
 *
 *   layouts of storage (ac_layout in accel/tensor.h), numbers as bitsandbytes'
 *     quantize_4bit quantize_int8 quantize_dynamic dequantize int8_vectorwise_quant
 *     linear_quantized embedding_quantized
 *     codes.[ch]                       this header. mean.c has one of its functions. rows_int8.[ch]
 *                                      rows in int8
 *     nonfinite.h                      NaN and infinities in blocks and rows
 *     linear_4bit.c linear_int8.c      products that read the packed bytes, for linear_quantized
 *                                      (linear.h). dot_4bit.c and dot_int8.c their inner loops by
 *                                      instruction set (dot.h)
 *     layout.cu encode.cu linear_quantized.cu   the same on CUDA: values, codes, products
 *     (layout.cuh, encode.cuh)
 *   scales of their own
 *     quantize_blockwise dequantize_blockwise: the transport format of gradients (quant.h,
 *     quant.cu) */
#ifndef ACI_OPS_CODES_H
#define ACI_OPS_CODES_H
#include "ops/index/index.h"
#include "tensor/layout.h"

/* Next output: a quantised tensor. */
ac_status aci_frame_out_quantized(ac_frame *f, const ac_layout *l, ac_err *e);
/* DTYPE unless values of x can be quantised: f32, f16, bf16. */
ac_status aci_quantizable(const ac_tensor *x, ac_err *e);

/* x[0..n) as codes of a DYNAMIC type, with the largest magnitude. A block of zeros has code 0 and
 * absmax 0. For blocks that are not finite, see nonfinite.h. Code of x / absmax in 65,536 even
 * steps of [-1, 1], the nearest to the middle of the step. */
void aci_encode_dynamic(ac_quant_type type, const float *x, int64_t n, uint8_t *q, float *absmax);
/* y[i] = map[q[i]] * absmax */
void aci_decode_dynamic(ac_quant_type type, const uint8_t *q, int64_t n, float absmax, float *y);
/* The mean of x (0 of nothing), as PyTorch computes it: mean.c. */
float aci_mean_of(const float *x, int64_t n);
/* absmax (blocks) of a nested layout into t's arrays: offset, codes, their absmax. */
void aci_nest_absmax(ac_tensor *t, const ac_layout *l, const float *absmax);
/* absmax of blocks [first, first + n) as f32. */
void aci_absmax_load(const ac_tensor *t, const ac_layout *l, int64_t first, int64_t n,
                     float *absmax);
/* Values [begin, begin + n) of a quantised tensor, in row-major order. */
void aci_dequantize_load(const ac_tensor *t, const ac_layout *l, int64_t begin, int64_t n,
                         float *y);
/* The same in bf16, the same bits. False, with nothing done, if there is no faster way: it needs 4
 * bits, whole blocks and a CPU with bf16. */
bool aci_dequantize_bf16(const ac_tensor *t, const ac_layout *l, int64_t begin, int64_t n,
                         uint16_t *y);

#endif
