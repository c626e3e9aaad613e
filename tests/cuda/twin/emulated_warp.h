/* The warp's instructions (host/ops/cuda/warp.cuh) as the PTX manual draws them: which lane holds which element in which register. */
#ifndef CUDA_TWIN_WARP_H
#define CUDA_TWIN_WARP_H
#include "cuda_runtime.h"

typedef uintptr_t aci_shared;
static inline aci_shared aci_shared_of(const void *p) { return (uintptr_t)p; }
static inline int aci_lane() {
  return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31);
}
static inline void aci_warp_meet() { emulated_exchange(NULL, 0); }

template <class T> static inline T aci_from_lane_xor(T v, int mask) {
  T got;
  memcpy(&got, emulated_exchange(&v, sizeof v)[aci_lane() ^ mask], sizeof got);
  return got;
}
static inline int aci_dot4(int sum, uint32_t a, uint32_t b) {
  for (int i = 0; i < 32; i += 8) sum += (int8_t)(a >> i) * (int8_t)(b >> i);
  return sum;
}
static inline float aci_exp2(float x) { return x < -126 ? 0 : exp2f(x); }

template <int D> static inline uint32_t aci_pack2(float low, float high) {
  typedef aci_element<D> E;
  return (uint32_t)E::template store<float>(low) | (uint32_t)E::template store<float>(high) << 16;
}

struct emulated_operands {
  uint32_t a[4], b[2];
};
/* Element k of a register's two halves. */
template <int D> static inline float emulated_half(uint32_t reg, int k) {
  return aci_element<D>::template load<float>((uint16_t)(reg >> 16 * k));
}
template <int D> static inline void aci_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const emulated_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const char(*all)[EMULATED_SLOT] = emulated_exchange(&mine, sizeof mine);
  const int g = aci_lane() / 4, t = aci_lane() % 4;
  for (int i = 0; i < 4; i++) {
    const int row = g + i / 2 * 8, col = 2 * t + i % 2;
    float sum = c[i];
    for (int k = 0; k < 16; k++) {
      emulated_operands x, y; /* of the lanes that hold A[row][k] and B[k][col] */
      memcpy(&x, all[row % 8 * 4 + k % 8 / 2], sizeof x);
      memcpy(&y, all[col * 4 + k % 8 / 2], sizeof y);
      sum += emulated_half<D>(x.a[row / 8 + k / 8 * 2], k % 2) * emulated_half<D>(y.b[k / 8], k % 2);
    }
    c[i] = sum;
  }
}

static inline const uint16_t *emulated_row(const char (*all)[EMULATED_SLOT], int lane) {
  const uint16_t *row;
  memcpy(&row, all[lane], sizeof row);
  if ((uintptr_t)row % 16 != 0) abort();
  return row;
}
static inline void aci_load_matrices(uint32_t (&r)[4], aci_shared row) {
  const char(*all)[EMULATED_SLOT] = emulated_exchange(&row, sizeof row);
  const int g = aci_lane() / 4, t = aci_lane() % 4;
  for (int i = 0; i < 4; i++) memcpy(&r[i], emulated_row(all, 8 * i + g) + 2 * t, 4);
}
static inline void aci_load_matrices_t(uint32_t (&r)[4], aci_shared row) {
  const char(*all)[EMULATED_SLOT] = emulated_exchange(&row, sizeof row);
  const int g = aci_lane() / 4, t = aci_lane() % 4;
  for (int i = 0; i < 4; i++)
    r[i] = emulated_row(all, 8 * i + 2 * t)[g] | (uint32_t)emulated_row(all, 8 * i + 2 * t + 1)[g] << 16;
}

static inline void aci_copy16(aci_shared to, const void *global, int bytes) {
  if (to % 16 != 0 || (uintptr_t)global % 16 != 0) abort();
  emulated_copy((void *)to, global, bytes, 16 - bytes);
}
static inline void aci_copy_commit() { emulated_copy_commit(); }
template <int GROUPS> static inline void aci_copy_wait() { emulated_copy_wait(GROUPS); }

#endif
