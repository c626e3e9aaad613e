/* Attention on CUDA: arguments of its kernels, and the definition of a score. Called by
 * flash_attention.cu (the ops), flash_forward.cu and flash_backward.cu (tensor cores: bf16 and f16,
 * heads up to 128 wide), flash_plain.cu (everything else).
 *
 * As on the CPU (device/cpu/kernels/flash.h): scores in units of log 2, t = scale log2(e) q k +
 * mask - ALiBi. The weight of query i and key j is 2^(t - lse2[i]). Rows that attend to no key give
 * zeros. Work is cut by shape and nothing is added atomically: dK and dV are sums of the block that
 * owns the keys, dQ of the one that owns the queries, so that scores are computed once more, but
 * always in one order. */
#ifndef ACI_OPS_FLASH_CUH
#define ACI_OPS_FLASH_CUH
#include "base/philox.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

/* (b, h, t, d) with adjacent elements of d. */
struct flash_tensor {
  void *p;
  int64_t s[3];
  bool vectors; /* rows are whole pieces of 16 bytes at multiples of 16 */
};
struct flash_args {
  flash_tensor q, k, v, out;
  flash_tensor dout, dq, dk, dv; /* backward */
  ac_dtype dt;
  int64_t b, hq, hkv, tq, tk, d;
  double scale;
  bool causal;      /* query i attends to keys 0..i */
  const void *mask; /* NULL: none. bool: nonzero attends. Floats are added to the scores */
  ac_dtype mask_dt;
  int64_t mask_s[4]; /* 0 broadcasts */
  const void *alibi; /* hq slopes, or NULL */
  ac_dtype alibi_dt;
  int64_t alibi_s;
  bool
      /* element e = (((drop_b0 + b) hq + h) tq + i) tk + j is kept if word e % 4 of counter e / 4
       * is drop_below or more */
      drop;
  uint64_t drop_key;
  aci_counter drop_counter;
  uint32_t drop_below;
  int64_t drop_b0;
  double drop_by;
  void *lse; /* (b, hq, tq): natural log, in the compute type */
  void *lse2,
      /* backward, (b hq, tq_pad): log2 sum, +inf for rows that attend to no key. dot(dout, out).
       * From tq on: +inf and 0 */
      *delta;
  int64_t tq_pad;
};
enum { FLASH_PAD = 128 }; /* tq_pad is a multiple of every kernel's tile of queries */

template <class T> ACI_DEVICE T *flash_row(const flash_tensor &x, int64_t b, int64_t h, int64_t t) {
  return (T *)x.p + b * x.s[0] + h * x.s[1] + t * x.s[2];
}

/* ---- scores ---- */
/* Of one head. C: the compute type. */
template <class C> struct flash_scores {
  const flash_args &a;
  int64_t mask, shift,
      /* first element of the head in the mask, the shift that aligns query i with key i + shift,
       * and the first element for dropout */
      drop;
  C c, slope;
  __device__ __forceinline__ flash_scores(const flash_args &a, int64_t b, int64_t h)
      : a(a), mask(b * a.mask_s[0] + h * a.mask_s[1]), shift(a.causal ? 0 : a.tk - a.tq),
        drop(((a.drop_b0 + b) * a.hq + h) * a.tq * a.tk), c((C)(a.scale * 1.4426950408889634074)),
        slope(0) {
    if (a.alibi != NULL)
      slope = (C)(aci_get<double>(a.alibi_dt, a.alibi, h * a.alibi_s) * 1.4426950408889634074);
  }
  /* Whether query i, key j exist and the one may see the other, as far as their positions say. */
  __device__ __forceinline__ bool seen(int64_t i, int64_t j) const {
    return i < a.tq && j < a.tk && (!a.causal || j <= i);
  }
  /* t of a product of query i and key j that are seen. */
  __device__ __forceinline__ C of(C s, int64_t i, int64_t j) const {
    s *= c;
    if (a.mask != NULL) {
      const int64_t at = mask + i * a.mask_s[2] + j * a.mask_s[3];
      if (a.mask_dt == AC_BOOL) s = ((const uint8_t *)a.mask)[at] != 0 ? s : (C)-INFINITY;
      else s += (C)(aci_get<C>(a.mask_dt, a.mask, at) * (C)1.4426950408889634074);
    }
    if (a.alibi != NULL) {
      const int64_t away = i + shift - j;
      s -= slope * (C)(away < 0 ? -away : away);
    }
    return s;
  }
  /* The dropout factor of a weight: 0 or 1 / (1 - p). */
  __device__ __forceinline__ C factor(uint32_t word) const {
    return word >= a.drop_below ? (C)a.drop_by : (C)0;
  }
  __device__ __forceinline__ C drop_one(int64_t i, int64_t j) const {
    const uint64_t e = (uint64_t)(drop + i * a.tk + j);
    const aci_u32x4 w = aci_philox(a.drop_key, e / 4, a.drop_counter);
    const uint32_t low = e & 1 ? w.v[1] : w.v[0], high = e & 1 ? w.v[3] : w.v[2];
    return factor(e & 2 ? high : low);
  }
};

/* ---- ways ---- */
/* bf16 and f16 on tensor cores. fits returns false for another device, dtype or head. */
bool aci_flash_warp_fits(const ac_frame *f, const flash_args &a);
ac_status aci_flash_warp_forward(ac_frame *f, const flash_args &a, ac_err *e);
ac_status aci_flash_warp_backward(ac_frame *f, const flash_args &a, ac_err *e);
ac_status aci_flash_plain_forward(ac_frame *f, const flash_args &a, ac_err *e);
ac_status aci_flash_plain_backward(ac_frame *f, const flash_args &a, ac_err *e);

/* No mask, slopes, dropout, and a scale that lets maxima be found before scaling: nothing between
 * product and exponential. */
static inline bool flash_bare(const flash_args &a) {
  return a.mask == NULL && a.alibi == NULL && !a.drop && a.scale > 1e-30;
}

#endif
