/* quantize_blockwise and dequantize_blockwise on CUDA, bit for bit the CPU's. A block of threads
 * takes a block of elements at a time. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/index/range.cuh"

namespace {
struct quant_args {
  const void *x;
  ac_dtype dt;
  int ndim; /* 0: contiguous */
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  int64_t block, blocks;
  int top; /* 127 or 7 */
  uint8_t *q;
  float *scale;
};
struct widen_args {
  const uint8_t *q;
  const void *scale;
  void *y;
  ac_dtype scale_dt, dt;
  int64_t n, block;
  bool half; /* 4 bits */
};
} // namespace

/* Rounded to nearest even by adding 1.5 x 2^23. */
ACI_DEVICE int rounded(const quant_args &a, int64_t i, float inverse) {
  const float x =
      aci_get<float>(a.dt, a.x, a.ndim == 0 ? i : aci_element_offset(i, a.ndim, a.shape, a.stride));
  return (int)(aci_bits32(x * inverse + 12582912.0f) - 0x4b400000u);
}

static __global__ void __launch_bounds__(ACI_BLOCK)
    quantize_kernel(const __grid_constant__ quant_args a) {
  __shared__ uint32_t shared[ACI_BLOCK];
  for (int64_t b = blockIdx.x; b < a.blocks; b += gridDim.x) {
    const int64_t begin = b * a.block, end = begin + a.block < a.n ? begin + a.block : a.n;
    uint32_t most =
        0; /* magnitudes as integers: NaN stands above the infinities and those above all numbers */
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      const float x = aci_get<float>(
          a.dt, a.x, a.ndim == 0 ? i : aci_element_offset(i, a.ndim, a.shape, a.stride));
      const uint32_t u = aci_bits32(x) & 0x7fffffffu;
      most = u > most ? u : most;
    }
    shared[threadIdx.x] = most;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half && shared[threadIdx.x + half] > shared[threadIdx.x])
        shared[threadIdx.x] = shared[threadIdx.x + half];
    }
    __syncthreads();
    most = shared[0];
    __syncthreads(); /* shared is written again */
    const float s = aci_float32(most) / (float)a.top;
    const bool lost = most >= 0x7f800000u, none = lost || s < 0x1p-126f;
    if (threadIdx.x == 0) a.scale[b] = lost ? aci_float32(0x7fc00000u) : none ? 0.0f : s;
    const float inverse = 1.0f / s;
    if (a.top == 127) {
      for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
        a.q[i] = none ? 0 : (uint8_t)(int8_t)rounded(a, i, inverse);
    } else { /* two to a byte. Blocks have an even size */
      for (int64_t i = begin + 2 * (int64_t)threadIdx.x; i < end; i += 2 * (int64_t)blockDim.x) {
        const int low = none ? 0 : rounded(a, i, inverse),
                  high = none || i + 1 >= end ? 0 : rounded(a, i + 1, inverse);
        a.q[i / 2] = (uint8_t)((low & 15) | (high & 15) << 4);
      }
    }
  }
}
static ac_status quantize(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  quant_args a = {};
  if (x->numel == 0) return AC_OK;
  a.x = aci_data(x);
  a.dt = (ac_dtype)x->dtype;
  if (!aci_is_contiguous(x)) {
    a.ndim = x->ndim;
    memcpy(a.shape, x->shape, 8 * (size_t)x->ndim);
    memcpy(a.stride, x->stride, 8 * (size_t)x->ndim);
  }
  a.n = x->numel;
  a.top = f->args[1].i == 8 ? 127 : 7;
  a.block = f->args[2].i;
  a.blocks = (a.n + a.block - 1) / a.block;
  a.q = (uint8_t *)aci_data(f->out[0]);
  a.scale = (float *)aci_data(f->out[1]);
  return aci_launch(f, "quantize", quantize_kernel, aci_blocks(f->device, a.blocks, 1), e, a);
}
AC_KERNEL(cuda, quantize_blockwise, quantize)

static __global__ void __launch_bounds__(ACI_BLOCK)
    dequantize_kernel(const __grid_constant__ widen_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int q = !a.half      ? (int8_t)a.q[i]
                  : i % 2 == 0 ? (int8_t)(uint8_t)(a.q[i / 2] << 4) >> 4
                               : (int8_t)a.q[i / 2] >> 4;
    aci_put(a.dt, a.y, i, (float)q * aci_get<float>(a.scale_dt, a.scale, i / a.block));
  }
}
static ac_status dequantize(ac_frame *f, ac_err *e) {
  const ac_tensor *scale = f->args[1].tensor, *y = f->out[0];
  widen_args a = {};
  ac_block *b1 = NULL, *b2 = NULL;
  const void *q;
  if (y->numel == 0) return AC_OK;
  ac_status st = aci_cuda_in_a_run(f, f->args[0].tensor, &q, &b1, e);
  if (st == AC_OK) st = aci_cuda_in_a_run(f, scale, &a.scale, &b2, e);
  if (st == AC_OK) {
    a.q = (const uint8_t *)q;
    a.y = aci_data(y);
    a.scale_dt = (ac_dtype)scale->dtype;
    a.dt = (ac_dtype)y->dtype;
    a.n = y->numel;
    a.half = f->args[3].i == 4;
    a.block = f->args[4].i;
    st = aci_launch(f, "dequantize", dequantize_kernel, aci_blocks(f->device, a.n), e, a);
  }
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}
AC_KERNEL(cuda, dequantize_blockwise, dequantize)
