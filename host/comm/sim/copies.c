/* Reductions of equal values: the result if every rank had this rank's data. Called by sim.c. */
#include <string.h>

#include "base/vmath.h"
#include "comm/sim/sim.h"

/* x^n modulo 2^64. Narrower integers keep the low bits, as wrapping products do. */
static uint64_t power_int(uint64_t x, int64_t n) {
  uint64_t y = 1;
  for (; n > 0; n >>= 1, x *= x)
    if (n & 1) y *= x;
  return y;
}

static double power(double x, int64_t n) {
  double y = 1;
  for (; n > 0; n >>= 1, x *= x)
    if (n & 1) y *= x;
  return y;
}

static uint64_t whole(ac_reduce_op op, uint64_t x, int64_t copies) {
  return op == AC_REDUCE_SUM ? x * (uint64_t)copies : power_int(x, copies);
}

static double real(ac_reduce_op op, double x, int64_t copies) {
  return op == AC_REDUCE_SUM ? x * (double)copies : power(x, copies);
}

#define ACI_EACH(type, expr)                                          \
  do {                                                                \
    for (int64_t i = 0; i < n; i++) {                                 \
      type x;                                                         \
      memcpy(&x, (const char *)src + (size_t)i * sizeof x, sizeof x); \
      x = (type)(expr);                                               \
      memcpy((char *)dst + (size_t)i * sizeof x, &x, sizeof x);       \
    }                                                                 \
  } while (0)

void aci_sim_copies(ac_dtype dt, ac_reduce_op op, int64_t copies, const void *src, void *dst,
                    int64_t n) {
  if (n <= 0) return;
  if ((op != AC_REDUCE_SUM && op != AC_REDUCE_PROD) || copies == 1 || dt == AC_BOOL) {
    if (dst != src) memmove(dst, src, (size_t)n * ac_dtype_bytes(dt));
    return;
  }
  switch (dt) {
    case AC_F64: ACI_EACH(double, real(op, x, copies)); break;
    case AC_F32: ACI_EACH(float, real(op, (double)x, copies)); break;
    case AC_F16:
      ACI_EACH(uint16_t, aci_f32_to_f16((float)real(op, (double)aci_f16_to_f32(x), copies)));
      break;
    case AC_BF16:
      ACI_EACH(uint16_t, aci_f32_to_bf16((float)real(op, (double)aci_bf16_to_f32(x), copies)));
      break;
    default: /* two's complement: the low bits of a product do not depend on sign or width */
      switch (ac_dtype_bytes(dt)) {
        case 1: ACI_EACH(uint8_t, whole(op, x, copies)); break;
        case 2: ACI_EACH(uint16_t, whole(op, x, copies)); break;
        case 4: ACI_EACH(uint32_t, whole(op, x, copies)); break;
        default: ACI_EACH(uint64_t, whole(op, x, copies)); break;
      }
  }
}
