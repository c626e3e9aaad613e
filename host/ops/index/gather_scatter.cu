/* gather, its backward, scatter, scatter_add and scatter_last on CUDA: elements whose position
 * along one dim an index names.
 *
 * Short lines of the index are scanned: adding goes by positions of the result, each in the order
 * of its line. Of several that name one position the last one writes. Long lines are sorted
 * (order.cuh): a run of equal numbers is added in its order, and its last one writes. */
#include "ops/cuda/module.h"
#include "ops/index/range.cuh"
#include "ops/index/order.cuh"

enum { LONG = 64 };

namespace {
struct gather_args {
  const void *index;
  ac_dtype index_dt, dt;
  int ndim, dim;
  int64_t n;     /* elements of index */
  int64_t bound; /* positions along dim */
  int64_t shape[AC_MAX_DIMS], index_stride[AC_MAX_DIMS];
  char *near_, *far_; /* near is walked in index's own positions, the index leads into far */
  int64_t near_stride[AC_MAX_DIMS], far_stride[AC_MAX_DIMS], far_shape[AC_MAX_DIMS];
  int64_t far_n;
  aci_order o;     /* keys: the index, `bound` if out of range */
  uint64_t number; /* the value to write if near is NULL */
  int join;        /* 0: the sum, 1: the product, 2: the larger, 3: the smaller one */
  int *fault;
};
} // namespace

template <class C> ACI_DEVICE C joined(int how, C a, C b) {
  if (how == 0) return a + b;
  if (how == 1) return a * b;
  return a != a || (how == 2 ? a >= b : a <= b) ? a : b; /* NaN stays */
}

/* y[e] = x[.. index[e] ..]: near = y, far = x */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    gather_kernel(const __grid_constant__ gather_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    int64_t r = i, near_at = 0, far_at = 0, index_at = 0;
    for (int d = a.ndim - 1; d >= 0; d--) {
      const int64_t c = r % a.shape[d];
      r /= a.shape[d];
      index_at += c * a.index_stride[d];
      near_at += c * a.near_stride[d];
      if (d != a.dim) far_at += c * a.far_stride[d];
    }
    const int64_t id = aci_get<int64_t>(a.index_dt, a.index, index_at);
    const bool ok = (uint64_t)id < (uint64_t)a.bound;
    if (!ok) *a.fault = ACI_FAULT_INDEX;
    ((S *)a.near_)[near_at] = ok ? ((const S *)a.far_)[far_at + id * a.far_stride[a.dim]] : (S)0;
  }
}

/* far[p] = far[p] or 0, joined with the near elements whose index is p, in the order of the index. One thread a
 * position. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    scatter_positions(const __grid_constant__ gather_args a, bool add) {
  for (int64_t i = aci_first(); i < a.far_n; i += aci_step()) {
    int64_t r = i, near_at = 0, far_at = 0, index_at = 0, position = 0;
    bool inside = true;
    for (int d = a.ndim - 1; d >= 0; d--) {
      const int64_t c = r % a.far_shape[d];
      r /= a.far_shape[d];
      far_at += c * a.far_stride[d];
      if (d == a.dim) {
        position = c;
      } else {
        inside = inside && c < a.shape[d];
        index_at += c * a.index_stride[d];
        near_at += c * a.near_stride[d];
      }
    }
    C sum = add ? aci_get<C>(a.dt, a.far_, far_at) : (C)0;
    const int64_t m = a.n == 0 || !inside ? 0 : a.ndim > 0 ? a.shape[a.dim] : 1;
    for (int64_t j = 0; j < m; j++) {
      const int64_t id =
          aci_get<int64_t>(a.index_dt, a.index, index_at + j * a.index_stride[a.dim]);
      if ((uint64_t)id >= (uint64_t)a.bound) *a.fault = ACI_FAULT_INDEX;
      else if (id == position)
        sum = joined(a.join, sum, aci_get<C>(a.dt, a.near_, near_at + j * a.near_stride[a.dim]));
    }
    aci_put(a.dt, a.far_, far_at, sum);
  }
}

/* Start of a line of the index in each tensor. dim's own position is left out. */
namespace {
struct line_start {
  int64_t near_at, far_at, index_at;
  __device__ __forceinline__ line_start(const gather_args &a, int64_t line)
      : near_at(0), far_at(0), index_at(0) {
    for (int d = a.ndim - 1; d >= 0; d--) {
      if (d == a.dim) continue;
      const int64_t c = line % a.shape[d];
      line /= a.shape[d];
      near_at += c * a.near_stride[d];
      far_at += c * a.far_stride[d];
      index_at += c * a.index_stride[d];
    }
  }
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    load_lines(const __grid_constant__ gather_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const line_start at(a, i / a.o.n);
    const int64_t id =
        aci_get<int64_t>(a.index_dt, a.index, at.index_at + i % a.o.n * a.index_stride[a.dim]);
    const bool ok = (uint64_t)id < (uint64_t)a.bound;
    if (!ok) *a.fault = ACI_FAULT_INDEX;
    aci_order_put_key(a.o, i, (uint64_t)(ok ? id : a.bound));
  }
}
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    add_runs(const __grid_constant__ gather_args a) {
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t line = i / a.o.n, k = i % a.o.n;
    const uint64_t key = aci_order_key_at(a.o, i);
    if (key >= (uint64_t)a.bound || !aci_order_begins(a.o, i, k)) continue;
    const line_start at(a, line);
    const int64_t to = at.far_at + (int64_t)key * a.far_stride[a.dim];
    C sum = aci_get<C>(a.dt, a.far_, to);
    for (int64_t j = k; j < a.o.n && aci_order_key_at(a.o, line * a.o.n + j) == key; j++)
      sum = joined(
          a.join, sum,
          aci_get<C>(a.dt, a.near_, at.near_at + a.o.at[line * a.o.n + j] * a.near_stride[a.dim]));
    aci_put(a.dt, a.far_, to, sum);
  }
}

