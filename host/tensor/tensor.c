/* Tensors: making, viewing, counting, releasing, and reading single elements. Kernels and ops work
 * on the struct itself (tensor_impl.h). All other code calls this file. */
#include <stdlib.h>

#include "base/small.h"
#include "base/thread_counter.h"
#include "tensor/convert.h"
#include "tensor/geometry.h"
#include "tensor/host_read.h"

void (*aci_tensor_drop_autograd)(ac_tensor *t);

/* ---- heads ---- */
static size_t head_bytes(int ndim) {
  return sizeof(ac_tensor) + 2 * (size_t)ndim * sizeof(int64_t);
}

/* Without shape, strides and numel. */
static inline ac_tensor *head(ac_device *d, ac_dtype dt, int ndim) {
  ac_tensor *t = aci_small_alloc(head_bytes(ndim));
  if (t == NULL) return NULL;
  *t = (ac_tensor){.ref = 1,
                   .dtype = (uint8_t)dt,
                   .ndim = (uint8_t)ndim,
                   .device = d,
                   .stride = t->shape + ndim};
  aci_thread_counter_add(1);
  return t;
}

static void copy_extents(int n, int64_t *to, const int64_t *from) {
  for (int i = 0; i < n; i++) to[i] = from[i];
}

/* A shape that cannot be counted gives numel -1. aci_tensor_alloc refuses it. */
ac_tensor *aci_tensor_shell(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape) {
  ac_tensor *t = head(d, dt, ndim);
  if (t == NULL) return NULL;
  copy_extents(ndim, t->shape, shape);
  t->numel = aci_contiguous(ndim, shape, t->shape + ndim);
  return t;
}

ac_tensor *aci_tensor_alias(const ac_tensor *t, int ndim, const int64_t *shape,
                            const int64_t *stride, int64_t offset) {
  ac_tensor *v = head(t->device, (ac_dtype)t->dtype, ndim);
  if (v == NULL) return NULL;
  copy_extents(ndim, v->shape, shape);
  copy_extents(ndim, aci_stride_mut(v), stride);
  v->numel = aci_numel(ndim, shape);
  v->offset = offset;
  v->storage = t->storage;
  if (v->storage != NULL) ac_storage_retain(v->storage);
  return v;
}

ac_tensor *aci_tensor_part(const ac_tensor *t, int part) {
  int64_t stride[AC_MAX_DIMS];
  for (int i = 0; i < t->ndim; i++) stride[i] = t->stride[i] * 2;
  ac_tensor *p = aci_tensor_alias(t, t->ndim, t->shape, stride, t->offset * 2 + part);
  if (p != NULL) p->dtype = (uint8_t)aci_part_dtype((ac_dtype)t->dtype);
  return p;
}

ac_status aci_tensor_alloc(ac_tensor *t, ac_mem_class c, ac_err *e) {
  if (t->numel < 0) AC_TRY(aci_shape_check(t->ndim, t->shape, e));
  int64_t span = aci_is_contiguous(t) ? t->numel : aci_span(t->ndim, t->shape, t->stride);
  if (span < 0) return AC_FAIL(e, SHAPE, "strides reach further than memory can");
  AC_TRY(
      ac_storage_new(t->device, (size_t)span * aci_dsize((ac_dtype)t->dtype), c, &t->storage, e));
  t->storage->layout = t->layout;
  t->layout = NULL;
  return AC_OK;
}

void ac_tensor_retain(ac_tensor *t) { atomic_fetch_add_explicit(&t->ref, 1, memory_order_relaxed); }

void ac_tensor_release(ac_tensor *t) {
  if (t == NULL || !aci_unref(&t->ref)) return;
  bool recorded = t->grad != NULL || t->grad_fn != NULL || t->acc != NULL || t->grad_slot != NULL;
  if (recorded && aci_tensor_drop_autograd != NULL) aci_tensor_drop_autograd(t);
  ac_storage_release(t->storage);
  if (__builtin_expect(t->layout != NULL, 0)) free(t->layout);
  aci_small_free(t, head_bytes(t->ndim));
  aci_thread_counter_add(-1);
}

int64_t ac_tensor_live(void) { return aci_thread_counter_sum(); }

/* ---- making ---- */
/* Checks the arguments of a program other than the shape. */
static ac_status check(const void *of, const char *name, ac_dtype dt, ac_tensor **out, ac_err *e) {
  if (out == NULL) return AC_FAIL(e, INVALID, "no place for the tensor: out is NULL");
  *out = NULL;
  if (of == NULL) return AC_FAIL(e, INVALID, "the %s is NULL", name);
  if ((unsigned)dt >= AC_DTYPE_COUNT) return AC_FAIL(e, INVALID, "%d is not a dtype", (int)dt);
  return AC_OK;
}

ac_status ac_tensor_new_class(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                              ac_mem_class c, ac_tensor **out, ac_err *e) {
  AC_TRY(check(d, "device", dt, out, e));
  AC_TRY(aci_shape_check(ndim, shape, e));
  ac_tensor *t = aci_tensor_shell(d, dt, ndim, shape);
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  ac_status st = aci_tensor_alloc(t, c, e);
  if (st != AC_OK) {
    ac_tensor_release(t);
    return st;
  }
  *out = t;
  return AC_OK;
}

ac_status ac_tensor_new(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape, ac_tensor **out,
                        ac_err *e) {
  return ac_tensor_new_class(d, dt, ndim, shape, AC_MEM_ACTIVATION, out, e);
}

