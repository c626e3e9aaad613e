/* Contiguous rows on CUDA: `lanes` threads of a block hold a row in registers, 16 bytes a load if
 * they can, so that a kernel of rows (norms, softmax) reads it once. Rows that are longer than that
 * go in chunks, read again for every pass.
 *
 *   aci_line<D, C, V> x(ptr, row, ...);             this thread's elements: C values x.v[0 ..
 *   ACI_LINE), those of chunk c after x.load(c) for (int64_t c = 0; c < a.n_chunks; c++) {
 *     x.load(c, a.n_chunks > 1 || first pass);
 *     ACI_LINE_EACH(i) sum += x.v[i];               0 after the row's end: use ACI_LINE_EACH_INSIDE
 *     if zeros would spoil the result
 *   } s = aci_line_join<op>(s, shared, lane, a.lanes); of all lanes, in the order of a tree */
#ifndef ACI_OPS_LINES_CUH
#define ACI_OPS_LINES_CUH
#include "ops/reduce/rows.cuh"

#ifdef ACI_CUDA_EMULATED
/* so that small tests reach rows of several chunks */
enum { ACI_LINE_THREADS = 16, ACI_LINE_BLOCK = 8 };
#else
/* most of a row, and of a block of shorter ones */
enum { ACI_LINE_THREADS = 512, ACI_LINE_BLOCK = 256 };
#endif
enum { ACI_LINE = 16 }; /* values of a thread */

struct aci_lines {
  int64_t rows, n, n_chunks;
  int lanes; /* of a row, a power of two */
};

/* The rows of a plan, if every one is a run of n and the distances equal their stride. */
static inline bool aci_lines_of(const aci_reduce_plan &p, int64_t *stride) {
  if (p.n_red != 1 || p.n_keep != 1 || (p.red_stride[0] != 1 && p.n_reduced > 1)) return false;
  *stride = p.keep_stride[0];
  return true;
}
/* Whether 16 bytes at a time are right for rows of n elements at ptr. */
static inline bool aci_lines_wide(const void *ptr, ac_dtype dt, int64_t n, int64_t stride) {
  const int64_t v = 16 / (int64_t)aci_dsize(dt);
  return (uintptr_t)ptr % 16 == 0 && n % v == 0 && stride % v == 0;
}
/* Lanes by the length of a row alone. */
static inline aci_lines aci_lines_cut(int64_t rows, int64_t n) {
  aci_lines a = {rows, n, 1, 1};
  while (a.lanes < ACI_LINE_THREADS && (int64_t)a.lanes * ACI_LINE < n) a.lanes *= 2;
  a.n_chunks = (n + (int64_t)a.lanes * ACI_LINE - 1) / ((int64_t)a.lanes * ACI_LINE);
  return a;
}
static inline int aci_lines_block(const aci_lines &a) {
  return a.lanes > ACI_LINE_BLOCK ? a.lanes : ACI_LINE_BLOCK;
}

#define ACI_LINE_EACH(i) _Pragma("unroll") for (int i = 0; i < ACI_LINE; i++)

/* V values at p + i, of dtype D or, for weights, f32. */
template <int D, class C, int V>
ACI_DEVICE void aci_line_values(ac_dtype dt, const void *p, int64_t i, C *to) {
  typedef aci_element<D> E;
  if (dt == D) {
    const aci_vector<typename E::bits, V> x =
        *(const aci_vector<typename E::bits, V> *)((const typename E::bits *)p + i);
#pragma unroll
    for (int k = 0; k < V; k++) to[k] = E::template load<C>(x.v[k]);
    return;
  }
  enum { W = V < 4 ? V : 4 };
#pragma unroll
  for (int k = 0; k < V; k += W) {
    const aci_vector<float, W> x = *(const aci_vector<float, W> *)((const float *)p + i + k);
#pragma unroll
    for (int j = 0; j < W; j++) to[k + j] = (C)x.v[j];
  }
}

/* Vectors are dealt to lanes one by one: vector u of lane is lane + u * lanes of the chunk. */
template <int D, class C, int V> struct aci_line {
  typedef aci_element<D> E;
  typedef aci_vector<typename E::bits, V> vector;
  C v[ACI_LINE];
  const typename E::bits *p;
  int64_t n;
  int lane, lanes;

  __device__ __forceinline__ aci_line(const void *ptr, int64_t row, int64_t stride, bool mine,
                                      int lane, const aci_lines &a)
      : p((const typename E::bits *)ptr + row * stride), n(mine ? a.n : 0), lane(lane),
        lanes(a.lanes) {}
  /* Place of value i in the row. */
  __device__ __forceinline__ int64_t at(int64_t chunk, int i) const {
    return chunk * (ACI_LINE * lanes) + ((lane + i / V * lanes) * V + i % V);
  }
  __device__ __forceinline__ void load(int64_t chunk, bool again) {
    if (!again) return;
    vector x[ACI_LINE / V]; /* all on their way before the first is used */
#pragma unroll
    for (int u = 0; u < ACI_LINE / V; u++)
      if (at(chunk, u * V) < n) x[u] = *(const vector *)(p + at(chunk, u * V));
#pragma unroll
    for (int u = 0; u < ACI_LINE / V; u++)
#pragma unroll
      for (int k = 0; k < V; k++)
        v[u * V + k] = at(chunk, u * V) < n ? E::template load<C>(x[u].v[k]) : (C)0;
  }
};

/* V values, rounded to the dtype of a line like this, to element `at`. */
template <int D, class C, int V>
ACI_DEVICE void aci_line_store(void *ptr, int64_t at, bool inside, const aci_line<D, C, V> &,
                               const C *v) {
  typedef aci_element<D> E;
  aci_vector<typename E::bits, V> x;
#pragma unroll
  for (int k = 0; k < V; k++) x.v[k] = E::template store<C>(v[k]);
  if (inside) *(aci_vector<typename E::bits, V> *)((typename E::bits *)ptr + at) = x;
}

/* shared: a value per thread of the block. */
template <class Op, class T> ACI_DEVICE T aci_line_join(T v, T *shared, int lane, int lanes) {
  const int t = (int)threadIdx.x;
  __syncthreads(); /* old contents were read */
  shared[t] = v;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) shared[t] = Op::of(shared[t], shared[t + half]);
  }
  __syncthreads();
  return shared[t - lane];
}

struct aci_two {
  double a, b;
};
struct aci_add_two {
  static __device__ __forceinline__ aci_two of(const aci_two &x, const aci_two &y) {
    const aci_two s = {x.a + y.a, x.b + y.b};
    return s;
  }
};

#endif
