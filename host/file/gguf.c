/* Reader of GGUF files: opens, checks every rule, finds values and tensors by name, reads tensors.
 * Called by the bindings. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "file/gguf.h"
#include "file/io.h"
#include "tensor/tensor_impl.h"

/* Places in the head, which moves while it grows. */
typedef struct place {
  uint64_t name, name_n, value;
} place;

struct ac_gguf {
  int fd;
  char *path;
  uint64_t file_bytes, at; /* at: the next byte of the head */
  unsigned char *head;
  uint64_t have, cap; /* bytes of the head that were read */
  int n_meta, n_tensors, cap_meta, cap_tensors;
  ac_gguf_value *meta;
  ac_gguf_entry *tensor;
  place *meta_at, *tensor_at;
  char *names; /* keys and names, each followed by a zero byte */
  uint64_t data_at;
  uint32_t alignment, version;
};

static ac_status refuse(ac_err *e, const ac_gguf *f, uint64_t at, const char *rule, const char *fmt,
                        ...) AC_PRINTF(5, 6);
static ac_status refuse(ac_err *e, const ac_gguf *f, uint64_t at, const char *rule, const char *fmt,
                        ...) {
  char text[256], path[ACI_PATH_SHOWN];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: not a GGUF file that can be read: rule %s at byte %llu: %s",
                 aci_path_shown(f->path, path), rule, (unsigned long long)at, text);
}

