/* softmax and log_softmax on CUDA, forward and backward. Contiguous rows are held in registers
 * (lines.cuh). Longer ones are read twice: largest element and sum are found together. Many rows
 * across runs have a thread each. Others go a block per row, which is read again for each of its
 * passes. */
#include "ops/reduce/lines.cuh"

struct softmax_args {
  aci_reduce_plan a, b, out; /* b: backward's y */
  bool logs;
};

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    softmax_rows(const __grid_constant__ softmax_args s) {
  __shared__ C most[ACI_BLOCK];
  __shared__ double sums[ACI_BLOCK];
  const int64_t n = s.a.n_reduced;
  for (int64_t r = blockIdx.x; r < s.a.n_out; r += gridDim.x) {
    const aci_row<C> x(s.a, r), y(s.out, r);
    C m = (C)-INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) m = aci_max_op::of(m, x.get(i));
    m = aci_block_join<aci_max_op>(m, most);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)m_exp((C)(x.get(i) - m));
    sum = aci_block_join<aci_add_op>(sum, sums);
    const C log_sum = (C)log(sum), scale = (C)(1 / sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const C d = x.get(i) - m;
      y.put(i, s.logs ? d - log_sum : m_exp(d) * scale);
    }
  }
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    softmax_rows_back(const __grid_constant__ softmax_args s) {
  __shared__ double sums[ACI_BLOCK];
  const int64_t n = s.a.n_reduced;
  for (int64_t r = blockIdx.x; r < s.a.n_out; r += gridDim.x) {
    const aci_row<C> dy(s.a, r), y(s.b, r), dx(s.out, r);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      sum += (double)(s.logs ? dy.get(i) : dy.get(i) * y.get(i));
    const C all = (C)aci_block_join<aci_add_op>(sum, sums);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      dx.put(i, s.logs ? dy.get(i) - m_exp(y.get(i)) * all : y.get(i) * (dy.get(i) - all));
  }
}

/* ---- rows across runs: a thread per row, neighbours in memory to neighbours ---- */
#ifdef ACI_CUDA_EMULATED
enum { MANY_ROWS = 8 };
#else
enum { MANY_ROWS = 1 << 14 }; /* fewer leave the machine idle */
#endif
static bool across(const aci_reduce_plan &p) {
  return p.keep_stride[p.n_keep - 1] == 1 && p.red_stride[p.n_red - 1] != 1 &&
         p.keep_shape[p.n_keep - 1] >= 8 && p.n_out >= MANY_ROWS;
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    softmax_across(const __grid_constant__ softmax_args s) {
  const int64_t n = s.a.n_reduced;
  const C least = (C)-INFINITY;
  for (int64_t r = aci_first(); r < s.a.n_out; r += aci_step()) {
    const aci_row<C> x(s.a, r), y(s.out, r);
    C m = least; /* of the elements read so far, sum relative to it */
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
      const C v = x.get(i);
      if (v > m) {
        if (sum != 0) sum *= (double)m_exp((C)(m - v));
        m = v;
      }
      if (v != least) sum += (double)m_exp((C)(v - m));
    }
    const C log_sum = (C)log(sum), scale = (C)(1 / sum);
    for (int64_t i = 0; i < n; i++) {
      const C d = x.get(i) - m;
      y.put(i, s.logs ? d - log_sum : m_exp(d) * scale);
    }
  }
}

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    softmax_across_back(const __grid_constant__ softmax_args s) {
  const int64_t n = s.a.n_reduced;
  for (int64_t r = aci_first(); r < s.a.n_out; r += aci_step()) {
    const aci_row<C> dy(s.a, r), y(s.b, r), dx(s.out, r);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)(s.logs ? dy.get(i) : dy.get(i) * y.get(i));
    const C all = (C)sum;
    for (int64_t i = 0; i < n; i++)
      dx.put(i, s.logs ? dy.get(i) - m_exp(y.get(i)) * all : y.get(i) * (dy.get(i) - all));
  }
}

/* ---- rows in runs ---- */
struct softmax_lines_args {
  aci_lines l;
  const void *a, *b;
  void *out;
  int64_t a_stride, b_stride, out_stride;
  bool logs;
};