/* far[p] := the near element that names p last (near NULL: the number). mark: near[e] := is e that
 * one? */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    put_last(const __grid_constant__ gather_args a, bool mark) {
  const int64_t m = a.shape[a.dim];
  for (int64_t i = aci_first(); i < a.n; i += aci_step()) {
    const int64_t line = i / m;
    const line_start at(a, line);
    int64_t k = i % m, id;
    bool last = true;
    if (a.o.keys != NULL) {
      id = (int64_t)aci_order_key_at(a.o, i);
      last = aci_order_ends(a.o, i, k);
      k = a.o.at[i];
    } else {
      id = aci_get<int64_t>(a.index_dt, a.index, at.index_at + k * a.index_stride[a.dim]);
      for (int64_t j = k + 1; j < m && last && (mark || a.near_ != NULL); j++)
        last = aci_get<int64_t>(a.index_dt, a.index, at.index_at + j * a.index_stride[a.dim]) != id;
    }
    const bool ok = (uint64_t)id < (uint64_t)a.bound;
    if (!ok) *a.fault = ACI_FAULT_INDEX;
    const int64_t from = at.near_at + k * a.near_stride[a.dim];
    if (mark) ((S *)a.near_)[from] = last && ok;
    else if (last && ok)
      ((S *)a.far_)[at.far_at + id * a.far_stride[a.dim]] =
          a.near_ != NULL ? ((const S *)a.near_)[from] : (S)a.number;
  }
}

static void strides_of(const ac_tensor *t, int64_t *to) {
  for (int d = 0; d < t->ndim; d++) to[d] = t->stride[d];
  if (t->ndim == 0) to[0] = 0; /* rank 0 counts as one position */
}
static gather_args args_of(const ac_frame *f, const ac_tensor *index, int64_t dim,
                           const ac_tensor *near_, const ac_tensor *far_) {
  gather_args a = {};
  a.index = aci_data(index);
  a.index_dt = (ac_dtype)index->dtype;
  a.dt = (ac_dtype)far_->dtype;
  a.ndim = index->ndim > 0 ? index->ndim : 1;
  a.dim = (int)(dim < 0 ? dim + a.ndim : dim);
  a.n = index->numel;
  a.shape[0] = a.far_shape[0] = 1;
  for (int d = 0; d < index->ndim; d++) a.shape[d] = index->shape[d];
  for (int d = 0; d < far_->ndim; d++) a.far_shape[d] = far_->shape[d];
  strides_of(index, a.index_stride);
  strides_of(near_, a.near_stride);
  strides_of(far_, a.far_stride);
  a.near_ = (char *)aci_data(near_);
  a.far_ = (char *)aci_data(far_);
  a.far_n = far_->numel;
  a.bound = a.far_shape[a.dim];
  a.fault = aci_cuda_of(f->device)->fault;
  return a;
}

static ac_status gather(ac_frame *f, ac_err *e) {
  const gather_args a = args_of(f, f->args[2].tensor, f->args[1].i, f->out[0], f->args[0].tensor);
  if (a.n == 0) return AC_OK;
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (aci_dsize(a.dt)) {
    case 1: return aci_launch(f, "gather", gather_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "gather", gather_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "gather", gather_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "gather", gather_kernel<uint64_t>, blocks, e, a);
  }
}

