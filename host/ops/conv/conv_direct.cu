/* Convolutions of few channels a group (mostly depthwise ones): a thread per result, a block per
 * element of a weight's gradient. Tiles of a product would be mostly empty. Sums go in the order
 * (channel, tap). Sums of weights go lane by lane and then as a tree. */
#include "ops/conv/conv.cuh"

#include "ops/cuda/divide.cuh"
#include "ops/reduce/rows.cuh"

#ifdef ACI_CUDA_EMULATED
enum { FEW = 2, PIECE = 64, ENOUGH = 4 };
#else
enum { FEW = 8, PIECE = 1 << 13, ENOUGH = 512 };
#endif
enum { MOST_PIECES = 1024 };

struct direct_args {
  aci_conv_call call;
  aci_divisor in[3], k[3], out[3], stride[3], ci, co, groups;
  int64_t n_pieces, piece;
  void *part;
};

template <int D, class ACC> ACI_DEVICE ACC element(const void *p, int64_t i) {
  typedef aci_element<D> E;
  return E::template load<ACC>(((const typename E::bits *)p)[i]);
}

ACI_DEVICE void take3(int64_t *i, const aci_divisor *by, int64_t *at) {
  for (int d = 2; d >= 0; d--) at[d] = aci_take(i, by[d]);
}
ACI_DEVICE int64_t linear(const int64_t *at, const int64_t *extent) {
  return (at[0] * extent[1] + at[1]) * extent[2] + at[2];
}
ACI_DEVICE bool inside(const int64_t *at, const int64_t *extent) {
  return (uint64_t)at[0] < (uint64_t)extent[0] && (uint64_t)at[1] < (uint64_t)extent[1] &&
         (uint64_t)at[2] < (uint64_t)extent[2];
}

/* FORWARD and INPUT: the position that tap t reads for result position `at`. False: none. */
ACI_DEVICE bool looks_at(const direct_args &a, const int64_t *at, const int64_t *t, int64_t *to) {
  const aci_conv &c = a.call.c;
  if (a.call.kind == ACI_CONV_FORWARD) {
    for (int d = 0; d < 3; d++) to[d] = at[d] * c.stride[d] - c.pad[d] + t[d] * c.dil[d];
    return inside(to, c.in);
  }
  for (int d = 0; d < 3; d++) {
    to[d] = at[d] + c.pad[d] - t[d] * c.dil[d];
    if (to[d] < 0 || aci_take(&to[d], a.stride[d]) != 0) return false;
  }
  return inside(to, c.out);
}

template <int D, class ACC>
static __global__ void __launch_bounds__(ACI_BLOCK)
    conv_positions(const __grid_constant__ direct_args a) {
  const aci_conv &c = a.call.c;
  const bool back = a.call.kind == ACI_CONV_INPUT;
  const int64_t taps = aci_conv_volume(c.k), channels = back ? c.co : c.ci,
                plane = aci_conv_volume(back ? c.out : c.in);
  for (int64_t i = aci_first(); i < a.call.numel; i += aci_step()) {
    int64_t image = i, at[3], t[3], to[3];
    take3(&image, back ? a.in : a.out, at);
    const int64_t m = aci_take(&image, back ? a.ci : a.co), group = aci_take(&image, a.groups);
    const int64_t base = (image * c.groups + group) * channels * plane;
    /* the weight of (channel, tap): FORWARD w[m, channel, tap], INPUT w[channel, m, tap] */
    const int64_t w = group * c.co * c.ci * taps + m * (back ? taps : c.ci * taps),
                  step = back ? c.ci * taps : taps;
    ACC sum = 0;
    for (int64_t n = 0; n < channels; n++)
      for (t[0] = 0; t[0] < c.k[0]; t[0]++)
        for (t[1] = 0; t[1] < c.k[1]; t[1]++)
          for (t[2] = 0; t[2] < c.k[2]; t[2]++)
            if (looks_at(a, at, t, to))
              sum =
                  fma(element<D, ACC>(a.call.b, w + n * step + linear(t, c.k)),
                      element<D, ACC>(a.call.a, base + n * plane + linear(to, back ? c.out : c.in)),
                      sum);
    if (a.call.bias != NULL) sum += element<D, ACC>(a.call.bias, group * (back ? c.ci : c.co) + m);
    ((typename aci_element<D>::bits *)a.call.y)[i] = aci_element<D>::template store<ACC>(sum);
  }
}

/* WEIGHT: a block per element and piece of (image, position of y). */
template <int D, class ACC>
static __global__ void __launch_bounds__(ACI_BLOCK)
    conv_weights(const __grid_constant__ direct_args a) {
  __shared__ ACC shared[ACI_BLOCK];
  const aci_conv &c = a.call.c;
  const int64_t positions = aci_conv_volume(c.out), plane = aci_conv_volume(c.in);
  for (int64_t item = blockIdx.x; item < a.call.numel * a.n_pieces; item += gridDim.x) {
    const int64_t i = item % a.call.numel, piece = item / a.call.numel;
    const int64_t begin = piece * a.piece, until = begin + a.piece,
                  end = until < c.n * positions ? until : c.n * positions;
    int64_t o = i, t[3];
    take3(&o, a.k, t);
    const int64_t channel = aci_take(&o, a.ci), group = aci_quotient(o, a.co);
    ACC sum = 0;
    for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x) {
      int64_t image = k, at[3];
      take3(&image, a.out, at);
      const int64_t q = linear(at, c.out);
      for (int d = 0; d < 3; d++) at[d] = at[d] * c.stride[d] - c.pad[d] + t[d] * c.dil[d];
      if (inside(at, c.in))
        sum = fma(element<D, ACC>(a.call.a, (image * c.groups * c.co + o) * positions + q),
                  element<D, ACC>(a.call.b, ((image * c.groups + group) * c.ci + channel) * plane +
                                                linear(at, c.in)),
                  sum);
    }
    sum = aci_block_join<aci_add_op>(sum, shared);
    if (threadIdx.x != 0) continue;
    if (a.part != NULL) ((ACC *)a.part)[item] = sum;
    else ((typename aci_element<D>::bits *)a.call.y)[i] = aci_element<D>::template store<ACC>(sum);
  }
}

