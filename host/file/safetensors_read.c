/* Reader of safetensors: opens, checks every rule, finds tensors by name, reads their bytes. The
 * header itself is read by safetensors_header.c. Called by the bindings and by the checkpoint
 * code. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "device/device_impl.h"
#include "file/elements.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "tensor/host_read.h"

static ac_status no_memory(const ac_safetensors *f, ac_err *e) {
  char path[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory for the header", aci_path_shown(f->path, path));
}
#define NAME(t) aci_st_shown((t)->pub.name, strlen((t)->pub.name), (char[ACI_ST_SHOWN]){0})

static int by_place(const void *a, const void *b) {
  const aci_st_entry *x = a, *y = b;
  if (x->pub.begin != y->pub.begin) return x->pub.begin < y->pub.begin ? -1 : 1;
  if (x->pub.end != y->pub.end) return x->pub.end < y->pub.end ? -1 : 1;
  return x->header_at < y->header_at ? -1 : 1; /* empty tensors at one place */
}

/* R10, R11. */
static ac_status check_places(ac_safetensors *f, ac_err *e) {
  uint64_t at = 0;
  if (f->n > 0) qsort(f->entry, (size_t)f->n, sizeof *f->entry, by_place);
  for (int i = 0; i < f->n; i++) {
    aci_st_entry *t = &f->entry[i];
    t->pub.name = f->text + t->name_at;
    t->pub.shape = f->dims + t->dims_at;
    if (t->pub.begin != at)
      return aci_st_refuse(e, f, t->header_at, "R10",
                           "tensor '%s' begins at %llu of the data, expected %llu: %s", NAME(t),
                           (unsigned long long)t->pub.begin, (unsigned long long)at,
                           t->pub.begin > at ? "a hole" : "an overlap");
    at = t->pub.end;
  }
  if (at != f->file_bytes - f->data_at) {
    const char *which = f->n == 0 ? "no tensor" : NAME(&f->entry[f->n - 1]);
    uint64_t where = f->data_at + at < f->file_bytes ? f->data_at + at : f->file_bytes;
    return aci_st_refuse(
        e, f, where, "R11", "the data ends with tensor '%s' after %llu bytes, the file after %llu",
        which, (unsigned long long)at, (unsigned long long)(f->file_bytes - f->data_at));
  }
  return AC_OK;
}

static ac_status build_index(ac_safetensors *f, ac_err *e) {
  uint32_t cap = 16;
  while (cap < (uint32_t)f->n * 2) cap *= 2;
  f->hash = calloc(cap, sizeof *f->hash);
  if (f->hash == NULL) return no_memory(f, e);
  f->hash_mask = cap - 1;
  f->hash_key = aci_hash_key();
  for (int i = 0; i < f->n; i++) {
    const char *name = f->entry[i].pub.name;
    uint32_t p = (uint32_t)aci_hash_bytes(f->hash_key, name, strlen(name)) & f->hash_mask;
    while (f->hash[p]) p = (p + 1) & f->hash_mask;
    f->hash[p] = (uint32_t)i + 1;
  }
  return AC_OK;
}

