/* Blocks and rows with a NaN or an infinity, for all that quantises: codes.c, rows_int8.c, the ops
 * of this folder, their CUDA twins, states of 8 bits and GGUF's blocks. The largest magnitude of
 * such a block is not finite and is stored, so that no element of the block decodes to a finite
 * number: NaN if there is one. In a block with infinities alone these stay (as in bitsandbytes) if
 * a code for 1 exists, and the rest is NaN, 0 times infinity. Magnitudes are compared as integers,
 * in which order NaN stands above the infinities and those above all numbers. */
#ifndef ACI_OPS_NONFINITE_H
#define ACI_OPS_NONFINITE_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/hostdev.h"

AC_HOSTDEV static inline uint32_t aci_magnitude_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u & 0x7fffffffu;
}
AC_HOSTDEV static inline bool aci_is_finite(float x) { return aci_magnitude_bits(x) < 0x7f800000u; }
/* The code of an element of a block with infinities: 1, -1, or 0 for the finite ones. */
AC_HOSTDEV static inline float aci_infinity_sign(float x) {
  return aci_magnitude_bits(x) != 0x7f800000u ? 0.0f : x > 0 ? 1.0f : -1.0f;
}

#ifndef __CUDACC__
/* The largest magnitude of n values: codes.c. */
float aci_largest(const float *x, int64_t n);
#endif

#endif
