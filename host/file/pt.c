/* Files of torch.save: which layout a file has, its values by number, the bytes of its storages.
 * The map of the parts is in pt.h. */
#include "file/pt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32.h"
#include "base/strbuf.h"
#include "file/elements.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "tensor/tensor_impl.h"

ac_status aci_pt_refuse(ac_err *e, const ac_pt *f, uint64_t at, const char *rule, const char *fmt,
                        ...) {
  char what[300], path[ACI_PATH_SHOWN];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: not a torch.save file that can be read: rule %s at byte %llu: %s",
                 aci_path_shown(f->path, path), rule, (unsigned long long)at, what);
}

ac_status aci_pt_no_memory(ac_err *e, const ac_pt *f) {
  char path[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory", aci_path_shown(f->path, path));
}

/* ---- which layout ---- */

enum { HEAD = 512 };
static bool is_zip(const unsigned char *p, size_t n) {
  return n >= 4 && p[0] == 'P' && p[1] == 'K' &&
         ((p[2] == 3 && p[3] == 4) || (p[2] == 5 && p[3] == 6));
}
static bool is_tar(const unsigned char *p, size_t n) {
  return n >= 262 && memcmp(p + 257, "ustar", 5) == 0;
}
/* The magic number stands near the beginning of the first pickle, whatever its protocol. */
static bool is_legacy(const unsigned char *p, size_t n) {
  static const unsigned char magic[4] = {0x6c, 0xfc, 0x9c, 0x46};
  for (size_t i = 2; n > 2 && p[0] == 0x80 && i + 4 <= n && i < 24; i++)
    if (memcmp(p + i, magic, 4) == 0) return true;
  return false;
}

static ac_status read_head(const ac_pt *f, unsigned char head[HEAD], size_t *n, ac_err *e) {
  *n = f->end - f->begin < HEAD ? (size_t)(f->end - f->begin) : HEAD;
  return aci_pread_all(f->fd, f->path, head, *n, f->begin, e);
}

ac_status aci_pt_is(const char *path, bool *is, ac_err *e) {
  static const char *const ends[] = {".pt", ".pth", ".bin", ".ckpt", ".pkl"};
  unsigned char head[HEAD];
  ac_pt f = {.path = (char *)(uintptr_t)path};
  size_t n = 0;
  *is = false;
  AC_TRY(aci_open_read(path, &f.fd, &f.end, e));
  const ac_status st = read_head(&f, head, &n, e);
  close(f.fd);
  AC_TRY(st);
  const char *dot = strrchr(path, '.');
  if (dot != NULL && strcmp(dot, ".safetensors") == 0) return AC_OK;
  for (size_t i = 0; dot != NULL && i < sizeof ends / sizeof *ends; i++)
    *is = *is || strcmp(dot, ends[i]) == 0;
  if (*is && n >= 9 && head[0] != 0x80 && !is_zip(head, n) &&
      memcmp(head + 3, "\0\0\0\0\0{", 6) == 0)
    *is = false; /* safetensors under another name */
  *is = *is || is_legacy(head, n) ||
        (is_zip(head, n) && n >= 8 && (head[4] != 0 || head[6] != 0 || head[7] != 0));
  return AC_OK;
}

static ac_status open_and_check(ac_pt *f, uint64_t bytes, ac_err *e) {
  unsigned char head[HEAD];
  size_t n, used;
  AC_TRY(aci_open_read(f->path, &f->fd, &f->end, e));
  if (bytes != UINT64_MAX) {
    if (f->begin > f->end || bytes > f->end - f->begin)
      return aci_pt_refuse(
          e, f, f->end, "truncated", "%llu bytes at %llu are to be read of a file of %llu",
          (unsigned long long)bytes, (unsigned long long)f->begin, (unsigned long long)f->end);
    f->end = f->begin + bytes;
  }
  AC_TRY(read_head(f, head, &n, e));
  if (f->metadata) {
    if (f->end > ACI_PT_MAX_PICKLE)
      return aci_pt_refuse(e, f, 0, "size", "a pickle of %llu bytes", (unsigned long long)f->end);
    f->pickle_bytes = (size_t)f->end;
    if ((f->pickle = malloc(f->pickle_bytes + 1)) == NULL) return aci_pt_no_memory(e, f);
    AC_TRY(aci_pread_all(f->fd, f->path, f->pickle, f->pickle_bytes, 0, e));
    AC_TRY(aci_pt_pickle(f, 0, f->pickle_bytes, &used, &f->root, NULL, e));
    if (used != f->pickle_bytes)
      return aci_pt_refuse(e, f, used, "size", "%zu bytes after STOP", f->pickle_bytes - used);
  } else if (n == 0) {
    return aci_pt_refuse(e, f, f->begin, "truncated", "no bytes");
  } else if (is_zip(head, n)) {
    AC_TRY(aci_pt_zip(f, e));
  } else if (head[0] == 0x80) {
    AC_TRY(aci_pt_legacy(f, e));
  } else {
    return aci_pt_refuse(
        e, f, f->begin, "format", "%s",
        is_tar(head, n) ? "the tar layout of PyTorch before 0.2; load and save it with a newer one"
                        : "neither an archive nor a pickle of torch.save; save it with torch.save");
  }
  return aci_pt_check_tree(f, f->root, e);
}

static ac_status open_new(const char *path, uint64_t begin, uint64_t bytes, bool metadata,
                          ac_pt **out, ac_err *e) {
  *out = NULL;
  ac_pt *f = calloc(1, sizeof *f);
  if (f == NULL || (f->path = strdup(path)) == NULL) {
    free(f);
    return AC_FAIL(e, OOM, "no memory to open a file of torch.save");
  }
  f->fd = -1;
  f->begin = begin;
  f->metadata = metadata;
  const ac_status st = open_and_check(f, bytes, e);
  if (st == AC_OK) *out = f;
  else ac_pt_close(f);
  return st;
}
ac_status ac_pt_open(const char *path, ac_pt **out, ac_err *e) {
  return open_new(path, 0, UINT64_MAX, false, out, e);
}
ac_status aci_pt_open_part(const char *path, uint64_t begin, uint64_t bytes, ac_pt **out,
                           ac_err *e) {
  return open_new(path, begin, bytes, false, out, e);
}
ac_status aci_pt_open_metadata(const char *path, ac_pt **out, ac_err *e) {
  return open_new(path, 0, UINT64_MAX, true, out, e);
}

void ac_pt_close(ac_pt *f) {
  if (f == NULL) return;
  if (f->fd >= 0) close(f->fd);
  aci_pt_clear(f);
  free(f->path);
  free(f->pickle);
  free(f->value);
  free(f->text);
  free(f->tensor);
  free(f->storage);
  free(f->view);
  free(f->directory);
  free(f->entry);
  free(f);
}

/* ---- contents ---- */
uint32_t ac_pt_root(const ac_pt *f) { return f->root; }
const ac_pt_value *ac_pt_at(const ac_pt *f, uint32_t id) { return &f->value[id]; }
const ac_pt_tensor *ac_pt_tensor_at(const ac_pt *f, int64_t i) { return &f->tensor[i]; }
int ac_pt_n_storages(const ac_pt *f) { return (int)f->n_storages; }
uint64_t ac_pt_storage_bytes(const ac_pt *f, int i) { return f->storage[i].bytes; }

static void swap(unsigned char *p, uint64_t bytes, size_t width) {
  for (uint64_t i = 0; i + width <= bytes; i += width)
    for (size_t a = 0, b = width - 1; a < b; a++, b--) {
      const unsigned char c = p[i + a];
      p[i + a] = p[i + b];
      p[i + b] = c;
    }
}

/* The bytes of a storage, in this machine's order. */
static ac_status read_bytes(ac_pt *f, const aci_pt_storage *s, unsigned char *p, ac_err *e) {
  enum { PIECE = 1 << 20 }; /* bytes are summed while they are in the cache */
  const aci_pt_dtype *d = aci_pt_dtype_at(s->dtype);
  const size_t width = d->pairs ? (size_t)d->bytes / 2 : (size_t)d->bytes;
  uint32_t crc = 0;
  if (s->data != NULL) {
    memcpy(p, s->data, s->bytes);
    if (s->data_swapped) swap(p, s->bytes, width);
    return AC_OK;
  }
  for (uint64_t at = 0; at < s->bytes; at += PIECE) {
    const size_t n = s->bytes - at < PIECE ? (size_t)(s->bytes - at) : PIECE;
    AC_TRY(aci_pread_all(f->fd, f->path, p + at, n, s->at + at, e));
    if (f->has_crc) crc = aci_crc32(crc, p + at, n);
  }
  if (f->has_crc && crc != s->crc)
    return aci_pt_refuse(e, f, s->at, "crc",
                         "storage '%s' does not match its CRC-32: the file is damaged",
                         aci_st_shown(s->key, s->key_len, (char[ACI_ST_SHOWN]){0}));
  if (f->big_endian) swap(p, s->bytes, width);
  return AC_OK;
}

/* A storage that holds another one's elements, converted. */
static ac_status read_converted(ac_pt *f, const aci_pt_storage *s, unsigned char *p, ac_err *e) {
  const aci_pt_storage *from = &f->storage[s->from - 1];
  unsigned char *raw = malloc(from->bytes);
  ac_err why;
  if (raw == NULL) return aci_pt_no_memory(e, f);
  ac_status st = read_bytes(f, from, raw, e);
  if (st == AC_OK && aci_element_widen(s->element, raw, p, (int64_t)s->numel, &why) != AC_OK)
    st = aci_pt_refuse(e, f, from->data != NULL ? f->pickle_at + s->made_at : from->at, "size",
                       "a %s in storage '%s' that no dtype holds: %s; save it in another dtype",
                       s->element->torch_name,
                       aci_st_shown(s->key, s->key_len, (char[ACI_ST_SHOWN]){0}), why.msg);
  free(raw);
  return st;
}

ac_status ac_pt_read(ac_pt *f, int i, ac_tensor *dst, ac_err *e) {
  const aci_pt_storage *s = &f->storage[i];
  char is[128];
  if (dst->dtype != AC_U8 || !aci_is_contiguous(dst) || (uint64_t)dst->numel != s->bytes)
    return AC_FAIL(e, INVALID, "%s: storage '%s', %llu bytes, does not fit its destination: %s",
                   f->path, aci_st_shown(s->key, s->key_len, (char[ACI_ST_SHOWN]){0}),
                   (unsigned long long)s->bytes, aci_tensor_str(dst, is, sizeof is));
  if (s->bytes == 0) return AC_OK;
  unsigned char *p = ac_tensor_data(dst);
  if (p == NULL)
    return AC_FAIL(e, DEVICE, "%s: nothing can be read into a tensor on %s", f->path,
                   dst->device->name);
  atomic_fetch_add_explicit(&dst->storage->version, 1, memory_order_relaxed);
  if (s->from > 0) return read_converted(f, s, p, e);
  AC_TRY(read_bytes(f, s, p, e));
  for (uint64_t k = 0; s->has_bool && k < s->bytes; k++)
    p[k] = p[k] != 0; /* a file may hold any byte */
  return AC_OK;
}

char *ac_pt_decimal(const ac_pt_value *v) {
  uint32_t limb[ACI_PT_MAX_LONG / 4 + 1] = {0}; /* magnitude, lowest first */
  const unsigned char *p = (const unsigned char *)v->s;
  const bool negative = p[v->n - 1] >> 7;
  int n = (int)((v->n + 3) / 4), used = 0;
  uint32_t carry = 1;
  for (uint32_t i = 0; i < (uint32_t)n * 4; i++) {
    uint32_t b = i < v->n ? p[i] : negative ? 255 : 0;
    if (negative) {
      b = (b ^ 255) + carry;
      carry = b >> 8;
      b &= 255;
    }
    limb[i / 4] |= b << (i % 4 * 8);
  }
  uint32_t part[ACI_PT_MAX_LONG / 3 + 2]; /* nine digits each, lowest first */
  while (n > 0 && limb[n - 1] == 0) n--;
  while (n > 0) {
    uint64_t rest = 0;
    for (int i = n - 1; i >= 0; i--) {
      rest = rest << 32 | limb[i];
      limb[i] = (uint32_t)(rest / 1000000000);
      rest %= 1000000000;
    }
    part[used++] = (uint32_t)rest;
    while (n > 0 && limb[n - 1] == 0) n--;
  }
  aci_strbuf b = {0};
  if (negative) aci_strbuf_putc(&b, '-');
  aci_strbuf_printf(&b, "%u", used > 0 ? part[used - 1] : 0);
  for (int i = used - 2; i >= 0; i--) aci_strbuf_printf(&b, "%09u", part[i]);
  return aci_strbuf_take(&b, NULL);
}
