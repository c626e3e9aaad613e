/* Rows and elements by their numbers. Numbers are fetched and looked at before anything is queued, so that one out of range is told by the
 * op that has it; sums go in the order of the numbers, so that results are the same every time. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

/* Argument arg in row-major order as i64 of the host, malloc'ed, each in [0, bound). */
static ac_status numbers(ac_frame *f, int arg, int64_t bound, const char *what, int64_t **out, ac_err *e) {
  const ac_tensor *t = f->args[arg].tensor;
  const int64_t n = ac_tensor_numel(t), size = ocl_size(t);
  const void *data;
  ac_block *block;
  *out = NULL;
  AC_TRY(ocl_contiguous(f, t, &data, &block, e));
  int64_t *v = malloc((size_t)n * 8 + 8);
  ac_status st = v == NULL ? AC_FAIL(e, OOM, "no memory for %lld indices", (long long)n) : AC_OK;
  if (st == AC_OK && n > 0) st = ocl_fetch(f, v, data, (size_t)(n * size), e);
  ac_block_free(block);
  for (int64_t i = n - 1; st == AC_OK && size == 4 && i >= 0; i--) {
    int32_t small;
    memcpy(&small, (char *)v + i * 4, 4);
    v[i] = small;
  }
  for (int64_t i = 0; st == AC_OK && i < n; i++)
    if (v[i] < 0 || v[i] >= bound)
      st = AC_FAIL(e, INDEX, "index %lld (element %lld) is out of range: there are %lld %s", (long long)v[i],
                   (long long)ac_frame_show(f, i), (long long)bound, what);
  if (st != AC_OK) free(v);
  else *out = v;
  return st;
}

/* Indices on the device as i64. */
static ac_status sent(ac_frame *f, const int64_t *v, int64_t n, ac_block **block, ac_err *e) {
  AC_TRY(ocl_scratch(f, (size_t)n * 8 + 8, block, e));
  const ac_status st = ocl_upload(f, ac_block_ptr(*block), v, (size_t)n * 8, e);
  if (st != AC_OK) {
    ac_block_free(*block);
    *block = NULL;
  }
  return st;
}

/* ---- rows: x as (outer, n, inner) ---- */
typedef struct rows {
  int64_t outer, n, inner, m; /* m: numbers */
} rows;

