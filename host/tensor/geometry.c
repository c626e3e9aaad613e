/* Shapes, strides and their consequences: contiguity, broadcasting, views without copies, overlap,
 * text for messages. Called by shape rules and kernels. Nothing here reads elements. */
#include "tensor/geometry.h"

#include <stdio.h>

/* Byte counts stay inside 64 bits for any dtype. */
static const int64_t max_elements = INT64_MAX / 16;

int64_t aci_numel(int ndim, const int64_t *shape) {
  int64_t n = 1;
  bool empty = false, ok = true;
  for (int i = 0; i < ndim; i++) {
    ok = ok && shape[i] >= 0 && shape[i] <= max_elements;
    if (shape[i] == 0) empty = true;
    else ok = ok && !__builtin_mul_overflow(n, shape[i], &n) && n <= max_elements;
  }
  return !ok ? -1 : empty ? 0 : n;
}

int64_t aci_contiguous(int ndim, const int64_t *shape, int64_t *stride) {
  int64_t n = 1; /* wraps if the shape is too large. Such a tensor never gets memory */
  bool empty = false, ok = true;
  for (int i = ndim - 1; i >= 0; i--) {
    const int64_t extent = shape[i];
    stride[i] = n;
    if (extent > 1) {
      ok = !__builtin_mul_overflow(n, extent, &n) && n <= max_elements && ok;
    } else if (extent != 1) {
      empty = true;
      ok = ok && extent == 0;
    }
  }
  return !ok ? -1 : empty ? 0 : n;
}

ac_status aci_shape_check(int ndim, const int64_t *shape, ac_err *e) {
  char text[200];
  if (ndim < 0 || ndim > AC_MAX_DIMS)
    return AC_FAIL(e, SHAPE, "a tensor has at most %d dims, not %d", AC_MAX_DIMS, ndim);
  if (ndim > 0 && shape == NULL) return AC_FAIL(e, INVALID, "the shape of %d dims is NULL", ndim);
  for (int i = 0; i < ndim; i++)
    if (shape[i] < 0)
      return AC_FAIL(e, SHAPE, "shape %s has a negative extent",
                     aci_shape_str(ndim, shape, text, sizeof text));
  if (aci_numel(ndim, shape) < 0)
    return AC_FAIL(e, SHAPE, "shape %s has more elements than can be counted",
                   aci_shape_str(ndim, shape, text, sizeof text));
  return AC_OK;
}

int64_t aci_span(int ndim, const int64_t *shape, const int64_t *stride) {
  int64_t last = 0, step = 0;
  for (int i = 0; i < ndim; i++)
    if (shape[i] == 0) return 0;
  for (int i = 0; i < ndim; i++) {
    if (stride[i] < 0 || __builtin_mul_overflow(shape[i] - 1, stride[i], &step) ||
        __builtin_add_overflow(last, step, &last) || last >= max_elements)
      return -1;
  }
  return last + 1;
}

int64_t aci_position(const ac_tensor *t, int64_t i) {
  int64_t at = t->offset;
  for (int d = t->ndim - 1; d >= 0; d--) {
    at += i % t->shape[d] * t->stride[d];
    i /= t->shape[d];
  }
  return at;
}

void aci_contiguous_strides(int ndim, const int64_t *shape, int64_t *stride) {
  (void)aci_contiguous(ndim, shape, stride);
}

/* Dims by rising stride: no overlap when each stride is beyond everything that the smaller ones
 * reach. */
bool aci_overlaps_self(const ac_tensor *t) {
  int64_t size[AC_MAX_DIMS], stride[AC_MAX_DIMS], reach = 0;
  int n = 0;
  if (t->numel <= 1) return false;
  for (int i = 0; i < t->ndim; i++) {
    if (t->shape[i] == 1) continue;
    int k = n++;
    for (; k > 0 && stride[k - 1] > t->stride[i]; k--) {
      stride[k] = stride[k - 1];
      size[k] = size[k - 1];
    }
    stride[k] = t->stride[i];
    size[k] = t->shape[i];
  }
  for (int k = 0; k < n; k++) {
    if (stride[k] <= reach) return true;
    reach += (size[k] - 1) * stride[k];
  }
  return false;
}

/* ---- text ---- */
const char *aci_shape_str(int ndim, const int64_t *shape, char *buf, size_t n) {
  size_t at = 0;
  if (n == 0) return "";
  buf[0] = '\0';
  for (int i = 0; i <= ndim; i++) {
    char part[32];
    int len = i == ndim
                  ? snprintf(part, sizeof part, ndim == 0 ? "()" : ")")
                  : snprintf(part, sizeof part, "%s%lld", i == 0 ? "(" : ", ", (long long)shape[i]);
    if (at + (size_t)len >= n) {
      if (n > 4) memcpy(buf + (at < n - 4 ? at : n - 4), "...", 4);
      return buf;
    }
    memcpy(buf + at, part, (size_t)len + 1);
    at += (size_t)len;
  }
  return buf;
}

const char *aci_tensor_str(const ac_tensor *t, char *buf, size_t n) {
  char shape[160];
  snprintf(buf, n, "%s %s on %s", ac_dtype_name((ac_dtype)t->dtype),
           aci_shape_str(t->ndim, t->shape, shape, sizeof shape),
           t->device == NULL ? "no device" : t->device->name);
  return buf;
}

/* ---- broadcasting and views ---- */
ac_status aci_broadcast(int *ndim, int64_t *shape, const ac_tensor *b, ac_err *e) {
  int n = *ndim > b->ndim ? *ndim : b->ndim;
  int64_t out[AC_MAX_DIMS];
  for (int i = 1; i <= n; i++) { /* from the end */
    int64_t x = i <= *ndim ? shape[*ndim - i] : 1, y = i <= b->ndim ? b->shape[b->ndim - i] : 1;
    if (x != y && x != 1 && y != 1) {
      char s[160], t[160];
      return AC_FAIL(
          e, SHAPE,
          "shapes %s and %s cannot be broadcast together: dim -%d is %lld in one and %lld in the other",
          aci_shape_str(*ndim, shape, s, sizeof s), aci_shape_str(b->ndim, b->shape, t, sizeof t),
          i, (long long)x, (long long)y);
    }
    out[n - i] = x == 1 ? y : x;
  }
  memcpy(shape, out, (size_t)n * sizeof out[0]);
  *ndim = n;
  return AC_OK;
}

/* The old dims fall into runs, each a piece of memory with one step. New extents must fill run
 * after run exactly, from the last dim to the first. Extents of 1 fit anywhere. */
bool aci_view_strides(const ac_tensor *t, int ndim, const int64_t *shape, int64_t *stride) {
  if (aci_numel(ndim, shape) != t->numel) return false;
  if (t->numel == 0) {
    if (ndim == t->ndim && memcmp(shape, t->shape, (size_t)ndim * sizeof *shape) == 0)
      memcpy(stride, t->stride, (size_t)ndim * sizeof *stride);
    else aci_contiguous_strides(ndim, shape, stride);
    return true;
  }
  int old = t->ndim - 1, now = ndim - 1;
  do {
    int64_t step = old >= 0 ? t->stride[old] : 1, run = 1, filled = 1;
    while (old >= 0 && (run == 1 || t->shape[old] == 1 || t->stride[old] == run * step)) {
      if (run == 1 && t->shape[old] != 1) step = t->stride[old];
      run *= t->shape[old--];
    }
    while (now >= 0 && (filled < run || shape[now] == 1)) {
      stride[now] = filled * step;
      filled *= shape[now--];
    }
    if (filled != run) return false;
  } while (old >= 0);
  return now < 0;
}