static ac_status no_memory(const ac_gguf *f, ac_err *e) {
  char path[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory for the head", aci_path_shown(f->path, path));
}

/* Text of a file as messages show it. */
static const char *shown(const unsigned char *s, uint64_t n, char buf[72]) {
  int k = 0;
  for (uint64_t i = 0; i < n && k < 64; i++) buf[k++] = s[i] >= 32 && s[i] < 127 ? (char)s[i] : '?';
  if (n > 64) memcpy(buf + k, "...", 3), k += 3;
  buf[k] = 0;
  return buf;
}

/* Makes the next n bytes of the head present. */
static ac_status need(ac_gguf *f, uint64_t n, ac_err *e) {
  if (n > f->file_bytes - f->at)
    return refuse(e, f, f->at, "truncated", "%llu bytes are needed, the file has %llu more",
                  (unsigned long long)n, (unsigned long long)(f->file_bytes - f->at));
  const uint64_t end = f->at + n;
  if (end <= f->have) return AC_OK;
  if (end > ACI_GGUF_MAX_HEAD)
    return refuse(e, f, f->at, "truncated", "a head of more than %llu bytes", ACI_GGUF_MAX_HEAD);
  uint64_t want = f->have * 2 < 65536 ? 65536 : f->have * 2;
  if (want < end) want = end;
  if (want > f->file_bytes) want = f->file_bytes;
  if (want > f->cap) {
    unsigned char *p = realloc(f->head, (size_t)want);
    if (p == NULL) return no_memory(f, e);
    f->head = p;
    f->cap = want;
  }
  AC_TRY(aci_pread_all(f->fd, f->path, f->head + f->have, (size_t)(want - f->have), f->have, e));
  f->have = want;
  return AC_OK;
}

static uint64_t little(const unsigned char *p, int n) {
  uint64_t v = 0;
  for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
  return v;
}

static ac_status take(ac_gguf *f, int n, uint64_t *v, ac_err *e) {
  AC_TRY(need(f, (uint64_t)n, e));
  *v = little(f->head + f->at, n);
  f->at += (uint64_t)n;
  return AC_OK;
}

/* A string of at most `most` bytes. *at is its first byte. */
static ac_status take_string(ac_gguf *f, uint64_t most, const char *rule, uint64_t *at, uint64_t *n,
                             ac_err *e) {
  const uint64_t where = f->at;
  AC_TRY(take(f, 8, n, e));
  if (*n > most)
    return refuse(e, f, where, rule, "a text of %llu bytes, more than %llu", (unsigned long long)*n,
                  (unsigned long long)most);
  AC_TRY(need(f, *n, e));
  *at = f->at;
  f->at += *n;
  return AC_OK;
}

static ac_status take_name(ac_gguf *f, place *p, ac_err *e) {
  const uint64_t where = f->at;
  AC_TRY(take_string(f, ACI_GGUF_MAX_KEY, "key", &p->name, &p->name_n, e));
  const char *s = (const char *)f->head + p->name;
  if (p->name_n == 0) return refuse(e, f, where, "key", "an empty name");
  if (memchr(s, 0, (size_t)p->name_n) != NULL)
    return refuse(e, f, where, "key", "a name with a zero byte");
  for (uint64_t i = 0; i < p->name_n;) {
    const int k = aci_utf8_length((const unsigned char *)s + i, (size_t)(p->name_n - i));
    if (k == 0) return refuse(e, f, where, "key", "a name that is not UTF-8");
    i += (uint64_t)k;
  }
  return AC_OK;
}

/* Bytes of a value of fixed size. 0: its size varies. */
static int kind_bytes(uint32_t kind) {
  static const unsigned char bytes[] = {
      [AC_GGUF_U8] = 1,  [AC_GGUF_I8] = 1,  [AC_GGUF_U16] = 2, [AC_GGUF_I16] = 2,
      [AC_GGUF_U32] = 4, [AC_GGUF_I32] = 4, [AC_GGUF_F32] = 4, [AC_GGUF_BOOL] = 1,
      [AC_GGUF_U64] = 8, [AC_GGUF_I64] = 8, [AC_GGUF_F64] = 8};
  return kind < sizeof bytes ? bytes[kind] : 0;
}

static ac_status check_bools(ac_gguf *f, uint64_t at, uint64_t n, ac_err *e) {
  for (uint64_t i = 0; i < n; i++)
    if (f->head[at + i] > 1) return refuse(e, f, at + i, "value", "a bool is %d", f->head[at + i]);
  return AC_OK;
}

static ac_status take_array(ac_gguf *f, ac_gguf_value *v, ac_err *e) {
  uint64_t kind, n;
  const uint64_t where = f->at;
  AC_TRY(take(f, 4, &kind, e));
  AC_TRY(take(f, 8, &n, e));
  if (kind == AC_GGUF_ARRAY) return refuse(e, f, where, "value", "an array of arrays");
  const int bytes = kind_bytes((uint32_t)kind);
  if (bytes == 0 && kind != AC_GGUF_STRING)
    return refuse(e, f, where, "type", "an array of the unknown type %llu",
                  (unsigned long long)kind);
  const uint64_t least = bytes > 0 ? (uint64_t)bytes : 8;
  if (n > (f->file_bytes - f->at) / least)
    return refuse(e, f, where, "count",
                  "an array of %llu values in a file that has %llu bytes more",
                  (unsigned long long)n, (unsigned long long)(f->file_bytes - f->at));
  v->item_kind = (uint8_t)kind;
  v->n = n;
  if (bytes > 0) {
    AC_TRY(need(f, n * (uint64_t)bytes, e));
    if (kind == AC_GGUF_BOOL) AC_TRY(check_bools(f, f->at, n, e));
    f->at += n * (uint64_t)bytes;
    return AC_OK;
  }
  for (uint64_t i = 0, at, len; i < n; i++)
    AC_TRY(take_string(f, ACI_GGUF_MAX_STRING, "value", &at, &len, e));
  return AC_OK;
}

/* One more element of an array that grows with the data read. */
static void *grown(void *p, int n, int *cap, size_t size) {
  if (n < *cap) return p;
  const int want = *cap == 0 ? 64 : *cap * 2;
  void *q = realloc(p, (size_t)want * size);
  if (q != NULL) *cap = want;
  return q;
}
#define GROW(f, list, other, n, cap, e)                             \
  do {                                                              \
    int cap_other = (cap);                                          \
    void *a = grown((f)->list, n, &(cap), sizeof *(f)->list);       \
    if (a == NULL) return no_memory(f, e);                          \
    (f)->list = a;                                                  \
    void *b = grown((f)->other, n, &cap_other, sizeof *(f)->other); \
    if (b == NULL) {                                                \
      (cap) = cap_other;                                            \
      return no_memory(f, e);                                       \
    }                                                               \
    (f)->other = b;                                                 \
  } while (0)

static ac_status take_meta(ac_gguf *f, ac_err *e) {
  uint64_t kind;
  GROW(f, meta, meta_at, f->n_meta, f->cap_meta, e);
  place *p = &f->meta_at[f->n_meta];
  ac_gguf_value *v = &f->meta[f->n_meta];
  memset(v, 0, sizeof *v);
  AC_TRY(take_name(f, p, e));
  const uint64_t where = f->at;
  AC_TRY(take(f, 4, &kind, e));
  v->kind = (uint8_t)kind;
  p->value = f->at;
  const int bytes = kind > 255 ? 0 : kind_bytes((uint32_t)kind);
  if (bytes > 0) {
    AC_TRY(need(f, (uint64_t)bytes, e));
    if (kind == AC_GGUF_BOOL) AC_TRY(check_bools(f, f->at, 1, e));
    f->at += (uint64_t)bytes;
    v->n = 1;
  } else if (kind == AC_GGUF_STRING) {
    AC_TRY(take_string(f, ACI_GGUF_MAX_STRING, "value", &p->value, &v->n, e));
  } else if (kind == AC_GGUF_ARRAY) {
    AC_TRY(take_array(f, v, e));
    p->value += 12;
  } else {
    char text[72];
    return refuse(e, f, where, "type", "'%s' has the unknown type %llu",
                  shown(f->head + p->name, p->name_n, text), (unsigned long long)kind);
  }
  f->n_meta++;
  return AC_OK;
}

static ac_status take_tensor(ac_gguf *f, ac_err *e) {
  uint64_t ndim, type, v;
  char text[72];
  GROW(f, tensor, tensor_at, f->n_tensors, f->cap_tensors, e);
  place *p = &f->tensor_at[f->n_tensors];
  ac_gguf_entry *t = &f->tensor[f->n_tensors];
  memset(t, 0, sizeof *t);
  AC_TRY(take_name(f, p, e));
  const uint64_t where = f->at;
#define SHOWN shown(f->head + p->name, p->name_n, text)
  AC_TRY(take(f, 4, &ndim, e));
  if (ndim > ACI_GGUF_MAX_DIMS)
    return refuse(e, f, where, "shape", "tensor '%s' has %llu dims", SHOWN,
                  (unsigned long long)ndim);
  t->ndim = (int)ndim;
  uint64_t n = 1;
  for (int d = t->ndim - 1; d >= 0; d--) { /* the innermost comes first */
    AC_TRY(take(f, 8, &v, e));
    if (v > (1ull << 62) || (v > 0 && n > (1ull << 62) / v))
      return refuse(e, f, where, "shape", "tensor '%s' has more than 2^62 elements", SHOWN);
    t->shape[d] = (int64_t)v;
    n *= v;
  }
  AC_TRY(take(f, 4, &type, e));
  const aci_gguf_type *k = type > UINT32_MAX ? NULL : aci_gguf_type_at((uint32_t)type);
  if (k == NULL)
    return refuse(e, f, where, "type", "tensor '%s' has the type %llu, which is not known here",
                  SHOWN, (unsigned long long)type);
  t->type = (int)type;
  t->type_name = k->name;
  t->dtype = k->dtype >= 0 ? (ac_dtype)k->dtype : AC_F32;
  const uint64_t row = t->ndim > 0 ? (uint64_t)t->shape[t->ndim - 1] : 1;
  if (row % (uint64_t)k->block != 0)
    return refuse(e, f, where, "shape",
                  "tensor '%s' has rows of %llu, which are not whole blocks of %d (%s)", SHOWN,
                  (unsigned long long)row, k->block, k->name);
  const uint64_t blocks = n / (uint64_t)k->block;
  if (blocks > (1ull << 62) / (uint64_t)k->bytes)
    return refuse(e, f, where, "shape", "tensor '%s' has more than 2^62 bytes", SHOWN);
  t->bytes = blocks * (uint64_t)k->bytes;
  AC_TRY(take(f, 8, &t->begin, e));
  p->value = where;
  f->n_tensors++;
  return AC_OK;
#undef SHOWN
}

typedef struct named {
  const char *name;
  int i;
} named;

static int by_name(const void *a, const void *b) {
  return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Names as zero-terminated strings, values as pointers. Rejects repeated names. */
static ac_status settle(ac_gguf *f, ac_err *e) {
  uint64_t bytes = 1;
  for (int i = 0; i < f->n_meta; i++) bytes += f->meta_at[i].name_n + 1;
  for (int i = 0; i < f->n_tensors; i++) bytes += f->tensor_at[i].name_n + 1;
  f->names = malloc((size_t)bytes);
  const int most = f->n_meta > f->n_tensors ? f->n_meta : f->n_tensors;
  named *list = malloc((size_t)(most > 0 ? most : 1) * sizeof *list);
  if (f->names == NULL || list == NULL) {
    free(list);
    return no_memory(f, e);
  }
  char *s = f->names;
  for (int which = 0; which < 2; which++) {
    const int n = which == 0 ? f->n_meta : f->n_tensors;
    const place *at = which == 0 ? f->meta_at : f->tensor_at;
    for (int i = 0; i < n; i++) {
      memcpy(s, f->head + at[i].name, (size_t)at[i].name_n);
      s[at[i].name_n] = 0;
      if (which == 0) f->meta[i].key = s, f->meta[i].at = f->head + at[i].value;
      else f->tensor[i].name = s;
      list[i] = (named){s, i};
      s += at[i].name_n + 1;
    }
    qsort(list, (size_t)n, sizeof *list, by_name);
    for (int i = 1; i < n; i++)
      if (strcmp(list[i - 1].name, list[i].name) == 0) {
        char text[72];
        const uint64_t where = at[list[i].i].name;
        shown((const unsigned char *)list[i].name, strlen(list[i].name), text);
        free(list);
        return refuse(e, f, where, "key", "duplicate name '%s'", text);
      }
  }
  free(list);
  return AC_OK;
}

typedef struct span {
  uint64_t begin, end;
  int i;
} span;

static int by_begin(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return x->i - y->i;
}

/* Data lies aligned, inside the file, and nowhere twice. */
static ac_status check_places(ac_gguf *f, ac_err *e) {
  char text[72];
  uint64_t room = f->data_at <= f->file_bytes ? f->file_bytes - f->data_at : 0;
  span *list = malloc((size_t)(f->n_tensors > 0 ? f->n_tensors : 1) * sizeof *list);
  if (list == NULL) return no_memory(f, e);
  ac_status st = AC_OK;
  for (int i = 0; i < f->n_tensors && st == AC_OK; i++) {
    const ac_gguf_entry *t = &f->tensor[i];
    shown((const unsigned char *)t->name, strlen(t->name), text);
    if (t->begin % f->alignment != 0)
      st = refuse(e, f, f->tensor_at[i].value, "place",
                  "tensor '%s' lies at %llu of the data, not aligned to %u", text,
                  (unsigned long long)t->begin, f->alignment);
    else if (t->begin > room || t->bytes > room - t->begin)
      st = refuse(e, f, f->tensor_at[i].value, "place",
                  "tensor '%s' has %llu bytes at %llu of the data, which has %llu", text,
                  (unsigned long long)t->bytes, (unsigned long long)t->begin,
                  (unsigned long long)room);
    list[i] = (span){t->begin, t->begin + t->bytes, i};
  }
  if (st == AC_OK) qsort(list, (size_t)f->n_tensors, sizeof *list, by_begin);
  for (int i = 1; i < f->n_tensors && st == AC_OK; i++)
    if (list[i].begin < list[i - 1].end && list[i].end > list[i].begin) {
      const char *name = f->tensor[list[i].i].name;
      st = refuse(e, f, f->tensor_at[list[i].i].value, "place", "tensor '%s' overlaps another",
                  shown((const unsigned char *)name, strlen(name), text));
    }
  free(list);
  return st;
}

static ac_status find_alignment(ac_gguf *f, ac_err *e) {
  const ac_gguf_value *v = ac_gguf_find_meta(f, "general.alignment");
  f->alignment = 32;
  if (v == NULL) return AC_OK;
  const uint64_t a = v->kind == AC_GGUF_U32 ? little(v->at, 4) : 0;
  if (a == 0 || a > 65536 || (a & (a - 1)) != 0)
    return refuse(e, f, (uint64_t)(v->at - f->head), "alignment",
                  "general.alignment is not a power of two in 1 .. 65536 of type u32");
  f->alignment = (uint32_t)a;
  return AC_OK;
}

static ac_status open_and_check(ac_gguf *f, ac_err *e) {
  uint64_t version, n_tensors, n_meta;
  AC_TRY(aci_open_read(f->path, &f->fd, &f->file_bytes, e));
  AC_TRY(need(f, 4, e));
  if (memcmp(f->head, "GGUF", 4) != 0)
    return refuse(e, f, 0, "magic", "it does not begin with GGUF");
  f->at = 4;
  AC_TRY(take(f, 4, &version, e));
  if ((version & 0xFFFF) == 0)
    return refuse(e, f, 4, "version", "it was written on a big-endian machine");
  if (version != 2 && version != 3)
    return refuse(e, f, 4, "version", "version %llu; 2 and 3 are read",
                  (unsigned long long)version);
  f->version = (uint32_t)version;
  AC_TRY(take(f, 8, &n_tensors, e));
  AC_TRY(take(f, 8, &n_meta, e));
  if (n_tensors > ACI_GGUF_MAX_COUNT || n_meta > ACI_GGUF_MAX_COUNT ||
      n_meta > f->file_bytes / 13 || n_tensors > f->file_bytes / 24)
    return refuse(e, f, 8, "count", "%llu tensors and %llu values in a file of %llu bytes",
                  (unsigned long long)n_tensors, (unsigned long long)n_meta,
                  (unsigned long long)f->file_bytes);
  for (uint64_t i = 0; i < n_meta; i++) AC_TRY(take_meta(f, e));
  for (uint64_t i = 0; i < n_tensors; i++) AC_TRY(take_tensor(f, e));
  AC_TRY(settle(f, e));
  AC_TRY(find_alignment(f, e));
  f->data_at = (f->at + f->alignment - 1) / f->alignment * f->alignment;
  return check_places(f, e);
}

ac_status ac_gguf_open(const char *path, ac_gguf **out, ac_err *e) {
  *out = NULL;
  ac_gguf *f = calloc(1, sizeof *f);
  if (f == NULL || (f->path = strdup(path)) == NULL) {
    free(f);
    return AC_FAIL(e, OOM, "no memory to open a GGUF file");
  }
  f->fd = -1;
  const ac_status st = open_and_check(f, e);
  if (st == AC_OK) *out = f;
  else ac_gguf_close(f);
  return st;
}

void ac_gguf_close(ac_gguf *f) {
  if (f == NULL) return;
  if (f->fd >= 0) close(f->fd);
  free(f->path);
  free(f->head);
  free(f->meta);
  free(f->meta_at);
  free(f->tensor);
  free(f->tensor_at);
  free(f->names);
  free(f);
}

int ac_gguf_n_meta(const ac_gguf *f) { return f->n_meta; }
const ac_gguf_value *ac_gguf_meta(const ac_gguf *f, int i) { return &f->meta[i]; }
int ac_gguf_n_tensors(const ac_gguf *f) { return f->n_tensors; }
const ac_gguf_entry *ac_gguf_tensor(const ac_gguf *f, int i) { return &f->tensor[i]; }

const ac_gguf_value *ac_gguf_find_meta(const ac_gguf *f, const char *key) {
  for (int i = 0; i < f->n_meta; i++)
    if (strcmp(f->meta[i].key, key) == 0) return &f->meta[i];
  return NULL;
}

static ac_status read_blocks(ac_gguf *f, const ac_gguf_entry *t, ac_team *team, float *dst,
                             ac_err *e) {
  const aci_gguf_type *k = aci_gguf_type_at((uint32_t)t->type);
  /* blocks at a time */
  const uint64_t per = (1 << 20) / (uint64_t)k->bytes, all = t->bytes / (uint64_t)k->bytes;
  unsigned char *buffer = malloc((size_t)(per < all ? per : all) * (size_t)k->bytes);
  if (buffer == NULL) return AC_FAIL(e, OOM, "no memory to read tensor '%s'", t->name);
  ac_status st = AC_OK;
  for (uint64_t at = 0; at < all && st == AC_OK; at += per) {
    const uint64_t n = all - at < per ? all - at : per;
    st = aci_pread_all(f->fd, f->path, buffer, (size_t)n * (size_t)k->bytes,
                       f->data_at + t->begin + at * (uint64_t)k->bytes, e);
    if (st == AC_OK) aci_gguf_to_f32(team, k, buffer, dst + at * (uint64_t)k->block, (int64_t)n);
  }
  free(buffer);
  return st;
}

ac_status ac_gguf_read(ac_gguf *f, int i, ac_tensor *dst, ac_err *e) {
  const ac_gguf_entry *t = &f->tensor[i];
  const aci_gguf_type *k = aci_gguf_type_at((uint32_t)t->type);
  char path[ACI_PATH_SHOWN], is[128];
  uint64_t n = 1;
  for (int d = 0; d < t->ndim; d++) n *= (uint64_t)t->shape[d];
  if ((ac_dtype)dst->dtype != t->dtype || !aci_is_contiguous(dst) || (uint64_t)dst->numel != n)
    return AC_FAIL(e, INVALID,
                   "%s: tensor '%s', %llu elements of %s, does not fit its destination: %s",
                   aci_path_shown(f->path, path), t->name, (unsigned long long)n,
                   ac_dtype_name(t->dtype), aci_tensor_str(dst, is, sizeof is));
  if (n == 0) return AC_OK;
  void *p = ac_tensor_data(dst);
  if (p == NULL)
    return AC_FAIL(e, DEVICE, "%s: tensor '%s' cannot be read into a tensor on %s",
                   aci_path_shown(f->path, path), t->name, dst->device->name);
  atomic_fetch_add_explicit(&dst->storage->version, 1, memory_order_relaxed);
  if (k->dtype < 0) return read_blocks(f, t, dst->device->team, p, e);
  return aci_pread_all(f->fd, f->path, p, (size_t)t->bytes, f->data_at + t->begin, e);
}