ac_status ac_tensor_view(ac_storage *s, ac_dtype dt, int ndim, const int64_t *shape,
                         const int64_t *stride, int64_t offset, ac_tensor **out, ac_err *e) {
  char text[200];
  int64_t packed[AC_MAX_DIMS];
  AC_TRY(check(s, "storage", dt, out, e));
  AC_TRY(aci_shape_check(ndim, shape, e));
  if (stride == NULL) {
    aci_contiguous_strides(ndim, shape, packed);
    stride = packed;
  }
  for (int i = 0; i < ndim; i++)
    if (stride[i] < 0)
      return AC_FAIL(e, INVALID, "strides %s: a stride is negative",
                     aci_shape_str(ndim, stride, text, sizeof text));
  if (offset < 0) return AC_FAIL(e, INVALID, "offset %lld is negative", (long long)offset);
  size_t size = aci_dsize(dt);
  int64_t span = aci_span(ndim, shape, stride), room = (int64_t)(s->bytes / size), end = 0;
  if (span < 0 || __builtin_add_overflow(offset, span, &end) || end > room)
    return AC_FAIL(
        e, INVALID,
        "a view of shape %s at element %lld reaches outside its storage of %lld elements",
        aci_shape_str(ndim, shape, text, sizeof text), (long long)offset, (long long)room);
  if (s->ptr != NULL && (uintptr_t)s->ptr % size != 0)
    return AC_FAIL(e, INVALID,
                   "the storage's address is not a multiple of %zu bytes, the size of %s", size,
                   ac_dtype_name(dt));
  ac_tensor *t = head(s->device, dt, ndim);
  if (t == NULL) return AC_FAIL(e, OOM, "no memory for a tensor's head");
  copy_extents(ndim, t->shape, shape);
  copy_extents(ndim, aci_stride_mut(t), stride);
  t->numel = aci_numel(ndim, shape);
  t->offset = offset;
  t->storage = s;
  ac_storage_retain(s);
  *out = t;
  return AC_OK;
}

ac_status ac_tensor_from_host(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape,
                              const void *data, ac_tensor **out, ac_err *e) {
  ac_tensor *t = NULL;
  ac_status st = AC_OK;
  *out = NULL;
  AC_TRY(ac_tensor_new(d, dt, ndim, shape, &t, e));
  if (t->numel > 0 && t->storage->ptr != NULL) {
    st = aci_device_upload(d, NULL, t->storage->ptr, data, (size_t)t->numel * aci_dsize(dt), e);
  }
  if (st != AC_OK) {
    ac_tensor_release(t);
    return st;
  }
  *out = t;
  return AC_OK;
}

ac_status ac_tensor_wrap(ac_device *d, ac_dtype dt, int ndim, const int64_t *shape, void *data,
                         void (*free_fn)(void *user), void *user, ac_tensor **out, ac_err *e) {
  ac_storage *s = NULL;
  AC_TRY(check(d, "device", dt, out, e));
  AC_TRY(aci_shape_check(ndim, shape, e));
  size_t bytes = (size_t)aci_numel(ndim, shape) * aci_dsize(dt);
  AC_TRY(ac_storage_wrap(d, data, bytes, free_fn, user, &s, e));
  ac_status st = ac_tensor_view(s, dt, ndim, shape, NULL, 0, out, e);
  if (st != AC_OK) s->free_fn = NULL; /* a failed call leaves the memory with the caller */
  ac_storage_release(s);
  return st;
}

/* ---- reading ---- */
ac_dtype ac_tensor_dtype(const ac_tensor *t) { return (ac_dtype)t->dtype; }
int ac_tensor_ndim(const ac_tensor *t) { return t->ndim; }
const int64_t *ac_tensor_shape(const ac_tensor *t) { return t->shape; }
const int64_t *ac_tensor_stride(const ac_tensor *t) { return t->stride; }
int64_t ac_tensor_offset(const ac_tensor *t) { return t->offset; }
int64_t ac_tensor_numel(const ac_tensor *t) { return t->numel; }
ac_device *ac_tensor_device(const ac_tensor *t) { return t->device; }
ac_storage *ac_tensor_storage(const ac_tensor *t) { return t->storage; }
bool ac_tensor_is_contiguous(const ac_tensor *t) { return aci_is_contiguous(t); }
void *ac_tensor_data(const ac_tensor *t) { return t->storage == NULL ? NULL : aci_data(t); }

ac_status ac_tensor_item(const ac_tensor *t, int64_t i, ac_scalar *out, ac_err *e) {
  if (i < 0 || i >= t->numel)
    return AC_FAIL(e, INDEX, "element %lld of a tensor with %lld elements", (long long)i,
                   (long long)t->numel);
  aci_host_read r;
  ac_device *d = t->device;
  if (t->storage != NULL && d->kind != AC_DEV_CPU && d->kind != AC_DEV_META &&
      t->storage->provider == NULL) {
    _Alignas(8) char one[8]; /* only that element is copied to the host, which waits for it */
    const size_t size = aci_dsize((ac_dtype)t->dtype);
    AC_TRY(d->vt->copy(d, NULL, one,
                       (const char *)aci_data(t) + aci_position(t, i) * (int64_t)size -
                           t->offset * (int64_t)size,
                       size, e));
    AC_TRY(ac_device_sync(d, e));
    *out = aci_item_load((ac_dtype)t->dtype, one);
    return AC_OK;
  }
  AC_TRY(aci_host_read_open(t, false, &r, e));
  *out = aci_item_load((ac_dtype)t->dtype,
                       r.base + aci_position(t, i) * (int64_t)aci_dsize((ac_dtype)t->dtype));
  aci_host_read_close(&r);
  return AC_OK;
}
