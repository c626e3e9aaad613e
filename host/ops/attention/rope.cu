/* rope and its backward on CUDA. Angles are double, one sine and cosine per pair and position, as
 * in rope.c's table at its exact positions. Each position is computed once, into a table that all
 * heads read, because a double's power and sine cost more than everything else together. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"

enum { X, THETA, INTERLEAVED, OFFSET, POSITIONS, INV_FREQ, SCALING, FACTOR, LOW, HIGH, ORIGINAL };

struct rope_args {
  const void *x, *positions, *inv_freq;
  void *table; /* (entries, t, 2, half): cosines, then sines with the sign of the turn */
  void *y;
  ac_dtype dt, positions_dt, inv_freq_dt;
  int ndim, scaling;
  int64_t n, t, half, offset, entries, per_batch, positions_stride[2], inv_freq_stride;
  /* rows: without the last dim */
  int64_t shape[AC_MAX_DIMS], x_stride[AC_MAX_DIMS], y_stride[AC_MAX_DIMS];
  int64_t x_last, y_last;
  double theta, factor, low, high, original, sign;
  bool interleaved;
  int *fault;
};

ACI_DEVICE double frequency(const rope_args &a, int64_t i) {
  if (a.inv_freq != NULL) return aci_get<double>(a.inv_freq_dt, a.inv_freq, i * a.inv_freq_stride);
  const double w = pow(a.theta, -(double)i / (double)a.half);
  if (a.scaling == 0) return w;
  if (a.scaling == 1) return w / a.factor;
  const double turns = a.original * w / (2 * 3.14159265358979323846);
  double keep = (turns - a.low) / (a.high - a.low);
  keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
  return (1 - keep) * w / a.factor + keep * w;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    rope_table(const __grid_constant__ rope_args a) {
  for (int64_t k = aci_first(); k < a.entries * a.t * a.half; k += aci_step()) {
    const int64_t i = k % a.half, at = k / a.half, p = at % a.t;
    int64_t position = a.offset + p;
    if (a.positions != NULL) {
      position = aci_get<int64_t>(a.positions_dt, a.positions,
                                  at / a.t * a.positions_stride[0] + p * a.positions_stride[1]);
      if (position < 0 || position >= (int64_t)1 << 40) {
        *a.fault = ACI_FAULT_INDEX;
        position = 0;
      }
    }
    double s, c;
    sincos((double)position * frequency(a, i), &s, &c);
    ((C *)a.table)[at * 2 * a.half + i] = (C)c;
    ((C *)a.table)[(at * 2 + 1) * a.half + i] = (C)(s * a.sign);
  }
}

/* V neighbouring pairs a thread: as vectors of 16 bytes (halves apart, dt and strides allowing), or
 * one. */
template <int DT, class C>
static __global__ void __launch_bounds__(ACI_BLOCK) rope_turn(const __grid_constant__ rope_args a) {
  typedef typename aci_element<DT>::bits S;
  constexpr int V = 16 / (int)sizeof(S);
  typedef aci_vector<S, V> piece;
  const int64_t pieces = a.half / V;
  for (int64_t k = aci_first(); k < a.n / V; k += aci_step()) {
    const int64_t i = k % pieces * V, r = k / pieces, entry = a.entries > 1 ? r / a.per_batch : 0;
    const C *const table = (const C *)a.table + (entry * a.t + r % a.t) * 2 * a.half + i;
    const S *const x = (const S *)a.x + aci_element_offset(r, a.ndim, a.shape, a.x_stride) + i;
    S *const y = (S *)a.y + aci_element_offset(r, a.ndim, a.shape, a.y_stride) + i;
    const piece u = *(const piece *)x, v = *(const piece *)(x + a.half);
    aci_vector<C, 4> cs[V / 4], sn[V / 4];
#pragma unroll
    for (int j = 0; j < V / 4; j++) {
      cs[j] = *(const aci_vector<C, 4> *)(table + 4 * j);
      sn[j] = *(const aci_vector<C, 4> *)(table + a.half + 4 * j);
    }
    piece p, q;
#pragma unroll
    for (int j = 0; j < V; j++) {
      const C c = cs[j / 4].v[j % 4], z = sn[j / 4].v[j % 4];
      const C uj = aci_element<DT>::template load<C>(u.v[j]),
              vj = aci_element<DT>::template load<C>(v.v[j]);
      p.v[j] = aci_element<DT>::template store<C>(uj * c - vj * z);
      q.v[j] = aci_element<DT>::template store<C>(vj * c + uj * z);
    }
    *(piece *)y = p;
    *(piece *)(y + a.half) = q;
  }
}
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    rope_turn_any(const __grid_constant__ rope_args a) {
  for (int64_t k = aci_first(); k < a.n; k += aci_step()) { /* (row, pair) */
    const int64_t i = k % a.half, r = k / a.half, entry = a.entries > 1 ? r / a.per_batch : 0;
    const C *const table = (const C *)a.table + (entry * a.t + r % a.t) * 2 * a.half + i;
    const C cs = table[0], sn = table[a.half];
    const int64_t first = a.interleaved ? 2 * i : i,
                  second = a.interleaved ? 2 * i + 1 : i + a.half;
    const int64_t xo = aci_element_offset(r, a.ndim, a.shape, a.x_stride),
                  yo = aci_element_offset(r, a.ndim, a.shape, a.y_stride);
    const C u = aci_get<C>(a.dt, a.x, xo + first * a.x_last),
            v = aci_get<C>(a.dt, a.x, xo + second * a.x_last);
    aci_put(a.dt, a.y, yo + first * a.y_last, u * cs - v * sn);
    aci_put(a.dt, a.y, yo + second * a.y_last, v * cs + u * sn);
  }
}

/* Whether rows and their halves are whole vectors at multiples of 16. */
static bool in_vectors(const rope_args &a, const void *p, const int64_t *stride, int64_t last) {
  const int64_t es = (int64_t)aci_dsize(a.dt);
  bool fits = (uintptr_t)p % 16 == 0 && last == 1 && a.half * es % 16 == 0;
  for (int d = 0; d < a.ndim; d++) fits = fits && (a.shape[d] <= 1 || stride[d] * es % 16 == 0);
  return fits;
}
static ac_status turn(ac_frame *f, const rope_args &a, ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, a.n), short_blocks = aci_blocks(f->device, a.n / 8);
  const bool vectors = !a.interleaved && in_vectors(a, a.x, a.x_stride, a.x_last) &&
                       in_vectors(a, a.y, a.y_stride, a.y_last);
  if (a.dt == AC_F64) return aci_launch(f, "rope", rope_turn_any<double>, blocks, e, a);
  if (vectors && a.dt == AC_F32)
    return aci_launch(f, "rope", rope_turn<AC_F32, float>, blocks, e, a);
  if (vectors && a.dt == AC_BF16)
    return aci_launch(f, "rope", rope_turn<AC_BF16, float>, short_blocks, e, a);
  if (vectors && a.dt == AC_F16)
    return aci_launch(f, "rope", rope_turn<AC_F16, float>, short_blocks, e, a);
  return aci_launch(f, "rope", rope_turn_any<float>, blocks, e, a);
}

