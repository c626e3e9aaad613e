/* Quantised tensors on CUDA: a layout for kernels, values out of codes and codes of values. The
 * numbers equal codes.c's, bit for bit. Used by layout.cu, encode.cu, linear_quantized.cu and
 * optim/blockwise_step.cu. */
#ifndef ACI_QUANT_LAYOUT_CUH
#define ACI_QUANT_LAYOUT_CUH
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/warp.cuh"
#include "ops/quant/nonfinite.h"
#include "tensor/layout.h"

enum { ACI_WARP = 32, ACI_STEPS = 65536 /* of [-1, 1], by which dynamic codes are found */ };

/* A layout with its arrays. 1.1 KiB: it includes the map of absmax' codes if they have some. */
struct aci_quantized {
  const uint8_t *q;
  const void *absmax;       /* f32. nested: codes */
  const float *most, *mean; /* nested */
  int64_t blocksize, n;
  float map[16]; /* 4 bits */
  float of_absmax[256];
  int type;
  bool nested;
};
static inline aci_quantized aci_quantized_of(const ac_tensor *t, const ac_layout *l) {
  aci_quantized a = {};
  int size;
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  a.q = (const uint8_t *)aci_part_data(t, &values);
  a.absmax = aci_part_data(t, &absmax);
  a.blocksize = l->blocksize;
  a.n = 1;
  for (int d = 0; d < l->ndim; d++) a.n *= l->shape[d];
  a.type = l->type;
  a.nested = l->nested;
  if (aci_layout_is_4bit(l)) memcpy(a.map, ac_quant_map(l->type, &size), sizeof a.map);
  if (l->nested) {
    const aci_part most = aci_layout_part(l, AC_PART_NESTED_ABSMAX),
                   mean = aci_layout_part(l, AC_PART_OFFSET);
    a.most = (const float *)aci_part_data(t, &most);
    a.mean = (const float *)aci_part_data(t, &mean);
    memcpy(a.of_absmax, ac_quant_map(AC_QUANT_DYNAMIC, &size), sizeof a.of_absmax);
  }
  return a;
}

/* absmax of a block. */
ACI_DEVICE float aci_absmax_of(const aci_quantized &a, int64_t block) {
  if (!a.nested) return ((const float *)a.absmax)[block];
  return a.of_absmax[((const uint8_t *)a.absmax)[block]] * a.most[block / ACI_NESTED_BLOCK] +
         *a.mean;
}

/* ---- codes: every lane of the warp comes to these ---- */
ACI_DEVICE float aci_magnitude(float x) { return aci_float32(aci_magnitude_bits(x)); }
/* Of two magnitudes, a NaN before all others: nonfinite.h. */
ACI_DEVICE float aci_larger(float a, float b) { return aci_bits32(b) > aci_bits32(a) ? b : a; }
ACI_DEVICE float aci_warp_max(float most) {
  for (int mask = ACI_WARP / 2; mask > 0; mask /= 2) {
    most = aci_larger(most, aci_from_lane_xor(most, mask));
  }
  return most;
}
ACI_DEVICE float aci_warp_sum(float sum) {
  for (int mask = ACI_WARP / 2; mask > 0; mask /= 2) sum += aci_from_lane_xor(sum, mask);
  return sum;
}

/* The code of x in a block of this largest magnitude under a dynamic map of 256 ascending numbers:
 * the nearest to the middle of the step that x / absmax falls into. */
ACI_DEVICE uint8_t aci_dynamic_code(const float *map, float x, float absmax) {
  if (absmax == 0) return 0;
  if (!aci_is_finite(absmax)) {
    const float sign = aci_infinity_sign(x);
    int zero = 0;
    while (map[zero] != 0) zero++;
    return (uint8_t)(sign > 0 ? 255 : sign < 0 ? 0 : zero);
  }
  const float inverse = 1.0f / absmax;
  float v = x * inverse;
  v = v < -1 ? -1 : v > 1 ? 1 : v == v ? v : 0;
  const int step = (int)((v + 1.0f) * ((ACI_STEPS - 1) * 0.5f) + 0.5f);
  const float middle = (float)step * (2.0f / (ACI_STEPS - 1)) - 1.0f;
  int low = 0, high = 255; /* how many borders lie below */
  while (low < high) {
    const int at = (low + high) / 2;
    if (middle > 0.5f * (map[at] + map[at + 1])) low = at + 1;
    else high = at;
  }
  return (uint8_t)low;
}

#endif
