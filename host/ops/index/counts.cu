/* bincount and one_hot on CUDA. Bins come from the sorted values: a bin is a run of equal ones,
 * found by halving, and its weights are added in the order of x. If the largest value decides the
 * shape, the host waits for it: one number, in the order of the stream. */
#include "ops/cuda/module.h"
#include "ops/index/order.cuh"
#include "ops/reduce/rows.cuh"

namespace {
struct values_args {
  const void *x;
  ac_dtype dt;
  int ndim;
  int64_t n, shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  int *fault;
};
struct bin_args {
  aci_order o;
  int64_t bins, step; /* step: weights apart */
  const void *weights;
  ac_dtype w_dt, out_dt;
  void *out;
};
struct largest_op {
  static __device__ __forceinline__ int64_t of(int64_t a, int64_t b) { return a > b ? a : b; }
};
} // namespace
ACI_DEVICE int64_t value_at(const values_args &a, int64_t i) {
  return aci_get<int64_t>(a.dt, a.x,
                          a.ndim > 0 ? aci_element_offset(i, a.ndim, a.shape, a.stride) : 0);
}
static values_args values_of(const ac_frame *f) {
  const ac_tensor *x = f->args[0].tensor;
  values_args a = {};
  a.x = aci_data(x);
  a.dt = (ac_dtype)x->dtype;
  a.ndim = x->ndim;
  a.n = x->numel;
  memcpy(a.shape, x->shape, 8 * (size_t)x->ndim);
  memcpy(a.stride, x->stride, 8 * (size_t)x->ndim);
  a.fault = aci_cuda_of(f->device)->fault;
  return a;
}

/* By block: the largest value, -1 of none. Negative ones are not in range. */
static __global__ void __launch_bounds__(ACI_BLOCK)
    find_largest(const __grid_constant__ values_args a, int64_t *out) {
  __shared__ int64_t shared[ACI_BLOCK];
  int64_t most = -1;
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t v = value_at(a, i);
    if (v < 0) *a.fault = ACI_FAULT_INDEX;
    most = largest_op::of(most, v);
  }
  most = aci_block_join<largest_op>(most, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = most;
}
static ac_status largest(ac_frame *f, const values_args &a, int64_t *out, ac_err *e) {
  const unsigned blocks = aci_blocks(f->device, a.n);
  values_args parts = {};
  ac_block *block;
  AC_TRY(ac_block_alloc(f->device, (blocks + 1) * sizeof *out, AC_MEM_ACTIVATION, f->stream, &block,
                        e));
  int64_t *found = (int64_t *)block->ptr;
  parts.x = found;
  parts.dt = AC_I64;
  parts.ndim = 1;
  parts.n = parts.shape[0] = blocks;
  parts.stride[0] = 1;
  parts.fault = a.fault;
  ac_status st = aci_launch(f, "largest", find_largest, blocks, e, a, found);
  if (st == AC_OK) st = aci_launch(f, "largest", find_largest, 1u, e, parts, found + blocks);
  if (st == AC_OK) st = aci_cuda_read(f, out, found + blocks, sizeof *out, e);
  ac_block_free(block);
  return st;
}

/* ---- bincount ---- */
static __global__ void __launch_bounds__(ACI_BLOCK)
    load_values(const __grid_constant__ values_args a, aci_order o) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step())
    aci_order_put_key(o, i, (uint64_t)value_at(a, i));
}
/* How many keys are below v. */
ACI_DEVICE int64_t keys_below(const aci_order &o, uint64_t v) {
  int64_t lo = 0, hi = o.n;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (aci_order_key_at(o, mid) < v) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
static __global__ void __launch_bounds__(ACI_BLOCK) fill_bins(const __grid_constant__ bin_args a) {
  for (int64_t b = aci_first(); b < a.bins; b += aci_step()) {
    const int64_t begin = keys_below(a.o, (uint64_t)b), end = keys_below(a.o, (uint64_t)b + 1);
    if (a.weights == NULL) {
      ((int64_t *)a.out)[b] = end - begin;
      continue;
    }
    double sum = 0;
    for (int64_t k = begin; k < end; k++)
      sum += aci_get<double>(a.w_dt, a.weights, a.o.at[k] * a.step);
    aci_put(a.out_dt, a.out, b, sum);
  }
}
static ac_status bincount(ac_frame *f, ac_err *e) {
  const ac_tensor *w = f->args[1].kind == AC_T_NONE ? NULL : f->args[1].tensor;
  const values_args v = values_of(f);
  bin_args a = {};
  int64_t most = -1;
  if (v.n > 0) AC_TRY(largest(f, v, &most, e));
  a.bins = f->args[2].i > most + 1 ? f->args[2].i : most + 1;
  AC_TRY(aci_frame_size(f, 0, 1, &a.bins, e));
  if (a.bins == 0) return AC_OK;
  AC_TRY(aci_order_open(f, 1, v.n, aci_order_bits(most + 1), &a.o, e));
  ac_status st = AC_OK;
  if (v.n > 0)
    st = aci_launch(f, "bins (values)", load_values, aci_blocks(f->device, v.n), e, v, a.o);
  if (st == AC_OK) st = aci_order_sort(f, &a.o, e);
  a.out = aci_data(f->out[0]);
  a.out_dt = (ac_dtype)f->out[0]->dtype;
  if (w != NULL) {
    a.weights = aci_data(w);
    a.w_dt = (ac_dtype)w->dtype;
    a.step = w->stride[0];
  }
  if (st == AC_OK) st = aci_launch(f, "bins", fill_bins, aci_blocks(f->device, a.bins), e, a);
  aci_order_close(&a.o);
  return st;
}
AC_KERNEL(cuda, bincount, bincount)

/* ---- one_hot ---- */
static __global__ void __launch_bounds__(ACI_BLOCK)
    mark_hot(const __grid_constant__ values_args a, int64_t classes, int64_t *y) {
  for (int64_t i = aci_first(); i < a.n * classes; i += aci_step()) {
    const int64_t v = value_at(a, i / classes);
    if ((uint64_t)v >= (uint64_t)classes) *a.fault = ACI_FAULT_INDEX;
    y[i] = v == i % classes;
  }
}
static ac_status one_hot(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const values_args a = values_of(f);
  int64_t classes = f->args[1].i, shape[AC_MAX_DIMS + 1];
  if (classes < 0) {
    if (a.n == 0)
      return AC_FAIL(e, INVALID,
                     "x has no elements, so the number of classes is unknown; give num_classes");
    AC_TRY(largest(f, a, &classes, e));
    classes++;
  }
  memcpy(shape, x->shape, 8 * (size_t)x->ndim);
  shape[x->ndim] = classes;
  AC_TRY(aci_frame_size(f, 0, x->ndim + 1, shape, e));
  if (a.n * classes == 0) return AC_OK;
  return aci_launch(f, "one_hot", mark_hot, aci_blocks(f->device, a.n * classes), e, a, classes,
                    (int64_t *)aci_data(f->out[0]));
}
AC_KERNEL(cuda, one_hot, one_hot)