/* x (..., t, 2 half) -> y: first a table (entries, t, half) of cosines and sines, then every pair
 * is turned by its entry. entries is 1 unless positions differ by batch entry. sign -1 turns back,
 * which is the gradient. */
static ac_status rotate(ac_frame *f, double sign, ac_err *e) {
  const ac_value *v = f->args;
  const ac_tensor *x = v[X].tensor, *y = f->out[0];
  rope_args a = {};
  if (x->numel == 0) return AC_OK;
  const int last = x->ndim - 1;
  a.x = aci_data(x);
  a.y = aci_data(y);
  a.dt = (ac_dtype)x->dtype;
  a.ndim = last;
  a.t = x->shape[last - 1];
  a.half = x->shape[last] / 2;
  a.n = x->numel / 2;
  a.entries = 1;
  memcpy(a.shape, x->shape, 8 * (size_t)last);
  memcpy(a.x_stride, x->stride, 8 * (size_t)last);
  memcpy(a.y_stride, y->stride, 8 * (size_t)last);
  a.x_last = x->stride[last];
  a.y_last = y->stride[last];
  a.theta = v[THETA].f;
  a.interleaved = v[INTERLEAVED].b;
  a.offset = v[OFFSET].i;
  a.scaling = (int)v[SCALING].i;
  a.factor = v[FACTOR].f;
  a.low = v[LOW].f;
  a.high = v[HIGH].f;
  a.original = (double)v[ORIGINAL].i;
  a.sign = sign;
  a.fault = aci_cuda_of(f->device)->fault;
  if (v[POSITIONS].kind == AC_T_TENSOR) {
    const ac_tensor *p = v[POSITIONS].tensor;
    a.positions = aci_data(p);
    a.positions_dt = (ac_dtype)p->dtype;
    a.positions_stride[1] = p->stride[p->ndim - 1];
    if (p->ndim == 2 && p->shape[0] > 1) {
      a.positions_stride[0] = p->stride[0];
      a.entries = p->shape[0];
      a.per_batch = x->numel / x->shape[0] / (2 * a.half);
    }
  }
  if (v[INV_FREQ].kind == AC_T_TENSOR) {
    a.inv_freq = aci_data(v[INV_FREQ].tensor);
    a.inv_freq_dt = (ac_dtype)v[INV_FREQ].tensor->dtype;
    a.inv_freq_stride = v[INV_FREQ].tensor->stride[0];
  }
  const bool wide = a.dt == AC_F64;
  const int64_t angles = a.entries * a.t * a.half;
  ac_block *table;
  AC_TRY(ac_block_alloc(f->device, (size_t)angles * 2 * (wide ? sizeof(double) : sizeof(float)),
                        AC_MEM_ACTIVATION, f->stream, &table, e));
  a.table = table->ptr;
  ac_status st = aci_launch(f, "rope (angles)", wide ? rope_table<double> : rope_table<float>,
                            aci_blocks(f->device, angles), e, a);
  if (st == AC_OK) st = turn(f, a, e);
  ac_block_free(table);
  return st;
}
static ac_status forward(ac_frame *f, ac_err *e) { return rotate(f, 1, e); }
static ac_status backward(ac_frame *f, ac_err *e) { return rotate(f, -1, e); }
AC_KERNEL(cuda, rope, forward)
AC_KERNEL(cuda, rope_backward, backward)
