/* multinomial on CUDA: the CPU's draws (multinomial.c), rows by blocks of threads. Invalid weights
 * are reported at the next wait. Running sums are added in pieces. If a drawn number equals one
 * within a rounding, the neighbour may be taken. */
#include "base/philox.h"
#include "ops/index/order.cuh"

namespace {
struct draw_args {
  const void *x;
  ac_dtype dt;
  int64_t rows, n, k, row_stride, step; /* weights: rows and elements apart */
  uint64_t key;
  aci_counter call;
  int64_t row0, least; /* weights above 0 that a row needs */
  double *w;           /* (rows, n) running sums */
  aci_order o;
  int64_t *y;
  int *fault;
};
} // namespace

/* 64-bit draw number i as a uniform number. */
ACI_DEVICE double uniform_at(const draw_args &a, uint64_t i) {
  const aci_u32x4 w = aci_philox(a.key, i / 2, a.call);
  return aci_uniform_f64(i % 2 == 0 ? aci_u64_of(w.v[0], w.v[1]) : aci_u64_of(w.v[2], w.v[3]));
}
ACI_DEVICE double weight_at(const draw_args &a, int64_t row, int64_t i) {
  return aci_get<double>(a.dt, a.x, row * a.row_stride + i * a.step);
}

/* A row a block: weights are checked. w := their running sums, each thread a piece. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    sum_weights(const __grid_constant__ draw_args a) {
  __shared__ double sums[ACI_BLOCK];
  __shared__ int64_t some[ACI_BLOCK];
  const int64_t each = (a.n + blockDim.x - 1) / blockDim.x, begin = threadIdx.x * each,
                end = begin + each < a.n ? begin + each : a.n;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    double sum = 0, total;
    int64_t positive = 0, all;
    bool ok = true;
    for (int64_t i = begin; i < end; i++) {
      const double v = weight_at(a, r, i);
      ok = ok && v >= 0 && v <= 1.7976931348623157e308;
      sum += v;
      positive += v > 0;
    }
    aci_block_before(positive, some, &all);
    /* one after the other: a piece starts with the end value of the one before */
    sums[threadIdx.x] = sum;
    __syncthreads();
    double before = 0;
    for (unsigned t = 0; t < threadIdx.x; t++) before += sums[t];
    total = before;
    for (unsigned t = threadIdx.x; t < blockDim.x; t++) total += sums[t];
    ok = ok && total <= 1.7976931348623157e308;
    if (!ok || all < a.least) *a.fault = ACI_FAULT_WEIGHTS;
    double run = 0;
    for (int64_t i = begin; i < end && a.w != NULL; i++) {
      run += weight_at(a, r, i);
      a.w[r * a.n + i] = before + run;
    }
    __syncthreads(); /* sums are written again */
  }
}

/* For each sample the first position whose sum exceeds the number drawn. Positions without weight
 * never do. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    search_sums(const __grid_constant__ draw_args a) {
  for (int64_t i = aci_first(); i < a.rows * a.k; i += aci_step()) {
    const int64_t row = i / a.k;
    const double *w = a.w + row * a.n, total = w[a.n - 1];
    const double u = uniform_at(a, (uint64_t)(i + a.row0 * a.k)) * total;
    int64_t lo = 0, hi = a.n - 1;
    while (lo < hi) { /* the last position with weight: the first whose sum is all */
      const int64_t mid = lo + (hi - lo) / 2;
      if (w[mid] > u || w[mid] >= total) hi = mid;
      else lo = mid + 1;
    }
    a.y[i] = lo;
  }
}

/* Without replacement: an exponential time for each position at the rate of its weight. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    draw_times(const __grid_constant__ draw_args a) {
  for (int64_t i = aci_first(); i < a.rows * a.n; i += aci_step()) {
    const double w = weight_at(a, i / a.n, i % a.n);
    const double u = uniform_at(a, (uint64_t)(i + a.row0 * a.n));
    const double time = w > 0 ? -log1p(-u) / w : aci_float64(0x7ff8000000000000u);
    aci_order_put_key(
        a.o, i,
        aci_order_key<uint64_t>(aci_bits64(time), 0x8000000000000000u, 0x7ff0000000000000u));
  }
}
static __global__ void __launch_bounds__(ACI_BLOCK)
    take_earliest(const __grid_constant__ draw_args a) {
  for (int64_t i = aci_first(); i < a.rows * a.k; i += aci_step())
    a.y[i] = a.o.at[i / a.k * a.o.n + i % a.k];
}

static ac_status by_search(ac_frame *f, draw_args a, ac_err *e) {
  ac_block *block;
  AC_TRY(ac_block_alloc(f->device, (size_t)(a.rows * a.n) * 8, AC_MEM_ACTIVATION, f->stream, &block,
                        e));
  a.w = (double *)block->ptr;
  ac_status st =
      aci_launch(f, "multinomial (sums)", sum_weights, aci_blocks(f->device, a.rows, 1), e, a);
  if (st == AC_OK)
    st = aci_launch(f, "multinomial", search_sums, aci_blocks(f->device, a.rows * a.k), e, a);
  ac_block_free(block);
  return st;
}
static ac_status by_race(ac_frame *f, draw_args a, ac_err *e) {
  AC_TRY(
      aci_launch(f, "multinomial (weights)", sum_weights, aci_blocks(f->device, a.rows, 1), e, a));
  AC_TRY(aci_order_open(f, a.rows, a.n, 64, &a.o, e));
  ac_status st =
      aci_launch(f, "multinomial (times)", draw_times, aci_blocks(f->device, a.rows * a.n), e, a);
  if (st == AC_OK) st = aci_order_best(f, &a.o, a.k, e);
  if (st == AC_OK)
    st = aci_launch(f, "multinomial", take_earliest, aci_blocks(f->device, a.rows * a.k), e, a);
  aci_order_close(&a.o);
  return st;
}

static ac_status multinomial(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const ac_generator *t = &f->rng_counter;
  draw_args a = {};
  if (f->out[0]->numel == 0) return AC_OK;
  const bool many = x->ndim == 2;
  a.x = aci_data(x);
  a.dt = (ac_dtype)x->dtype;
  a.rows = many ? x->shape[0] : 1;
  a.n = x->shape[x->ndim - 1];
  a.k = f->args[1].i;
  a.row_stride = many ? x->stride[0] : 0;
  a.step = x->stride[x->ndim - 1];
  a.key = t->seed ^ (uint64_t)t->stream * 0x9E3779B97F4A7C15u;
  a.call = aci_counter_of(f, (uint64_t)t->step << 32 | t->ordinal);
  if (!many && t->drawn != 0) a.call.call += t->drawn | UINT32_C(1) << 31;
  a.row0 = many ? t->row0 : 0;
  a.least = f->args[2].b ? 1 : a.k;
  a.y = (int64_t *)aci_data(f->out[0]);
  a.fault = aci_cuda_of(f->device)->fault;
  return f->args[2].b || a.k == 1 ? by_search(f, a, e) : by_race(f, a, e);
}
AC_KERNEL(cuda, multinomial, multinomial)
