/* quantize_4bit, quantize_dynamic, quantize_int8 and int8_vectorwise_quant on CUDA, bit for bit the
 * CPU's. A warp takes a block, or a row, at a time: once for its largest magnitude, once for its
 * codes. */
#include "ops/quant/encode.cuh"

namespace {
struct encode_args {
  aci_source x;
  int64_t block, blocks;
  uint8_t *q;
  float *absmax;
  uint8_t code[16]; /* 4 bits: codes of ascending numbers, and the middles between these */
  float middle[15];
  float map[256]; /* dynamic */
};
struct nest_args {
  const float *absmax;
  int64_t n;
  uint8_t *q;
  float *most, *mean;
  float map[256];
};
} // namespace

ACI_DEVICE int64_t warp_number() { return aci_first() / ACI_WARP; }
ACI_DEVICE int64_t warps() { return aci_step() / ACI_WARP; }

/* The largest magnitude of elements [begin, begin + n). */
ACI_DEVICE float most_of(const aci_source &x, int64_t begin, int64_t n) {
  float most = 0;
  for (int64_t i = aci_lane(); i < n; i += ACI_WARP)
    most = aci_larger(most, aci_magnitude(aci_source_at(x, begin + i)));
  return aci_warp_max(most);
}

/* ---- 4 bits ---- */
ACI_DEVICE uint8_t code4(const encode_args &a, float v) {
  int rank = 0;
  for (int m = 0; m < 15; m++) rank += v > a.middle[m];
  return a.code[rank];
}
ACI_DEVICE float scaled4(float x, float divisor, bool part) {
  if (!aci_is_finite(divisor)) return aci_infinity_sign(x);
  return part ? x / divisor : x * (1.0f / divisor);
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    encode_4bit_kernel(const __grid_constant__ encode_args a) {
  for (int64_t b = warp_number(); b < a.blocks; b += warps()) {
    const int64_t from = b * a.block, n = a.x.n - from < a.block ? a.x.n - from : a.block;
    const float most = most_of(a.x, from, n), divisor = most < 1e-38f ? 1e-38f : most;
    const bool part = n < a.block; /* bitsandbytes divides there, and stores the bound */
    if (aci_lane() == 0) a.absmax[b] = part ? divisor : most;
    for (int64_t i = 2 * aci_lane(); i < n; i += 2 * ACI_WARP) {
      const float low = aci_source_at(a.x, from + i),
                  high = i + 1 < n ? aci_source_at(a.x, from + i + 1) : 0;
      a.q[(from + i) / 2] = (uint8_t)(code4(a, scaled4(low, divisor, part)) << 4 |
                                      code4(a, i + 1 == n ? 0 : scaled4(high, divisor, part)));
    }
  }
}

/* ---- dynamic ---- */
static __global__ void __launch_bounds__(ACI_BLOCK)
    encode_dynamic_kernel(const __grid_constant__ encode_args a) {
  for (int64_t b = warp_number(); b < a.blocks; b += warps()) {
    const int64_t from = b * a.block, n = a.x.n - from < a.block ? a.x.n - from : a.block;
    const float most = most_of(a.x, from, n);
    if (aci_lane() == 0) a.absmax[b] = most;
    for (int64_t i = aci_lane(); i < n; i += ACI_WARP)
      a.q[from + i] = aci_dynamic_code(a.map, aci_source_at(a.x, from + i), most);
  }
}

/* ---- absmax of absmax ---- */
/* A column of the sums of mean.c: x[0], x[width], ... */
ACI_DEVICE float cascade(const float *x, int64_t n, int width) {
  float level[4] = {0, 0, 0, 0};
  int power = 0;
  while (((int64_t)1 << power) < n) power++;
  power = power / 4 > 4 ? power / 4 : 4;
  const int64_t step = (int64_t)1 << power;
  int64_t i = 0;
  while (i + step <= n) {
    for (int64_t j = 0; j < step; j++, i++) level[0] += x[i * width];
    for (int j = 1; j < 4; j++) {
      level[j] += level[j - 1];
      level[j - 1] = 0;
      if ((i & ((step - 1) << (j * power))) != 0) break;
    }
  }
  for (; i < n; i++) level[0] += x[i * width];
  float sum = level[0];
  for (int j = 1; j < 4; j++) sum += level[j];
  return sum;
}
static __global__ void mean_kernel(const __grid_constant__ nest_args a) {
  __shared__ float sum[ACI_WARP];
  const int lanes = a.n >= 8 ? 8 : 1, w = (int)threadIdx.x;
  const int64_t vectors = a.n / lanes, whole = vectors / 4;
  sum[w] = w < 4 * lanes ? cascade(a.absmax + w, whole, 4 * lanes) : 0;
  __syncthreads();
  if (w != 0) return;
  float total = 0;
  for (int64_t v = whole * 4; v < vectors; v++)
    for (int i = 0; i < lanes; i++) sum[i] += a.absmax[v * lanes + i];
  for (int r = 1; r < 4; r++)
    for (int i = 0; i < lanes; i++) sum[i] += sum[r * lanes + i];
  for (int64_t i = vectors * lanes; i < a.n; i++) total += a.absmax[i];
  for (int i = 0; i < lanes; i++) total += sum[i];
  *a.mean = a.n == 0 ? 0 : total / (float)a.n;
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    nest_kernel(const __grid_constant__ nest_args a) {
  const float mean = *a.mean;
  for (int64_t b = warp_number(); b * ACI_NESTED_BLOCK < a.n; b += warps()) {
    const int64_t from = b * ACI_NESTED_BLOCK,
                  n = a.n - from < ACI_NESTED_BLOCK ? a.n - from : ACI_NESTED_BLOCK;
    float most = 0;
    for (int64_t i = aci_lane(); i < n; i += ACI_WARP)
      most = aci_larger(most, aci_magnitude(a.absmax[from + i] - mean));
    most = aci_warp_max(most);
    if (aci_lane() == 0) a.most[b] = most;
    for (int64_t i = aci_lane(); i < n; i += ACI_WARP)
      a.q[from + i] = aci_dynamic_code(a.map, a.absmax[from + i] - mean, most);
  }
}
static ac_status nest(ac_frame *f, ac_tensor *y, const ac_layout *l, const float *absmax,
                      ac_err *e) {
  const aci_part codes = aci_layout_part(l, AC_PART_ABSMAX),
                 outer = aci_layout_part(l, AC_PART_NESTED_ABSMAX),
                 offset = aci_layout_part(l, AC_PART_OFFSET);
  nest_args a = {absmax,
                 codes.n,
                 (uint8_t *)aci_part_data(y, &codes),
                 (float *)aci_part_data(y, &outer),
                 (float *)aci_part_data(y, &offset),
                 {}};
  int size;
  memcpy(a.map, ac_quant_map(AC_QUANT_DYNAMIC, &size), sizeof a.map);
  AC_TRY(aci_launch(f, "nest (mean)", mean_kernel, aci_shape_of_launch(dim3(1), dim3(ACI_WARP)), e,
                    a));
  return aci_launch(f, "nest", nest_kernel, aci_blocks(f->device, outer.n * ACI_WARP), e, a);
}

/* ---- blocks of a layout ---- */
static ac_status encode(ac_frame *f, ac_err *e) {
  ac_tensor *y = f->out[0];
  const ac_layout *l = ac_tensor_layout(y);
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  ac_block *block = NULL;
  void *scratch = NULL;
  encode_args a = {};
  int size;
  if (l->nested)
    AC_TRY(aci_workspace(f, (size_t)absmax.n * sizeof(float) + 4, &block, &scratch, e));
  a.x = aci_source_of(f->args[0].tensor);
  a.block = l->blocksize;
  a.blocks = absmax.n;
  a.q = (uint8_t *)aci_part_data(y, &values);
  a.absmax = l->nested ? (float *)scratch : (float *)aci_part_data(y, &absmax);
  const float *map = ac_quant_map(l->type, &size);
  if (aci_layout_is_4bit(l)) {
    static const uint8_t fp4[16] = {11, 10, 13, 12, 15, 14, 9, 0,
                                    8,  1,  6,  7,  4,  5,  2, 3}; /* by their values */
    for (int i = 0; i < 16; i++) a.code[i] = l->type == AC_QUANT_NF4 ? (uint8_t)i : fp4[i];
    for (int i = 0; i < 15; i++) a.middle[i] = (map[a.code[i]] + map[a.code[i + 1]]) / 2;
  } else {
    memcpy(a.map, map, sizeof a.map);
  }
  ac_status st = AC_OK;
  if (a.blocks > 0)
    st = aci_launch(f, "quantize",
                    aci_layout_is_4bit(l) ? encode_4bit_kernel : encode_dynamic_kernel,
                    aci_blocks(f->device, a.blocks * ACI_WARP), e, a);
  if (st == AC_OK && l->nested) st = nest(f, y, l, a.absmax, e);
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, quantize_4bit, encode)
AC_KERNEL(cuda, quantize_dynamic, encode)

/* ---- rows in int8 ---- */
static __global__ void __launch_bounds__(ACI_BLOCK)
    rows_int8_kernel(const __grid_constant__ aci_rows_int8 a) {
  for (int64_t r = warp_number(); r < a.rows; r += warps()) {
    float most = 0;
    for (int64_t i = aci_lane(); i < a.n; i += ACI_WARP) {
      const float m = aci_magnitude(aci_row_value(a, r * a.n + i));
      const bool out = a.below < INFINITY && m >= a.below; /* a NaN is none */
      if (!out) most = aci_larger(most, m);
      if (a.outlier != NULL && out) a.outlier[i] = 1; /* all that write here write this */
    }
    most = aci_warp_max(most);
    const float scale = 1.0f / most * 127.0f;
    if (aci_lane() == 0) a.absmax[r] = most;
    for (int64_t i = aci_lane(); i < a.stride; i += ACI_WARP) {
      const float x = i < a.n ? aci_row_value(a, r * a.n + i) : 0,
                  v = (aci_magnitude(x) < a.below ? x * scale : 0) + 12582912.0f;
      a.q[r * a.stride + i] =
          most == 0 || !aci_is_finite(most) || i >= a.n ? 0 : (int8_t)(aci_bits32(v) - 0x4b400000u);
    }
  }
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    no_outliers_kernel(int64_t n, uint8_t *outlier) {
  for (int64_t i = aci_first(); i < n; i += aci_step()) outlier[i] = 0;
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    drop_columns_kernel(const __grid_constant__ aci_rows_int8 a) {
  for (int64_t i = aci_first(); i < a.rows * a.n; i += aci_step())
    if (a.outlier[i % a.n]) a.q[i / a.n * a.stride + i % a.n] = 0;
}

ac_status aci_cuda_rows_int8(ac_frame *f, const aci_rows_int8 &rows, ac_err *e) {
  aci_rows_int8 a = rows;
  if (a.outlier != NULL && a.n > 0)
    AC_TRY(aci_launch(f, "outliers", no_outliers_kernel, aci_blocks(f->device, a.n), e, a.n,
                      a.outlier));
  if (a.below == INFINITY) a.outlier = NULL;
  if (a.rows > 0)
    AC_TRY(aci_launch(f, "rows_int8", rows_int8_kernel, aci_blocks(f->device, a.rows * ACI_WARP), e,
                      a));
  if (a.outlier == NULL || a.rows * a.n == 0) return AC_OK;
  return aci_launch(f, "drop_columns", drop_columns_kernel, aci_blocks(f->device, a.rows * a.n), e,
                    a);
}

static ac_status quantize_int8(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  ac_tensor *y = f->out[0];
  const ac_layout *l = ac_tensor_layout(y);
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  aci_rows_int8 a = {};
  a.x = aci_source_of(x);
  a.rows = x->shape[0];
  a.n = a.stride = x->shape[1];
  a.below = INFINITY;
  a.q = (int8_t *)aci_part_data(y, &values);
  a.absmax = (float *)aci_part_data(y, &absmax);
  return aci_cuda_rows_int8(f, a, e);
}
AC_KERNEL(cuda, quantize_int8, quantize_int8)

static ac_status vectorwise(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  aci_rows_int8 a = {};
  a.x = aci_source_of(x);
  a.rows = f->out[1]->numel;
  a.n = a.stride = x->shape[x->ndim - 1];
  a.below = f->args[1].f > 0 ? (float)f->args[1].f : INFINITY;
  a.q = (int8_t *)aci_data(f->out[0]);
  a.absmax = (float *)aci_data(f->out[1]);
  a.outlier = (uint8_t *)aci_data(f->out[2]);
  return aci_cuda_rows_int8(f, a, e);
}
AC_KERNEL(cuda, int8_vectorwise_quant, vectorwise)
