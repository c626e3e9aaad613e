/* Writer of GGUF files: a head that the caller made, and tensors behind it, each aligned. Also blocks of quantised tensors. Called by
 * the bindings; stdlib/accel/models/gguf makes the head. */
#include <stdlib.h>
#include <string.h>

#include "file/gguf.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

static ac_status pad(aci_atomic_file *f, uint64_t *at, uint64_t alignment, ac_err *e) {
  static const unsigned char zeros[4096];
  uint64_t n = (alignment - *at % alignment) % alignment;
  *at += n;
  while (n > 0) {
    const size_t part = n < sizeof zeros ? (size_t)n : sizeof zeros;
    AC_TRY(aci_atomic_write(f, zeros, part, e));
    n -= part;
  }
  return AC_OK;
}

static uint64_t bytes_of(const ac_tensor *t) { return (uint64_t)t->numel * aci_dsize((ac_dtype)t->dtype); }

ac_status ac_gguf_write(const char *path, const void *head, size_t n_head, uint32_t alignment, int n, ac_tensor *const *tensors, ac_err *e) {
  aci_atomic_file f = {.fd = -1};
  char shown[ACI_PATH_SHOWN];
  uint64_t all = n_head, at = n_head;
  ac_status st;
  if (alignment == 0 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
    return AC_FAIL(e, INVALID, "%s: an alignment of %u is no power of two in 1 .. 65536", aci_path_shown(path, shown), alignment);
  for (int i = 0; i < n; i++) {
    if (!aci_is_contiguous(tensors[i]) || (tensors[i]->numel > 0 && ac_tensor_data(tensors[i]) == NULL))
      return AC_FAIL(e, INVALID, "%s: tensor %d is not contiguous memory of this machine", aci_path_shown(path, shown), i + 1);
    all += bytes_of(tensors[i]) + alignment;
  }
  AC_GOTO(done, st, aci_atomic_open(&f, path, all, e));
  AC_GOTO(done, st, aci_atomic_write(&f, head, n_head, e));
  AC_GOTO(done, st, pad(&f, &at, alignment, e));
  for (int i = 0; i < n; i++) {
    if (tensors[i]->numel > 0) AC_GOTO(done, st, aci_atomic_write(&f, ac_tensor_data(tensors[i]), (size_t)bytes_of(tensors[i]), e));
    at += bytes_of(tensors[i]);
    AC_GOTO(done, st, pad(&f, &at, alignment, e));
  }
  st = aci_atomic_commit(&f, e);
done:
  aci_atomic_abort(&f);
  return st;
}

ac_status ac_gguf_quantize(const ac_tensor *src, int type, ac_tensor *dst, ac_err *e) {
  const aci_gguf_type *k = type == AC_GGUF_Q4_0 || type == AC_GGUF_Q8_0 ? aci_gguf_type_at((uint32_t)type) : NULL;
  if (k == NULL) return AC_FAIL(e, INVALID, "type %d is none that tensors are quantised to (Q4_0, Q8_0)", type);
  const int64_t row = src->ndim > 0 ? src->shape[src->ndim - 1] : 1;
  if (src->dtype != AC_F32 || !aci_is_contiguous(src) || row % k->block != 0)
    return AC_FAIL(e, INVALID, "%s needs contiguous f32 with rows of whole blocks of %d", k->name, k->block);
  if (dst->dtype != AC_U8 || !aci_is_contiguous(dst) || dst->numel != src->numel / k->block * k->bytes)
    return AC_FAIL(e, INVALID, "%s of %lld elements has %lld bytes", k->name, (long long)src->numel,
                   (long long)(src->numel / k->block * k->bytes));
  const float *p = ac_tensor_data(src);
  unsigned char *q = ac_tensor_data(dst);
  if (src->numel == 0) return AC_OK;
  if (p == NULL || q == NULL) return AC_FAIL(e, DEVICE, "%s is made of memory of this machine", k->name);
  aci_gguf_from_f32((uint32_t)type, p, q, src->numel);
  return AC_OK;
}
