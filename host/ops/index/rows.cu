/* Whole rows by their numbers on CUDA: embedding, index_select, their backwards, and index_add.
 *
 * Adding rows: ids are sorted with their positions (order.cuh), so that equal ids are adjacent in
 * their original order. Then one thread a column walks each run. Additions follow the order of the
 * ids, independent of the scheduler. */
#include "ops/index/range.cuh"
#include "ops/index/order.cuh"

namespace {
struct take_args {
  const void *ids, *x;
  void *y;
  ac_dtype ids_dt;
  int ids_ndim; /* 0: contiguous */
  int64_t ids_shape[AC_MAX_DIMS], ids_stride[AC_MAX_DIMS];
  int64_t outer, n, n_src, row; /* y[o, j, :] = x[o, ids[j], :] */
  int *fault;
};
} // namespace
ACI_DEVICE int64_t id_at(const take_args &a, int64_t j) {
  return aci_get<int64_t>(
      a.ids_dt, a.ids,
      a.ids_ndim == 0 ? j : aci_element_offset(j, a.ids_ndim, a.ids_shape, a.ids_stride));
}

template <class S>
static __global__ void __launch_bounds__(ACI_BLOCK) take_rows(const __grid_constant__ take_args a) {
  const int64_t all = a.outer * a.n * a.row;
  for (int64_t i = aci_first(); i < all; i += aci_step()) {
    const int64_t c = i % a.row, j = i / a.row % a.n, o = i / a.row / a.n, id = id_at(a, j);
    const bool ok = (uint64_t)id < (uint64_t)a.n_src;
    if (!ok) *a.fault = ACI_FAULT_INDEX;
    ((S *)a.y)[i] = ok ? ((const S *)a.x)[(o * a.n_src + id) * a.row + c] : (S)0;
  }
}

static take_args args_of(const ac_frame *f, const ac_tensor *ids) {
  take_args a = {};
  a.ids = aci_data(ids);
  a.ids_dt = (ac_dtype)ids->dtype;
  a.n = ids->numel;
  if (!aci_is_contiguous(ids)) {
    a.ids_ndim = ids->ndim;
    memcpy(a.ids_shape, ids->shape, 8 * (size_t)ids->ndim);
    memcpy(a.ids_stride, ids->stride, 8 * (size_t)ids->ndim);
  }
  a.fault = aci_cuda_of(f->device)->fault;
  return a;
}

static ac_status take(ac_frame *f, const ac_tensor *x, take_args a, ac_err *e) {
  ac_block *block;
  if (a.outer * a.n * a.row == 0) return AC_OK;
  a.y = aci_data(f->out[0]);
  ac_status st = aci_cuda_in_a_run(f, x, &a.x, &block, e);
  const unsigned blocks = aci_blocks(f->device, a.outer * a.n * a.row);
  if (st == AC_OK) switch (aci_dsize((ac_dtype)x->dtype)) {
      case 1: st = aci_launch(f, "rows", take_rows<uint8_t>, blocks, e, a); break;
      case 2: st = aci_launch(f, "rows", take_rows<uint16_t>, blocks, e, a); break;
      case 4: st = aci_launch(f, "rows", take_rows<uint32_t>, blocks, e, a); break;
      default: st = aci_launch(f, "rows", take_rows<uint64_t>, blocks, e, a); break;
    }
  ac_block_free(block);
  return st;
}

/* ---- adding ---- */
namespace {
struct add_args {
  aci_order o; /* keys: ids, n_dst if out of range or skipped */
  int64_t outer, n_dst, row;
  const void *src;
  void *out; /* holds the base already */
  ac_dtype dt;
  double scale;
};
} // namespace

static __global__ void __launch_bounds__(ACI_BLOCK)
    make_keys(const __grid_constant__ take_args a, int64_t n_dst, int64_t skip, aci_order o) {
  for (int64_t j = aci_first(); j < a.n; j += aci_step()) {
    const int64_t id = id_at(a, j);
    const bool ok = (uint64_t)id < (uint64_t)n_dst;
    if (!ok) *a.fault = ACI_FAULT_INDEX;
    aci_order_put_key(o, j, (uint64_t)(ok && id != skip ? id : n_dst));
  }
}
/* C: the type of sums. Rounded once, after the base is added. */
template <class C>
static __global__ void __launch_bounds__(ACI_BLOCK) add_rows(const __grid_constant__ add_args a) {
  const int64_t n = a.o.n, all = a.outer * n * a.row;
  for (int64_t i = aci_first(); i < all; i += aci_step()) {
    const int64_t c = i % a.row, k = i / a.row % n, o = i / a.row / n;
    const uint64_t key = aci_order_key_at(a.o, k);
    if (key >= (uint64_t)a.n_dst || !aci_order_begins(a.o, k, k)) continue;
    C sum = 0;
    for (int64_t at = k; at < n && aci_order_key_at(a.o, at) == key; at++)
      sum += aci_get<C>(a.dt, a.src, (o * n + a.o.at[at]) * a.row + c);
    const int64_t to = (o * a.n_dst + (int64_t)key) * a.row + c;
    aci_put(a.dt, a.out, to, aci_get<C>(a.dt, a.out, to) + (C)a.scale * sum);
  }
}

