/* linear_quantized on CUDA. Few rows of x: a warp makes the outputs of one row of the weight from
 * its packed bytes, each of which is read once. Sums are f32, weights are rounded to the dtype of x
 * as on the CPU. More rows of x, or rows of the weight that are not whole runs of 8: dequantised to
 * the dtype of x and multiplied by the library. int8: rows of x become int8, and products are exact
 * in integers. Columns with outliers are multiplied unquantised. */
#include "ops/index/range.cuh"
#include "ops/matmul/product.cuh"
#include "ops/quant/encode.cuh"

namespace {
enum { X, W, BIAS, THRESHOLD };
enum { FEW = 8 /* rows of x */, RUN = 8 /* values of the weight that a lane takes */, AHEAD = 4 };

struct operands {
  const void *x, *bias; /* bias NULL: none */
  void *y;
  ac_dtype dt, bias_dt;
  int64_t m, n, k, bias_stride;
};
struct product4 {
  aci_quantized w;
  operands o;
};
struct product8 {
  operands o;
  const int8_t *w, *q;      /* q: rows of x, stride bytes apart */
  const float *of_w, *of_x; /* absmax */
  const int32_t *columns;   /* with outliers, after their number. NULL: none */
  int64_t stride;
};
} // namespace

static operands operands_of(const ac_frame *f, const ac_layout *l, const void *x) {
  operands o = {};
  o.x = x;
  o.y = aci_data(f->out[0]);
  o.dt = (ac_dtype)f->out[0]->dtype;
  o.n = l->shape[0];
  o.k = l->shape[1];
  o.m = f->out[0]->numel / o.n;
  if (f->args[BIAS].kind == AC_T_NONE) return o;
  const ac_tensor *b = f->args[BIAS].tensor;
  o.bias = aci_data(b);
  o.bias_dt = (ac_dtype)b->dtype;
  o.bias_stride = b->stride[0];
  return o;
}
ACI_DEVICE void put(const operands &o, int64_t r, int64_t j, float y) {
  aci_put(o.dt, o.y, r * o.n + j,
          o.bias == NULL ? y : y + aci_get<float>(o.bias_dt, o.bias, j * o.bias_stride));
}

/* ---- 4 bits ---- */
/* D: dtype of x. ROWS of it from row `first`. A lane takes RUN values of the weight at a time,
 * whose 4 bytes and values of x are adjacent to its neighbours'. AHEAD of them are requested before
 * the first is used. */
template <int D, int ROWS>
static __global__ void __launch_bounds__(ACI_BLOCK)
    rows_4bit_kernel(const __grid_constant__ product4 a, int64_t first) {
  typedef aci_element<D> E;
  typedef typename E::bits bits;
  enum { N = 16 / sizeof(bits) };
  __shared__ float map[16];
  if (threadIdx.x < 16) map[threadIdx.x] = a.w.map[threadIdx.x];
  __syncthreads();
  const bits *x = (const bits *)a.o.x + first * a.o.k;
  for (int64_t j = aci_first() / ACI_WARP; j < a.o.n; j += aci_step() / ACI_WARP) {
    float sum[ROWS] = {};
    for (int64_t begin = (int64_t)aci_lane() * RUN; begin < a.o.k;
         begin += ACI_WARP * RUN * AHEAD) {
      uint32_t packed[AHEAD];
      float absmax[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        const int64_t i = begin + u * ACI_WARP * RUN, at = j * a.o.k + i;
        packed[u] = i < a.o.k ? *(const uint32_t *)(a.w.q + at / 2) : 0;
        absmax[u] = i < a.o.k ? aci_absmax_of(a.w, at / a.w.blocksize) : 0;
      }
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        const int64_t i = begin + u * ACI_WARP * RUN;
        if (i >= a.o.k) break;
        float w[RUN];
#pragma unroll
        for (int b = 0; b < 4; b++) {
          const uint32_t q = packed[u] >> 8 * b & 255;
          w[2 * b] = E::template load<float>(E::template store<float>(map[q >> 4] * absmax[u]));
          w[2 * b + 1] = E::template load<float>(E::template store<float>(map[q & 15] * absmax[u]));
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int v = 0; v < RUN; v += N) {
            const aci_vector<bits, N> some = *(const aci_vector<bits, N> *)(x + r * a.o.k + i + v);
#pragma unroll
            for (int e = 0; e < N; e++) sum[r] += w[v + e] * E::template load<float>(some.v[e]);
          }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const float y = aci_warp_sum(sum[r]);
      if (aci_lane() == 0) put(a.o, first + r, j, y);
    }
  }
}
template <int D> static ac_status rows_4bit(const ac_frame *f, const product4 &a, ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, a.o.n * ACI_WARP);
  for (int64_t r = 0, next; r < a.o.m; r += next) { /* 4, 2 and 1 of them */
    const int64_t left = a.o.m - r;
    next = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    AC_TRY(aci_launch(f, "linear_4bit",
                      next == 4   ? rows_4bit_kernel<D, 4>
                      : next == 2 ? rows_4bit_kernel<D, 2>
                                  : rows_4bit_kernel<D, 1>,
                      blocks, e, a, r));
  }
  return AC_OK;
}

