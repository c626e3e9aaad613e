/* unique on CUDA: elements are sorted (order.cuh), and every start of a run of equal keys is the
 * start of a value. How many there are the host waits for: one number, in the order of the stream.
 * Slices along a dim are sorted column by column from the last, each time stably. */
#include "ops/cuda/module.h"
#include "ops/index/range.cuh"
#include "ops/index/order.cuh"

namespace {
/* Whether element i of the sorted ones starts a value. Every NaN does. */
struct begins {
  aci_order o;
  uint64_t nan;
  const void *x;
  void *values;
  int64_t *inverse, *start; /* start: first position of each value */
  int bytes;
  __device__ __forceinline__ bool has(int64_t i) const {
    return aci_order_begins(o, i, i) || (nan != 0 && aci_order_key_at(o, i) == nan);
  }
  __device__ __forceinline__ void put(int64_t i, int64_t rank) const {
    const int64_t at = o.at[i];
    if (bytes == 1) ((uint8_t *)values)[rank] = ((const uint8_t *)x)[at];
    else if (bytes == 2) ((uint16_t *)values)[rank] = ((const uint16_t *)x)[at];
    else if (bytes == 4) ((uint32_t *)values)[rank] = ((const uint32_t *)x)[at];
    else ((uint64_t *)values)[rank] = ((const uint64_t *)x)[at];
    start[rank] = i;
    inverse[at] = rank;
  }
  __device__ __forceinline__ void rest(int64_t i, int64_t rank) const {
    inverse[o.at[i]] = rank - 1;
  }
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    lengths(const int64_t *start, int64_t m, int64_t n, int64_t *counts) {
  for (int64_t i = aci_first(); i < m; i += aci_step())
    counts[i] = (i + 1 < m ? start[i + 1] : n) - start[i];
}

static ac_status fill(ac_frame *f, begins &b, int64_t n, ac_block *first, ac_err *e) {
  int64_t m;
  ac_block *start;
  AC_TRY(aci_cuda_read(f, &m, aci_chosen(first, n), sizeof m, e));
  AC_TRY(aci_frame_size(f, 0, 1, &m, e));
  AC_TRY(aci_frame_size(f, 2, 1, &m, e));
  AC_TRY(ac_block_alloc(f->device, (size_t)m * 8, AC_MEM_ACTIVATION, f->stream, &start, e));
  b.values = aci_data(f->out[0]);
  b.inverse = (int64_t *)aci_data(f->out[1]);
  b.start = (int64_t *)start->ptr;
  ac_status st = aci_put(f, b, n, first, e);
  if (st == AC_OK)
    st = aci_launch(f, "unique (counts)", lengths, aci_blocks(f->device, m), e,
                    (const int64_t *)b.start, m, n, (int64_t *)aci_data(f->out[2]));
  ac_block_free(start);
  return st;
}

/* aci_order_nan, on the host */
static uint64_t nan_of(ac_dtype dt) {
  return dt == AC_F64                    ? ~(uint64_t)0
         : dt == AC_F32                  ? 0xffffffffu
         : dt == AC_F16 || dt == AC_BF16 ? 0xffffu
                                         : 0;
}

static ac_status elements(ac_frame *f, const ac_tensor *x, ac_err *e) {
  const int64_t n = x->numel, none = 0;
  begins b = {};
  ac_block *own = NULL, *first = NULL;
  aci_reduce_plan p = {};
  AC_TRY(aci_frame_size(f, 1, x->ndim, x->shape, e));
  if (n == 0) {
    AC_TRY(aci_frame_size(f, 0, 1, &none, e));
    return aci_frame_size(f, 2, 1, &none, e);
  }
  AC_TRY(aci_cuda_in_a_run(f, x, &b.x, &own, e));
  p.ptr = (const char *)b.x;
  p.dt = (ac_dtype)x->dtype;
  p.n_keep = p.n_red = 1;
  p.keep_shape[0] = p.n_out = 1;
  p.red_shape[0] = p.n_reduced = n;
  p.red_stride[0] = 1;
  b.nan = nan_of(p.dt);
  b.bytes = (int)aci_dsize(p.dt);
  ac_status st = aci_order_lines(f, &p, 0, 1, n, false, &b.o, e);
  if (st == AC_OK) {
    st = aci_choose(f, b, n, &first, e);
    if (st == AC_OK) st = fill(f, b, n, first, e);
    ac_block_free(first);
    aci_order_close(&b.o);
  }
  ac_block_free(own);
  return st;
}

/* ---- slices along a dim ---- */
namespace {
struct slices {
  const void *rows; /* (n, width) */
  ac_dtype dt;
  int64_t n, width;
  const uint32_t *order;
  void *values; /* (outer, m, inner) */
  int64_t *inverse, *start;
  int64_t m, inner;
  /* another than the one before, or with a NaN */
  __device__ __forceinline__ bool has(int64_t i) const {
    if (i == 0) return true;
    const int64_t a = order[i - 1] * width, b = order[i] * width;
    const uint64_t nan = aci_order_nan(dt);
    for (int64_t c = 0; c < width; c++) {
      const uint64_t k = aci_order_load(dt, rows, b + c, false);
      if (k != aci_order_load(dt, rows, a + c, false) || (nan != 0 && k == nan)) return true;
    }
    return false;
  }
  __device__ __forceinline__ void put(int64_t i, int64_t rank) const {
    start[rank] = i;
    inverse[order[i]] = rank;
  }
  __device__ __forceinline__ void rest(int64_t i, int64_t rank) const {
    inverse[order[i]] = rank - 1;
  }
};
} // namespace
static __global__ void __launch_bounds__(ACI_BLOCK)
    column_keys(const __grid_constant__ slices s, int64_t column, aci_order o) {
  for (int64_t i = aci_first(); i < s.n; i += aci_step())
    aci_order_put_key(
        o, i,
        aci_order_load(s.dt, s.rows, (s.order != NULL ? s.order[i] : i) * s.width + column, false));
}
/* to := before, in the order that was found */
static __global__ void __launch_bounds__(ACI_BLOCK)
    follow(const uint32_t *before, const uint32_t *at, int64_t n, uint32_t *to) {
  for (int64_t i = aci_first(); i < n; i += aci_step())
    to[i] = before != NULL ? before[at[i]] : at[i];
}
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK) take_slices(const __grid_constant__ slices s) {
  for (int64_t i = aci_first(); i < s.m * s.width; i += aci_step()) {
    const int64_t in = i % s.inner, v = i / s.inner % s.m, o = i / s.inner / s.m;
    ((S *)s.values)[i] = ((const S *)s.rows)[s.order[s.start[v]] * s.width + o * s.inner + in];
  }
}

static ac_status sort_slices(ac_frame *f, slices *s, uint32_t *orders, ac_err *e) {
  for (int64_t c = s->width - 1; c >= 0; c--) {
    aci_order o;
    uint32_t *to = orders + (s->width - 1 - c) % 2 * s->n;
    AC_TRY(aci_order_open(f, 1, s->n, 8 * (int)aci_dsize(s->dt), &o, e));
    ac_status st =
        aci_launch(f, "unique (keys)", column_keys, aci_blocks(f->device, s->n), e, *s, c, o);
    if (st == AC_OK) st = aci_order_sort(f, &o, e);
    if (st == AC_OK)
      st = aci_launch(f, "unique (order)", follow, aci_blocks(f->device, s->n), e, s->order,
                      (const uint32_t *)o.at, s->n, to);
    aci_order_close(&o);
    AC_TRY(st);
    s->order = to;
  }
  return AC_OK;
}

static ac_status fill_slices(ac_frame *f, slices *s, int dim, const ac_block *first, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  int64_t shape[AC_MAX_DIMS];
  ac_block *start;
  AC_TRY(aci_cuda_read(f, &s->m, aci_chosen(first, s->n), sizeof s->m, e));
  memcpy(shape, x->shape, 8 * (size_t)x->ndim);
  shape[dim] = s->m;
  AC_TRY(aci_frame_size(f, 0, x->ndim, shape, e));
  AC_TRY(aci_frame_size(f, 2, 1, &s->m, e));
  AC_TRY(ac_block_alloc(f->device, (size_t)s->m * 8, AC_MEM_ACTIVATION, f->stream, &start, e));
  s->start = (int64_t *)start->ptr;
  s->inverse = (int64_t *)aci_data(f->out[1]);
  s->values = aci_data(f->out[0]);
  ac_status st = aci_put(f, *s, s->n, first, e);
  if (st == AC_OK)
    st = aci_launch(f, "unique (counts)", lengths, aci_blocks(f->device, s->m), e,
                    (const int64_t *)s->start, s->m, s->n, (int64_t *)aci_data(f->out[2]));
  const unsigned blocks = aci_blocks(f->device, s->m * s->width);
  if (st == AC_OK) switch (aci_dsize(s->dt)) {
      case 1: st = aci_launch(f, "unique", take_slices<uint8_t>, blocks, e, *s); break;
      case 2: st = aci_launch(f, "unique", take_slices<uint16_t>, blocks, e, *s); break;
      case 4: st = aci_launch(f, "unique", take_slices<uint32_t>, blocks, e, *s); break;
      default: st = aci_launch(f, "unique", take_slices<uint64_t>, blocks, e, *s); break;
    }
  ac_block_free(start);
  return st;
}

static ac_status along(ac_frame *f, const ac_tensor *x, int dim, ac_err *e) {
  slices s = {};
  ac_block *block, *first = NULL;
  s.n = x->shape[dim];
  s.width = s.inner = 1;
  s.dt = (ac_dtype)x->dtype;
  for (int d = 0; d < x->ndim; d++) s.width *= d == dim ? 1 : x->shape[d];
  for (int d = dim + 1; d < x->ndim; d++) s.inner *= x->shape[d];
  AC_TRY(aci_frame_size(f, 1, 1, &s.n, e));
  if (s.n == 0) {
    AC_TRY(aci_frame_size(f, 0, x->ndim, x->shape, e));
    return aci_frame_size(f, 2, 1, &s.n, e);
  }
  const size_t rows = ((size_t)x->numel * aci_dsize(s.dt) + 7) / 8 * 8;
  AC_TRY(
      ac_block_alloc(f->device, rows + (size_t)s.n * 8, AC_MEM_ACTIVATION, f->stream, &block, e));
  aci_range dst = {}, src = {};
  s.rows = dst.ptr = block->ptr;
  src.ptr = aci_data(x);
  dst.dtype = src.dtype = s.dt;
  int64_t step = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    src.stride[d] = x->stride[d];
    dst.stride[d] = d == dim ? s.width : step;
    if (d != dim) step *= x->shape[d];
  }
  ac_status st = aci_cuda_copy_range(f, x->ndim, x->shape, &dst, &src, e);
  if (st == AC_OK) st = sort_slices(f, &s, (uint32_t *)((char *)block->ptr + rows), e);
  if (st == AC_OK) st = aci_choose(f, s, s.n, &first, e);
  if (st == AC_OK) st = fill_slices(f, &s, dim, first, e);
  ac_block_free(first);
  ac_block_free(block);
  return st;
}

static ac_status unique(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const int64_t d = f->args[1].kind == AC_T_NONE ? 0 : f->args[1].i;
  if (f->args[1].kind == AC_T_NONE || x->ndim == 0) return elements(f, x, e);
  return along(f, x, (int)(d < 0 ? d + x->ndim : d), e);
}
AC_KERNEL(cuda, unique_sorted, unique)
