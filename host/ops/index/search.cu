/* Positions in ascending sequences on CUDA: searchsorted and bucketize, and the positions that
 * repeats give (repeat_interleave). NaN is larger than every number. */
#include "ops/cuda/scan.cuh"

namespace {
struct search_args {
  const void *seq, *values; /* values NULL: the number */
  ac_dtype seq_dt, values_dt;
  int seq_ndim, ndim; /* rows of sequences: dims before the last */
  int64_t seq_shape[AC_MAX_DIMS], seq_stride[AC_MAX_DIMS], shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  /* of values. Of a sequence and between its elements. Of a row of values */
  int64_t n, n_seq, step, width;
  double number;
  int64_t whole;
  bool right;
  int64_t *out;
};
} // namespace

ACI_DEVICE bool below(double a, double b) { return a < b || (b != b && a == a); }
ACI_DEVICE bool below(float a, float b) { return a < b || (b != b && a == a); }
ACI_DEVICE bool below(int64_t a, int64_t b) { return a < b; }
ACI_DEVICE void number_of(const search_args &a, double *v) { *v = a.number; }
ACI_DEVICE void number_of(const search_args &a, float *v) { *v = (float)a.number; }
ACI_DEVICE void number_of(const search_args &a, int64_t *v) { *v = a.whole; }

template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    search_kernel(const __grid_constant__ search_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    C v;
    if (a.values == NULL) number_of(a, &v);
    else
      v = aci_get<C>(a.values_dt, a.values,
                     a.ndim > 0 ? aci_element_offset(i, a.ndim, a.shape, a.stride) : 0);
    const int64_t base =
        a.seq_ndim > 0 ? aci_element_offset(i / a.width, a.seq_ndim, a.seq_shape, a.seq_stride) : 0;
    int64_t lo = 0, hi = a.n_seq;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      const C y = aci_get<C>(a.seq_dt, a.seq, base + mid * a.step);
      if (a.right ? !below(v, y) : below(y, v)) lo = mid + 1;
      else hi = mid;
    }
    a.out[i] = lo;
  }
}

static ac_status search(ac_frame *f, int sequence, int values, ac_err *e) {
  const ac_tensor *s = f->args[sequence].tensor;
  const ac_value *v = &f->args[values];
  search_args a = {};
  if (f->out[0]->numel == 0) return AC_OK;
  a.seq = aci_data(s);
  a.seq_dt = (ac_dtype)s->dtype;
  a.n_seq = s->shape[s->ndim - 1];
  a.step = s->stride[s->ndim - 1];
  a.n = f->out[0]->numel;
  a.width = 1;
  a.right = f->args[2].b;
  a.out = (int64_t *)aci_data(f->out[0]);
  bool real = false; /* a fraction among integers */
  if (v->kind == AC_T_TENSOR) {
    const ac_tensor *t = v->tensor;
    a.values = aci_data(t);
    a.values_dt = (ac_dtype)t->dtype;
    a.ndim = t->ndim;
    memcpy(a.shape, t->shape, 8 * (size_t)t->ndim);
    memcpy(a.stride, t->stride, 8 * (size_t)t->ndim);
    if (s->ndim > 1) {
      a.seq_ndim = s->ndim - 1;
      a.width = t->shape[t->ndim - 1];
      memcpy(a.seq_shape, s->shape, 8 * (size_t)a.seq_ndim);
      memcpy(a.seq_stride, s->stride, 8 * (size_t)a.seq_ndim);
    }
  } else {
    real = v->scalar.kind == AC_SCALAR_FLOAT;
    a.number = real ? v->scalar.f : (double)v->scalar.i;
    a.whole = real ? (int64_t)v->scalar.f : v->scalar.i;
  }
  const unsigned blocks = aci_blocks(f->device, a.n);
  const bool floats = ac_dtype_is_float(a.seq_dt);
  if (a.seq_dt == AC_F64 || (!floats && real))
    return aci_launch(f, "search", search_kernel<double>, blocks, e, a);
  if (floats) return aci_launch(f, "search", search_kernel<float>, blocks, e, a);
  return aci_launch(f, "search", search_kernel<int64_t>, blocks, e, a);
}
static ac_status sorted_positions(ac_frame *f, ac_err *e) { return search(f, 0, 1, e); }
AC_KERNEL(cuda, sorted_positions, sorted_positions)

/* ---- repeat_positions: i, repeats[i] times in a row ---- */
namespace {
struct repeat_args {
  const void *x;
  ac_dtype dt;
  int64_t n, step, m, *sum, *out; /* sum (n + 1): repeats before each */
  int *fault;
};
} // namespace
static __global__ void __launch_bounds__(ACI_BLOCK)
    load_repeats(const __grid_constant__ repeat_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t k = aci_get<int64_t>(a.dt, a.x, i * a.step);
    if (k < 0) *a.fault = ACI_FAULT_INDEX;
    a.sum[i] = k < 0 ? 0 : k;
  }
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    put_repeats(const __grid_constant__ repeat_args a) {
  if (aci_first() == 0 && a.sum[a.n] != a.m) *a.fault = ACI_FAULT_INDEX;
  for (int64_t j = aci_first(); j < a.m; j += aci_step()) {
    int64_t lo = 0, hi = a.n; /* the last position whose sum is not above j */
    while (hi - lo > 1) {
      const int64_t mid = (lo + hi) / 2;
      if (a.sum[mid] <= j) lo = mid;
      else hi = mid;
    }
    a.out[j] = lo;
  }
}
static ac_status repeat_positions(ac_frame *f, ac_err *e) {
  const ac_tensor *r = f->args[0].tensor;
  repeat_args a = {};
  ac_block *block;
  a.x = aci_data(r);
  a.dt = (ac_dtype)r->dtype;
  a.n = r->numel;
  a.step = r->ndim > 0 ? r->stride[0] : 0;
  a.m = f->out[0]->numel;
  a.out = (int64_t *)aci_data(f->out[0]);
  a.fault = aci_cuda_of(f->device)->fault;
  if (a.n == 0 && a.m > 0)
    return AC_FAIL(e, INVALID, "repeats adds up to 0, but output_size is %lld", (long long)a.m);
  AC_TRY(ac_block_alloc(f->device, (size_t)(a.n + 1) * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  a.sum = (int64_t *)block->ptr;
  ac_status st = aci_launch(f, "repeats", load_repeats, aci_blocks(f->device, a.n), e, a);
  if (st == AC_OK)
    st = aci_launch(f, "repeats (scan)", aci_scan_lists<int64_t>, 1u, e, a.sum, (int64_t)1, a.n,
                    a.n + 1, true);
  if (st == AC_OK)
    st = aci_launch(f, "repeats (put)", put_repeats, aci_blocks(f->device, a.m), e, a);
  ac_block_free(block);
  return st;
}
AC_KERNEL(cuda, repeat_positions, repeat_positions)
