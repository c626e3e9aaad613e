/* Elements of any dtype in and out of the types that kernels compute in, one by one and as vectors
 * of 16 bytes. The same formulas as the CPU's rows (ops/map/convert.c), so the same bits.
 * Exception: a float that does not fit the integer dtype gives the hardware's result, which
 * differs, as in PyTorch. */
#ifndef ACI_CUDA_ELEMENTS_CUH
#define ACI_CUDA_ELEMENTS_CUH
#include <cuda_runtime.h>

#include "accel/tensor.h"
#include "base/float8.h"

#define ACI_DEVICE static __device__ __forceinline__
/* Called, for rare code that would be large if inlined in every kernel. */
#define ACI_DEVICE_CALL static __device__ __attribute__((noinline))

/* The device has an instruction for each. A NaN stays some NaN. */
#if defined(__CUDA_ARCH__)
ACI_DEVICE float aci_f16_value(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
ACI_DEVICE uint16_t aci_f16_bits(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
#define aci_f16_value aci_f16_to_f32
#define aci_f16_bits aci_f32_to_f16
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
ACI_DEVICE uint16_t aci_bf16_bits(float x) {
  uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
#else
#define aci_bf16_bits aci_f32_to_bf16
#endif

#define ACI_SAME(x) (x)
#define ACI_NONZERO(x) ((x) != 0)
#define ACI_BF16_STORE(x) aci_bf16_bits((float)(x))
#define ACI_F16_STORE(x) aci_f16_bits((float)(x))
#define ACI_E4M3_STORE(x) aci_e4m3_bits((float)(x))
#define ACI_E5M2_STORE(x) aci_e5m2_bits((float)(x))
/* X(dtype, C type of its bytes, load expression, store expression) */
/* clang-format off */
#define ACI_ELEMENT_TYPES(X)                                                                                      \
  X(F64, double, ACI_SAME, ACI_SAME) X(F32, float, ACI_SAME, ACI_SAME)                                            \
  X(F16, uint16_t, aci_f16_value, ACI_F16_STORE) X(BF16, uint16_t, aci_bf16_to_f32, ACI_BF16_STORE)              \
  X(I64, int64_t, ACI_SAME, ACI_SAME) X(I32, int32_t, ACI_SAME, ACI_SAME) X(I16, int16_t, ACI_SAME, ACI_SAME)     \
  X(I8, int8_t, ACI_SAME, ACI_SAME) X(U8, uint8_t, ACI_SAME, ACI_SAME) X(BOOL, uint8_t, ACI_NONZERO, ACI_NONZERO) \
  X(U16, uint16_t, ACI_SAME, ACI_SAME) X(U32, uint32_t, ACI_SAME, ACI_SAME)                                       \
  X(F8_E4M3, uint8_t, aci_e4m3_value, ACI_E4M3_STORE) X(F8_E5M2, uint8_t, aci_e5m2_value, ACI_E5M2_STORE)
/* clang-format on */

/* ---- a dtype that is known when compiling: aci_element<AC_BF16>::load(bits) ---- */
template <int D> struct aci_element;
#define ACI_ELEMENT(D, S, LOAD, STORE)                                                        \
  template <> struct aci_element<AC_##D> {                                                    \
    typedef S bits;                                                                           \
    template <class C> static __device__ __forceinline__ C load(S x) { return (C)LOAD(x); }   \
    template <class C> static __device__ __forceinline__ S store(C x) { return (S)STORE(x); } \
  };
ACI_ELEMENT_TYPES(ACI_ELEMENT)

/* ---- a dtype that is known when running: the same for all threads, so that the branch costs next to nothing ---- */
template <class C> ACI_DEVICE C aci_get(ac_dtype dt, const void *p, int64_t i) {
  switch (dt) {
#define ACI_GET(D, S, LOAD, STORE) \
  case AC_##D: return (C)LOAD(((const S *)p)[i]);
    ACI_ELEMENT_TYPES(ACI_GET)
    default: return C(0);
  }
}
template <class C> ACI_DEVICE void aci_put(ac_dtype dt, void *p, int64_t i, C v) {
  switch (dt) {
#define ACI_PUT(D, S, LOAD, STORE) \
  case AC_##D: ((S *)p)[i] = (S)STORE(v); break;
    ACI_ELEMENT_TYPES(ACI_PUT)
    default: break;
  }
}

/* N elements that are moved in one instruction. p is a multiple of their size. */
template <class S, int N> struct alignas(sizeof(S) * N) aci_vector { S v[N]; };

/* ---- positions: offset (in elements) of row-major position i under a shape ---- */
/* 32 bits wide if all positions fit. A 64-bit division is a subroutine. */
ACI_DEVICE_CALL int64_t aci_long_offset(int64_t i, int ndim, const int64_t *shape,
                                        const int64_t *stride) {
  int64_t off = 0;
  for (int d = ndim - 1; d > 0; d--) {
    const int64_t q = i / shape[d];
    off += (i - q * shape[d]) * stride[d];
    i = q;
  }
  return off + i * stride[0];
}
ACI_DEVICE int64_t aci_element_offset(int64_t i, int ndim, const int64_t *shape,
                                      const int64_t *stride) {
  if (i > 0x7fffffff) return aci_long_offset(i, ndim, shape, stride);
  int64_t off = 0;
  uint32_t r = (uint32_t)i;
#pragma unroll 1
  for (int d = ndim - 1; d > 0; d--) {
    const uint32_t n = shape[d] > 0x7fffffff ? 0x80000000u : (uint32_t)shape[d], q = r / n;
    off += (int64_t)(r - q * n) * stride[d];
    r = q;
  }
  return off + (int64_t)r * stride[0];
}

#endif
