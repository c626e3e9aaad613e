/* Several index tensors at once on CUDA (advanced_index.h): index, index_backward, index_put,
 * index_copy, index_fill and index_last.
 *
 * Every b of the joint shape names a position. If positions may be named twice and that matters,
 * their numbers are sorted (order.cuh): the last of a run of equal ones is the last b that names
 * the position, and a run walked in order adds in the order of b. */
#include "ops/index/range.cuh"
#include "ops/index/order.cuh"
#include "ops/index/advanced_index_plan.h"

namespace {
struct dims {
  int n;
  int64_t shape[AC_MAX_DIMS], x[AC_MAX_DIMS],
      v[AC_MAX_DIMS]; /* strides in the tensor indexed and in the values */
};
struct index_args {
  int n_index, n_batch;
  const void *ptr[AC_MAX_DIMS];
  unsigned char dt[AC_MAX_DIMS];
  int64_t batch[AC_MAX_DIMS], stride[AC_MAX_DIMS][AC_MAX_DIMS], bound[AC_MAX_DIMS],
      weight[AC_MAX_DIMS], number[AC_MAX_DIMS];
  int64_t n, n_dst;
  int64_t *offset; /* sum of value * weight. -1: out of range */
  aci_order order; /* keys: sum of value * number, n_dst when out of range. Unused without memory */
  int *fault;
};
struct move_args {
  dims outer, batch, inner;
  int64_t n_outer, n, n_inner;
  char *x;
  const char *v;
  uint64_t number; /* the value to write without v */
  const int64_t *offset;
  aci_order order;
  ac_dtype dt;
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    find_positions(const __grid_constant__ index_args a) {
  for (int64_t b = aci_first(); b < a.n; b += aci_step()) {
    int64_t offset = 0, key = 0;
    for (int k = 0; k < a.n_index && key >= 0; k++) {
      int64_t v = aci_get<int64_t>(
          (ac_dtype)a.dt[k], a.ptr[k],
          a.n_batch > 0 ? aci_element_offset(b, a.n_batch, a.batch, a.stride[k]) : 0);
      if (v < 0) v += a.bound[k];
      if ((uint64_t)v >= (uint64_t)a.bound[k]) {
        *a.fault = ACI_FAULT_INDEX;
        key = -1;
        break;
      }
      offset += v * a.weight[k];
      key += v * a.number[k];
    }
    a.offset[b] = key < 0 ? -1 : offset;
    if (a.order.keys != NULL) aci_order_put_key(a.order, b, (uint64_t)(key < 0 ? a.n_dst : key));
  }
}

ACI_DEVICE int64_t along(const dims &d, int64_t i, const int64_t *stride) {
  return d.n > 0 ? aci_element_offset(i, d.n, d.shape, stride) : 0;
}
ACI_DEVICE int64_t value_at(const move_args &a, int64_t o, int64_t b, int64_t i) {
  return along(a.outer, o, a.outer.v) + along(a.batch, b, a.batch.v) + along(a.inner, i, a.inner.v);
}
ACI_DEVICE int64_t offset_at(const move_args &a, int64_t o, int64_t b, int64_t i) {
  return along(a.outer, o, a.outer.x) + a.offset[b] + along(a.inner, i, a.inner.x);
}

template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    take_positions(const __grid_constant__ move_args a) {
  for (int64_t e = aci_first(); e < a.n_outer * a.n * a.n_inner; e += aci_step()) {
    const int64_t i = e % a.n_inner, b = e / a.n_inner % a.n, o = e / a.n_inner / a.n;
    ((S *)a.v)[e] = a.offset[b] < 0 ? (S)0 : ((const S *)a.x)[offset_at(a, o, b, i)];
  }
}
/* Without an order any b may write: they all write the same. */
template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK)
    put_positions(const __grid_constant__ move_args a) {
  for (int64_t e = aci_first(); e < a.n_outer * a.n * a.n_inner; e += aci_step()) {
    const int64_t i = e % a.n_inner, k = e / a.n_inner % a.n, o = e / a.n_inner / a.n;
    if (a.order.keys != NULL && !aci_order_ends(a.order, k, k)) continue;
    const int64_t b = a.order.keys != NULL ? a.order.at[k] : k;
    if (a.offset[b] < 0) continue;
    ((S *)a.x)[offset_at(a, o, b, i)] =
        a.v != NULL ? ((const S *)a.v)[value_at(a, o, b, i)] : (S)a.number;
  }
}
/* Added in the compute type, rounded once. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK)
    add_positions(const __grid_constant__ move_args a) {
  for (int64_t e = aci_first(); e < a.n_outer * a.n * a.n_inner; e += aci_step()) {
    const int64_t i = e % a.n_inner, k = e / a.n_inner % a.n, o = e / a.n_inner / a.n;
    if (!aci_order_begins(a.order, k, k)) continue;
    const int64_t first = a.order.at[k];
    if (a.offset[first] < 0) continue;
    const int64_t to = offset_at(a, o, first, i);
    const uint64_t key = aci_order_key_at(a.order, k);
    C sum = aci_get<C>(a.dt, a.x, to);
    for (int64_t j = k; j < a.n && aci_order_key_at(a.order, j) == key; j++)
      sum += a.v != NULL ? aci_get<C>(a.dt, a.v, value_at(a, o, a.order.at[j], i))
                         : aci_get<C>(a.dt, &a.number, 0);
    aci_put(a.dt, a.x, to, sum);
  }
}
static __global__ void __launch_bounds__(ACI_BLOCK) mark_last(aci_order o, uint8_t *y) {
  for (int64_t k = aci_first(); k < o.n; k += aci_step()) y[o.at[k]] = aci_order_ends(o, k, k);
}

/* ---- launching ---- */
namespace {
struct found {
  aci_advanced_index p;
  move_args m;
  ac_block *offsets;
};
enum how { TAKE, PUT, ADD };
} // namespace
static void release(found *w) {
  aci_order_close(&w->m.order);
  ac_block_free(w->offsets);
}

/* Fills *w: the plan, and on the device the offset of each named position of a tensor of this shape
 * and strides (strides NULL: only the numbers matter). sorted: also the numbers of the positions in
 * ascending order, each with its origin. The caller releases *w, also after a failure. */
static ac_status find(ac_frame *f, int arg, int dims_arg, int ndim, const int64_t *shape,
                      const int64_t *stride, bool sorted, found *w, ac_err *e) {
  memset(w, 0, sizeof *w);
  aci_advanced_index *p = &w->p;
  AC_TRY(aci_advanced_index_plan(f, arg, dims_arg, ndim, shape, p, e));
  w->m.n_outer = p->n_outer_elems;
  w->m.n = p->n;
  w->m.n_inner = p->n_inner_elems;
  w->m.outer.n = p->n_outer;
  w->m.inner.n = p->n_inner;
  w->m.batch.n = p->n_batch;
  memcpy(w->m.batch.shape, p->batch, sizeof p->batch);
  for (int i = 0; i < p->n_outer; i++) {
    w->m.outer.shape[i] = shape[p->outer[i]];
    w->m.outer.x[i] = stride != NULL ? stride[p->outer[i]] : 0;
  }
  for (int i = 0; i < p->n_inner; i++) {
    w->m.inner.shape[i] = shape[p->inner[i]];
    w->m.inner.x[i] = stride != NULL ? stride[p->inner[i]] : 0;
  }
  if (p->n == 0) return AC_OK;
  index_args a = {};
  a.n_index = p->n_index;
  a.n_batch = p->n_batch;
  a.n = p->n;
  a.n_dst = p->n_dst;
  a.fault = aci_cuda_of(f->device)->fault;
  memcpy(a.batch, p->batch, sizeof p->batch);
  int64_t number = 1;
  for (int k = p->n_index - 1; k >= 0; k--) {
    const ac_tensor *t =
        f->args[arg].kind == AC_T_TENSORS ? f->args[arg].tensors[p->arg[k]] : f->args[arg].tensor;
    a.ptr[k] = aci_data(t);
    a.dt[k] = t->dtype;
    a.bound[k] = p->rank_0 ? 1 : shape[p->dim[k]];
    a.weight[k] = stride != NULL && !p->rank_0 ? stride[p->dim[k]] : 0;
    a.number[k] = number;
    number *= a.bound[k];
    const int lead = p->n_batch - t->ndim;
    for (int d = 0; d < t->ndim; d++) a.stride[k][lead + d] = t->shape[d] == 1 ? 0 : t->stride[d];
  }
  AC_TRY(ac_block_alloc(f->device, (size_t)p->n * 8, AC_MEM_ACTIVATION, f->stream, &w->offsets, e));
  a.offset = (int64_t *)w->offsets->ptr;
  w->m.offset = a.offset;
  if (sorted) AC_TRY(aci_order_open(f, 1, p->n, aci_order_bits(p->n_dst + 1), &w->m.order, e));
  a.order = w->m.order;
  AC_TRY(aci_launch(f, "positions", find_positions, aci_blocks(f->device, p->n), e, a));
  return sorted ? aci_order_sort(f, &w->m.order, e) : AC_OK;
}

static ac_status move(ac_frame *f, move_args a, how h, ac_dtype dt, ac_err *e) {
  const int64_t n = a.n_outer * a.n * a.n_inner;
  if (n == 0) return AC_OK;
  a.dt = dt;
  const unsigned blocks = aci_blocks(f->device, n);
  if (h == ADD)
    return dt == AC_F64 ? aci_launch(f, "positions (add)", add_positions<double>, blocks, e, a)
           : ac_dtype_is_float(dt)
               ? aci_launch(f, "positions (add)", add_positions<float>, blocks, e, a)
               : aci_launch(f, "positions (add)", add_positions<int64_t>, blocks, e, a);
  switch (aci_dsize(dt)) {
    case 1:
      return aci_launch(f, "positions",
                        h == TAKE ? take_positions<uint8_t> : put_positions<uint8_t>, blocks, e, a);
    case 2:
      return aci_launch(f, "positions",
                        h == TAKE ? take_positions<uint16_t> : put_positions<uint16_t>, blocks, e,
                        a);
    case 4:
      return aci_launch(f, "positions",
                        h == TAKE ? take_positions<uint32_t> : put_positions<uint32_t>, blocks, e,
                        a);
    default:
      return aci_launch(f, "positions",
                        h == TAKE ? take_positions<uint64_t> : put_positions<uint64_t>, blocks, e,
                        a);
  }
}

/* Values that broadcast to outer, batch and inner dims in a row. skip: one of their dims, of extent
 * 1, that is left out. -1: none. */
static void spread(move_args *m, const ac_tensor *v, int skip) {
  const int n = m->outer.n + m->batch.n + m->inner.n, lead = n - v->ndim + (skip >= 0);
  for (int d = 0; d < n; d++) {
    const int own = d - lead + (skip >= 0 && d - lead >= skip);
    const int64_t s = own < 0 || v->shape[own] == 1 ? 0 : v->stride[own];
    if (d < m->outer.n) m->outer.v[d] = s;
    else if (d < m->outer.n + m->batch.n) m->batch.v[d - m->outer.n] = s;
    else m->inner.v[d - m->outer.n - m->batch.n] = s;
  }
  m->v = (const char *)aci_data(v);
}
/* y := x, then v (NULL: a number) at the positions. */
static ac_status write(ac_frame *f, int arg, int dims_arg, const ac_tensor *v, int skip,
                       const ac_scalar *number, bool add, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  found w;
  ac_status st = find(f, arg, dims_arg, y->ndim, y->shape, y->stride, v != NULL || add, &w, e);
  if (st == AC_OK && !f->inplace) st = aci_cuda_copy_tensor(f, y, x, e);
  if (st == AC_OK) {
    w.m.x = (char *)aci_data(y);
    if (v != NULL) spread(&w.m, v, skip);
    else aci_scalar_bytes(*number, (ac_dtype)y->dtype, &w.m.number);
    st = move(f, w.m, add ? ADD : PUT, (ac_dtype)y->dtype, e);
  }
  release(&w);
  return st;
}

static ac_status index(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  found w;
  ac_status st = find(f, 1, 2, x->ndim, x->shape, x->stride, false, &w, e);
  if (st == AC_OK) {
    w.m.x = (char *)aci_data(x);
    w.m.v = (const char *)aci_data(f->out[0]);
    st = move(f, w.m, TAKE, (ac_dtype)x->dtype, e);
  }
  release(&w);
  return st;
}
static ac_status index_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dy = f->args[0].tensor, *dx = f->out[0];
  found w;
  if (dx->numel == 0) return AC_OK;
  ac_status st = find(f, 1, 2, dx->ndim, dx->shape, dx->stride, true, &w, e);
  if (st == AC_OK)
    st = f->device->vt->fill(f->device, f->stream, aci_data(dx), 0,
                             (size_t)dx->numel * aci_dsize((ac_dtype)dx->dtype), e);
  if (st == AC_OK) {
    w.m.x = (char *)aci_data(dx);
    spread(&w.m, dy, -1);
    st = move(f, w.m, ADD, (ac_dtype)dx->dtype, e);
  }
  release(&w);
  return st;
}
static ac_status index_put(ac_frame *f, ac_err *e) {
  const ac_value *v = &f->args[2];
  return write(f, 1, 4, v->kind == AC_T_TENSOR ? v->tensor : NULL, -1, &v->scalar, f->args[3].b, e);
}
static ac_status index_fill(ac_frame *f, ac_err *e) {
  ac_scalar value = f->args[3].scalar;
  if (f->args[3].kind == AC_T_TENSOR) AC_TRY(ac_tensor_item(f->args[3].tensor, 0, &value, e));
  return write(f, 2, 1, NULL, -1, &value, false, e);
}
static ac_status index_copy(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *index = f->args[2].tensor;
  const int d = (int)(f->args[1].i < 0 ? f->args[1].i + x->ndim : f->args[1].i);
  return write(f, 2, 1, f->args[3].tensor, index->ndim == 0 ? d : -1, NULL, false, e);
}
static ac_status index_last(ac_frame *f, ac_err *e) {
  const ac_value *extents = &f->args[1];
  found w;
  ac_status st = find(f, 0, -1, extents->n, extents->ints, NULL, true, &w, e);
  if (st == AC_OK && w.m.n > 0)
    st = aci_launch(f, "positions (last)", mark_last, aci_blocks(f->device, w.m.n), e, w.m.order,
                    (uint8_t *)aci_data(f->out[0]));
  release(&w);
  return st;
}
AC_KERNEL(cuda, index, index)
AC_KERNEL(cuda, index_backward, index_backward)
AC_KERNEL(cuda, index_put, index_put)
AC_KERNEL(cuda, index_fill, index_fill)
AC_KERNEL(cuda, index_copy, index_copy)
AC_KERNEL(cuda, index_last, index_last)