template <int D, class C, int V>
static __global__ void __launch_bounds__(ACI_LINE_THREADS)
    softmax_lines(const __grid_constant__ softmax_lines_args s) {
  __shared__ double shared[ACI_LINE_THREADS];
  const int lane = (int)threadIdx.x % s.l.lanes, side = (int)blockDim.x / s.l.lanes;
  const bool again = s.l.n_chunks > 1;
  const C least = (C)-INFINITY;
  for (int64_t first = (int64_t)blockIdx.x * side; first < s.l.rows;
       first += (int64_t)gridDim.x * side) {
    const int64_t row = first + (int)threadIdx.x / s.l.lanes;
    aci_line<D, C, V> x(s.a, row, s.a_stride, row < s.l.rows, lane, s.l);
    C top =
        /* of this thread so far, sum by it: NaN is passed over, it comes back with its
         * exponential */
        least;
    double sum = 0;
    for (int64_t c = 0; c < s.l.n_chunks; c++) {
      C most = top, more = 0;
      x.load(c, true);
      ACI_LINE_EACH(i) most = x.at(c, i) < x.n ? aci_max_op::of(most, x.v[i]) : most;
      if (!again) most = (C)aci_line_join<aci_max_op>((double)most, shared, lane, s.l.lanes);
      if (most > top && sum != 0) sum *= (double)m_exp((C)(top - most));
      top = most;
      ACI_LINE_EACH(i) {
        if (x.at(c, i) < x.n && !(x.v[i] == least && again)) more += m_exp((C)(x.v[i] - top));
      }
      sum += (double)more;
    }
    if (again) {
      const C all = (C)aci_line_join<aci_max_op>((double)top, shared, lane, s.l.lanes);
      if (all > top) sum *= (double)m_exp((C)(top - all));
      top = all;
    }
    sum = aci_line_join<aci_add_op>(sum, shared, lane, s.l.lanes);
    const C log_sum = (C)log(sum), scale = (C)(1 / sum);
    for (int64_t c = 0; c < s.l.n_chunks; c++) {
      x.load(c, again);
#pragma unroll
      for (int u = 0; u < ACI_LINE; u += V) {
        C y[V];
#pragma unroll
        for (int k = 0; k < V; k++) {
          const C d = x.v[u + k] - top;
          y[k] = s.logs ? d - log_sum : m_exp(d) * scale;
        }
        aci_line_store(s.out, row * s.out_stride + x.at(c, u), x.at(c, u) < x.n, x, y);
      }
    }
  }
}

template <int D, class C, int V>
static __global__ void __launch_bounds__(ACI_LINE_THREADS)
    softmax_lines_back(const __grid_constant__ softmax_lines_args s) {
  __shared__ double shared[ACI_LINE_THREADS];
  const int lane = (int)threadIdx.x % s.l.lanes, side = (int)blockDim.x / s.l.lanes;
  const bool again = s.l.n_chunks > 1;
  for (int64_t first = (int64_t)blockIdx.x * side; first < s.l.rows;
       first += (int64_t)gridDim.x * side) {
    const int64_t row = first + (int)threadIdx.x / s.l.lanes;
    aci_line<D, C, V> dy(s.a, row, s.a_stride, row < s.l.rows, lane, s.l),
        y(s.b, row, s.b_stride, row < s.l.rows, lane, s.l);
    double sum = 0;
    for (int64_t c = 0; c < s.l.n_chunks; c++) {
      C more = 0;
      dy.load(c, true);
      y.load(c, true);
      ACI_LINE_EACH(i) more += s.logs ? dy.v[i] : dy.v[i] * y.v[i];
      sum += (double)more;
    }
    const C all = (C)aci_line_join<aci_add_op>(sum, shared, lane, s.l.lanes);
    for (int64_t c = 0; c < s.l.n_chunks; c++) {
      dy.load(c, again);
      y.load(c, again);
#pragma unroll
      for (int u = 0; u < ACI_LINE; u += V) {
        C dx[V];
#pragma unroll
        for (int k = 0; k < V; k++)
          dx[k] = s.logs ? dy.v[u + k] - m_exp(y.v[u + k]) * all : y.v[u + k] * (dy.v[u + k] - all);
        aci_line_store(s.out, row * s.out_stride + dy.at(c, u), dy.at(c, u) < dy.n, dy, dx);
      }
    }
  }
}

