/* Convolutions as matrix products whose right factor is never laid out (implicit GEMM): a block
 * computes a tile of the result from tiles of both factors in shared memory, gathering patches on
 * the way there.
 *
 *                rows            columns                     k, added in order
 *   FORWARD      out channels    (image, position of y)         (in channel, tap)
 *   INPUT        in channels     (image, position of dx)        (out channel, tap)
 *   WEIGHT       out channels    (in channel, tap)           (image, position of y)
 *
 * Long sums of few tiles are cut into pieces, which meet in a second kernel. All cuts follow from
 * shapes. f32, bf16 and f16 accumulate in f32, f64 in f64. */
#include "ops/conv/conv_gather.cuh"

#include "ops/cuda/launch.cuh"

/* A block's tile: N x K and M x K values in shared memory, TM x TN results a thread. */
template <int M_, int N_, int K_, int TM_, int TN_> struct tile_of {
  enum { M = M_, N = N_, K = K_, TM = TM_, TN = TN_, THREADS = (M_ / TM_) * (N_ / TN_) };
  static_assert(THREADS % N_ == 0 && THREADS % K_ == 0 && M_ * K_ % THREADS == 0 &&
                    N_ * K_ % THREADS == 0,
                "a thread keeps its column, or its position in k");
};
#ifdef ACI_CUDA_EMULATED
typedef tile_of<16, 16, 4, 4, 4> large;
typedef tile_of<8, 8, 4, 2, 2> small;
typedef tile_of<4, 16, 4, 2, 2> narrow;
enum { FEW_ROWS = 4, MANY_ROWS = 12, ENOUGH_TILES = 4, LEAST_PIECE = 8 };
#else
typedef tile_of<128, 128, 8, 8, 8> large;
typedef tile_of<64, 64, 16, 4, 4> small;
typedef tile_of<32, 128, 8, 4, 4> narrow;
enum { FEW_ROWS = 32, MANY_ROWS = 96, ENOUGH_TILES = 256, LEAST_PIECE = 256 };
#endif
enum { PAD = 4, MOST_PIECES = 64 };
const int64_t MOST_SCRATCH = (int64_t)256 << 20;

/* Tiles of both factors on their way to shared memory. FORWARD and INPUT: columns side by side to
 * threads side by side. */
template <class S, class ACC, class T, bool ROWS_FIRST> struct patches_of {
  enum { LEFT = T::M * T::K / T::THREADS, RIGHT = T::N * T::K / T::THREADS };
  const gemm_args &a;
  const gather &g;
  int64_t row0, base, w_base;
  int at[3];
  bool in_cols;
  ACC left[LEFT], right[RIGHT];

  __device__ __forceinline__ patches_of(const gemm_args &a, const gather &g, int64_t group,
                                        int64_t row0, int64_t col0)
      : a(a), g(g), row0(row0) {
    const aci_conv &c = a.call.c;
    const int64_t col = col0 + (int)threadIdx.x % T::N,
                  channels = a.call.kind == ACI_CONV_INPUT ? c.co : c.ci;
    int64_t image = 0;
    at[0] = at[1] = at[2] = 0;
    in_cols = col < g.cols;
    if (in_cols) position_of(g, col, &image, at);
    for (int d = 0; d < 3; d++) at[d] = at[d] * pace(a, d) + g.origin[d];
    base = (image * c.groups + group) * channels * g.volume;
    w_base = group * c.co * c.ci * aci_conv_volume(c.k) + g.w_first;
  }
  /* The factors' parts [k, k + K), zero from end on. */
  __device__ __forceinline__ void load(int64_t k, int64_t end) {
    for (int i = 0; i < LEFT; i++) {
      const int n = (int)threadIdx.x + i * T::THREADS, row = ROWS_FIRST ? n % T::M : n / T::K,
                s = ROWS_FIRST ? n / T::M : n % T::K;
      left[i] = row0 + row < a.rows && k + s < end
                    ? element<S>(a.call.dt, a.call.b,
                                 w_base + (row0 + row) * g.w_row +
                                     weight_at(g, tap_of(g, (uint32_t)(k + s))))
                    : (ACC)0;
    }
    for (int i = 0; i < RIGHT; i++) {
      const int s = ((int)threadIdx.x + i * T::THREADS) / T::N;
      right[i] = (ACC)0;
      if (!in_cols || k + s >= end) continue;
      const tap_at t = tap_of(g, (uint32_t)(k + s));
      const int to[3] = {at[0] + t.j[0] * g.step[0], at[1] + t.j[1] * g.step[1],
                         at[2] + t.j[2] * g.step[2]};
      if (inside(to, g.extent))
        right[i] =
            element<S>(a.call.dt, a.call.a, base + t.channel * g.volume + linear(to, g.extent));
    }
  }
  __device__ __forceinline__ void store(ACC (*l)[T::M + PAD], ACC (*r)[T::N + PAD]) const {
    for (int i = 0; i < LEFT; i++) {
      const int n = (int)threadIdx.x + i * T::THREADS;
      if (ROWS_FIRST) l[n / T::M][n % T::M] = left[i];
      else l[n % T::K][n / T::K] = left[i];
    }
    for (int i = 0; i < RIGHT; i++) {
      const int n = (int)threadIdx.x + i * T::THREADS;
      r[n / T::N][n % T::N] = right[i];
    }
  }
};

