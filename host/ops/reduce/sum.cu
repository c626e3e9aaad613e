/* sum and mean on CUDA: lanes add in f32 (f64 of doubles), their tree and the pieces in double,
 * integers in i64 and wrap. The divisor of a mean comes once, last. */
#include "ops/reduce/reduction.cuh"
#include "ops/reduce/rows.cuh"

/* Four running sums of the element's type, so that rounding errors of long lists stay small and
 * additions do not wait for one another. */
template <class T> struct sum_floats {
  typedef T element;
  struct state {
    T run[4];
    double sum;
  };
  static __device__ __forceinline__ state start() {
    state s = {{0, 0, 0, 0}, 0};
    return s;
  }
  static __device__ __forceinline__ void step(state &s, T v, int64_t, double) {
    const T first = s.run[0];
    s.run[0] = s.run[1], s.run[1] = s.run[2], s.run[2] = s.run[3];
    s.run[3] = first + v;
  }
  static __device__ __forceinline__ double total(const state &s) {
    return s.sum + (((double)s.run[0] + (double)s.run[1]) + ((double)s.run[2] + (double)s.run[3]));
  }
  static __device__ __forceinline__ void join(state &s, const state &t) {
    s.sum = total(s) + total(t);
    s.run[0] = s.run[1] = s.run[2] = s.run[3] = 0;
  }
  static __device__ __forceinline__ void put(const aci_reduction_out &o, int64_t at,
                                             const state &s) {
    aci_put(o.dt[0], o.out[0], at, total(s) / o.p);
  }
};

struct sum_integers {
  typedef int64_t element;
  typedef uint64_t state;
  static __device__ __forceinline__ state start() { return 0; }
  static __device__ __forceinline__ void step(state &s, int64_t v, int64_t, double) {
    s += (uint64_t)v;
  }
  static __device__ __forceinline__ void join(state &s, const state &t) { s += t; }
  static __device__ __forceinline__ void put(const aci_reduction_out &o, int64_t at,
                                             const state &s) {
    aci_put(o.dt[0], o.out[0], at, (int64_t)s);
  }
};

/* ---- columns of rows with vector layout, as for gradients of biases ---- */
struct columns_args {
  const void *x;
  int64_t rows, step, n, piece, n_pieces; /* piece: rows */
  double *part;                           /* [piece][column] */
};
/* A thread has V columns of a piece and takes its rows in turns with the other warps, in f32. These
 * are added in order. */
template <int DT>
static __global__ void __launch_bounds__(ACI_BLOCK)
    sum_columns(const __grid_constant__ columns_args a) {
  typedef typename aci_element<DT>::bits S;
  constexpr int V = 16 / (int)sizeof(S), WARPS = ACI_BLOCK / 32;
  __shared__ aci_vector<float, V> shared[ACI_BLOCK];
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const int64_t tiles = (a.n + 32 * V - 1) / (32 * V);
  for (int64_t item = blockIdx.x; item < tiles * a.n_pieces; item += gridDim.x) {
    const int64_t c = (item % tiles * 32 + lane) * V, p = item / tiles, begin = p * a.piece,
                  end = begin + a.piece < a.rows ? begin + a.piece : a.rows;
    aci_vector<float, V> sum = {};
#pragma unroll 4
    for (int64_t r = begin + warp; r < end; r += WARPS) {
      if (c >= a.n) break;
      const aci_vector<S, V> x = *(const aci_vector<S, V> *)((const S *)a.x + r * a.step + c);
#pragma unroll
      for (int j = 0; j < V; j++) sum.v[j] += aci_element<DT>::template load<float>(x.v[j]);
    }
    __syncthreads(); /* old contents were read */
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (warp > 0 || c >= a.n) continue;
#pragma unroll
    for (int j = 0; j < V; j++) {
      double all = 0;
      for (int w = 0; w < WARPS; w++) all += (double)shared[w * 32 + lane].v[j];
      a.part[p * a.n + c + j] = all;
    }
  }
}
#ifdef ACI_CUDA_EMULATED
enum { ITEMS = 6, LEAST_ROWS = 4, MOST_ROWS = 64 };
#else
/* blocks that fill the machine. Rows of a piece */
enum { ITEMS = 1024, LEAST_ROWS = 32, MOST_ROWS = 1024 };
#endif

