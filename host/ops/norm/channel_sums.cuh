/* Sums over the lists of batch_norm and group_norm on CUDA (channel.cu): x is (n, c, l) in one run,
 * a list is runs of l elements, one from each of n_runs positions that lie run_stride apart.
 *
 * The threads of a list's piece (a block, or a part of one if lists are short) read 16 bytes each
 * if runs allow it. Short runs of a batch are read across lists. A piece gives a state. Readers
 * join them in their order. */
#ifndef ACI_OPS_CHANNEL_SUMS_CUH
#define ACI_OPS_CHANNEL_SUMS_CUH
#include "ops/cuda/divide.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

#ifdef ACI_CUDA_EMULATED
enum { LEAST_PIECE = 4, ENOUGH = 4, SHORT_RUN = 4 };
#else
enum { LEAST_PIECE = 4 * ACI_BLOCK, ENOUGH = 1024, SHORT_RUN = 16 }; /* vectors, blocks, elements */
#endif
enum { AHEAD = 4, SIDE = 32 };

struct lists_args {
  const void *x, *dy;
  int64_t n_lists, n_runs, l, list_stride, run_stride;
  int64_t n_pieces, piece; /* in vectors of a list's runs. By columns: in runs */
  int lanes;               /* threads of a piece: a power of two */
  aci_divisor run_vectors;
  const double *mean; /* dots: of every set */
  int64_t lists_of_set;
  void *part; /* [list][piece] */
};

/* ---- the sums ---- */
/* Count, mean and squared deviations, joined as Chan et al. A thread's own from the first element
 * of its list, in double. */
struct moments {
  struct state {
    double n, mean, m2;
  };
  enum { PAIRS = 0 };
  static __device__ __forceinline__ state start() {
    state s = {0, 0, 0};
    return s;
  }
  static __device__ __forceinline__ void step(state &s, double x, double, double at) {
    const double d = x - at;
    s.n += 1;
    s.mean += d;
    s.m2 = fma(d, d, s.m2);
  }
  /* until here mean and m2 are sums of d and of its squares */
  static __device__ __forceinline__ void finish(state &s, double at) {
    if (s.n == 0) return;
    const double d = s.mean / s.n;
    s.m2 -= s.mean * d;
    s.m2 = s.m2 > 0 || s.m2 != s.m2 ? s.m2 : 0;
    s.mean = at + d;
  }
  static __device__ __forceinline__ void join(state &s, const state &t) {
    if (t.n == 0) return;
    const double n = s.n + t.n, way = t.mean - s.mean, share = t.n / n;
    s.mean = s.n == 0 ? t.mean : s.mean + way * share;
    s.m2 += t.m2 + (s.n == 0 ? 0 : way * way * s.n * share);
    s.n = n;
  }
};
/* Sums of dy and of dy * (x - mean). */
struct dots {
  struct state {
    double g, gx;
  };
  enum { PAIRS = 1 };
  static __device__ __forceinline__ state start() {
    state s = {0, 0};
    return s;
  }
  static __device__ __forceinline__ void step(state &s, double x, double dy, double mean) {
    s.g += dy;
    s.gx = fma(dy, x - mean, s.gx);
  }
  static __device__ __forceinline__ void finish(state &, double) {}
  static __device__ __forceinline__ void join(state &s, const state &t) {
    s.g += t.g, s.gx += t.gx;
  }
};

template <int D> ACI_DEVICE double element(const void *p, int64_t i) {
  return aci_element<D>::template load<double>(((const typename aci_element<D>::bits *)p)[i]);
}
/* The reference for elements of a list: its set's mean, or its first element. */
template <class A, int D> ACI_DEVICE double middle(const lists_args &a, int64_t list) {
  return A::PAIRS ? a.mean[list / a.lists_of_set] : element<D>(a.x, list * a.list_stride);
}

/* The state of each piece of each list: `lanes` threads per piece read V elements at a time, AHEAD
 * loads under way, and join as a tree. part[list * n_pieces + piece]. The order of additions
 * follows from the shape. */
template <class A, int D, int V>
static __global__ void __launch_bounds__(ACI_BLOCK)
    channel_lists(const __grid_constant__ lists_args a) {
  typedef typename aci_element<D>::bits bits;
  typedef aci_vector<bits, V> vector;
  __shared__ typename A::state shared[ACI_BLOCK];
  const int t = (int)threadIdx.x, lane = t % a.lanes, items_of_block = ACI_BLOCK / a.lanes;
  const int64_t vectors = a.n_runs * a.run_vectors.d, items = a.n_lists * a.n_pieces;
  for (int64_t first = (int64_t)blockIdx.x * items_of_block; first < items;
       first += (int64_t)gridDim.x * items_of_block) {
    const int64_t item = first + t / a.lanes, list = item / a.n_pieces,
                  begin = item % a.n_pieces * a.piece, until = begin + a.piece;
    const bool mine = item < items;
    const int64_t end = !mine ? 0 : until < vectors ? until : vectors;
    const double at = mine ? middle<A, D>(a, list) : 0;
    typename A::state s = A::start();
    for (int64_t e = begin + lane; e < end; e += AHEAD * a.lanes) {
      vector x[AHEAD], dy[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        if (e + u * a.lanes >= end) break;
        int64_t run = e + u * a.lanes;
        const int64_t v = aci_take(&run, a.run_vectors),
                      position = list * a.list_stride + run * a.run_stride + v * V;
        x[u] = *(const vector *)((const bits *)a.x + position);
        if (A::PAIRS) dy[u] = *(const vector *)((const bits *)a.dy + position);
      }
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        if (e + u * a.lanes >= end) break;
#pragma unroll
        for (int i = 0; i < V; i++)
          A::step(s, aci_element<D>::template load<double>(x[u].v[i]),
                  A::PAIRS ? aci_element<D>::template load<double>(dy[u].v[i]) : 0, at);
      }
    }
    A::finish(s, at);
    shared[t] = s;
    for (int half = a.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) A::join(shared[t], shared[t + half]);
    }
    if (lane == 0 && mine) ((typename A::state *)a.part)[item] = shared[t];
    __syncthreads(); /* shared is written again */
  }
}

