/* DLPack: tensors given to other libraries and taken from them without a copy. Called by programs
 * that embed accel and by bindings/tensor/lac_dlpack.c. */
#include "tensor/dlpack.h"

#include <stdlib.h>

#include "tensor/geometry.h"
#include "tensor/tensor_impl.h"

static const struct {
  uint8_t code, bits;
} types[AC_DTYPE_COUNT] = {[AC_F64] = {ACI_DL_FLOAT, 64},        [AC_F32] = {ACI_DL_FLOAT, 32},
                           [AC_F16] = {ACI_DL_FLOAT, 16},        [AC_BF16] = {ACI_DL_BFLOAT, 16},
                           [AC_I64] = {ACI_DL_INT, 64},          [AC_I32] = {ACI_DL_INT, 32},
                           [AC_I16] = {ACI_DL_INT, 16},          [AC_I8] = {ACI_DL_INT, 8},
                           [AC_U8] = {ACI_DL_UINT, 8},           [AC_BOOL] = {ACI_DL_BOOL, 8},
                           [AC_U16] = {ACI_DL_UINT, 16},         [AC_U32] = {ACI_DL_UINT, 32},
                           [AC_F8_E4M3] = {ACI_DL_F8_E4M3FN, 8}, [AC_F8_E5M2] = {ACI_DL_F8_E5M2, 8},
                           [AC_C64] = {ACI_DL_COMPLEX, 64},      [AC_C128] = {ACI_DL_COMPLEX, 128}};

/* ---- out ---- */

/* State of an exported tensor: one allocation. */
typedef struct given {
  ac_tensor *t;
  union {
    struct DLManagedTensor plain;
    struct DLManagedTensorVersioned versioned;
  } m;
  int64_t dims[]; /* shape, strides */
} given;

static void take_back(struct DLManagedTensor *m) {
  given *g = m->manager_ctx;
  ac_tensor_release(g->t);
  free(g);
}

static void take_back_versioned(struct DLManagedTensorVersioned *m) {
  given *g = m->manager_ctx;
  ac_tensor_release(g->t);
  free(g);
}

static ac_status give(ac_tensor *t, given **out, ac_err *e) {
  char text[160];
  *out = NULL;
  if (aci_requires_grad(t))
    return AC_FAIL(
        e, GRAD,
        "to_dlpack: %s requires gradients, which another library would not see; detach it first",
        aci_tensor_str(t, text, sizeof text));
  if (t->device->kind != AC_DEV_CPU || t->storage->provider != NULL || t->layout != NULL)
    return AC_FAIL(e, UNSUPPORTED,
                   "to_dlpack: %s has no bytes that stay in memory; move it to the CPU first",
                   aci_tensor_str(t, text, sizeof text));
  given *g = calloc(1, sizeof *g + 2 * (size_t)t->ndim * sizeof g->dims[0]);
  if (g == NULL) return AC_FAIL(e, OOM, "to_dlpack: no memory");
  memcpy(g->dims, t->shape, 2 * (size_t)t->ndim * sizeof g->dims[0]);
  ac_tensor_retain(t);
  g->t = t;
  *out = g;
  return AC_OK;
}

static void describe(given *g, aci_dl_tensor *d) {
  const ac_tensor *t = g->t;
  d->data = aci_data(t);
  d->device.type = ACI_DL_CPU;
  d->ndim = t->ndim;
  d->dtype.code = types[t->dtype].code;
  d->dtype.bits = types[t->dtype].bits;
  d->dtype.lanes = 1;
  d->shape = g->dims;
  d->strides = g->dims + t->ndim;
}

ac_status ac_tensor_to_dlpack(ac_tensor *t, struct DLManagedTensor **out, ac_err *e) {
  given *g;
  *out = NULL;
  AC_TRY(give(t, &g, e));
  describe(g, &g->m.plain.dl_tensor);
  g->m.plain.manager_ctx = g;
  g->m.plain.deleter = take_back;
  *out = &g->m.plain;
  return AC_OK;
}

ac_status ac_tensor_to_dlpack_versioned(ac_tensor *t, struct DLManagedTensorVersioned **out,
                                        ac_err *e) {
  given *g;
  *out = NULL;
  AC_TRY(give(t, &g, e));
  describe(g, &g->m.versioned.dl_tensor);
  g->m.versioned.version.major = ACI_DL_MAJOR;
  g->m.versioned.version.minor = ACI_DL_MINOR;
  g->m.versioned.manager_ctx = g;
  g->m.versioned.deleter = take_back_versioned;
  *out = &g->m.versioned;
  return AC_OK;
}