/* UNSUPPORTED, without a message, for other layouts. */
static ac_status sum_of_columns(ac_frame *f, const aci_reduce_plan &p, double divisor,
                                const ac_tensor *out, ac_err *e) {
  const int64_t es = (int64_t)aci_dsize(p.dt), v = 16 / es;
  columns_args a = {};
  ac_block *scratch;
  if ((p.dt != AC_F32 && p.dt != AC_BF16 && p.dt != AC_F16) || p.ct != ACI_C_F32)
    return AC_UNSUPPORTED;
  if (p.n_keep != 1 || p.n_red != 1 || p.keep_stride[0] != 1 || p.n_out % v != 0 ||
      p.n_reduced < 2 * LEAST_ROWS)
    return AC_UNSUPPORTED;
  if ((uintptr_t)p.ptr % 16 != 0 || p.red_stride[0] % v != 0 || p.n_out < 2 * v)
    return AC_UNSUPPORTED;
  a.x = p.ptr;
  a.rows = p.n_reduced;
  a.step = p.red_stride[0];
  a.n = p.n_out;
  const int64_t tiles = (a.n + 32 * v - 1) / (32 * v), want = (ITEMS + tiles - 1) / tiles;
  a.piece = (a.rows + want - 1) / want;
  a.piece = a.piece < LEAST_ROWS ? LEAST_ROWS : a.piece > MOST_ROWS ? MOST_ROWS : a.piece;
  a.n_pieces = (a.rows + a.piece - 1) / a.piece;
  AC_TRY(ac_block_alloc(f->device, sizeof(double) * (size_t)(a.n_pieces * a.n), AC_MEM_ACTIVATION,
                        f->stream, &scratch, e));
  a.part = (double *)scratch->ptr;
  void (*const kernel)(columns_args) = p.dt == AC_F32    ? sum_columns<AC_F32>
                                       : p.dt == AC_BF16 ? sum_columns<AC_BF16>
                                                         : sum_columns<AC_F16>;
  ac_status st =
      aci_launch(f, "sum of columns", kernel, aci_blocks(f->device, tiles * a.n_pieces, 1), e, a);
  if (st == AC_OK)
    st = aci_join_columns(f, (const double *)a.part, a.n_pieces, a.n, a.n, divisor, aci_data(out),
                          (ac_dtype)out->dtype, e);
  ac_block_free(scratch);
  return st;
}

/* out := the sum of the elements under each output / divisor. divisor 0: the number of those
 * elements. */
ac_status aci_cuda_sum(ac_frame *f, const ac_tensor *x, uint32_t mask, double divisor,
                       ac_tensor *out, ac_err *e) {
  aci_reduce_plan p;
  const aci_ctype ct = aci_ctype_of((ac_dtype)out->dtype);
  aci_reduce_plan_make(&p, x, mask, ct);
  if (divisor == 0) divisor = (double)p.n_reduced;
  const ac_status st = sum_of_columns(f, p, divisor, out, e);
  if (st != AC_UNSUPPORTED) return st;
  if (ct == ACI_C_F32) return aci_reduction_cuda<sum_floats<float>>(f, &p, divisor, out, NULL, e);
  if (ct == ACI_C_F64) return aci_reduction_cuda<sum_floats<double>>(f, &p, divisor, out, NULL, e);
  return aci_reduction_cuda<sum_integers>(f, &p, divisor, out, NULL, e);
}

static ac_status sum(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return aci_cuda_sum(f, x, aci_reduce_mask(&f->args[1], x->ndim), 1, f->out[0], e);
}
static ac_status mean(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return aci_cuda_sum(f, x, aci_reduce_mask(&f->args[1], x->ndim), 0, f->out[0], e);
}
AC_KERNEL(cuda, sum, sum)
AC_KERNEL(cuda, mean, mean)
