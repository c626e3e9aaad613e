/* linear_quantized's ways: linear_4bit.c and linear_int8.c. */
#ifndef ACI_OPS_QUANT_LINEAR_H
#define ACI_OPS_QUANT_LINEAR_H
#include "ops/quant/codes.h"

enum { ACI_QLINEAR_TILE = 64 /* outputs of a row that are stored at a time */ };

typedef struct aci_qlinear {
  ac_frame *f;
  const ac_tensor *x, *w;
  const ac_layout *l;
  const float *bias;  /* (n), or NULL */
  const double *wide; /* the same, for an x of f64 */
  ac_tensor *y;
  int64_t m, n, k;
} aci_qlinear;

/* Whether few rows are multiplied straight from the packed bytes. */
bool aci_linear_4bit_fits(const aci_qlinear *p);
ac_status aci_linear_4bit(const aci_qlinear *p, ac_err *e);
ac_status aci_linear_int8(const aci_qlinear *p, float threshold, ac_err *e);
/* Any layout: some rows of the weight at a time are dequantised to the dtype of x and multiplied by
 * gemm. */
ac_status aci_linear_panels(const aci_qlinear *p, ac_err *e);

#endif