/* out[o, ids[j], :] += scale * src[o, j, :]. out is contiguous and holds the base. */
static ac_status add(ac_frame *f, take_args ids, const ac_tensor *src, int64_t outer, int64_t n_dst,
                     int64_t row, double scale, int64_t skip, ac_err *e) {
  add_args a = {};
  ac_block *run = NULL;
  if (ids.n == 0 || outer * row == 0 || n_dst == 0) return AC_OK;
  AC_TRY(aci_order_open(f, 1, ids.n, aci_order_bits(n_dst + 1), &a.o, e));
  ac_status st = aci_launch(f, "rows (keys)", make_keys, aci_blocks(f->device, ids.n), e, ids,
                            n_dst, skip, a.o);
  if (st == AC_OK) st = aci_order_sort(f, &a.o, e);
  a.outer = outer;
  a.n_dst = n_dst;
  a.row = row;
  a.out = aci_data(f->out[0]);
  a.dt = (ac_dtype)f->out[0]->dtype;
  a.scale = scale;
  if (st == AC_OK) st = aci_cuda_in_a_run(f, src, &a.src, &run, e);
  if (st == AC_OK) {
    const unsigned blocks = aci_blocks(f->device, outer * ids.n * row);
    st = a.dt == AC_F64            ? aci_launch(f, "rows (add)", add_rows<double>, blocks, e, a)
         : ac_dtype_is_float(a.dt) ? aci_launch(f, "rows (add)", add_rows<float>, blocks, e, a)
                                   : aci_launch(f, "rows (add)", add_rows<int64_t>, blocks, e, a);
  }
  ac_block_free(run);
  aci_order_close(&a.o);
  return st;
}

static ac_status zero(ac_frame *f, ac_err *e) {
  const ac_tensor *t = f->out[0];
  return f->device->vt->fill(f->device, f->stream, aci_data(t), 0,
                             (size_t)t->numel * aci_dsize((ac_dtype)t->dtype), e);
}

/* ---- the ops ---- */
static void cut(const ac_tensor *x, int64_t dim, int64_t *outer, int64_t *n, int64_t *row) {
  const int d = (int)(dim < 0 ? dim + (x->ndim > 0 ? x->ndim : 1) : dim);
  *outer = *n = *row = 1;
  for (int i = 0; i < x->ndim; i++) *(i < d ? outer : i == d ? n : row) *= x->shape[i];
}

static ac_status embedding(ac_frame *f, ac_err *e) {
  const ac_tensor *w = f->args[1].tensor;
  take_args a = args_of(f, f->args[0].tensor);
  a.outer = 1;
  a.n_src = w->shape[0];
  a.row = w->shape[1];
  return take(f, w, a, e);
}
static ac_status embedding_backward(ac_frame *f, ac_err *e) {
  const int64_t rows = f->out[0]->shape[0], row = f->out[0]->shape[1];
  const int64_t pad = f->args[3].kind == AC_T_NONE ? -1
                      : f->args[3].i < 0           ? f->args[3].i + rows
                                                   : f->args[3].i;
  AC_TRY(zero(f, e));
  return add(f, args_of(f, f->args[1].tensor), f->args[0].tensor, 1, rows, row, 1, pad, e);
}
static ac_status index_select(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  take_args a = args_of(f, f->args[2].tensor);
  cut(x, f->args[1].i, &a.outer, &a.n_src, &a.row);
  return take(f, x, a, e);
}
static ac_status index_select_backward(ac_frame *f, ac_err *e) {
  int64_t outer, n, row;
  cut(f->out[0], f->args[1].i, &outer, &n, &row);
  AC_TRY(zero(f, e));
  return add(f, args_of(f, f->args[2].tensor), f->args[0].tensor, outer, n, row, 1, -1, e);
}
static ac_status index_add(ac_frame *f, ac_err *e) {
  int64_t outer, n, row;
  const ac_scalar alpha = f->args[4].scalar;
  cut(f->out[0], f->args[1].i, &outer, &n, &row);
  AC_TRY(aci_cuda_copy_tensor(f, f->out[0], f->args[0].tensor, e));
  return add(f, args_of(f, f->args[2].tensor), f->args[3].tensor, outer, n, row,
             alpha.kind == AC_SCALAR_FLOAT ? alpha.f : (double)alpha.i, -1, e);
}
AC_KERNEL(cuda, embedding, embedding)
AC_KERNEL(cuda, embedding_backward, embedding_backward)
AC_KERNEL(cuda, index_select, index_select)
AC_KERNEL(cuda, index_select_backward, index_select_backward)
AC_KERNEL(cuda, index_add, index_add)