/* Any layout, by the values. */
static ac_status by_values(ac_frame *f, const operands &o, const ac_layout *l, ac_err *e) {
  const ac_tensor *bias = o.bias != NULL ? f->args[BIAS].tensor : NULL;
  aci_product p = {};
  ac_block *block, *run = NULL;
  void *w;
  AC_TRY(aci_workspace(f, (size_t)(o.n * o.k) * aci_dsize(o.dt) + 1, &block, &w, e));
  ac_status st = aci_cuda_dequantize(f, f->args[W].tensor, l, o.dt, w, e);
  if (st == AC_OK && bias != NULL) st = aci_cuda_in_a_run(f, bias, &p.bias, &run, e);
  if (st == AC_OK) {
    p.dtype = o.dt;
    p.m = o.m;
    p.n = o.n;
    p.k = o.k;
    p.a = o.x;
    p.b = w;
    p.c = o.y;
    p.a_rs = p.b_cs = o.k;
    p.a_cs = p.b_rs = 1;
    p.alpha = 1;
    p.bias_dtype = o.bias_dt;
    st = aci_cuda_product(f, &p, e);
  }
  ac_block_free(run);
  ac_block_free(block);
  return st;
}

/* ---- int8 ---- */
/* The columns whose flags are set, in order, after their number. One warp. */
static __global__ void columns_kernel(const uint8_t *outlier, int64_t n, int32_t *columns) {
  int32_t found = 0;
  for (int64_t at = 0; at < n; at += ACI_WARP) {
    const bool mine = at + aci_lane() < n && outlier[at + aci_lane()];
    uint32_t mask = mine ? 1u << aci_lane() : 0;
    for (int m = ACI_WARP / 2; m > 0; m /= 2) mask |= aci_from_lane_xor(mask, m);
    int32_t before = 0;
    for (int lane = 0; lane < aci_lane(); lane++) before += mask >> lane & 1;
    if (mine) columns[1 + found + before] = (int32_t)(at + aci_lane());
    for (int lane = 0; lane < ACI_WARP; lane++) found += mask >> lane & 1;
  }
  if (aci_lane() == 0) columns[0] = found;
}

/* ROWS of x from row `first`, of which there are o.m. FOURS: rows are whole runs of 16 bytes. */
template <int ROWS, bool FOURS>
static __global__ void __launch_bounds__(ACI_BLOCK)
    rows_8bit_kernel(const __grid_constant__ product8 a) {
  const int64_t groups = (a.o.m + ROWS - 1) / ROWS;
  for (int64_t at = aci_first() / ACI_WARP; at < a.o.n * groups; at += aci_step() / ACI_WARP) {
    const int64_t j = at % a.o.n, first = at / a.o.n * ROWS;
    const int8_t *w = a.w + j * a.o.k;
    int sum[ROWS] = {};
    if (FOURS) {
      for (int64_t i = (int64_t)aci_lane() * 16; i < a.o.k; i += ACI_WARP * 16) {
        const aci_vector<uint32_t, 4> wide = *(const aci_vector<uint32_t, 4> *)(w + i);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          if (first + r >= a.o.m) break;
          const aci_vector<uint32_t, 4> x =
              *(const aci_vector<uint32_t, 4> *)(a.q + (first + r) * a.stride + i);
#pragma unroll
          for (int word = 0; word < 4; word++) sum[r] = aci_dot4(sum[r], wide.v[word], x.v[word]);
        }
      }
    } else {
      for (int64_t i = aci_lane(); i < a.o.k; i += ACI_WARP)
        for (int r = 0; r < ROWS && first + r < a.o.m; r++)
          sum[r] += (int)w[i] * (int)a.q[(first + r) * a.stride + i];
    }
    const float scale = a.of_w[j] * (1.0f / 127);
    for (int r = 0; r < ROWS && first + r < a.o.m; r++) {
      int64_t whole = sum[r]; /* a lane's share fits 32 bits, all together may not */
      for (int mask = ACI_WARP / 2; mask > 0; mask /= 2) whole += aci_from_lane_xor(whole, mask);
      float y = (float)whole * (a.of_x[first + r] * (1.0f / 127)) * scale;
      if (a.columns != NULL) {
        float apart = 0;
        for (int32_t c = aci_lane(); c < a.columns[0]; c += ACI_WARP) {
          const int32_t i = a.columns[1 + c];
          apart += aci_get<float>(a.o.dt, a.o.x, (first + r) * a.o.k + i) * (float)w[i];
        }
        apart = aci_warp_sum(apart);
        if (a.columns[0] > 0) y += apart * scale;
      }
      if (aci_lane() == 0) put(a.o, first + r, j, y);
    }
  }
}

