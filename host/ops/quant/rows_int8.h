/* Rows in int8, for quantize_int8, int8_vectorwise_quant and linear_quantized: q = round(127 x /
 * absmax), absmax the row's largest magnitude (Dettmers and others, "LLM.int8(): 8-bit Matrix
 * Multiplication for Transformers at Scale"). */
#ifndef ACI_OPS_ROWS_INT8_H
#define ACI_OPS_ROWS_INT8_H
#include <stdint.h>

/* One row. threshold > 0: values of at least this magnitude count as zero. A row of zeros has
 * absmax 0. A row that is not finite still decodes to NaN (nonfinite.h). */
void aci_row_int8(const float *x, int64_t n, float threshold, int8_t *q, float *absmax);
/* Rounds values to f16 but for those that it cannot hold. */
void aci_row_through_f16(float *x, int64_t n);
/* outlier[i] |= |x[i]| >= threshold */
void aci_row_outliers(const float *x, int64_t n, float threshold, uint8_t *outlier);

#endif
