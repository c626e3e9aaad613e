/* Helpers of the view and join ops - shapes, copies of ranges, contiguous elements, pieces along a
 * dim: see index.h. */
#include "ops/index/index.h"

#include "ops/core/ctx_impl.h"

ac_status aci_infer_shape(const ac_tensor *x, const int64_t *want, int n, int64_t *shape,
                          ac_err *e) {
  char a[128], b[128];
  int open = -1;
  int64_t known = 1;
  bool ok = n <= AC_MAX_DIMS;
  for (int d = 0; ok && d < n; d++) {
    shape[d] = want[d];
    if (want[d] == -1) {
      if (open >= 0)
        return AC_FAIL(e, SHAPE, "only one extent may be -1, got %s",
                       aci_shape_str(n, want, b, sizeof b));
      open = d;
    } else {
      ok = want[d] >= 0 && !__builtin_mul_overflow(known, want[d], &known);
    }
  }
  if (ok && open >= 0) {
    if (known == 0 && x->numel == 0)
      return AC_FAIL(e, SHAPE, "the extent -1 in %s could be anything: the tensor has no elements",
                     aci_shape_str(n, want, b, sizeof b));
    ok = known > 0 && x->numel % known == 0;
    if (ok) shape[open] = x->numel / known;
  } else if (ok) {
    ok = known == x->numel;
  }
  if (!ok)
    return AC_FAIL(e, SHAPE, "a tensor of shape %s (%lld elements) cannot take the shape %s",
                   aci_shape_str(x->ndim, x->shape, a, sizeof a), (long long)x->numel,
                   aci_shape_str(n, want, b, sizeof b));
  return AC_OK;
}

/* ---- ranges ---- */
enum { GRAIN = 32768, ROW = 512 }; /* elements of a task. Elements converted at a time */

typedef struct range_job {
  int ndim;
  int64_t shape[AC_MAX_DIMS];
  aci_range dst, src;
  bool zero;
} range_job;

/* n elements along the last dim: zeros, a copy, or a conversion through the compute type that holds
 * both dtypes' values (i64 for two integers, f32 for two floats below f64, else f64). */
static void range_row(const range_job *j, char *dst, const char *src, int64_t n) {
  const int last = j->ndim - 1;
  const int64_t ds = j->dst.stride[last], ss = j->zero ? 0 : j->src.stride[last];
  const ac_dtype dt = j->dst.dtype;
  const size_t es = aci_dsize(dt);
  _Alignas(64) char buf[ROW * 8];
  if (j->zero) {
    if (ds == 1) {
      memset(dst, 0, (size_t)n * es);
    } else {
      for (int64_t i = 0; i < n; i++) memset(dst + i * ds * (int64_t)es, 0, es);
    }
    return;
  }
  if (dt == j->src.dtype) {
    if (ds == 1 && ss == 1) {
      memcpy(dst, src, (size_t)n * es);
      return;
    }
#define MOVE(T)                   \
  for (int64_t i = 0; i < n; i++) \
  ((T *)(void *)dst)[i * ds] = ((const T *)(const void *)src)[i * ss]
    switch (es) {
      case 1: MOVE(uint8_t); return;
      case 2: MOVE(uint16_t); return;
      case 4: MOVE(uint32_t); return;
      default: MOVE(uint64_t); return;
    }
#undef MOVE
  }
  aci_ctype c = dt == AC_F64 || j->src.dtype == AC_F64                     ? ACI_C_F64
                : ac_dtype_is_float(dt) && ac_dtype_is_float(j->src.dtype) ? ACI_C_F32
                : ac_dtype_is_float(dt) || ac_dtype_is_float(j->src.dtype) ? ACI_C_F64
                                                                           : ACI_C_I64;
  const ac_dtype wide = c == ACI_C_F32 ? AC_F32 : c == ACI_C_F64 ? AC_F64 : AC_I64;
  if (j->src.dtype == wide && ss == 1) { /* one of the two steps does it */
    aci_store(c, src, dt, dst, ds, n);
    return;
  }
  if (dt == wide && ds == 1) {
    aci_load(c, dst, j->src.dtype, src, ss, n);
    return;
  }
  for (int64_t b = 0; b < n; b += ROW) {
    int64_t m = n - b < ROW ? n - b : ROW;
    aci_load(c, buf, j->src.dtype, src + b * ss * (int64_t)aci_dsize(j->src.dtype), ss, m);
    aci_store(c, buf, dt, dst + b * ds * (int64_t)es, ds, m);
  }
}

