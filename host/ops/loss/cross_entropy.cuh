/* Code shared by cross_entropy and linear_cross_entropy on CUDA: labels and weights of classes, a
 * row's running maximum and sum of exponentials, and the step from rows to the result. */
#ifndef ACI_OPS_CROSS_ENTROPY_CUH
#define ACI_OPS_CROSS_ENTROPY_CUH
#include "ops/cuda/warp.cuh"
#include "ops/reduce/rows.cuh"

/* ids NULL: targets are probabilities. */
struct ce_labels {
  const void *ids;
  ac_dtype ids_dt;
  int ids_ndim;
  int64_t ids_shape[AC_MAX_DIMS], ids_stride[AC_MAX_DIMS];
  int64_t ignore, n_classes;
  const void *w; /* NULL: all 1 */
  ac_dtype w_dt;
  int64_t w_stride;
  int *fault;
  /* The class of row r. -1 if it does not count: ignored, or not a class, which the next wait
   * reports. */
  __device__ __forceinline__ int64_t id(int64_t r) const {
    const int64_t y =
        aci_get<int64_t>(ids_dt, ids, aci_element_offset(r, ids_ndim, ids_shape, ids_stride));
    if (y == ignore) return -1;
    if ((uint64_t)y < (uint64_t)n_classes) return y;
    *fault = ACI_FAULT_INDEX;
    return -1;
  }
  __device__ __forceinline__ double weight(int64_t c) const {
    return w == NULL ? 1 : aci_get<double>(w_dt, w, c * w_stride);
  }
};
/* target NULL or floats: no ids. */
ce_labels aci_ce_labels(const ac_frame *f, const ac_tensor *target, int64_t n_classes,
                        int64_t ignore, const ac_value *weight);

ACI_DEVICE float ce_exp(float x) { return aci_exp2(x * 1.44269504f); }
ACI_DEVICE double ce_exp(double x) { return exp(x); }

/* The running maximum m and s, the sum of e^(x - m), rescaled when m rises. NaN in x makes s NaN.
 * States join in any order to the same m, and in a fixed tree to the same s. */
template <class C> struct ce_sum {
  C m, s;
  __device__ __forceinline__ void clear() {
    m = (C)-INFINITY;
    s = 0;
  }
  static __device__ __forceinline__ C base(C m) { return m == (C)-INFINITY ? (C)0 : m; }
  template <int V> __device__ __forceinline__ void add(const C (&x)[V]) {
    C top = m;
#pragma unroll
    for (int i = 0; i < V; i++) top = x[i] > top ? x[i] : top;
    const C b = base(top);
    s *= ce_exp(m - b);
#pragma unroll
    for (int i = 0; i < V; i++) s += ce_exp(x[i] - b);
    m = top;
  }
  /* as aci_block_join wants it */
  static __device__ __forceinline__ ce_sum of(const ce_sum &a, const ce_sum &b) {
    ce_sum r;
    r.m = b.m > a.m ? b.m : a.m;
    const C at = base(r.m);
    r.s = a.s * ce_exp(a.m - at) + b.s * ce_exp(b.m - at);
    return r;
  }
};

/* The n adjacent elements of a row, by the threads of the block, 16 bytes at a time if aligned:
 * f.take(values, position of the first). keep, if given, has the row's alignment and gets a copy,
 * in which every thread wrote the elements it will read. */
template <int DT, class C, class F>
ACI_DEVICE void ce_walk(const typename aci_element<DT>::bits *x, int64_t n, F &f,
                        typename aci_element<DT>::bits *keep) {
  typedef typename aci_element<DT>::bits S;
  constexpr int V = 16 / (int)sizeof(S);
  const int64_t off = (int64_t)((16 - (uintptr_t)x % 16) % 16 / sizeof(S)),
                head = off < n ? off : n, body = (n - head) / V;
  for (int64_t part = 0; part < 2;
       part++) { /* the elements before the first whole piece and after the last */
    const int64_t i = (part == 0 ? 0 : head + body * V) + threadIdx.x;
    if (i >= (part == 0 ? head : n)) continue;
    const C v[1] = {aci_element<DT>::template load<C>(x[i])};
    if (keep != NULL) keep[i] = x[i];
    f.take(v, i);
  }
#pragma unroll 4
  for (int64_t k = threadIdx.x; k < body; k += blockDim.x) {
    const int64_t i = head + k * V;
    const aci_vector<S, V> piece = *(const aci_vector<S, V> *)(x + i);
    C v[V];
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = aci_element<DT>::template load<C>(piece.v[j]);
    if (keep != NULL) *(aci_vector<S, V> *)(keep + i) = piece;
    f.take(v, i);
  }
}

/* out := the sum of n losses, divided by the sum of their weights (mean) or not. weight NULL: 1
 * each. */
ac_status aci_ce_finish(ac_frame *f, const double *loss, const double *weight, int64_t n, bool mean,
                        const ac_tensor *out, ac_err *e);
/* totals[0] := the sum of the classes' weights, totals[1] := the sum of n rows' label weights.
 * Labels that are probabilities have weight 1. */
ac_status aci_ce_totals(ac_frame *f, const ce_labels &y, int64_t n, double *totals, ac_err *e);

#endif
