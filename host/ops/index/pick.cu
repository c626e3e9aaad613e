/* gather, its backward and scatter_add on CUDA: elements whose place along one dim an index names.
 *
 * Adding goes by places of the result, each looking through its line of the index in order, or, where that line is long, by lines, each
 * walked by one thread: either way the order of additions is that of the index. */
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/index/boxes.cuh"

struct pick_args {
  const void *index;
  ac_dtype index_dt, dt;
  int ndim, dim;
  int64_t n;     /* elements of index */
  int64_t bound; /* places along dim */
  int64_t shape[AC_MAX_DIMS], index_stride[AC_MAX_DIMS];
  char *near_, *far_; /* near is walked in index's own positions, the index leads into far */
  int64_t near_stride[AC_MAX_DIMS], far_stride[AC_MAX_DIMS], far_shape[AC_MAX_DIMS];
  int64_t far_n;
  int *fault;
};

/* y[e] = x[.. index[e] ..]: near = y, far = x */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK) gather_kernel(const __grid_constant__ pick_args a) {
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

/* far[p] (+)= the near elements whose index is p, in the order of the index; one thread a place. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    scatter_places(const __grid_constant__ pick_args a, bool add) {
  for (int64_t i = aci_first(); i < a.far_n; i += aci_step()) {
    int64_t r = i, near_at = 0, far_at = 0, index_at = 0, place = 0;
    bool inside = true;
    for (int d = a.ndim - 1; d >= 0; d--) {
      const int64_t c = r % a.far_shape[d];
      r /= a.far_shape[d];
      far_at += c * a.far_stride[d];
      if (d == a.dim) {
        place = c;
      } else {
        inside = inside && c < a.shape[d];
        index_at += c * a.index_stride[d];
        near_at += c * a.near_stride[d];
      }
    }
    C sum = add ? aci_get<C>(a.dt, a.far_, far_at) : (C)0;
    const int64_t m = a.n == 0 || !inside ? 0 : a.ndim > 0 ? a.shape[a.dim] : 1;
    for (int64_t j = 0; j < m; j++) {
      const int64_t id = aci_get<int64_t>(a.index_dt, a.index, index_at + j * a.index_stride[a.dim]);
      if ((uint64_t)id >= (uint64_t)a.bound) *a.fault = ACI_FAULT_INDEX;
      else if (id == place) sum += aci_get<C>(a.dt, a.near_, near_at + j * a.near_stride[a.dim]);
    }
    aci_put(a.dt, a.far_, far_at, sum);
  }
}

/* The same for long lines of types that sums are kept in: one thread a line, adding in memory. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) scatter_lines(const __grid_constant__ pick_args a) {
  const int64_t m = a.shape[a.dim], lines = a.n / m;
  for (int64_t i = aci_first(); i < lines; i += aci_step()) {
    int64_t r = i, near_at = 0, far_at = 0, index_at = 0;
    for (int d = a.ndim - 1; d >= 0; d--) {
      if (d == a.dim) continue;
      const int64_t c = r % a.shape[d];
      r /= a.shape[d];
      index_at += c * a.index_stride[d];
      near_at += c * a.near_stride[d];
      far_at += c * a.far_stride[d];
    }
    for (int64_t j = 0; j < m; j++) {
      const int64_t id = aci_get<int64_t>(a.index_dt, a.index, index_at + j * a.index_stride[a.dim]);
      if ((uint64_t)id >= (uint64_t)a.bound) *a.fault = ACI_FAULT_INDEX;
      else
        ((C *)a.far_)[far_at + id * a.far_stride[a.dim]] +=
            ((const C *)a.near_)[near_at + j * a.near_stride[a.dim]];
    }
  }
}

static void strides_of(const ac_tensor *t, int64_t *to) {
  for (int d = 0; d < t->ndim; d++) to[d] = t->stride[d];
  if (t->ndim == 0) to[0] = 0; /* rank 0 counts as one place */
}
static pick_args args_of(const ac_frame *f, const ac_tensor *index, int64_t dim, const ac_tensor *near_,
                         const ac_tensor *far_) {
  pick_args a = {};
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
  const pick_args a = args_of(f, f->args[2].tensor, f->args[1].i, f->out[0], f->args[0].tensor);
  if (a.n == 0) return AC_OK;
  const unsigned blocks = aci_blocks(f->device, a.n);
  switch (aci_dsize(a.dt)) {
    case 1: return aci_launch(f, "gather", gather_kernel<uint8_t>, blocks, e, a);
    case 2: return aci_launch(f, "gather", gather_kernel<uint16_t>, blocks, e, a);
    case 4: return aci_launch(f, "gather", gather_kernel<uint32_t>, blocks, e, a);
    default: return aci_launch(f, "gather", gather_kernel<uint64_t>, blocks, e, a);
  }
}

static ac_status add(ac_frame *f, const pick_args &a, bool onto, ac_err *e) {
  enum { LONG = 64 };
  if (a.far_n == 0) return AC_OK;
  const unsigned blocks = aci_blocks(f->device, a.far_n);
  if (onto && a.n > 0 && a.shape[a.dim] > LONG) {
    const unsigned lines = aci_blocks(f->device, a.n / a.shape[a.dim]);
    if (a.dt == AC_F32) return aci_launch(f, "scatter", scatter_lines<float>, lines, e, a);
    if (a.dt == AC_F64) return aci_launch(f, "scatter", scatter_lines<double>, lines, e, a);
    if (a.dt == AC_I64) return aci_launch(f, "scatter", scatter_lines<uint64_t>, lines, e, a);
  }
  if (a.dt == AC_F64) return aci_launch(f, "scatter", scatter_places<double>, blocks, e, a, onto);
  if (ac_dtype_is_float(a.dt)) return aci_launch(f, "scatter", scatter_places<float>, blocks, e, a, onto);
  return aci_launch(f, "scatter", scatter_places<int64_t>, blocks, e, a, onto);
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
AC_KERNEL(cuda, gather, gather)
AC_KERNEL(cuda, gather_backward, gather_backward)
AC_KERNEL(cuda, scatter_add, scatter_add)
