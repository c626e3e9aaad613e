/* Reads a box of a sharded tensor: of every chunk the part that lies in the box, row by row. Called
 * through aci_sharded_read. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "device/device_impl.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "file/sharded_impl.h"
#include "tensor/host_read.h"

#define SHOWN(name) aci_st_shown((name), strlen(name), (char[ACI_ST_SHOWN]){0})
enum { WINDOW = 1 << 20, DIRECT = 1 << 17 };

/* A stretch of a file in memory, through which short rows are read: one system call for many of
 * them. */
typedef struct window {
  unsigned char *bytes; /* WINDOW, made with its first use */
  uint64_t begin, end;  /* in the file */
} window;

/* `last`: end of the bytes of this part of the chunk. step: from one row to the next. */
static ac_status read_row(ac_safetensors *f, window *w, unsigned char *to, size_t n, uint64_t at,
                          uint64_t last, uint64_t step, ac_err *e) {
  if (at >= w->begin && at + n <= w->end) {
    memcpy(to, w->bytes + (at - w->begin), n);
    return AC_OK;
  }
  if (n >= DIRECT || step / 16 > n || at + n == last)
    return aci_pread_all(f->fd, f->path, to, n, at, e);
  if (w->bytes == NULL && (w->bytes = malloc(WINDOW)) == NULL)
    return AC_FAIL(e, OOM, "no memory to read %s", f->path);
  w->begin = w->end = 0;
  const uint64_t m = last - at < WINDOW ? last - at : WINDOW;
  AC_TRY(aci_pread_all(f->fd, f->path, w->bytes, (size_t)m, at, e));
  w->begin = at;
  w->end = at + m;
  memcpy(to, w->bytes, n);
  return AC_OK;
}

/* from, size: the part in elements of the chunk. into: its position in the box. */
static ac_status read_part(ac_safetensors *f, const aci_shard_chunk *c, const int64_t *from,
                           const int64_t *size, const int64_t *into, const int64_t *box,
                           unsigned char *dst, size_t width, ac_team *team, ac_err *e) {
  const ac_safetensors_entry *x = c->entry;
  aci_st_entry *t = (aci_st_entry *)(uintptr_t)x; /* one of f's own entries */
  const int n = x->ndim;
  bool whole = true;
  for (int d = 0; d < n; d++) whole = whole && size[d] == x->shape[d];
  /* rows: the inner dims that lie in one run both in the chunk and in the box */
  int inner = n;
  uint64_t run = width, chunk_step[ACI_ST_MAX_DIMS], box_step[ACI_ST_MAX_DIMS];
  uint64_t cs = width, bs = width;
  for (int d = n - 1; d >= 0; d--) {
    chunk_step[d] = cs;
    box_step[d] = bs;
    cs *= (uint64_t)x->shape[d];
    bs *= (uint64_t)box[d];
  }
  while (inner > 0) {
    inner--;
    run *= (uint64_t)size[inner];
    if (size[inner] != x->shape[inner] || size[inner] != box[inner]) break;
  }
  uint64_t at = f->data_at + x->begin, to = 0, last = at + width;
  int64_t i[ACI_ST_MAX_DIMS] = {0};
  for (int d = 0; d < n; d++) {
    at += (uint64_t)from[d] * chunk_step[d];
    to += (uint64_t)into[d] * box_step[d];
    last += (uint64_t)(from[d] + size[d] - 1) * chunk_step[d];
  }
  window w = {0};
  uint32_t crc = 0, *sum = whole && t->has_crc ? &crc : NULL;
  ac_status st = AC_OK;
  if (inner == 0) { /* one run, which may be long */
    AC_TRY(aci_read_blocks(f->fd, f->path, dst + to, run, at, team, sum, e));
    goto compare;
  }
  const uint64_t step = chunk_step[inner - 1];
  for (;;) {
    AC_GOTO(done, st, read_row(f, &w, dst + to, (size_t)run, at, last, step, e));
    if (sum != NULL) crc = aci_crc32c(crc, dst + to, (size_t)run);
    int d = inner - 1;
    for (; d >= 0; d--) {
      at += chunk_step[d];
      to += box_step[d];
      if (++i[d] < size[d]) break;
      at -= (uint64_t)size[d] * chunk_step[d];
      to -= (uint64_t)size[d] * box_step[d];
      i[d] = 0;
    }
    if (d < 0) break;
  }
compare:
  if (sum != NULL && crc != t->crc)
    st = aci_st_refuse(e, f, f->data_at + x->begin, "R15",
                       "tensor '%s' does not match its checksum: the file is damaged",
                       SHOWN(x->name));
  else if (sum != NULL) t->compared = true;
done:
  free(w.bytes);
  return st;
}

