/* Division by numbers known at launch: a multiplication and a shift if dividend and divisor fit 31
 * bits (Granlund and Montgomery), otherwise a division, which is a subroutine of its own. */
#ifndef ACI_CUDA_DIVIDE_CUH
#define ACI_CUDA_DIVIDE_CUH
#include <cuda_runtime.h>
#include <stdint.h>

struct aci_divisor {
  int64_t d;
  uint32_t factor; /* 0: d has more than 31 bits */
  int shift;
};
/* d > 0. On the host, or on the device if a block computes one itself. */
static __host__ __device__ __forceinline__ aci_divisor aci_divide_by(int64_t d) {
  aci_divisor v = {d, 0, 0};
  if (d > 0x7fffffff) return v;
  while (((int64_t)1 << v.shift) < d) v.shift++;
  v.factor = (uint32_t)(((((uint64_t)1 << v.shift) - (uint64_t)d) << 32) / (uint64_t)d + 1);
  return v;
}

/* Of n < 2^31, by a divisor that fits. */
static __device__ __forceinline__ uint32_t aci_quotient32(uint32_t n, const aci_divisor &v) {
  return ((uint32_t)(((uint64_t)n * v.factor) >> 32) + n) >> v.shift;
}
/* n >= 0. */
static __device__ __forceinline__ int64_t aci_quotient(int64_t n, const aci_divisor &v) {
  return n <= 0x7fffffff && v.factor != 0 ? (int64_t)aci_quotient32((uint32_t)n, v) : n / v.d;
}
/* n becomes the quotient, the rest is returned: positions of a row-major shape from its last dim
 * on. */
static __device__ __forceinline__ int64_t aci_take(int64_t *n, const aci_divisor &v) {
  const int64_t q = aci_quotient(*n, v), rest = *n - q * v.d;
  *n = q;
  return rest;
}

#endif
