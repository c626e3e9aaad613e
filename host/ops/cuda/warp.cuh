/* Operations of a warp's 32 lanes together: shuffles, products of small matrices on the tensor
 * cores, loads of their operands, copies that overlap with compute. Each function is one
 * instruction of PTX. The twin emulates them, lane by lane and register by register
 * (tests/cuda/twin/emulated_warp.h), so that layouts are tested without a GPU.
 *
 * Every lane of the warp must come to each call. Products, loads of operands and asynchronous
 * copies need code for compute capability 8.0 (ACI_TENSOR_CORES). aci_cuda.code shows which code a
 * device runs. Kernels keep uses of them within #ifdef ACI_TENSOR_CORES. */
#ifndef ACI_CUDA_WARP_CUH
#define ACI_CUDA_WARP_CUH
#include "ops/cuda/elements.cuh"

#if defined(ACI_CUDA_EMULATED) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define ACI_TENSOR_CORES 1
#endif
enum { ACI_TENSOR_CORES_CODE = 80 };

/* Registers of a product C (16 x 8) += A (16 x 16) B (16 x 8), with lane = 4 g + t:
 *   A: a[0] = rows g, columns 2t 2t+1, a[1] = rows g + 8, a[2], a[3] = the same, columns + 8
 *   B: b[0] = column g, rows 2t 2t+1, b[1] = rows + 8
 *   C: c[0], c[1] = row g, columns 2t 2t+1, c[2], c[3] = row g + 8
 * So C's values of two neighbouring 16 x 8 pieces are, packed, an A of the next product. */
#ifdef ACI_CUDA_EMULATED
#include <emulated_warp.h>
#else
/* A position in shared memory: 32 bits instead of a pointer's 64. */
typedef uint32_t aci_shared;
ACI_DEVICE aci_shared aci_shared_of(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
ACI_DEVICE int aci_lane() { return (int)(threadIdx.x & 31); }
ACI_DEVICE void aci_warp_meet() { __syncwarp(); }
/* The value of the lane whose number differs in the bits of mask: 4 or 8 bytes. */
template <class T> ACI_DEVICE T aci_from_lane_xor(T v, int mask) {
  return __shfl_xor_sync(0xffffffffu, v, mask);
}
/* sum + the dot product of four int8 each. */
ACI_DEVICE int aci_dot4(int sum, uint32_t a, uint32_t b) { return __dp4a((int)a, (int)b, sum); }
/* 2^x within 2 ulp. Results below the normal numbers are 0. */
ACI_DEVICE float aci_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#ifdef ACI_TENSOR_CORES
/* Two values rounded, low half first. D: AC_BF16 or AC_F16. */
template <int D> ACI_DEVICE uint32_t aci_pack2(float low, float high) {
  uint32_t y;
  if (D == AC_BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
template <int D>
ACI_DEVICE void aci_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if (D == AC_BF16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Four 8 x 8 matrices of 16-bit elements out of shared memory. Lane 8 i + r names the 16 bytes of
 * row r of matrix i. Register i of lane 4 g + t gets columns 2t, 2t+1 of row g of matrix i - with
 * _t rows 2t, 2t+1 of column g. */
ACI_DEVICE void aci_load_matrices(uint32_t (&r)[4], aci_shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
ACI_DEVICE void aci_load_matrices_t(uint32_t (&r)[4], aci_shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
/* 16 bytes to shared memory, of which the first `bytes` (0 or 16) are read and the rest are zeros.
 * Both positions are multiples of 16. Copies since the last commit are a group. wait: until at most
 * GROUPS groups of this thread are under way. */
ACI_DEVICE void aci_copy16(aci_shared to, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
ACI_DEVICE void aci_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS> ACI_DEVICE void aci_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}
#endif
#endif

#endif