static ac_status check_box(const aci_sharded_tensor *t, const int64_t *offset, const int64_t *shape,
                           const ac_tensor *dst, ac_err *e) {
  char is[128];
  if (!t->has_dtype)
    return AC_FAIL(e, DTYPE, "tensor '%s' is %s, which has no tensors here", SHOWN(t->name),
                   t->dtype_name);
  for (int d = 0; d < t->ndim; d++)
    if (offset[d] < 0 || shape[d] < 0 || shape[d] > t->shape[d] ||
        offset[d] > t->shape[d] - shape[d])
      return AC_FAIL(
          e, INVALID, "tensor '%s' has %lld elements in dim %d, a box of %lld from %lld leaves it",
          SHOWN(t->name), (long long)t->shape[d], d, (long long)shape[d], (long long)offset[d]);
  bool fits = (ac_dtype)dst->dtype == t->dtype && dst->ndim == t->ndim && aci_is_contiguous(dst);
  for (int d = 0; fits && d < t->ndim; d++) fits = dst->shape[d] == shape[d];
  if (!fits)
    return AC_FAIL(e, INVALID, "a box of tensor '%s', %s, does not fit its destination: %s%s",
                   SHOWN(t->name), ac_dtype_name(t->dtype), aci_tensor_str(dst, is, sizeof is),
                   aci_is_contiguous(dst) ? "" : ", not contiguous");
  return AC_OK;
}

/* The box to p, dst's memory. */
static ac_status read_box(aci_sharded *s, const aci_sharded_tensor *t, const int64_t *offset,
                          const int64_t *shape, ac_tensor *dst, unsigned char *p, ac_err *e) {
  const size_t width = aci_dsize(t->dtype);
  atomic_fetch_add_explicit(&dst->storage->version, 1,
                            memory_order_relaxed); /* copies and saved tensors are stale now */
  for (int k = 0; k < t->n_chunks; k++) {
    const aci_shard_chunk *c = &t->chunk[k];
    int64_t from[AC_MAX_DIMS], size[AC_MAX_DIMS], into[AC_MAX_DIMS];
    bool any = true;
    for (int d = 0; d < t->ndim; d++) {
      const int64_t b = offset[d] > c->offset[d] ? offset[d] : c->offset[d];
      const int64_t box_end = offset[d] + shape[d], chunk_end = c->offset[d] + c->entry->shape[d];
      size[d] = (box_end < chunk_end ? box_end : chunk_end) - b;
      from[d] = b - c->offset[d];
      into[d] = b - offset[d];
      any = any && size[d] > 0;
    }
    if (any)
      AC_TRY(
          read_part(s->file[c->file], c, from, size, into, shape, p, width, dst->device->team, e));
  }
  if (t->dtype == AC_BOOL) /* a byte of a boolean must be 0 or 1, but a file may hold any value */
    for (int64_t i = 0; i < dst->numel; i++) p[i] = p[i] != 0;
  return AC_OK;
}

ac_status aci_sharded_read(aci_sharded *s, const aci_sharded_tensor *t, const int64_t *offset,
                           const int64_t *shape, ac_tensor *dst, ac_err *e) {
  AC_TRY(check_box(t, offset, shape, dst, e));
  if (dst->numel == 0) return AC_OK;
  if (dst->device->kind != AC_DEV_CPU)
    return AC_FAIL(e, DEVICE, "tensor '%s' cannot be read into a tensor on %s", SHOWN(t->name),
                   dst->device->name);
  aci_host_read w;
  void *p;
  AC_TRY(aci_host_write_open(dst, &w, &p, e));
  const ac_status st = read_box(s, t, offset, shape, dst, p, e);
  aci_host_write_close(&w);
  return st;
}
