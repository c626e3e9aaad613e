/* Rows in int8: see rows_int8.h. */
#include "ops/quant/rows_int8.h"

#include <string.h>

#include "base/vmath.h"
#include "device/cpu/isa.h"
#include "ops/quant/nonfinite.h"

AC_ISA_FN(most_below, (const float *restrict x, int64_t n, float threshold, float *absmax),
          (x, n, threshold, absmax)) {
  const uint32_t outlier = aci_magnitude_bits(threshold);
  uint32_t most = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = aci_magnitude_bits(x[i]);
    u = u >= outlier && u <= 0x7f800000u ? 0 : u; /* a NaN is none */
    most = u > most ? u : most;
  }
  memcpy(absmax, &most, sizeof most);
}

/* To nearest even, by adding 1.5 x 2^23. */
AC_ISA_FN(round8,
          (const float *restrict x, int64_t n, float threshold, float scale, int8_t *restrict q),
          (x, n, threshold, scale, q)) {
  for (int64_t i = 0; i < n; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    const float r = (a < threshold ? x[i] * scale : 0) + 12582912.0f;
    int32_t v;
    memcpy(&v, &r, sizeof v);
    q[i] = (int8_t)(v - 0x4b400000);
  }
}

AC_ISA_FN(mark, (const float *restrict x, int64_t n, float threshold, uint8_t *restrict outlier),
          (x, n, threshold, outlier)) {
  for (int64_t i = 0; i < n; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    outlier[i] = (uint8_t)(outlier[i] | (a >= threshold));
  }
}

void aci_row_int8(const float *x, int64_t n, float threshold, int8_t *q, float *absmax) {
  const float below = threshold > 0 ? threshold : __builtin_inff();
  if (threshold > 0) most_below(x, n, below, absmax);
  else *absmax = aci_largest(x, n);
  if ((*absmax == 0 || !aci_is_finite(*absmax)) && n > 0)
    memset(q, 0, (size_t)n); /* 0 times infinity is NaN */
  else
    round8(x, n, below, 1.0f / *absmax * 127.0f, q); /* as PyTorch divides a number by a tensor */
}

AC_ISA_FN(through_f16, (float *x, int64_t n), (x, n)) {
  for (int64_t i = 0; i < n; i++)
    x[i] = x[i] > -65504.0f && x[i] < 65504.0f ? aci_f16_to_f32(aci_f32_to_f16(x[i])) : x[i];
}

void aci_row_through_f16(float *x, int64_t n) { through_f16(x, n); }

void aci_row_outliers(const float *x, int64_t n, float threshold, uint8_t *outlier) {
  mark(x, n, threshold, outlier);
}
