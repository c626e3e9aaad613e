/* Writing one value everywhere: the kernel of fill_, zero_ and the *_like ops, for any strides. */
#include "ops/map/fill.h"

#include "ops/core/ctx_impl.h"
#include "ops/map/convert.h"

enum { GRAIN = 65536 };

typedef struct fill_job {
  char *ptr;
  size_t size;
  union {
    char bytes[8];
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
  } v;
  int ndim;
  int64_t shape[AC_MAX_DIMS], stride[AC_MAX_DIMS];
} fill_job;

#define FILL(T, value)                                         \
  do {                                                         \
    T *p = (T *)(void *)dst;                                   \
    if (stride == 1)                                           \
      for (int64_t i = 0; i < n; i++) p[i] = (value);          \
    else                                                       \
      for (int64_t i = 0; i < n; i++) p[i * stride] = (value); \
  } while (0)

static void stretch(const fill_job *j, char *dst, int64_t stride, int64_t n) {
  switch (j->size) {
    case 1: FILL(uint8_t, j->v.u8); break;
    case 2: FILL(uint16_t, j->v.u16); break;
    case 4: FILL(uint32_t, j->v.u32); break;
    default: FILL(uint64_t, j->v.u64); break;
  }
}

static void range(void *arg, int64_t begin, int64_t end) {
  const fill_job *j = arg;
  const int last = j->ndim - 1;
  while (begin < end) {
    int64_t r = begin, off = 0, n = j->shape[last] - begin % j->shape[last];
    for (int d = last; d >= 0; d--) {
      off += r % j->shape[d] * j->stride[d];
      r /= j->shape[d];
    }
    if (n > end - begin) n = end - begin;
    stretch(j, j->ptr + off * (int64_t)j->size, j->stride[last], n);
    begin += n;
  }
}

ac_status aci_fill_check(ac_scalar v, ac_dtype dt, ac_err *e) {
  if (ac_dtype_is_int(dt) && v.kind == AC_SCALAR_FLOAT && !(v.f >= -0x1p63 && v.f < 0x1p63))
    return AC_FAIL(e, DTYPE, "the value %g cannot be stored in a tensor of dtype %s", v.f,
                   ac_dtype_name(dt));
  return AC_OK;
}

/* The number into the real parts, zero into the imaginary ones. */
static ac_status fill_parts(const ac_frame *f, ac_scalar v, ac_err *e) {
  ac_status st = AC_OK;
  for (int part = 0; part < 2 && st == AC_OK; part++) {
    ac_frame g = *f;
    g.out[0] = aci_tensor_part(f->out[0], part);
    st = g.out[0] == NULL ? AC_FAIL(e, OOM, "no memory for a tensor's head")
                          : aci_fill(&g, part == 0 ? v : aci_float(0), e);
    ac_tensor_release(g.out[0]);
  }
  return st;
}

ac_status aci_fill(ac_frame *f, ac_scalar v, ac_err *e) {
  const ac_tensor *t = f->out[0];
  if (aci_is_complex(t)) return fill_parts(f, v, e);
  const ac_dtype dt = (ac_dtype)t->dtype;
  fill_job j = {
      .ptr = aci_data(t), .size = aci_dsize(dt), .ndim = 1, .shape = {t->numel}, .stride = {1}};
  if (t->numel == 0) return AC_OK;
  if (ac_dtype_is_float(dt) || (dt == AC_BOOL && v.kind == AC_SCALAR_FLOAT)) {
    double d = aci_scalar_f(v);
    aci_store(ACI_C_F64, &d, dt, j.v.bytes, 1, 1);
  } else {
    int64_t i = aci_scalar_i(v);
    aci_store(ACI_C_I64, &i, dt, j.v.bytes, 1, 1);
  }
  if (f->ctx->drivers[f->device->kind] != NULL)
    return f->ctx->drivers[f->device->kind]->fill(f, t, j.v.bytes, e);
  if (!aci_is_contiguous(t)) {
    j.ndim = t->ndim;
    memcpy(j.shape, t->shape, 8 * (size_t)t->ndim);
    memcpy(j.stride, t->stride, 8 * (size_t)t->ndim);
  }
  ac_parallel_for(f->team, t->numel, GRAIN, range, &j);
  return AC_OK;
}

ac_status aci_like_shape(ac_frame *f, int dtype_arg, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  ac_dtype dt = ARG_NONE(f, dtype_arg) ? (ac_dtype)x->dtype : f->args[dtype_arg].dtype;
  if (!ARG_NONE(f, dtype_arg + 1)) {
    f->device = f->args[dtype_arg + 1].device;
    f->team = f->device->team;
  }
  return ac_frame_out(f, dt, x->ndim, x->shape, e);
}