/* WEIGHT: adjacent positions of y go to adjacent threads. A thread's columns stay, its position
 * moves. */
template <class S, class ACC, class T> struct positions_of {
  enum { LEFT = T::M * T::K / T::THREADS, RIGHT = T::N * T::K / T::THREADS };
  const gemm_args &a;
  const gather &g;
  int64_t row0, group, begin, image0;
  uint32_t rest0; /* begin = image0 * positions + rest0 */
  aci_divisor positions;
  int64_t channel[RIGHT];
  int tap[RIGHT][3];
  bool in_cols[RIGHT];
  ACC left[LEFT], right[RIGHT];

  __device__ __forceinline__ positions_of(const gemm_args &a, const gather &g, int64_t group,
                                          int64_t row0, int64_t col0, int64_t begin)
      : a(a), g(g), row0(row0), group(group), begin(begin) {
    positions = aci_divide_by(aci_conv_volume(a.call.c.out));
    image0 = begin / positions.d;
    rest0 = (uint32_t)(begin - image0 * positions.d);
    for (int i = 0; i < RIGHT; i++) {
      const int64_t col = col0 + ((int)threadIdx.x + i * T::THREADS) / T::K;
      in_cols[i] = col < a.cols;
      const tap_at t = tap_of(g, in_cols[i] ? (uint32_t)col : 0);
      channel[i] = t.channel * g.volume;
      for (int d = 0; d < 3; d++) tap[i][d] = t.j[d] * g.step[d];
    }
  }
  __device__ __forceinline__ void load(int64_t k, int64_t end) {
    const aci_conv &c = a.call.c;
    const int64_t mine = k + (int)threadIdx.x % T::K;
    const bool in_k = mine < end;
    const uint32_t r = rest0 + (uint32_t)(in_k ? mine - begin : 0),
                   more = aci_quotient32(r, positions);
    const int64_t q = r - more * (uint32_t)positions.d, image = image0 + more;
    int at[3];
    int64_t none;
    position_of(g, q, &none, at);
    for (int d = 0; d < 3; d++) at[d] = at[d] * (int)c.stride[d] + g.origin[d];
    const int64_t from = ((image * c.groups + group) * c.co + row0) * positions.d + q,
                  base = (image * c.groups + group) * c.ci * g.volume;
    for (int i = 0; i < LEFT; i++) {
      const int row = ((int)threadIdx.x + i * T::THREADS) / T::K;
      left[i] = in_k && row0 + row < a.rows
                    ? element<S>(a.call.dt, a.call.a, from + row * positions.d)
                    : (ACC)0;
    }
    for (int i = 0; i < RIGHT; i++) {
      const int to[3] = {at[0] + tap[i][0], at[1] + tap[i][1], at[2] + tap[i][2]};
      right[i] = in_k && in_cols[i] && inside(to, g.extent)
                     ? element<S>(a.call.dt, a.call.b, base + channel[i] + linear(to, g.extent))
                     : (ACC)0;
    }
  }
  __device__ __forceinline__ void store(ACC (*l)[T::M + PAD], ACC (*r)[T::N + PAD]) const {
    for (int i = 0; i < LEFT; i++) {
      const int n = (int)threadIdx.x + i * T::THREADS;
      l[n % T::K][n / T::K] = left[i];
    }
    for (int i = 0; i < RIGHT; i++) {
      const int n = (int)threadIdx.x + i * T::THREADS;
      r[n % T::K][n / T::K] = right[i];
    }
  }
};