/* Short runs: SIDE adjacent lists, whose elements are neighbours in memory. Lanes walk the runs. */
template <class A, int D>
static __global__ void __launch_bounds__(ACI_BLOCK)
    channel_columns(const __grid_constant__ lists_args a) {
  __shared__ typename A::state shared[ACI_BLOCK];
  const int lanes = ACI_BLOCK / SIDE, lane = (int)threadIdx.x / SIDE;
  const int64_t tiles = (a.n_lists + SIDE - 1) / SIDE;
  for (int64_t item = blockIdx.x; item < tiles * a.n_pieces; item += gridDim.x) {
    const int64_t list = item % tiles * SIDE + (int)threadIdx.x % SIDE, piece = item / tiles;
    const int64_t begin = piece * a.piece, until = begin + a.piece,
                  end = until < a.n_runs ? until : a.n_runs;
    const bool mine = list < a.n_lists;
    const double at = mine ? middle<A, D>(a, list) : 0;
    typename A::state s = A::start();
    for (int64_t run = begin + lane; mine && run < end; run += lanes)
      for (int64_t i = 0; i < a.l; i++) {
        const int64_t position = list * a.list_stride + run * a.run_stride + i;
        A::step(s, element<D>(a.x, position), A::PAIRS ? element<D>(a.dy, position) : 0, at);
      }
    A::finish(s, at);
    shared[threadIdx.x] = s;
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) A::join(shared[threadIdx.x], shared[threadIdx.x + half * SIDE]);
    }
    if (lane == 0 && mine)
      ((typename A::state *)a.part)[list * a.n_pieces + piece] = shared[threadIdx.x];
    __syncthreads();
  }
}

/* The cut of lists into pieces, by shape alone. Returns the number of blocks. */
static int64_t cut(lists_args *a, int vector, bool columns) {
  const int64_t all = columns ? a->n_runs : a->n_runs * (a->l / vector);
  const int64_t blocks = columns ? (a->n_lists + SIDE - 1) / SIDE : a->n_lists,
                least = columns ? LEAST_PIECE / SIDE + 1 : LEAST_PIECE;
  a->n_pieces = blocks < ENOUGH ? (ENOUGH + blocks - 1) / blocks : 1;
  if (a->n_pieces > all / least) a->n_pieces = all / least;
  if (a->n_pieces < 1) a->n_pieces = 1;
  a->piece = (all + a->n_pieces - 1) / a->n_pieces;
  a->run_vectors = aci_divide_by(a->l / vector);
  a->lanes = ACI_BLOCK;
  while (!columns && a->lanes > 1 && a->lanes / 2 >= a->piece) a->lanes /= 2;
  return (blocks * a->n_pieces + ACI_BLOCK / a->lanes - 1) / (ACI_BLOCK / a->lanes);
}

template <class A, int D>
static ac_status sum_up(ac_frame *f, lists_args *a, ac_block **part, ac_err *e) {
  enum { V = 16 / sizeof(typename aci_element<D>::bits) };
  const bool columns = a->n_runs > 1 && a->l < SHORT_RUN,
             wide = a->l % V == 0 && (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->dy % 16 == 0;
  const int64_t blocks = cut(a, wide && !columns ? V : 1, columns);
  AC_TRY(ac_block_alloc(f->device, sizeof(typename A::state) * (size_t)(a->n_lists * a->n_pieces),
                        AC_MEM_ACTIVATION, f->stream, part, e));
  a->part = (*part)->ptr;
  const unsigned grid = aci_blocks(f->device, blocks, 1);
  if (columns) return aci_launch(f, "norm (short runs)", channel_columns<A, D>, grid, e, *a);
  if (wide) return aci_launch(f, "norm (sums)", channel_lists<A, D, V>, grid, e, *a);
  return aci_launch(f, "norm (sums)", channel_lists<A, D, 1>, grid, e, *a);
}
template <class A>
static ac_status sums(ac_frame *f, ac_dtype dt, lists_args *a, ac_block **part, ac_err *e) {
  switch (dt) {
    case AC_F64: return sum_up<A, AC_F64>(f, a, part, e);
    case AC_BF16: return sum_up<A, AC_BF16>(f, a, part, e);
    case AC_F16: return sum_up<A, AC_F16>(f, a, part, e);
    default: return sum_up<A, AC_F32>(f, a, part, e);
  }
}

#endif