static ac_status take(ac_frame *f, const ac_tensor *x, int ids_arg, const rows *r, const char *what, ac_err *e) {
  const void *data;
  ac_block *b1 = NULL, *b2 = NULL;
  int64_t *ids;
  ocl_call c;
  const char *type;
  AC_TRY(ocl_type(f, ac_tensor_dtype(x), &type, e));
  AC_TRY(numbers(f, ids_arg, r->n, what, &ids, e));
  ac_status st = ac_tensor_numel(f->out[0]) == 0 ? AC_OK : ocl_contiguous(f, x, &data, &b1, e);
  if (st == AC_OK && ac_tensor_numel(f->out[0]) > 0) st = sent(f, ids, r->m, &b2, e);
  if (st == AC_OK && b2 != NULL) {
    ocl_begin(&c, f, ocl_index_cl, "rows_take");
    ocl_define(&c, "#define X %s\n#define T %s\n", ac_dtype_name(ac_tensor_dtype(x)), type);
    ocl_value(&c, r, sizeof *r);
    ocl_memory(&c, data);
    ocl_memory(&c, ac_block_ptr(b2));
    ocl_memory(&c, ac_tensor_data(f->out[0]));
    st = ocl_run(&c, r->outer * r->m * r->inner, OCL_GROUP, e);
  }
  free(ids);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

/* out[o, i, :] := base + scale (sum of src[o, j, :] over the j whose number is i, in their order); base NULL: 0. skip: a number that is
 * left out, -1. */
static ac_status add(ac_frame *f, const ac_tensor *src, int ids_arg, const rows *r, const void *base, double scale, int64_t skip,
                     const char *what, ac_err *e) {
  const ac_tensor *out = f->out[0];
  const void *data;
  ac_block *b1 = NULL, *b2 = NULL;
  const char *type;
  int64_t *ids;
  ocl_call c;
  AC_TRY(ocl_type(f, ac_tensor_dtype(out), &type, e));
  AC_TRY(numbers(f, ids_arg, r->n, what, &ids, e));
  /* the j of each number: where they begin, then all of them */
  int64_t *list = calloc((size_t)(r->n + 1 + r->m), 8);
  ac_status st = list == NULL ? AC_FAIL(e, OOM, "no memory to order %lld indices", (long long)r->m) : AC_OK;
  if (st == AC_OK && ac_tensor_numel(out) > 0) {
    int64_t *order = list + r->n + 1; /* list[i]: where i's begins in order, list[n]: how many there are */
    for (int64_t j = 0; j < r->m; j++)
      if (ids[j] != skip) list[ids[j]]++;
    for (int64_t i = 0, at = 0; i <= r->n; i++) {
      at += list[i];
      list[i] = at; /* the end of i's, until they are put there from the last one on */
    }
    for (int64_t j = r->m - 1; j >= 0; j--)
      if (ids[j] != skip) order[--list[ids[j]]] = j;
    st = ocl_contiguous(f, src, &data, &b1, e);
    if (st == AC_OK) st = sent(f, list, r->n + 1 + r->m, &b2, e);
  }
  if (st == AC_OK && b2 != NULL) {
    ocl_begin(&c, f, ocl_index_cl, "rows_add");
    ocl_define(&c, "#define X %s\n#define T %s\n%s", ac_dtype_name(ac_tensor_dtype(out)), type, base != NULL ? "#define BASE\n" : "");
    ocl_value(&c, r, sizeof *r);
    ocl_wide(&c, scale);
    ocl_memory(&c, data);
    ocl_memory(&c, ac_block_ptr(b2));
    ocl_memory(&c, base);
    ocl_memory(&c, ac_tensor_data(out));
    st = ocl_run(&c, r->outer * r->n * r->inner, OCL_GROUP, e);
  }
  free(list);
  free(ids);
  ac_block_free(b2);
  ac_block_free(b1);
  return st;
}

static ac_status embedding(ac_frame *f, ac_err *e) {
  const ac_tensor *w = f->args[1].tensor;
  const rows r = {1, ac_tensor_shape(w)[0], ac_tensor_shape(w)[1], ac_tensor_numel(f->args[0].tensor)};
  return take(f, w, 0, &r, "rows in weight", e);
}
static ac_status embedding_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dw = f->out[0];
  const rows r = {1, ac_tensor_shape(dw)[0], ac_tensor_shape(dw)[1], ac_tensor_numel(f->args[1].tensor)};
  const ac_value *pad = &f->args[3];
  return add(f, f->args[0].tensor, 1, &r, NULL, 1, pad->kind == AC_T_NONE ? -1 : pad->i < 0 ? pad->i + r.n : pad->i, "rows in weight", e);
}

static rows rows_along(const ac_tensor *x, int dim, const ac_tensor *ids) {
  rows r = {.m = ac_tensor_numel(ids)};
  ocl_around(ac_tensor_ndim(x), ac_tensor_shape(x), dim, &r.outer, &r.n, &r.inner);
  return r;
}
static ac_status index_select(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  const rows r = rows_along(x, ocl_dim(f->args[1].i, ac_tensor_ndim(x)), f->args[2].tensor);
  return take(f, x, 2, &r, "positions", e);
}
static ac_status index_select_backward(ac_frame *f, ac_err *e) {
  const rows r = rows_along(f->out[0], (int)f->args[1].i, f->args[2].tensor);
  return add(f, f->args[0].tensor, 2, &r, NULL, 1, -1, "positions", e);
}

/* ---- elements along a dim ---- */
typedef struct lines { /* struct lines of index.cl: dims of the index, without `dim` for the lines */
  int64_t n, ndim, m; /* work-items, dims, extent along dim */
  int64_t shape[OCL_DIMS], index_stride[OCL_DIMS], x_stride[OCL_DIMS], src_stride[OCL_DIMS];
  int64_t index_step, x_step, src_step;
} lines;