/* Which row (column) of the tile is number i of a thread's: vectors of V, as far apart as all
 * threads' vectors are wide, so that threads read neighbouring vectors of shared memory. */
template <int V, int T, int ALL> ACI_DEVICE int thread_row(int thread, int i) {
  return i / V * (ALL * V / T) + thread * V + i % V;
}
template <int V, class ACC> ACI_DEVICE void read(ACC *to, const ACC *from) {
  *(aci_vector<ACC, V> *)to = *(const aci_vector<ACC, V> *)from;
}

/* The tile's sums over [begin, end) of k. */
template <class ACC, class T, class LOAD>
ACI_DEVICE void multiply(LOAD &load, ACC (*l)[T::M + PAD], ACC (*r)[T::N + PAD], int64_t begin,
                         int64_t end, ACC (*sum)[T::TN]) {
  enum { FIT = 16 / sizeof(ACC), VM = T::TM < FIT ? T::TM : FIT, VN = T::TN < FIT ? T::TN : FIT };
  const int tx = (int)threadIdx.x % (T::N / T::TN), ty = (int)threadIdx.x / (T::N / T::TN);
  alignas(16) ACC x[T::TM], y[T::TN];
  if (begin < end) load.load(begin, end);
  for (int64_t k = begin; k < end; k += T::K) {
    load.store(l, r);
    __syncthreads();
    if (k + T::K < end) load.load(k + T::K, end); /* loads that run while this tile is multiplied */
#pragma unroll
    for (int s = 0; s < T::K; s++) {
#pragma unroll
      for (int i = 0; i < T::TM; i += VM)
        read<VM>(x + i, &l[s][thread_row<VM, T::TM, T::M>(ty, i)]);
#pragma unroll
      for (int j = 0; j < T::TN; j += VN)
        read<VN>(y + j, &r[s][thread_row<VN, T::TN, T::N>(tx, j)]);
#pragma unroll
      for (int i = 0; i < T::TM; i++)
#pragma unroll
        for (int j = 0; j < T::TN; j++) sum[i][j] = fma(x[i], y[j], sum[i][j]);
    }
    __syncthreads();
  }
}

/* A block computes tiles of T::M x T::N results. An item is (row tile, column tile, class, group,
 * piece of k). Both factors pass through shared memory T::K steps of k at a time (l, r), a thread
 * holds TM x TN sums in registers. With pieces, sums go to part[piece] and are joined in order by
 * another kernel. */
