/* The archive of torch.save since PyTorch 1.6: a pickle (data.pkl) and one stored entry per storage
 * (data/<key>). Called by pt.c. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32.h"
#include "file/io.h"
#include "file/pt.h"
#include "file/safetensors.h"

#define SHOWN(s, n) aci_st_shown((s), (n), (char[ACI_ST_SHOWN]){0})

static ac_status read_entry(ac_pt *f, const aci_pt_entry *x, void *to, ac_err *e) {
  AC_TRY(aci_pread_all(f->fd, f->path, to, (size_t)x->bytes, f->begin + x->at, e));
  if (aci_crc32(0, to, (size_t)x->bytes) == x->crc) return AC_OK;
  return aci_pt_refuse(e, f, f->begin + x->at, "crc",
                       "entry '%s' does not match its CRC-32: the file is damaged",
                       SHOWN(x->name, x->name_len));
}

/* The short entries: a number or a word each. */
static ac_status read_word(ac_pt *f, const char *name, char word[65], ac_err *e) {
  const aci_pt_entry *x = aci_pt_zip_find(f, name, strlen(name));
  word[0] = 0;
  if (x == NULL) return AC_OK;
  if (x->bytes > 64)
    return aci_pt_refuse(e, f, f->begin + x->at, "size", "entry '%s' of %llu bytes", name,
                         (unsigned long long)x->bytes);
  AC_TRY(read_entry(f, x, word, e));
  word[x->bytes] = 0;
  return AC_OK;
}

static ac_status read_words(ac_pt *f, ac_err *e) {
  static const char *const names[] = {"version", ".format_version", ".storage_alignment",
                                      ".data/serialization_id", "byteorder"};
  char word[65];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) AC_TRY(read_word(f, names[i], word, e));
  const bool big = strcmp(word, "big") == 0;
  if (!big && word[0] != 0 && strcmp(word, "little") != 0)
    return aci_pt_refuse(e, f, f->begin, "format", "byteorder '%s', neither little nor big",
                         SHOWN(word, strlen(word)));
  f->big_endian = big;
  return AC_OK;
}

static ac_status place_storages(ac_pt *f, ac_err *e) {
  for (uint32_t i = 0; i < f->n_storages; i++) {
    aci_pt_storage *s = &f->storage[i];
    const uint64_t at = f->pickle_at + s->made_at;
    if (s->placed) continue; /* in the pickle, or made of another */
    char name[32] = "data/";
    const aci_pt_entry *x = NULL;
    if (s->key_len <= 20) {
      memcpy(name + 5, s->key, s->key_len);
      x = aci_pt_zip_find(f, name, s->key_len + 5);
    }
    if (x == NULL || s->key_len == 0)
      return aci_pt_refuse(e, f, at, "missing", "storage '%s' has no entry in the archive",
                           SHOWN(s->key, s->key_len));
    if (x->bytes != s->bytes)
      return aci_pt_refuse(
          e, f, at, "size", "storage '%s' of %llu elements of %s, %llu bytes: its entry has %llu",
          SHOWN(s->key, s->key_len), (unsigned long long)s->numel, aci_pt_dtype_at(s->dtype)->name,
          (unsigned long long)s->bytes, (unsigned long long)x->bytes);
    s->at = f->begin + x->at;
    s->crc = x->crc;
  }
  for (uint32_t i = 0; f->big_endian && i < f->n_tensors; i++) {
    const ac_pt_tensor *t = &f->tensor[i];
    const int own = aci_pt_dtype_find(t->dtype_name, strlen(t->dtype_name), false);
    const aci_pt_storage *s = &f->storage[t->storage];
    if (s->from > 0) s = &f->storage[s->from - 1];
    if (s->data == NULL && aci_pt_dtype_at(own)->bytes != aci_pt_dtype_at(s->dtype)->bytes)
      return aci_pt_refuse(
          e, f, f->pickle_at, "format",
          "a big-endian %s in an untyped storage, whose byte order PyTorch leaves open",
          t->dtype_name);
  }
  return AC_OK;
}

ac_status aci_pt_zip(ac_pt *f, ac_err *e) {
  size_t used;
  AC_TRY(aci_pt_zip_directory(f, e));
  const aci_pt_entry *x = aci_pt_zip_find(f, "data.pkl", 8);
  if (x == NULL) return aci_pt_refuse(e, f, f->begin, "missing", "the archive has no data.pkl");
  if (x->bytes > ACI_PT_MAX_PICKLE)
    return aci_pt_refuse(e, f, f->begin + x->at, "size", "data.pkl of %llu bytes, more than %d",
                         (unsigned long long)x->bytes, (int)ACI_PT_MAX_PICKLE);
  AC_TRY(read_words(f, e));
  f->pickle = malloc((size_t)x->bytes + 1);
  if (f->pickle == NULL) return aci_pt_no_memory(e, f);
  f->pickle_bytes = (size_t)x->bytes;
  f->pickle_at = f->begin + x->at;
  f->has_crc = true;
  AC_TRY(read_entry(f, x, f->pickle, e));
  AC_TRY(aci_pt_pickle(f, 0, f->pickle_bytes, &used, &f->root, NULL, e));
  if (used != f->pickle_bytes)
    return aci_pt_refuse(e, f, f->pickle_at + used, "size", "%zu bytes after STOP",
                         f->pickle_bytes - used);
  return place_storages(f, e);
}