static void range_rows(void *arg, int64_t begin, int64_t end) {
  const range_job *j = arg;
  const int last = j->ndim - 1;
  const int64_t de = (int64_t)aci_dsize(j->dst.dtype),
                se = j->zero ? 0 : (int64_t)aci_dsize(j->src.dtype);
  int64_t idx[AC_MAX_DIMS], r = begin;
  for (int d = last; d >= 0; d--) {
    idx[d] = r % j->shape[d];
    r /= j->shape[d];
  }
  while (begin < end) {
    int64_t n = j->shape[last] - idx[last] < end - begin ? j->shape[last] - idx[last] : end - begin,
            di = 0, si = 0;
    for (int d = 0; d <= last; d++) {
      di += idx[d] * j->dst.stride[d];
      if (!j->zero) si += idx[d] * j->src.stride[d];
    }
    range_row(j, (char *)j->dst.ptr + di * de, j->zero ? NULL : (const char *)j->src.ptr + si * se,
              n);
    begin += n;
    idx[last] += n;
    for (int d = last; d > 0 && idx[d] == j->shape[d]; d--) {
      idx[d] = 0;
      idx[d - 1]++;
    }
  }
}

void aci_range_copy_cpu(ac_team *team, int ndim, const int64_t *shape, const aci_range *dst,
                        const aci_range *src) {
  range_job j = {.dst = *dst, .zero = src == NULL};
  int w = -1;
  int64_t numel = 1;
  if (src != NULL) j.src = *src;
  for (int d = 0; d < ndim; d++) numel *= shape[d];
  if (numel == 0) return;
  for (int d = 0; d < ndim; d++) { /* drop extents of 1, join dims that both sides walk as one */
    if (shape[d] == 1) continue;
    int64_t ds = dst->stride[d], ss = src != NULL ? src->stride[d] : 0;
    if (w >= 0 && j.dst.stride[w] == ds * shape[d] && (j.zero || j.src.stride[w] == ss * shape[d]))
      j.shape[w] *= shape[d];
    else j.shape[++w] = shape[d];
    j.dst.stride[w] = ds;
    j.src.stride[w] = ss;
  }
  if (w < 0) {
    w = 0;
    j.shape[0] = 1;
    j.dst.stride[0] = j.src.stride[0] = 1;
  }
  j.ndim = w + 1;
  if (numel <= GRAIN) range_rows(&j, 0, numel);
  else ac_parallel_for(team, numel, GRAIN, range_rows, &j);
}

ac_status aci_range_copy(ac_frame *f, int ndim, const int64_t *shape, const aci_range *dst,
                         const aci_range *src, ac_err *e) {
  const aci_drivers *d = f->ctx->drivers[f->device->kind];
  if (d != NULL) return d->copy_range(f, ndim, shape, dst, src, e);
  aci_range_copy_cpu(f->team, ndim, shape, dst, src);
  return AC_OK;
}

void aci_copy_into(ac_team *team, ac_tensor *y, const ac_tensor *x) {
  aci_range dst = {.ptr = aci_data(y), .dtype = (ac_dtype)y->dtype},
            src = {.ptr = aci_data(x), .dtype = (ac_dtype)x->dtype};
  memcpy(dst.stride, y->stride, (size_t)y->ndim * 8);
  memcpy(src.stride, x->stride, (size_t)x->ndim * 8);
  aci_range_copy_cpu(team, y->ndim, y->shape, &dst, &src);
}

/* ---- runs of elements ---- */
typedef void (*run_fn)(const ac_tensor *t, aci_ctype c, char *position, int64_t stride, int64_t n,
                       char *row);

