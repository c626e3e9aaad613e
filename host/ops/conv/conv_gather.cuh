/* Gather parameters of a convolution's tiles (conv_gemm.cu): classes of positions, taps of a class,
 * coordinates of a column.
 *
 * With a stride, the taps of a position of dx depend on its residue: positions of one residue per
 * dim form a class, whose taps are first + j * step. FORWARD and WEIGHT are one class. Tap j of a
 * column looks at origin + j * step, in all directions. */
#ifndef ACI_OPS_CONV_GATHER_CUH
#define ACI_OPS_CONV_GATHER_CUH
#include "ops/conv/conv.cuh"
#include "ops/cuda/divide.cuh"
#include "ops/cuda/elements.cuh"

struct gemm_args {
  aci_conv_call call;
  int64_t rows, cols, k; /* of a group. cols and k: the most of any class */
  int64_t n_classes, n_pieces, piece;
  int classes[3];
  void *part; /* [piece][element of y] in the accumulator's type. NULL: results go to y */
};

/* Parameters for reading a tile's factors, computed once a tile. */
struct gather {
  aci_divisor taps[3], positions[3]; /* taps[0] is never divided by */
  int origin[3], step[3], extent[3];
  int64_t volume;           /* of the gathered planes */
  int64_t w_row, w_channel; /* strides of the weight */
  int64_t w_first, w_tap[3];
  int64_t k, cols;        /* of this class */
  int first[3], every[3]; /* positions of the result */
};

/* x with first + x * d = a (mod s): the first one below s / gcd(d, s), or -1 if none of n is. *step
 * is the distance to the next. */
ACI_DEVICE int first_tap(int64_t a, int64_t d, int64_t s, int64_t n, int *step) {
  int64_t x = d, y = s;
  while (y != 0) {
    const int64_t r = x % y;
    x = y;
    y = r;
  }
  *step = (int)(s / x);
  for (int t = 0; t < *step && t < n; t++)
    if ((a - t * d) % s == 0) return t;
  return -1;
}

/* The gather parameters of the tiles of class cls. Forward and weights: one class. Input gradients:
 * a class per residue of the stride in each dim. Only every `step`-th tap falls on its positions,
 * from the first one on. k: channels times those taps. cols: images times the class's positions. */
ACI_DEVICE gather gather_of(const gemm_args &a, int64_t cls) {
  const aci_conv &c = a.call.c;
  const bool back = a.call.kind == ACI_CONV_INPUT;
  const int64_t tap_stride[3] = {c.k[1] * c.k[2], c.k[2], 1};
  const int64_t channels = back ? c.co : c.ci;
  gather g;
  g.w_first = 0;
  g.volume = 1;
  g.k = channels;
  g.cols = c.n;
  for (int d = 2; d >= 0; d--) {
    const int64_t extent = back ? c.in[d] : c.out[d];
    int64_t count = c.k[d];
    g.extent[d] = (int)(back ? c.out[d] : c.in[d]);
    g.first[d] = (int)(cls % a.classes[d]);
    g.every[d] = a.classes[d];
    cls /= a.classes[d];
    if (back) {
      int step;
      const int64_t at = g.first[d] + c.pad[d];
      const int t = first_tap(at, c.dil[d], c.stride[d], c.k[d], &step);
      count = t < 0 ? 0 : (c.k[d] - t + step - 1) / step;
      g.origin[d] =
          /* of the class's first position */
          count == 0 ? 0 : (int)((at - t * c.dil[d]) / c.stride[d]);
      g.step[d] = -(int)(step * c.dil[d] / c.stride[d]);
      g.w_tap[d] = step * tap_stride[d];
      g.w_first += count == 0 ? 0 : t * tap_stride[d];
    } else {
      g.origin[d] = -(int)c.pad[d];
      g.step[d] = (int)c.dil[d];
      g.w_tap[d] = tap_stride[d];
    }
    const int64_t positions = (extent - g.first[d] + g.every[d] - 1) / g.every[d];
    g.positions[d] = aci_divide_by(positions);
    g.taps[d] = aci_divide_by(count > 0 ? count : 1);
    g.k *= count;
    g.cols *= positions;
    g.volume *= g.extent[d];
  }
  const int64_t taps = aci_conv_volume(c.k);
  g.w_row = back ? taps : c.ci * taps;
  g.w_channel = back ? c.ci * taps : taps;
  return g;
}
/* The coordinate's change from one position of a class to the next: `every` positions, one if
 * classes are the strides. */
ACI_DEVICE int pace(const gemm_args &a, int d) {
  return a.call.kind == ACI_CONV_INPUT ? 1 : (int)a.call.c.stride[d];
}

/* ---- one k at a time: (channel, tap) ---- */
struct tap_at {
  int64_t channel;
  int j[3];
};
ACI_DEVICE tap_at tap_of(const gather &g, uint32_t k) {
  tap_at t;
  uint32_t q = aci_quotient32(k, g.taps[2]);
  t.j[2] = (int)(k - q * (uint32_t)g.taps[2].d);
  k = aci_quotient32(q, g.taps[1]);
  t.j[1] = (int)(q - k * (uint32_t)g.taps[1].d);
  q = aci_quotient32(k, g.taps[0]);
  t.j[0] = (int)(k - q * (uint32_t)g.taps[0].d);
  t.channel = q;
  return t;
}
ACI_DEVICE int64_t weight_at(const gather &g, const tap_at &t) {
  return t.channel * g.w_channel + t.j[0] * g.w_tap[0] + t.j[1] * g.w_tap[1] + t.j[2] * g.w_tap[2];
}

/* Positions of a column of the result: image and coordinates within the class. */
ACI_DEVICE void position_of(const gather &g, int64_t col, int64_t *image, int *at) {
  at[2] = (int)aci_take(&col, g.positions[2]);
  at[1] = (int)aci_take(&col, g.positions[1]);
  at[0] = (int)aci_take(&col, g.positions[0]);
  *image = col;
}

ACI_DEVICE bool inside(const int *at, const int *extent) {
  return (unsigned)at[0] < (unsigned)extent[0] && (unsigned)at[1] < (unsigned)extent[1] &&
         (unsigned)at[2] < (unsigned)extent[2];
}
ACI_DEVICE int64_t linear(const int *at, const int *extent) {
  return ((int64_t)at[0] * extent[1] + at[1]) * extent[2] + at[2];
}

/* Elements by their size: double, float, or uint16_t, which holds bf16 or f16. Those are
 * distinguished at run time, as nothing else of a kernel differs. */
ACI_DEVICE double value_of(ac_dtype, double x) { return x; }
ACI_DEVICE float value_of(ac_dtype, float x) { return x; }
ACI_DEVICE float value_of(ac_dtype dt, uint16_t x) {
  const float b = aci_element<AC_BF16>::load<float>(x), h = aci_element<AC_F16>::load<float>(x);
  return dt == AC_BF16 ? b : h;
}
template <class S>
ACI_DEVICE auto element(ac_dtype dt, const void *p, int64_t i) -> decltype(value_of(dt, S())) {
  return value_of(dt, ((const S *)p)[i]);
}
ACI_DEVICE void put_element(ac_dtype, double *y, double v) { *y = v; }
ACI_DEVICE void put_element(ac_dtype, float *y, float v) { *y = v; }
ACI_DEVICE void put_element(ac_dtype dt, uint16_t *y, float v) {
  *y = dt == AC_BF16 ? aci_element<AC_BF16>::store(v) : aci_element<AC_F16>::store(v);
}

#endif
