/* Distinct slices along a dim: every slice becomes a row of keys, the rows are merged into order by
 * their first difference, neighbours that are equal are one. Called by unique.c. */
#include "ops/index/unique.h"

typedef struct slices {
  aci_sort_keys k;
  int64_t n, width; /* slices, elements of each */
  const char *keys; /* (n, width) */
} slices;

/* -1, 0, 1. Elements of one column have one position, so that words compare as their keys do. */
static int compare(const slices *s, int64_t a, int64_t b) {
  if (s->k.wide) {
    const aci_wide_key *x = (const aci_wide_key *)(const void *)s->keys + a * s->width,
                       *y = x + (b - a) * s->width;
    for (int64_t i = 0; i < s->width; i++)
      if (x[i].key != y[i].key) return x[i].key < y[i].key ? -1 : 1;
  } else {
    const uint64_t *x = (const uint64_t *)(const void *)s->keys + a * s->width,
                   *y = x + (b - a) * s->width;
    for (int64_t i = 0; i < s->width; i++)
      if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  }
  return 0;
}

static void sort_slices(const slices *s, int64_t *order, int64_t *tmp) {
  int64_t *from = order, *to = tmp;
  for (int64_t i = 0; i < s->n; i++) order[i] = i;
  for (int64_t w = 1; w < s->n; w *= 2) {
    for (int64_t i = 0; i < s->n; i += 2 * w) {
      int64_t l = i, mid = i + w < s->n ? i + w : s->n, r = mid,
              end = i + 2 * w < s->n ? i + 2 * w : s->n;
      for (int64_t o = i; o < end; o++)
        to[o] = r == end || (l < mid && compare(s, from[l], from[r]) <= 0) ? from[l++] : from[r++];
    }
    int64_t *t = from;
    from = to;
    to = t;
  }
  if (from != order) memcpy(order, from, (size_t)s->n * sizeof *order);
}

/* A slice with a NaN equals nothing. */
static bool same(const slices *s, int64_t a, int64_t b) {
  if (compare(s, a, b) != 0) return false;
  for (int64_t i = 0; i < s->width && ac_dtype_is_float(s->k.dt); i++)
    if (aci_sort_keys_is_nan(&s->k, s->keys, a * s->width + i)) return false;
  return true;
}

static ac_status fill(ac_frame *f, const slices *s, const char *rows, int dim, int64_t *order,
                      int64_t *tmp, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  const int64_t es = (int64_t)aci_dsize(s->k.dt);
  int64_t shape[AC_MAX_DIMS], m = 0;
  sort_slices(s, order, tmp);
  for (int64_t i = 0; i < s->n; i++) m += i == 0 || !same(s, order[i - 1], order[i]);
  memcpy(shape, x->shape, (size_t)x->ndim * 8);
  shape[dim] = m;
  AC_TRY(aci_frame_size(f, 0, x->ndim, shape, e));
  AC_TRY(aci_frame_size(f, 1, 1, &s->n, e));
  AC_TRY(aci_frame_size(f, 2, 1, &m, e));
  int64_t *inverse = aci_data(f->out[1]), *counts = aci_data(f->out[2]);
  aci_range dst = {.dtype = s->k.dt}, src = {.dtype = s->k.dt};
  memcpy(dst.stride, f->out[0]->stride, (size_t)x->ndim * 8);
  shape[dim] = 1;
  aci_contiguous_strides(x->ndim, shape, src.stride);
  m = -1;
  for (int64_t i = 0; i < s->n; i++) {
    if (i == 0 || !same(s, order[i - 1], order[i])) {
      counts[++m] = 0;
      dst.ptr = (char *)aci_data(f->out[0]) + m * f->out[0]->stride[dim] * es;
      src.ptr = (char *)(uintptr_t)rows + order[i] * s->width * es;
      aci_range_copy_cpu(f->team, x->ndim, shape, &dst, &src);
    }
    counts[m]++;
    inverse[order[i]] = m;
  }
  return AC_OK;
}

ac_status aci_unique_slices(ac_frame *f, const ac_tensor *x, int dim, ac_err *e) {
  slices s = {.n = x->shape[dim], .width = 1};
  const int64_t es = (int64_t)aci_dsize((ac_dtype)x->dtype);
  ac_block *block;
  for (int d = 0; d < x->ndim; d++) s.width *= d == dim ? 1 : x->shape[d];
  AC_TRY(aci_sort_keys_of((ac_dtype)x->dtype, s.width, false, &s.k, e));
  /* keys, then two orders, then the slices themselves as rows */
  size_t keys = (size_t)x->numel * s.k.bytes;
  AC_TRY(ac_block_alloc(f->device, keys + (size_t)s.n * 16 + (size_t)(x->numel * es),
                        AC_MEM_ACTIVATION, f->stream, &block, e));
  s.keys = ac_block_ptr(block);
  int64_t *order = s.n > 0 ? (int64_t *)(void *)((char *)ac_block_ptr(block) + keys) : NULL;
  char *rows = s.n > 0 ? (char *)(order + 2 * s.n) : NULL;
  if (s.n > 0) {
    aci_range dst = {.ptr = rows, .dtype = s.k.dt}, src = {.ptr = aci_data(x), .dtype = s.k.dt};
    int64_t one[AC_MAX_DIMS];
    memcpy(one, x->shape, (size_t)x->ndim * 8);
    one[dim] = 1;
    aci_contiguous_strides(x->ndim, one, dst.stride);
    dst.stride[dim] = s.width;
    memcpy(src.stride, x->stride, (size_t)x->ndim * 8);
    aci_range_copy_cpu(f->team, x->ndim, x->shape, &dst, &src);
    for (int64_t i = 0; i < s.n; i++)
      aci_sort_keys_load(&s.k, rows + i * s.width * es, 1, 0, s.width,
                         aci_sort_keys_at(&s.k, ac_block_ptr(block), i * s.width));
  }
  ac_status st = fill(f, &s, rows, dim, order, s.n > 0 ? order + s.n : NULL, e);
  ac_block_free(block);
  return st;
}