static ac_status lines_make(lines *l, const ac_tensor *index, const ac_tensor *x, const ac_tensor *src, int dim, bool whole, ac_err *e) {
  memset(l, 0, sizeof *l);
  l->n = l->m = 1;
  for (int d = 0; d < ac_tensor_ndim(index); d++) {
    const int64_t extent = ac_tensor_shape(index)[d], is = ac_tensor_stride(index)[d], xs = ac_tensor_stride(x)[d],
                  ss = src != NULL ? ac_tensor_stride(src)[d] : 0;
    if (d == dim) {
      l->m = extent;
      l->index_step = is, l->x_step = xs, l->src_step = ss;
      if (!whole) continue;
    }
    l->n *= extent;
    if (extent == 1 && d != dim) continue;
    if (l->ndim == OCL_DIMS) return AC_FAIL(e, UNSUPPORTED, "OpenCL devices gather along tensors of at most %d dims", OCL_DIMS);
    l->shape[l->ndim] = extent;
    l->index_stride[l->ndim] = is;
    l->x_stride[l->ndim] = d == dim ? 0 : xs; /* the index says where */
    l->src_stride[l->ndim++] = ss;
  }
  return AC_OK;
}

/* x: what the index points into. src: what lies beside the index. */
static ac_status along(ac_frame *f, const char *kernel, const ac_tensor *x, int dim, int ids_arg, const ac_tensor *src, bool whole, ac_err *e) {
  const ac_tensor *index = f->args[ids_arg].tensor;
  const char *type, *unused;
  int64_t *ids;
  lines l;
  ocl_call c;
  AC_TRY(ocl_type(f, ac_tensor_dtype(x), &type, e));
  AC_TRY(ocl_type(f, ac_tensor_dtype(src), &unused, e));
  AC_TRY(lines_make(&l, index, x, src, dim, whole, e));
  AC_TRY(numbers(f, ids_arg, ac_tensor_ndim(x) > 0 ? ac_tensor_shape(x)[dim] : 1, "positions", &ids, e));
  free(ids);
  if (l.n == 0 || l.m == 0) return AC_OK;
  ocl_begin(&c, f, ocl_index_cl, kernel);
  ocl_define(&c, "#define X %s\n#define T %s\n#define I %s\n#define S %s\n", ac_dtype_name(ac_tensor_dtype(x)), type,
             ac_dtype_name(ac_tensor_dtype(index)), ac_dtype_name(ac_tensor_dtype(src)));
  ocl_value(&c, &l, sizeof l);
  ocl_memory(&c, ac_tensor_data(x));
  ocl_memory(&c, ac_tensor_data(index));
  ocl_memory(&c, ac_tensor_data(src));
  return ocl_run(&c, l.n, OCL_GROUP, e);
}

static ac_status gather(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor;
  return along(f, "gather", x, ocl_dim(f->args[1].i, ac_tensor_ndim(x)), 2, f->out[0], true, e);
}
static ac_status gather_backward(ac_frame *f, ac_err *e) {
  const ac_tensor *dx = f->out[0];
  const size_t bytes = (size_t)(ac_tensor_numel(dx) * ocl_size(dx));
  AC_TRY(ocl_vtable()->fill(f->device, f->stream, ac_tensor_data(dx), 0, bytes, e));
  return along(f, "scatter_add", dx, (int)f->args[1].i, 2, f->args[0].tensor, false, e);
}
static ac_status scatter_add(ac_frame *f, ac_err *e) {
  const ac_tensor *x = f->args[0].tensor, *y = f->out[0];
  const int dim = ocl_dim(f->args[1].i, ac_tensor_ndim(x));
  if (f->inplace) { /* nothing may be written when an index is bad */
    int64_t *ids;
    AC_TRY(numbers(f, 2, ac_tensor_ndim(x) > 0 ? ac_tensor_shape(x)[dim] : 1, "positions", &ids, e));
    free(ids);
  } else {
    AC_TRY(ocl_copy(f, ac_tensor_ndim(x), ac_tensor_shape(x), ac_tensor_data(y), ac_tensor_dtype(y), ac_tensor_stride(y), ac_tensor_data(x),
                    ac_tensor_dtype(x), ac_tensor_stride(x), e));
  }
  return along(f, "scatter_add", y, dim, 2, f->args[3].tensor, false, e);
}

const ac_device_kernel ocl_index_kernels[] = {
    {"embedding", embedding},
    {"embedding_backward", embedding_backward},
    {"index_select", index_select},
    {"index_select_backward", index_select_backward},
    {"gather", gather},
    {"gather_backward", gather_backward},
    {"scatter_add", scatter_add},
    {NULL, NULL},
};