static ac_status by_int8(ac_frame *f, const operands &o, const ac_layout *l, ac_err *e) {
  const ac_tensor *t = f->args[W].tensor;
  const aci_part values = aci_layout_part(l, AC_PART_VALUES),
                 absmax = aci_layout_part(l, AC_PART_ABSMAX);
  const float threshold = (float)f->args[THRESHOLD].f;
  const int64_t stride = (o.k + 15) / 16 * 16;
  const size_t q_bytes = (size_t)(o.m * stride), stats = (size_t)o.m * 4,
               flags = threshold > 0 ? ((size_t)o.k + 15) / 16 * 16 : 0;
  ac_block *block;
  void *scratch;
  AC_TRY(aci_workspace(
      f, q_bytes + (stats + 15) / 16 * 16 + flags + (flags > 0 ? (size_t)(o.k + 1) * 4 : 0) + 16,
      &block, &scratch, e));
  char *p = (char *)scratch;
  aci_rows_int8 rows = {};
  rows.x.p = o.x;
  rows.x.dt = o.dt;
  rows.x.n = o.m * o.k;
  rows.rows = o.m;
  rows.n = o.k;
  rows.stride = stride;
  rows.below = threshold > 0 ? threshold : INFINITY;
  rows.through_f16 = o.dt != AC_F16;
  rows.q = (int8_t *)p;
  rows.absmax = (float *)(p + q_bytes);
  rows.outlier = flags > 0 ? (uint8_t *)(p + q_bytes + (stats + 15) / 16 * 16) : NULL;
  int32_t *columns = flags > 0 ? (int32_t *)((char *)rows.outlier + flags) : NULL;
  product8 a = {o,           (const int8_t *)aci_part_data(t, &values),
                rows.q,      (const float *)aci_part_data(t, &absmax),
                rows.absmax, columns,
                stride};
  ac_status st = aci_cuda_rows_int8(f, rows, e);
  if (st == AC_OK && columns != NULL)
    st = aci_launch(f, "outliers", columns_kernel, aci_shape_of_launch(dim3(1), dim3(ACI_WARP)), e,
                    (const uint8_t *)rows.outlier, o.k, columns);
  const bool fours = o.k % 16 == 0;
  const int per = o.m >= 8 ? 8 : o.m >= 2 ? 4 : 1;
  if (st == AC_OK)
    st = aci_launch(f, "linear_int8",
                    per == 8   ? (fours ? rows_8bit_kernel<8, true> : rows_8bit_kernel<8, false>)
                    : per == 4 ? (fours ? rows_8bit_kernel<4, true> : rows_8bit_kernel<4, false>)
                               : (fours ? rows_8bit_kernel<1, true> : rows_8bit_kernel<1, false>),
                    aci_blocks(f->device, o.n * ((o.m + per - 1) / per) * ACI_WARP), e, a);
  ac_block_free(block);
  return st;
}

/* x: a run, aligned as the kernels' vectors are. */
static ac_status by_layout(ac_frame *f, const ac_layout *l, const void *x, ac_err *e) {
  product4 a = {{}, operands_of(f, l, x)};
  const operands &o = a.o;
  if (l->type == AC_QUANT_INT8) return by_int8(f, o, l, e);
  if (!aci_layout_is_4bit(l) || o.m > FEW || o.k % RUN != 0 || o.dt == AC_F64)
    return by_values(f, o, l, e);
  a.w = aci_quantized_of(f->args[W].tensor, l);
  return o.dt == AC_BF16  ? rows_4bit<AC_BF16>(f, a, e)
         : o.dt == AC_F16 ? rows_4bit<AC_F16>(f, a, e)
                          : rows_4bit<AC_F32>(f, a, e);
}

static ac_status multiply(ac_frame *f, ac_err *e) {
  const ac_layout *l = ac_tensor_layout(f->args[W].tensor);
  const ac_tensor *given = f->args[X].tensor;
  const void *x;
  ac_block *run = NULL, *aligned = NULL;
  if (f->out[0]->numel == 0) return AC_OK;
  ac_status st = aci_cuda_in_a_run(f, given, &x, &run, e);
  if (st == AC_OK) st = aci_cuda_aligned(f, &x, given->numel, (ac_dtype)given->dtype, &aligned, e);
  if (st == AC_OK) st = by_layout(f, l, x, e);
  ac_block_free(aligned);
  ac_block_free(run);
  return st;
}
AC_KERNEL(cuda, linear_quantized, multiply)