template <class S, class ACC, class T, int KIND>
static __global__ void __launch_bounds__(T::THREADS, 2)
    conv_tiles(const __grid_constant__ gemm_args a) {
  enum { FIT = 16 / sizeof(ACC), VM = T::TM < FIT ? T::TM : FIT, VN = T::TN < FIT ? T::TN : FIT };
  alignas(16) __shared__ ACC l[T::K][T::M + PAD];
  alignas(16) __shared__ ACC r[T::K][T::N + PAD];
  __shared__ gather g;
  const aci_conv &c = a.call.c;
  const int64_t mt = (a.rows + T::M - 1) / T::M, nt = (a.cols + T::N - 1) / T::N,
                all = mt * nt * a.n_classes * c.groups * a.n_pieces;
  const int tx = (int)threadIdx.x % (T::N / T::TN), ty = (int)threadIdx.x / (T::N / T::TN);
  for (int64_t item = blockIdx.x; item < all; item += gridDim.x) {
    int64_t rest = item;
    const int64_t row0 = rest % mt * T::M;
    rest /= mt;
    const int64_t col0 = rest % nt * T::N;
    rest /= nt;
    __syncthreads(); /* the tile before was stored by g */
    if (threadIdx.x == 0) g = gather_of(a, rest % a.n_classes);
    __syncthreads();
    rest /= a.n_classes;
    const int64_t group = rest % c.groups, piece = rest / c.groups;
    const int64_t k_all = KIND == ACI_CONV_WEIGHT ? a.k : g.k, begin = piece * a.piece,
                  until = begin + a.piece, end = until < k_all ? until : k_all;
    const int64_t cols = KIND == ACI_CONV_WEIGHT ? a.cols : g.cols;
    ACC sum[T::TM][T::TN] = {};
    if (col0 >= cols) continue; /* this class has fewer than others, the same for all threads */
    if (KIND == ACI_CONV_WEIGHT) {
      positions_of<S, ACC, T> load(a, g, group, row0, col0, begin);
      multiply<ACC, T>(load, l, r, begin, end, sum);
    } else {
      patches_of<S, ACC, T, KIND == ACI_CONV_INPUT> load(a, g, group, row0, col0);
      multiply<ACC, T>(load, l, r, begin, end, sum);
    }
#pragma unroll
    for (int j = 0; j < T::TN; j++) {
      const int64_t col = col0 + thread_row<VN, T::TN, T::N>(tx, j);
      int64_t image = 0, at = col, stride = a.cols;
      if (col >= cols) continue;
      if (KIND != ACI_CONV_WEIGHT) {
        int p[3];
        const int64_t *extent = KIND == ACI_CONV_INPUT ? c.in : c.out;
        position_of(g, col, &image, p);
        for (int d = 0; d < 3; d++) p[d] = p[d] * g.every[d] + g.first[d];
        at = (p[0] * extent[1] + p[1]) * extent[2] + p[2];
        stride = a.call.plane;
      }
      at += (image * c.groups + group) * a.rows * stride;
#pragma unroll
      for (int i = 0; i < T::TM; i++) {
        const int64_t row = row0 + thread_row<VM, T::TM, T::M>(ty, i);
        if (row >= a.rows) continue;
        ACC v = sum[i][j];
        if (a.part != NULL) {
          ((ACC *)a.part)[piece * a.call.numel + at + row * stride] = v;
          continue;
        }
        if (a.call.bias != NULL) v += element<S>(a.call.dt, a.call.bias, group * a.rows + row);
        put_element(a.call.dt, (S *)a.call.y + at + row * stride, v);
      }
    }
  }
}

/* ---- launches ---- */
template <class T> static int64_t tiles_of(const gemm_args &a) {
  return (a.rows + T::M - 1) / T::M * ((a.cols + T::N - 1) / T::N) * a.n_classes * a.call.c.groups;
}