/* ---- in ---- */

static void drop(void *m) {
  struct DLManagedTensor *p = m;
  if (p->deleter != NULL) p->deleter(p);
}

static void drop_versioned(void *m) {
  struct DLManagedTensorVersioned *p = m;
  if (p->deleter != NULL) p->deleter(p);
}

static ac_status find_dtype(const aci_dl_tensor *d, ac_dtype *out, ac_err *e) {
  for (int i = 0; i < AC_DTYPE_COUNT; i++) {
    if (types[i].code != d->dtype.code || types[i].bits != d->dtype.bits || d->dtype.lanes != 1)
      continue;
    *out = (ac_dtype)i;
    return AC_OK;
  }
  return AC_FAIL(e, DTYPE, "from_dlpack: no dtype here has type code %d with %d bits and %d lanes",
                 d->dtype.code, d->dtype.bits, d->dtype.lanes);
}

/* The view that d describes. Its storage calls free_fn(m) when it is freed. */
static ac_status take(ac_device *dev, const aci_dl_tensor *d, void (*free_fn)(void *), void *m,
                      ac_tensor **out, ac_err *e) {
  int64_t stride[AC_MAX_DIMS];
  ac_dtype dt = AC_DTYPE_COUNT;
  if (dev->kind != AC_DEV_CPU)
    return AC_FAIL(e, DEVICE, "from_dlpack: a view of the CPU's memory cannot be on %s", dev->name);
  if (d->device.type != ACI_DL_CPU)
    return AC_FAIL(
        e, DEVICE,
        "from_dlpack: the tensor is on a device of type %d, not in the CPU's memory; move it first",
        (int)d->device.type);
  AC_TRY(find_dtype(d, &dt, e));
  if (d->ndim < 0 || (d->ndim > 0 && d->shape == NULL))
    return AC_FAIL(e, INVALID, "from_dlpack: no shape for %d dims", (int)d->ndim);
  AC_TRY(aci_shape_check(d->ndim, d->shape, e));
  if (d->strides != NULL && d->ndim > 0)
    memcpy(stride, d->strides, (size_t)d->ndim * sizeof stride[0]);
  else aci_contiguous_strides(d->ndim, d->shape, stride);
  for (int i = 0; i < d->ndim; i++) {
    if (d->shape[i] <= 1 && stride[i] < 0) stride[i] = 1; /* never used */
    if (stride[i] < 0)
      return AC_FAIL(e, UNSUPPORTED,
                     "from_dlpack: the stride of dim %d is negative; copy the tensor first", i + 1);
  }
  const int64_t span = aci_span(d->ndim, d->shape, stride), size = (int64_t)aci_dsize(dt);
  int64_t bytes;
  if (span < 0 || __builtin_mul_overflow(span, size, &bytes))
    return AC_FAIL(e, SHAPE, "from_dlpack: strides reach further than memory can");
  char *const data = d->data == NULL ? NULL : (char *)d->data + d->byte_offset;
  if ((uintptr_t)data % (size_t)size != 0)
    return AC_FAIL(
        e, INVALID,
        "from_dlpack: the address of %s elements is not a multiple of %d bytes; copy the tensor first",
        ac_dtype_name(dt), (int)size);
  ac_storage *s;
  AC_TRY(ac_storage_wrap(dev, data, (size_t)bytes, NULL, NULL, &s, e));
  const ac_status st = ac_tensor_view(s, dt, d->ndim, d->shape, stride, 0, out, e);
  if (st == AC_OK) {
    s->free_fn = free_fn;
    s->impl = m;
  }
  ac_storage_release(s);
  return st;
}

ac_status ac_tensor_from_dlpack(ac_device *d, struct DLManagedTensor *m, ac_tensor **out,
                                ac_err *e) {
  *out = NULL;
  return take(d, &m->dl_tensor, drop, m, out, e);
}

ac_status ac_tensor_from_dlpack_versioned(ac_device *d, struct DLManagedTensorVersioned *m,
                                          ac_tensor **out, ac_err *e) {
  *out = NULL;
  if (m->version.major != ACI_DL_MAJOR)
    return AC_FAIL(e, UNSUPPORTED, "from_dlpack: the tensor comes in DLPack %u.%u, known is %d.x",
                   m->version.major, m->version.minor, ACI_DL_MAJOR);
  if (m->flags & ACI_DL_READ_ONLY)
    return AC_FAIL(e, UNSUPPORTED,
                   "from_dlpack: the tensor's owner lets it be read only; copy it first");
  return take(d, &m->dl_tensor, drop_versioned, m, out, e);
}