static int hex(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* R15: one line for each tensor, in the order of the bytes. */
static ac_status read_checksums(ac_safetensors *f, ac_err *e) {
  const char *s = f->text + f->crc_at;
  for (int i = 0; i < f->n; i++) {
    uint32_t v = 0;
    if (i > 0 && *s++ != '\n') goto bad;
    for (int k = 0; k < 8; k++, s++) {
      if (hex(*s) < 0) goto bad;
      v = v << 4 | (uint32_t)hex(*s);
    }
    f->entry[i].crc = v;
    f->entry[i].has_crc = true;
    continue;
  bad:
    return aci_st_refuse(e, f, f->crc_header_at, "R15", "'%s' has no checksum for tensor '%s'",
                         ACI_ST_CRC_KEY, NAME(&f->entry[i]));
  }
  return *s == 0 ? AC_OK
                 : aci_st_refuse(e, f, f->crc_header_at, "R15",
                                 "'%s' has more lines than the file has tensors (%d)",
                                 ACI_ST_CRC_KEY, f->n);
}

static ac_status open_and_check(ac_safetensors *f, ac_err *e) {
  unsigned char head[8];
  uint64_t n = 0;
  AC_TRY(aci_open_read(f->path, &f->fd, &f->file_bytes, e));
  if (f->file_bytes < 8)
    return aci_st_refuse(e, f, f->file_bytes, "R1", "the file has %llu bytes, fewer than 8",
                         (unsigned long long)f->file_bytes);
  AC_TRY(aci_pread_all(f->fd, f->path, head, 8, 0, e));
  for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
  if (n > ACI_ST_MAX_HEADER)
    return aci_st_refuse(e, f, 0, "R2", "a header of %llu bytes, more than %llu",
                         (unsigned long long)n, ACI_ST_MAX_HEADER);
  if (n > f->file_bytes - 8)
    return aci_st_refuse(e, f, 0, "R3", "a header of %llu bytes in a file of %llu",
                         (unsigned long long)n, (unsigned long long)f->file_bytes);
  f->data_at = 8 + n;
  char *header = malloc((size_t)n + 1);
  if (header == NULL) return no_memory(f, e);
  ac_status st = aci_pread_all(f->fd, f->path, header, (size_t)n, 8, e);
  if (st == AC_OK) st = aci_st_header(f, header, (size_t)n, e);
  free(header);
  AC_TRY(st);
  AC_TRY(check_places(f, e));
  AC_TRY(build_index(f, e));
  return f->has_crc ? read_checksums(f, e) : AC_OK;
}

ac_status ac_safetensors_open(const char *path, ac_safetensors **out, ac_err *e) {
  *out = NULL;
  ac_safetensors *f = calloc(1, sizeof *f);
  if (f == NULL || (f->path = strdup(path)) == NULL) {
    free(f);
    return AC_FAIL(e, OOM, "no memory to open a safetensors file");
  }
  f->fd = -1;
  ac_status st = open_and_check(f, e);
  if (st == AC_OK) *out = f;
  else ac_safetensors_close(f);
  return st;
}

void ac_safetensors_close(ac_safetensors *f) {
  if (f == NULL) return;
  if (f->fd >= 0) close(f->fd);
  free(f->path);
  free(f->entry);
  free(f->dims);
  free(f->hash);
  free(f->meta_at);
  free(f->text);
  free(f);
}

int ac_safetensors_count(const ac_safetensors *f) { return f->n; }
const ac_safetensors_entry *ac_safetensors_at(const ac_safetensors *f, int i) {
  return &f->entry[i].pub;
}
int ac_safetensors_n_metadata(const ac_safetensors *f) { return f->n_meta / 2; }
void ac_safetensors_metadata(const ac_safetensors *f, int i, const char **key, const char **value) {
  *key = f->text + f->meta_at[2 * i];
  *value = f->text + f->meta_at[2 * i + 1];
}

const ac_safetensors_entry *ac_safetensors_find(const ac_safetensors *f, const char *name) {
  uint32_t p = (uint32_t)aci_hash_bytes(f->hash_key, name, strlen(name)) & f->hash_mask;
  for (; f->hash[p]; p = (p + 1) & f->hash_mask)
    if (strcmp(f->entry[f->hash[p] - 1].pub.name, name) == 0) return &f->entry[f->hash[p] - 1].pub;
  return NULL;
}

static ac_status mismatch(const ac_safetensors *f, const aci_st_entry *t, ac_err *e) {
  char path[ACI_PATH_SHOWN];
  return AC_FAIL(
      e, PARSE,
      "%s: rule R15 at byte %llu: tensor '%s' does not match its checksum: the file is damaged, or was "
      "rewritten with the metadata ('%s') of another",
      aci_path_shown(f->path, path), (unsigned long long)(f->data_at + t->pub.begin), NAME(t),
      ACI_ST_CRC_KEY);
}

ac_status ac_safetensors_verify(ac_safetensors *f, ac_err *e) {
  if (!f->has_crc) return AC_OK;
  for (int i = 0; i < f->n; i++) {
    const aci_st_entry *t = &f->entry[i];
    uint32_t crc;
    AC_TRY(aci_read_blocks(f->fd, f->path, NULL, t->pub.end - t->pub.begin,
                           f->data_at + t->pub.begin, NULL, &crc, e));
    if (crc != t->crc) return mismatch(f, t, e);
  }
  return AC_OK;
}

/* n bytes of t to p, dst's memory. */
static ac_status read_into(ac_safetensors *f, const aci_st_entry *t, const ac_tensor *dst,
                           unsigned char *p, size_t n, ac_err *e) {
  atomic_fetch_add_explicit(&dst->storage->version, 1,
                            memory_order_relaxed); /* copies and saved tensors are stale now */
  uint32_t crc = 0;
  AC_TRY(aci_read_blocks(f->fd, f->path, p, n, f->data_at + t->pub.begin, dst->device->team,
                         t->has_crc ? &crc : NULL, e));
  if (t->has_crc && crc != t->crc) return mismatch(f, t, e);
  /* a byte of a boolean must be 0 or 1, but a file may hold any value */
  if (t->pub.dtype == AC_BOOL)
    for (size_t i = 0; i < n; i++) p[i] = p[i] != 0;
  return AC_OK;
}

/* The same for elements that become values of another dtype. */
static ac_status read_widened(ac_safetensors *f, const aci_st_entry *t, const ac_tensor *dst,
                              void *p, size_t n, ac_err *e) {
  unsigned char *bytes = malloc(n);
  if (bytes == NULL) return AC_FAIL(e, OOM, "no memory to read tensor '%s'", NAME(t));
  ac_err inner;
  ac_status st = read_into(f, t, dst, bytes, n, e);
  if (st == AC_OK && aci_element_widen(t->element, bytes, p, dst->numel, &inner) != AC_OK) {
    char path[ACI_PATH_SHOWN];
    st = AC_FAIL(e, DTYPE, "%s: tensor '%s' (%s): %s", aci_path_shown(f->path, path), NAME(t),
                 t->pub.dtype_name, inner.msg);
  }
  free(bytes);
  return st;
}

ac_status ac_safetensors_read(ac_safetensors *f, const ac_safetensors_entry *entry, ac_tensor *dst,
                              ac_err *e) {
  const aci_st_entry *t = (const aci_st_entry *)(const void *)entry;
  char path[ACI_PATH_SHOWN], is[128];
  const char *shown = aci_path_shown(f->path, path);
  if (!entry->has_dtype && !entry->widens)
    return AC_FAIL(e, DTYPE, "%s: tensor '%s' is %s, which has no tensors here", shown, NAME(t),
                   entry->dtype_name);
  size_t n = (size_t)(entry->end - entry->begin);
  if ((ac_dtype)dst->dtype != entry->dtype || !aci_is_contiguous(dst) ||
      (uint64_t)dst->numel * t->bits != (uint64_t)n * 8)
    return AC_FAIL(e, INVALID,
                   "%s: tensor '%s', %zu bytes of %s, does not fit its destination: %s%s", shown,
                   NAME(t), n, ac_dtype_name(entry->dtype), aci_tensor_str(dst, is, sizeof is),
                   aci_is_contiguous(dst) ? "" : ", not contiguous");
  if (n == 0) return AC_OK;
  if (dst->device->kind != AC_DEV_CPU)
    return AC_FAIL(e, DEVICE, "%s: tensor '%s' cannot be read into a tensor on %s", shown, NAME(t),
                   dst->device->name);
  aci_host_read w;
  void *p;
  AC_TRY(aci_host_write_open(dst, &w, &p, e));
  const ac_status st =
      t->element != NULL ? read_widened(f, t, dst, p, n, e) : read_into(f, t, dst, p, n, e);
  aci_host_write_close(&w);
  return st;
}