template <class S, class ACC, class T> static ac_status run(ac_frame *f, gemm_args a, ac_err *e) {
  const int64_t tiles = tiles_of<T>(a), most = MOST_SCRATCH / (a.call.numel * (int64_t)sizeof(ACC));
  ac_block *scratch = NULL;
  a.n_pieces = tiles < ENOUGH_TILES ? (ENOUGH_TILES + tiles - 1) / tiles : 1;
  if (a.n_pieces > a.k / LEAST_PIECE) a.n_pieces = a.k / LEAST_PIECE;
  if (a.n_pieces > MOST_PIECES) a.n_pieces = MOST_PIECES;
  if (a.n_pieces > most) a.n_pieces = most;
  /* positions of a piece are counted in 31 bits */
  if (a.n_pieces < 1 || (a.k + a.n_pieces - 1) / a.n_pieces > 1 << 30) a.n_pieces = (a.k >> 30) + 1;
  a.piece = ((a.k + a.n_pieces - 1) / a.n_pieces + T::K - 1) / T::K * T::K;
  if (a.n_pieces > 1) {
    AC_TRY(ac_block_alloc(f->device, sizeof(ACC) * (size_t)(a.n_pieces * a.call.numel),
                          AC_MEM_ACTIVATION, f->stream, &scratch, e));
    a.part = scratch->ptr;
  }
  const aci_shape_of_launch shape(dim3(aci_blocks(f->device, tiles * a.n_pieces, 1)),
                                  dim3(T::THREADS));
  ac_status st =
      a.call.kind == ACI_CONV_FORWARD
          ? aci_launch(f, "convolution", conv_tiles<S, ACC, T, ACI_CONV_FORWARD>, shape, e, a)
      : a.call.kind == ACI_CONV_INPUT
          ? aci_launch(f, "convolution", conv_tiles<S, ACC, T, ACI_CONV_INPUT>, shape, e, a)
          : aci_launch(f, "convolution", conv_tiles<S, ACC, T, ACI_CONV_WEIGHT>, shape, e, a);
  if (st == AC_OK && a.n_pieces > 1) st = aci_cuda_conv_join(f, &a.call, a.part, a.n_pieces, e);
  ac_block_free(scratch);
  return st;
}

template <class S> static ac_status run_float(ac_frame *f, const gemm_args &a, ac_err *e) {
  if (a.rows <= FEW_ROWS) return run<S, float, narrow>(f, a, e);
  if (a.rows >= MANY_ROWS && tiles_of<large>(a) >= ENOUGH_TILES / 2)
    return run<S, float, large>(f, a, e);
  return run<S, float, small>(f, a, e);
}

ac_status aci_cuda_conv_gemm(ac_frame *f, const aci_conv_call *k, ac_err *e) {
  const aci_conv &c = k->c;
  const int64_t taps = aci_conv_volume(c.k), positions = aci_conv_volume(c.out),
                most = (int64_t)1 << 30;
  gemm_args a = {};
  a.call = *k;
  a.rows = k->kind == ACI_CONV_INPUT ? c.ci : c.co;
  a.n_classes = 1;
  int64_t cols = c.n;
  bool fits =
      c.ci * taps < most && c.co * taps < most && aci_conv_volume(c.in) < most && positions < most;
  for (int d = 0; d < 3; d++) {
    const int64_t extent = k->kind == ACI_CONV_INPUT ? c.in[d] : c.out[d];
    a.classes[d] = (int)(k->kind != ACI_CONV_INPUT ? 1
                         : c.stride[d] < extent    ? c.stride[d]
                                                   : extent);
    a.n_classes *= a.classes[d];
    cols *= (extent + a.classes[d] - 1) / a.classes[d];
    fits = fits && c.in[d] + 2 * c.pad[d] < most;
  }
  if (!fits)
    return AC_FAIL(
        e, UNSUPPORTED,
        "unsupported on device %s: a convolution over more than 2^30 positions, padding counted",
        f->device->name);
  a.cols = k->kind == ACI_CONV_WEIGHT ? c.ci * taps : cols;
  a.k = k->kind == ACI_CONV_FORWARD ? c.ci * taps
        : k->kind == ACI_CONV_INPUT ? c.co * taps
                                    : c.n * positions;
  if (k->dt == AC_F64) return run<double, double, small>(f, a, e);
  return k->dt == AC_F32 ? run_float<float>(f, a, e) : run_float<uint16_t>(f, a, e);
}