/* ---- sums of pieces, used by conv_gemm.cu as well ---- */
template <int D, class ACC>
static __global__ void __launch_bounds__(ACI_BLOCK)
    conv_pieces(const __grid_constant__ aci_conv_call k, const ACC *part, int64_t n_parts,
                int64_t channels) {
  for (int64_t i = aci_first(); i < k.numel; i += aci_step()) {
    ACC sum = part[i];
    for (int64_t n = 1; n < n_parts; n++) sum += part[n * k.numel + i];
    if (k.bias != NULL) sum += element<D, ACC>(k.bias, i / k.plane % channels);
    ((typename aci_element<D>::bits *)k.y)[i] = aci_element<D>::template store<ACC>(sum);
  }
}

ac_status aci_cuda_conv_join(ac_frame *f, const aci_conv_call *k, const void *part, int64_t n,
                             ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, k->numel);
  const int64_t channels = k->c.groups * (k->kind == ACI_CONV_INPUT ? k->c.ci : k->c.co);
  const char *name = "convolution (pieces)";
  switch (k->dt) {
    case AC_F64:
      return aci_launch(f, name, conv_pieces<AC_F64, double>, blocks, e, *k, (const double *)part,
                        n, channels);
    case AC_BF16:
      return aci_launch(f, name, conv_pieces<AC_BF16, float>, blocks, e, *k, (const float *)part, n,
                        channels);
    case AC_F16:
      return aci_launch(f, name, conv_pieces<AC_F16, float>, blocks, e, *k, (const float *)part, n,
                        channels);
    default:
      return aci_launch(f, name, conv_pieces<AC_F32, float>, blocks, e, *k, (const float *)part, n,
                        channels);
  }
}

/* ---- launches ---- */
bool aci_cuda_conv_is_direct(const aci_conv_call *k) {
  const aci_conv &c = k->c;
  if (k->kind == ACI_CONV_FORWARD) return c.co < FEW;
  return k->kind == ACI_CONV_INPUT ? c.ci < FEW : c.co < FEW || c.ci * aci_conv_volume(c.k) < FEW;
}

static aci_divisor by(int64_t n) { return aci_divide_by(n > 0 ? n : 1); }

template <int D, class ACC> static ac_status run(ac_frame *f, direct_args a, ac_err *e) {
  const aci_conv_call &k = a.call;
  ac_block *scratch = NULL;
  if (k.kind != ACI_CONV_WEIGHT)
    return aci_launch(f, "convolution (direct)", conv_positions<D, ACC>,
                      aci_blocks(f->device, k.numel), e, a);
  const int64_t terms = k.c.n * aci_conv_volume(k.c.out);
  a.n_pieces = k.numel < ENOUGH ? (terms + PIECE - 1) / PIECE : 1;
  if (a.n_pieces > MOST_PIECES) a.n_pieces = MOST_PIECES;
  if (a.n_pieces < 1) a.n_pieces = 1;
  a.piece = (terms + a.n_pieces - 1) / a.n_pieces;
  if (a.n_pieces > 1) {
    AC_TRY(ac_block_alloc(f->device, sizeof(ACC) * (size_t)(a.n_pieces * k.numel),
                          AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.part = scratch->ptr;
  }
  ac_status st = aci_launch(f, "convolution (weight)", conv_weights<D, ACC>,
                            aci_blocks(f->device, k.numel * a.n_pieces, 1), e, a);
  if (st == AC_OK && a.n_pieces > 1) st = aci_cuda_conv_join(f, &k, a.part, a.n_pieces, e);
  ac_block_free(scratch);
  return st;
}

ac_status aci_cuda_conv_direct(ac_frame *f, const aci_conv_call *k, ac_err *e) {
  direct_args a = {};
  a.call = *k;
  for (int d = 0; d < 3; d++) {
    a.in[d] = by(k->c.in[d]);
    a.k[d] = by(k->c.k[d]);
    a.out[d] = by(k->c.out[d]);
    a.stride[d] = by(k->c.stride[d]);
  }
  a.ci = by(k->c.ci), a.co = by(k->c.co), a.groups = by(k->c.groups);
  switch (k->dt) {
    case AC_F64: return run<AC_F64, double>(f, a, e);
    case AC_BF16: return run<AC_BF16, float>(f, a, e);
    case AC_F16: return run<AC_F16, float>(f, a, e);
    default: return run<AC_F32, float>(f, a, e);
  }
}
