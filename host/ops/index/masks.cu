/* Masks on CUDA: masked_select, masked_scatter, nonzero and the backwards. Chunks count, a scan
 * gives the start of each chunk's share, and chunks write it (scan.cuh), so the order of elements
 * is kept.
 *
 * masked_select and nonzero cannot be sized before the device has counted: they wait for it once,
 * for one number, in the order of the stream. The others never wait. A mask with a wrong number of
 * true elements is reported at the next wait. */
#include "ops/cuda/module.h"
#include "ops/cuda/scan.cuh"
#include "ops/index/range.cuh"

namespace {
/* A tensor seen in a broadcast shape. */
struct seen {
  int ndim; /* 0: contiguous in that shape */
  int64_t shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
  const void *ptr;
  __device__ __forceinline__ int64_t at(int64_t i) const {
    return ndim == 0 ? i : aci_element_offset(i, ndim, shape, stride);
  }
};
seen seen_as(const ac_tensor *t, int ndim, const int64_t *shape) {
  seen s = {};
  const int lead = ndim - t->ndim;
  bool whole = aci_is_contiguous(t);
  for (int d = 0; d < ndim; d++) {
    s.shape[d] = shape[d];
    s.stride[d] = d < lead || t->shape[d - lead] != shape[d] ? 0 : t->stride[d - lead];
    whole = whole && (shape[d] == 1 || s.stride[d] != 0);
  }
  s.ndim = whole ? 0 : ndim;
  s.ptr = aci_data(t);
  return s;
}
struct of_mask {
  seen mask;
  __device__ __forceinline__ bool has(int64_t i) const {
    return ((const uint8_t *)mask.ptr)[mask.at(i)] != 0;
  }
  __device__ __forceinline__ void rest(int64_t, int64_t) const {}
};
/* some[rank] := all[i] */
template <class S> struct take : of_mask {
  seen all;
  S *some;
  int64_t limit; /* of some */
  int *fault;
  __device__ __forceinline__ void put(int64_t i, int64_t rank) const {
    if (rank < limit) some[rank] = ((const S *)all.ptr)[all.at(i)];
    else *fault = ACI_FAULT_INDEX;
  }
};
/* all[i] := some[rank]. blank: 0 if the mask is false */
template <class S> struct give : of_mask {
  seen all, some;
  int64_t limit;
  int *fault;
  bool blank;
  __device__ __forceinline__ void put(int64_t i, int64_t rank) const {
    if (rank < limit) ((S *)all.ptr)[all.at(i)] = ((const S *)some.ptr)[some.at(rank)];
    else *fault = ACI_FAULT_INDEX;
  }
  __device__ __forceinline__ void rest(int64_t i, int64_t) const {
    if (blank) ((S *)all.ptr)[all.at(i)] = (S)0;
  }
};
struct positions {
  seen x;
  ac_dtype dt;
  int64_t *out;
  int width; /* dims of x, numbers of a row of out */
  int64_t shape[AC_MAX_DIMS];
  __device__ __forceinline__ bool has(int64_t i) const {
    const int64_t at = x.at(i);
    if (dt == AC_F64) return ((const double *)x.ptr)[at] != 0;
    if (dt == AC_F32 || dt == AC_F16 || dt == AC_BF16) return aci_get<float>(dt, x.ptr, at) != 0;
    return aci_get<int64_t>(dt, x.ptr, at) != 0;
  }
  __device__ __forceinline__ void put(int64_t i, int64_t rank) const {
    for (int d = width - 1; d >= 0; d--) {
      out[rank * width + d] = i % shape[d];
      i /= shape[d];
    }
  }
  __device__ __forceinline__ void rest(int64_t, int64_t) const {}
};
} // namespace

/* How many of a broadcast shape there are. */
static int64_t joint(const ac_tensor *a, const ac_tensor *b, int *ndim, int64_t *shape) {
  int64_t n = 1;
  *ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
  for (int d = 0; d < *ndim; d++) {
    const int da = d - (*ndim - a->ndim), db = d - (*ndim - b->ndim);
    const int64_t p = da < 0 ? 1 : a->shape[da], q = db < 0 ? 1 : b->shape[db];
    n *= shape[d] = p == 1 ? q : p;
  }
  return n;
}