template <int D, class C>
static ac_status run_lines(ac_frame *f, const softmax_lines_args &s, bool back, bool wide,
                           ac_err *e) {
  enum { V = 16 / sizeof(typename aci_element<D>::bits) };
  const int block = aci_lines_block(s.l);
  const aci_shape_of_launch shape(dim3(aci_blocks(f->device, s.l.rows, block / s.l.lanes)),
                                  dim3((unsigned)block));
  if (back)
    return aci_launch(f, "softmax (backward)",
                      wide ? softmax_lines_back<D, C, V> : softmax_lines_back<D, C, 1>, shape, e,
                      s);
  return aci_launch(f, "softmax", wide ? softmax_lines<D, C, V> : softmax_lines<D, C, 1>, shape, e,
                    s);
}

/* UNSUPPORTED, without a message: rows lie otherwise, or dtypes differ. */
static ac_status lines(ac_frame *f, const softmax_args &p, bool back, ac_err *e) {
  softmax_lines_args s = {};
  if (!aci_lines_of(p.a, &s.a_stride) || !aci_lines_of(p.out, &s.out_stride) || p.a.dt != p.out.dt)
    return AC_UNSUPPORTED;
  if (back && (!aci_lines_of(p.b, &s.b_stride) || p.b.dt != p.out.dt)) return AC_UNSUPPORTED;
  const int64_t n = p.a.n_reduced;
  bool wide = aci_lines_wide(p.a.ptr, p.a.dt, n, s.a_stride) &&
              aci_lines_wide(p.out.ptr, p.out.dt, n, s.out_stride);
  if (back) wide = wide && aci_lines_wide(p.b.ptr, p.b.dt, n, s.b_stride);
  s.l = aci_lines_cut(p.a.n_out, n);
  s.a = p.a.ptr;
  s.b = p.b.ptr;
  s.out = (void *)p.out.ptr;
  s.logs = p.logs;
  switch (p.out.dt) {
    case AC_F64: return run_lines<AC_F64, double>(f, s, back, wide, e);
    case AC_F32: return run_lines<AC_F32, float>(f, s, back, wide, e);
    case AC_BF16: return run_lines<AC_BF16, float>(f, s, back, wide, e);
    case AC_F16: return run_lines<AC_F16, float>(f, s, back, wide, e);
    default: return AC_UNSUPPORTED;
  }
}

/* ---- calls ---- */
static ac_status run(ac_frame *f, bool back, bool logs, ac_err *e) {
  const ac_tensor *a = f->args[0].tensor, *out = f->out[0];
  const int64_t dim = f->args[back ? 2 : 1].i;
  const int d = (int)(dim < 0 ? dim + (a->ndim > 0 ? a->ndim : 1) : dim);
  const aci_ctype ct = aci_ctype_of((ac_dtype)out->dtype);
  const uint32_t mask = a->ndim > 0 ? 1u << d : 0;
  softmax_args s = {};
  s.logs = logs;
  if (out->numel == 0) return AC_OK;
  aci_reduce_plan_make(&s.a, a, mask, ct);
  aci_reduce_plan_make(&s.out, out, mask, ct);
  if (back) aci_reduce_plan_make(&s.b, f->args[1].tensor, mask, ct);
  const ac_status st = lines(f, s, back, e);
  if (st != AC_UNSUPPORTED) return st;
  const unsigned blocks = aci_blocks(f->device, s.a.n_out, 1);
  const bool wide = ct == ACI_C_F64;
  if (across(s.a) && across(s.out)) {
    const unsigned grid = aci_blocks(f->device, s.a.n_out);
    if (back)
      return aci_launch(f, "softmax (backward)",
                        wide ? softmax_across_back<double> : softmax_across_back<float>, grid, e,
                        s);
    return aci_launch(f, "softmax", wide ? softmax_across<double> : softmax_across<float>, grid, e,
                      s);
  }
  if (back)
    return aci_launch(f, "softmax (backward)",
                      wide ? softmax_rows_back<double> : softmax_rows_back<float>, blocks, e, s);
  return aci_launch(f, "softmax", wide ? softmax_rows<double> : softmax_rows<float>, blocks, e, s);
}

static ac_status softmax(ac_frame *f, ac_err *e) { return run(f, false, false, e); }
static ac_status log_softmax(ac_frame *f, ac_err *e) { return run(f, false, true, e); }
static ac_status softmax_backward(ac_frame *f, ac_err *e) { return run(f, true, false, e); }
static ac_status log_softmax_backward(ac_frame *f, ac_err *e) { return run(f, true, true, e); }
AC_KERNEL(cuda, softmax, softmax)
AC_KERNEL(cuda, log_softmax, log_softmax)
AC_KERNEL(cuda, softmax_backward, softmax_backward)
AC_KERNEL(cuda, log_softmax_backward, log_softmax_backward)
