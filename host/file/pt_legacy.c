/* torch.save before PyTorch 1.6: five pickles (a magic number, 1001, sizes of C types, the tree,
 * the keys of the storages), then of every storage its number of elements, 8 bytes, and its
 * elements, little-endian. Called by pt.c. */
#include <stdlib.h>
#include <string.h>

#include "file/io.h"
#include "file/pt.h"
#include "file/safetensors.h"

#define SHOWN(s, n) aci_st_shown((s), (n), (char[ACI_ST_SHOWN]){0})
static const unsigned char magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

/* All five from the first n bytes of the file. *keys: the list, *end: start of the storages. */
static ac_status read_pickles(ac_pt *f, size_t n, uint32_t *keys, size_t *end, bool *cut,
                              ac_err *e) {
  size_t at = 0;
  uint32_t id;
  const uint64_t from = f->begin;
  AC_TRY(aci_pt_pickle(f, at, n, &at, &id, cut, e));
  const ac_pt_value *v = &f->value[id];
  if (v->kind != AC_PT_WIDE_INT || v->n != sizeof magic || memcmp(v->s, magic, sizeof magic) != 0)
    return aci_pt_refuse(
        e, f, from, "format",
        "begins with %s, not with torch.save's magic number: a bare pickle is not read; save it with torch.save",
        aci_pt_kind_name(v->kind));
  size_t was = at;
  AC_TRY(aci_pt_pickle(f, at, n, &at, &id, cut, e));
  if (f->value[id].kind != AC_PT_INT || f->value[id].i != 1001)
    return aci_pt_refuse(e, f, from + was, "format", "a version of the layout other than 1001");
  was = at;
  AC_TRY(aci_pt_pickle(f, at, n, &at, &id, cut, e));
  if (f->value[id].kind != AC_PT_DICT)
    return aci_pt_refuse(e, f, from + was, "format", "the sizes of types are not a dict");
  AC_TRY(aci_pt_pickle(f, at, n, &at, &f->root, cut, e));
  was = at;
  AC_TRY(aci_pt_pickle(f, at, n, &at, keys, cut, e));
  if (f->value[*keys].kind != AC_PT_LIST)
    return aci_pt_refuse(e, f, from + was, "format", "the storages' keys are not a list");
  *end = at;
  return AC_OK;
}

static ac_status place_storages(ac_pt *f, uint32_t keys, size_t begin, ac_err *e) {
  uint64_t at = f->begin + begin;
  const ac_pt_value *list = &f->value[keys];
  for (uint32_t i = 0; i < list->n; i++) {
    const ac_pt_value *k = &f->value[list->item[i]];
    aci_pt_storage *s = k->kind == AC_PT_STR ? aci_pt_storage_find(f, k->s, k->n) : NULL;
    if (s == NULL || s->placed)
      return aci_pt_refuse(e, f, f->pickle_at + k->at, "missing", "a key of no storage, or twice");
    unsigned char head[8];
    uint64_t n = 0;
    const char *key = s->key;
    if (f->end - at < 8)
      return aci_pt_refuse(e, f, f->end, "truncated", "before storage '%s'",
                           SHOWN(key, s->key_len));
    AC_TRY(aci_pread_all(f->fd, f->path, head, 8, at, e));
    for (int b = 7; b >= 0; b--) n = n << 8 | head[b];
    if (n != s->numel)
      return aci_pt_refuse(e, f, at, "size", "storage '%s' of %llu elements has %llu here",
                           SHOWN(key, s->key_len), (unsigned long long)s->numel,
                           (unsigned long long)n);
    at += 8;
    if (f->end - at < s->bytes)
      return aci_pt_refuse(e, f, f->end, "truncated", "storage '%s' of %llu bytes, %llu are left",
                           SHOWN(key, s->key_len), (unsigned long long)s->bytes,
                           (unsigned long long)(f->end - at));
    s->at = at;
    s->placed = true;
    at += s->bytes;
  }
  for (uint32_t i = 0; i < f->n_storages; i++)
    if (!f->storage[i].placed)
      return aci_pt_refuse(e, f, f->pickle_at + f->storage[i].made_at, "missing",
                           "storage '%s' is not in the file",
                           SHOWN(f->storage[i].key, f->storage[i].key_len));
  if (at != f->end)
    return aci_pt_refuse(e, f, at, "size", "%llu bytes after the last storage",
                         (unsigned long long)(f->end - at));
  return AC_OK;
}

/* How long the pickles are is known when they have been read: with ever more of the file in
 * memory. */
ac_status aci_pt_legacy(ac_pt *f, ac_err *e) {
  const uint64_t all = f->end - f->begin;
  size_t n = 0, want = (size_t)1 << 20, end = 0;
  uint32_t keys = 0;
  f->pickle_at = f->begin;
  for (;; want *= 4) {
    if (want > ACI_PT_MAX_PICKLE) want = ACI_PT_MAX_PICKLE;
    if (want > all) want = (size_t)all;
    unsigned char *more = realloc(f->pickle, want + 1);
    if (more == NULL) return aci_pt_no_memory(e, f);
    f->pickle = more;
    f->pickle_bytes = want;
    AC_TRY(aci_pread_all(f->fd, f->path, more + n, want - n, f->begin + n, e));
    n = want;
    bool cut = false;
    const ac_status st = read_pickles(f, n, &keys, &end, &cut, e);
    if (st == AC_OK) break;
    if (!cut || n == all) return st;
    if (n == ACI_PT_MAX_PICKLE)
      return aci_pt_refuse(e, f, f->begin + n, "size", "pickles of more than %d bytes",
                           (int)ACI_PT_MAX_PICKLE);
    aci_pt_clear(f);
  }
  return place_storages(f, keys, end, e);
}
