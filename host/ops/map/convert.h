/* Rows of any dtype to and from the three types that kernels compute in. Called by every driver
 * that reads strided or 16-bit data. */
#ifndef ACI_OPS_CONVERT_H
#define ACI_OPS_CONVERT_H
#include "accel/tensor.h"
#include "base/hostdev.h"

/* The compute type of a kernel: f16 bf16 f32 and the floats of 8 bits -> F32, f64 -> F64, integers
 * and bool -> I64. */
typedef enum aci_ctype { ACI_C_F32, ACI_C_F64, ACI_C_I64 } aci_ctype;

static inline aci_ctype aci_ctype_of(ac_dtype d) {
  return d == AC_F64                                                  ? ACI_C_F64
         : ac_dtype_is_float(d) || d == AC_F8_E4M3 || d == AC_F8_E5M2 ? ACI_C_F32
                                                                      : ACI_C_I64;
}
static inline size_t aci_ctype_bytes(aci_ctype c) { return c == ACI_C_F32 ? 4 : 8; }

#ifdef __cplusplus
extern "C" {
#endif
/* dst[i] = (ctype)src[i*stride], i < n. stride in elements of dt. 0 repeats one value. */
void aci_load(aci_ctype c, void *dst, ac_dtype dt, const void *src, int64_t stride, int64_t n);
/* dst[i*stride] = (dtype)src[i], rounding to nearest even. bool stores src != 0. Float to integer
 * truncates. Beyond the range of the integer type it is what the CPU gives, which differs between
 * x86-64 and Arm, but negative floats wrap around in unsigned types everywhere. */
void aci_store(aci_ctype c, const void *src, ac_dtype dt, void *dst, int64_t stride, int64_t n);
/* v as one element of dtype dt, into up to 8 bytes. */
ACI_MODULE_API void aci_scalar_bytes(ac_scalar v, ac_dtype dt, void *bytes);
#ifdef __cplusplus
}
#endif

#endif
