/* Writer of GGUF files: a head that the caller made, followed by tensors one by one, each aligned.
 * Also blocks of quantised tensors. Called by the bindings. stdlib/accel/models/gguf makes the
 * head. */
#include <stdlib.h>
#include <string.h>

#include "file/gguf.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

struct ac_gguf_writer {
  aci_atomic_file f;
  uint64_t at, head, data; /* bytes written, of the head with its padding, and after it */
  uint32_t alignment;
  ac_status failed; /* of the first append that did not write all: no commit would be whole */
  bool closed;      /* commit was called, whatever came of it */
};

static ac_status put(ac_gguf_writer *w, const void *p, uint64_t n, ac_err *e) {
  AC_TRY(aci_atomic_write(&w->f, p, (size_t)n, e));
  w->at += n;
  return AC_OK;
}

static ac_status pad(ac_gguf_writer *w, ac_err *e) {
  static const unsigned char zeros[4096];
  uint64_t n = (w->alignment - w->at % w->alignment) % w->alignment;
  while (n > 0) {
    const uint64_t part = n < sizeof zeros ? n : sizeof zeros;
    AC_TRY(put(w, zeros, part, e));
    n -= part;
  }
  return AC_OK;
}

ac_status ac_gguf_create(const char *path, const void *head, size_t n_head, uint32_t alignment,
                         uint64_t n_data, ac_gguf_writer **out, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  *out = NULL;
  if (alignment == 0 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
    return AC_FAIL(e, INVALID, "%s: an alignment of %u is not a power of two in 1 .. 65536",
                   aci_path_shown(path, shown), alignment);
  if (n_data % alignment != 0)
    return AC_FAIL(
        e, INVALID,
        "%s: %llu bytes of tensors are not a multiple of the alignment %u, to which each is padded",
        aci_path_shown(path, shown), (unsigned long long)n_data, alignment);
  if (n_data > INT64_MAX)
    return AC_FAIL(e, INVALID, "%s: too many bytes", aci_path_shown(path, shown));
  ac_gguf_writer *w = calloc(1, sizeof *w);
  if (w == NULL) return AC_FAIL(e, OOM, "out of memory for a writer");
  w->f.fd = -1;
  w->alignment = alignment;
  w->data = n_data;
  ac_status st = aci_atomic_open(&w->f, path, n_head + alignment + n_data, e);
  if (st == AC_OK) st = put(w, head, n_head, e);
  if (st == AC_OK) st = pad(w, e);
  if (st != AC_OK) {
    ac_gguf_abort(w);
    return st;
  }
  w->head = w->at;
  *out = w;
  return AC_OK;
}

static ac_status check_open(const ac_gguf_writer *w, ac_err *e) {
  if (w->closed)
    return AC_FAIL(e, RELEASED, "the GGUF file has been committed; it accepts no more data");
  if (w->failed != AC_OK)
    return ac_err_set(e, w->failed, __FILE__, __LINE__,
                      "a tensor before could not be written: the GGUF file is not whole");
  return AC_OK;
}

ac_status ac_gguf_append(ac_gguf_writer *w, const ac_tensor *t, ac_err *e) {
  const uint64_t n = (uint64_t)t->numel * aci_dsize((ac_dtype)t->dtype);
  AC_TRY(check_open(w, e));
  if (!aci_is_contiguous(t) || (t->numel > 0 && ac_tensor_data(t) == NULL))
    return AC_FAIL(e, INVALID, "the tensor is not contiguous memory of this machine");
  if (n > w->data || w->at - w->head + n > w->data)
    return AC_FAIL(e, INVALID, "%llu bytes are more than were announced", (unsigned long long)n);
  if (n > 0) w->failed = put(w, ac_tensor_data(t), n, e);
  if (w->failed == AC_OK) w->failed = pad(w, e);
  return w->failed;
}

ac_status ac_gguf_commit(ac_gguf_writer *w, ac_err *e) {
  AC_TRY(check_open(w, e));
  w->closed = true;
  if (w->at - w->head != w->data) {
    aci_atomic_abort(&w->f);
    return AC_FAIL(e, INVALID, "%llu bytes of tensors were written, %llu announced",
                   (unsigned long long)(w->at - w->head), (unsigned long long)w->data);
  }
  return aci_atomic_commit(&w->f, e);
}

void ac_gguf_abort(ac_gguf_writer *w) {
  if (w == NULL) return;
  aci_atomic_abort(&w->f);
  free(w);
}

ac_status ac_gguf_quantize(const ac_tensor *src, int type, ac_tensor *dst, ac_err *e) {
  const aci_gguf_type *k = aci_gguf_type_at((uint32_t)type);
  if (k == NULL || k->encode == NULL)
    return AC_FAIL(e, INVALID,
                   "tensors cannot be quantised to type %d; use Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
                   "Q4_K, Q5_K or Q6_K",
                   type);
  const int64_t row = src->ndim > 0 ? src->shape[src->ndim - 1] : 1;
  if (src->dtype != AC_F32 || !aci_is_contiguous(src) || row % k->block != 0)
    return AC_FAIL(e, INVALID, "%s needs contiguous f32 with rows of whole blocks of %d", k->name,
                   k->block);
  if (dst->dtype != AC_U8 || !aci_is_contiguous(dst) ||
      dst->numel != src->numel / k->block * k->bytes)
    return AC_FAIL(e, INVALID, "%s of %lld elements has %lld bytes", k->name, (long long)src->numel,
                   (long long)(src->numel / k->block * k->bytes));
  const float *p = ac_tensor_data(src);
  unsigned char *q = ac_tensor_data(dst);
  if (src->numel == 0) return AC_OK;
  if (p == NULL || q == NULL)
    return AC_FAIL(e, DEVICE, "%s is made of memory of this machine", k->name);
  aci_gguf_from_f32(src->device->team, k, p, q, src->numel / k->block);
  return AC_OK;
}