/* The lines of the index in order. The caller closes a->o. */
static ac_status in_order(ac_frame *f, gather_args *a, ac_err *e) {
  const int64_t m = a->shape[a->dim];
  AC_TRY(aci_order_open(f, a->n / m, m, aci_order_bits(a->bound + 1), &a->o, e));
  ac_status st = aci_launch(f, "scatter (keys)", load_lines, aci_blocks(f->device, a->n), e, *a);
  if (st == AC_OK) st = aci_order_sort(f, &a->o, e);
  if (st != AC_OK) aci_order_close(&a->o);
  return st;
}

static ac_status add_sorted(ac_frame *f, gather_args a, ac_err *e) {
  AC_TRY(in_order(f, &a, e));
  const unsigned blocks = aci_blocks(f->device, a.n);
  const ac_status st =
      a.dt == AC_F64            ? aci_launch(f, "scatter (add)", add_runs<double>, blocks, e, a)
      : ac_dtype_is_float(a.dt) ? aci_launch(f, "scatter (add)", add_runs<float>, blocks, e, a)
                                : aci_launch(f, "scatter (add)", add_runs<int64_t>, blocks, e, a);
  aci_order_close(&a.o);
  return st;
}

/* far (+)= near. far, without `onto`, is contiguous. */
static ac_status add(ac_frame *f, const gather_args &a, bool onto, ac_err *e) {
  if (a.far_n == 0) return AC_OK;
  if (a.n > 0 && a.shape[a.dim] > LONG) {
    if (!onto)
      AC_TRY(f->device->vt->fill(f->device, f->stream, a.far_, 0, (size_t)a.far_n * aci_dsize(a.dt),
                                 e));
    return add_sorted(f, a, e);
  }
  const unsigned blocks = aci_blocks(f->device, a.far_n);
  if (a.dt == AC_F64)
    return aci_launch(f, "scatter", scatter_positions<double>, blocks, e, a, onto);
  if (ac_dtype_is_float(a.dt))
    return aci_launch(f, "scatter", scatter_positions<float>, blocks, e, a, onto);
  return aci_launch(f, "scatter", scatter_positions<int64_t>, blocks, e, a, onto);
}

static ac_status gather_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor;
  return add(f, args_of(f, f->args[2].tensor, f->args[1].i, dy, f->out[0]), false, e);
}

static ac_status scatter_add(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  if (!f->inplace) AC_TRY(aci_cuda_copy_tensor(f, y, x, e));
  return add(f, args_of(f, f->args[2].tensor, f->args[1].i, f->args[3].tensor, y), true, e);
}
static ac_status scatter_join(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  if (!f->inplace) AC_TRY(aci_cuda_copy_tensor(f, y, x, e));
  gather_args a = args_of(f, f->args[2].tensor, f->args[1].i, f->args[3].tensor, y);
  a.join = (int)f->args[4].i;
  return add(f, a, true, e);
}
static ac_status put(ac_frame *f, gather_args a, bool mark, size_t size, ac_err *e) {
  if (a.n == 0) return AC_OK;
  const bool sorted = a.shape[a.dim] > LONG && a.near_ != NULL;
  if (sorted) AC_TRY(in_order(f, &a, e));
  const unsigned blocks = aci_blocks(f->device, a.n);
  ac_status st;
  switch (size) {
    case 1: st = aci_launch(f, "scatter", put_last<uint8_t>, blocks, e, a, mark); break;
    case 2: st = aci_launch(f, "scatter", put_last<uint16_t>, blocks, e, a, mark); break;
    case 4: st = aci_launch(f, "scatter", put_last<uint32_t>, blocks, e, a, mark); break;
    default: st = aci_launch(f, "scatter", put_last<uint64_t>, blocks, e, a, mark); break;
  }
  aci_order_close(&a.o);
  return st;
}

static ac_status scatter(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const ac_value *src = &f->args[3];
  if (!f->inplace) AC_TRY(aci_cuda_copy_tensor(f, y, x, e));
  gather_args a =
      args_of(f, f->args[2].tensor, f->args[1].i, src->kind == AC_T_TENSOR ? src->tensor : y, y);
  if (src->kind != AC_T_TENSOR) {
    a.near_ = NULL;
    aci_scalar_bytes(src->scalar, a.dt, &a.number);
  }
  return put(f, a, false, aci_dsize(a.dt), e);
}

static ac_status scatter_last(ac_frame *f, ac_err *e) {
  const ac_tensor *index = f->args[0].tensor, *y = f->out[0];
  gather_args a = args_of(f, index, f->args[1].i, y, y);
  a.bound = f->args[2].i;
  return put(f, a, true, 1, e);
}
AC_KERNEL(cuda, gather, gather)
AC_KERNEL(cuda, gather_backward, gather_backward)
AC_KERNEL(cuda, scatter_add, scatter_add)
AC_KERNEL(cuda, scatter_join, scatter_join)
AC_KERNEL(cuda, scatter, scatter)
AC_KERNEL(cuda, scatter_last, scatter_last)