template <class S> static ac_status select_as(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *mask = f->args[1].tensor;
  int ndim;
  int64_t shape[AC_MAX_DIMS], total;
  const int64_t n = joint(x, mask, &ndim, shape);
  take<S> t = {};
  ac_block *first;
  t.mask = seen_as(mask, ndim, shape);
  t.all = seen_as(x, ndim, shape);
  t.fault = aci_cuda_of(f->device)->fault;
  AC_TRY(aci_choose(f, t, n, &first, e));
  ac_status st = aci_cuda_read(f, &total, aci_chosen(first, n), sizeof total, e);
  if (st == AC_OK) st = aci_frame_size(f, 0, 1, &total, e);
  if (st == AC_OK && total > 0) {
    t.some = (S *)aci_data(f->out[0]);
    t.limit = total;
    st = aci_put(f, t, n, first, e);
  }
  ac_block_free(first);
  return st;
}

/* y (ndim, shape) gets the elements of some at the positions with mask true. */
template <class S>
static ac_status give_as(ac_frame *f, const ac_tensor *y, const ac_tensor *mask,
                         const ac_tensor *some, bool blank, ac_err *e) {
  give<S> g = {};
  ac_block *first;
  g.mask = seen_as(mask, y->ndim, y->shape);
  g.all = seen_as(y, y->ndim, y->shape);
  g.some = seen_as(some, some->ndim, some->shape);
  g.limit = some->numel;
  g.blank = blank;
  g.fault = aci_cuda_of(f->device)->fault;
  AC_TRY(aci_choose(f, g, y->numel, &first, e));
  const ac_status st = aci_put(f, g, y->numel, first, e);
  ac_block_free(first);
  return st;
}

template <class S> static ac_status scatter_back_as(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *y = f->out[0];
  take<S> t = {};
  ac_block *first;
  AC_TRY(
      f->device->vt->fill(f->device, f->stream, aci_data(y), 0, (size_t)y->numel * sizeof(S), e));
  if (dy->numel == 0) return AC_OK;
  t.mask = seen_as(f->args[1].tensor, dy->ndim, dy->shape);
  t.all = seen_as(dy, dy->ndim, dy->shape);
  t.some = (S *)aci_data(y);
  t.limit = y->numel;
  t.fault = aci_cuda_of(f->device)->fault;
  AC_TRY(aci_choose(f, t, dy->numel, &first, e));
  const ac_status st = aci_put(f, t, dy->numel, first, e);
  ac_block_free(first);
  return st;
}

#define BY_SIZE(t, FN, ...)                    \
  switch (aci_dsize((ac_dtype)(t)->dtype)) {   \
    case 1: return FN<uint8_t>(__VA_ARGS__);   \
    case 2: return FN<uint16_t>(__VA_ARGS__);  \
    case 4: return FN<uint32_t>(__VA_ARGS__);  \
    default: return FN<uint64_t>(__VA_ARGS__); \
  }

static ac_status masked_select(ac_frame *f, ac_err *e) {
  BY_SIZE(f->args[0].tensor, select_as, f, e)
}
static ac_status masked_select_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  if (y->numel == 0) return AC_OK;
  BY_SIZE(y, give_as, f, y, f->args[1].tensor, f->args[0].tensor, true, e)
}
static ac_status masked_scatter(ac_frame *f, ac_err *e) {
  const ac_tensor *y = f->out[0];
  if (y->numel == 0) return AC_OK;
  if (!f->inplace) AC_TRY(aci_cuda_copy_tensor(f, y, f->args[0].tensor, e));
  BY_SIZE(y, give_as, f, y, f->args[1].tensor, f->args[2].tensor, false, e)
}
static ac_status masked_scatter_backward(ac_frame *f, ac_err *e) {
  if (f->out[0]->numel == 0) return AC_OK;
  BY_SIZE(f->out[0], scatter_back_as, f, e)
}
static ac_status nonzero(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  positions p = {};
  ac_block *first;
  int64_t size[2] = {0, x->ndim};
  p.x = seen_as(x, x->ndim, x->shape);
  p.dt = (ac_dtype)x->dtype;
  p.width = x->ndim;
  memcpy(p.shape, x->shape, 8 * (size_t)x->ndim);
  AC_TRY(aci_choose(f, p, x->numel, &first, e));
  ac_status st = aci_cuda_read(f, size, aci_chosen(first, x->numel), sizeof *size, e);
  if (st == AC_OK) st = aci_frame_size(f, 0, 2, size, e);
  if (st == AC_OK && f->out[0]->numel > 0) {
    p.out = (int64_t *)aci_data(f->out[0]);
    st = aci_put(f, p, x->numel, first, e);
  }
  ac_block_free(first);
  return st;
}
AC_KERNEL(cuda, masked_select, masked_select)
AC_KERNEL(cuda, masked_select_backward, masked_select_backward)
AC_KERNEL(cuda, masked_scatter, masked_scatter)
AC_KERNEL(cuda, masked_scatter_backward, masked_scatter_backward)
AC_KERNEL(cuda, nonzero, nonzero)