static void run_load(const ac_tensor *t, aci_ctype c, char *position, int64_t stride, int64_t n,
                     char *row) {
  aci_load(c, row, (ac_dtype)t->dtype, position, stride, n);
}
static void run_store(const ac_tensor *t, aci_ctype c, char *position, int64_t stride, int64_t n,
                      char *row) {
  aci_store(c, row, (ac_dtype)t->dtype, position, stride, n);
}

static void runs(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, char *row, run_fn fn) {
  const int64_t es = (int64_t)aci_dsize((ac_dtype)t->dtype), cs = (int64_t)aci_ctype_bytes(c);
  char *data = aci_data(t);
  if (t->ndim == 0 || aci_is_contiguous(t)) {
    fn(t, c, data + begin * es, 1, n, row);
    return;
  }
  const int last = t->ndim - 1;
  int64_t idx[AC_MAX_DIMS], r = begin;
  for (int d = last; d >= 0; d--) {
    idx[d] = r % t->shape[d];
    r /= t->shape[d];
  }
  while (n > 0) {
    int64_t m = t->shape[last] - idx[last] < n ? t->shape[last] - idx[last] : n, off = 0;
    for (int d = 0; d <= last; d++) off += idx[d] * t->stride[d];
    fn(t, c, data + off * es, t->stride[last], m, row);
    row += m * cs;
    n -= m;
    idx[last] += m;
    for (int d = last; d > 0 && idx[d] == t->shape[d]; d--) {
      idx[d] = 0;
      idx[d - 1]++;
    }
  }
}

void aci_elems_load(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, void *dst) {
  runs(t, c, begin, n, dst, run_load);
}
void aci_elems_store(const ac_tensor *t, aci_ctype c, int64_t begin, int64_t n, const void *src) {
  runs(t, c, begin, n, (char *)(uintptr_t)src, run_store);
}

ac_status aci_contiguous_data(ac_frame *f, const ac_tensor *t, const void **data, ac_block **block,
                              ac_err *e) {
  *block = NULL;
  *data = aci_data(t);
  if (aci_is_contiguous(t) || t->numel == 0) return AC_OK;
  AC_TRY(ac_block_alloc(f->device, (size_t)t->numel * aci_dsize((ac_dtype)t->dtype),
                        AC_MEM_ACTIVATION, f->stream, block, e));
  aci_range dst = {.ptr = ac_block_ptr(*block), .dtype = (ac_dtype)t->dtype},
            src = {.ptr = aci_data(t), .dtype = (ac_dtype)t->dtype};
  aci_contiguous_strides(t->ndim, t->shape, dst.stride);
  memcpy(src.stride, t->stride, (size_t)t->ndim * 8);
  const ac_status st = aci_range_copy(f, t->ndim, t->shape, &dst, &src, e);
  if (st != AC_OK) {
    ac_block_free(*block);
    *block = NULL;
    return st;
  }
  *data = dst.ptr;
  return AC_OK;
}

/* ---- pieces along a dim ---- */
ac_status aci_split_views(ac_frame *f, int dim, int n, const int64_t *size, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  int64_t shape[AC_MAX_DIMS], at = 0;
  if (n > AC_MAX_RESULTS)
    return AC_FAIL(e, INVALID, "%d pieces; an op has at most %d results (use narrow)", n,
                   AC_MAX_RESULTS);
  memcpy(shape, x->shape, (size_t)x->ndim * 8);
  for (int i = 0; i < n; i++) {
    shape[dim] = size[i];
    AC_TRY(ac_frame_view(f, 0, x->ndim, shape, x->stride, x->offset + at * x->stride[dim], e));
    at += size[i];
  }
  return AC_OK;
}

void aci_split_grad(ac_grad *g, int dim, int n, const int64_t *size) {
  ac_tensor *dy[AC_MAX_RESULTS];
  int64_t start[AC_MAX_RESULTS], at = 0;
  int m = 0;
  for (int i = 0; i < n; i++) {
    if (g->dout[i] != NULL) {
      dy[m] = g->dout[i];
      start[m++] = at;
    }
    at += size[i];
  }
  if (m == 0) return;
  ac_grad_set(
      g, 0,
      x_slice_backward(&g->x, dy, m, ac_grad_shape(g, 0, 0), ac_grad_ndim(g, 0, 0), dim, start, m));
}
