/* Opening sharded safetensors: the chunks of each logical tensor, and the check that they tile it.
 * Boxes are read by sharded_read.c. The entries of the files' headers, which safetensors_read.c has
 * checked, bound the allocations. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/io.h"
#include "file/safetensors.h"
#include "file/sharded_impl.h"

#define SHOWN(name) aci_st_shown((name), strlen(name), (char[ACI_ST_SHOWN]){0})

ac_status aci_sharded_refuse(ac_err *e, const ac_safetensors *f, const char *rule, const char *fmt,
                             ...) {
  char what[300], path[ACI_PATH_SHOWN];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: rule %s: %s", aci_path_shown(f->path, path), rule, what);
}

static ac_status no_memory(ac_err *e) {
  return AC_FAIL(e, OOM, "no memory for the list of tensors");
}

/* ---- offsets of a file ---- */

static ac_status read_offsets(aci_sharded *s, int file, const ac_safetensors_entry *t,
                              const aci_json *info, int64_t *offset, ac_err *e) {
  const ac_safetensors *f = s->file[file];
  int n = 0;
  if (info->type != ACI_JSON_ARRAY)
    return aci_sharded_refuse(e, f, "C1", "saved_offsets of tensor '%s' are not a list",
                              SHOWN(t->name));
  const aci_json *end = aci_json_after(info);
  for (const aci_json *v = aci_json_first(info); v != end; v = aci_json_after(v), n++) {
    if (v->type != ACI_JSON_INT || v->u.i < 0)
      return aci_sharded_refuse(
          e, f, "C1", "saved_offsets of tensor '%s' hold something else than integers from 0",
          SHOWN(t->name));
    if (n < t->ndim) offset[n] = v->u.i;
  }
  if (n != t->ndim)
    return aci_sharded_refuse(e, f, "C3", "tensor '%s' has %d dims and %d saved_offsets",
                              SHOWN(t->name), t->ndim, n);
  for (int d = 0; d < n; d++)
    if (offset[d] > INT64_MAX - t->shape[d])
      return aci_sharded_refuse(e, f, "C3", "tensor '%s' ends beyond 2^63 in dim %d",
                                SHOWN(t->name), d);
  return AC_OK;
}

/* The offsets of all tensors of a file, in the order of its entries. */
static ac_status parse_info(aci_sharded *s, int file, const char *text, int64_t *offsets,
                            ac_err *e) {
  ac_safetensors *f = s->file[file];
  const aci_json_opts opts = {.max_bytes = ACI_ST_MAX_HEADER, .max_depth = 8};
  aci_json_doc *doc = NULL;
  ac_err why;
  ac_status st = aci_json_parse(text, strlen(text), &opts, &doc, &why);
  if (st == AC_OOM) return no_memory(e);
  if (st != AC_OK) return aci_sharded_refuse(e, f, "C1", "%s: %s", ACI_SHARDING_KEY, why.msg);
  const aci_json *root = aci_json_root(doc);
  if (root->type != ACI_JSON_OBJECT) {
    st = aci_sharded_refuse(e, f, "C1", "%s is not an object", ACI_SHARDING_KEY);
    goto done;
  }
  const aci_json *end = aci_json_after(root);
  for (const aci_json *k = aci_json_first(root); k != end; k = aci_json_after(k + 1)) {
    const ac_safetensors_entry *t =
        strlen(k->u.s) == k->len ? ac_safetensors_find(f, k->u.s) : NULL;
    if (t == NULL) {
      st = aci_sharded_refuse(e, f, "C2", "%s names '%s', which the file does not have",
                              ACI_SHARDING_KEY, SHOWN(k->u.s));
      goto done;
    }
    const aci_json *list = aci_json_get(doc, k + 1, "saved_offsets");
    if (list == NULL) {
      st = aci_sharded_refuse(e, f, "C1", "'%s' has no saved_offsets", SHOWN(t->name));
      goto done;
    }
    const int64_t before = s->dims_before[file][(const aci_st_entry *)(const void *)t - f->entry];
    AC_GOTO(done, st, read_offsets(s, file, t, list, offsets + before, e));
  }
done:
  aci_json_free(doc);
  return st;
}

static ac_status read_file_info(aci_sharded *s, int file, ac_err *e) {
  ac_safetensors *f = s->file[file];
  int64_t dims = 0;
  s->dims_before[file] = malloc(((size_t)f->n + 1) * sizeof *s->dims_before[file]);
  if (s->dims_before[file] == NULL) return no_memory(e);
  for (int i = 0; i < f->n; dims += f->entry[i++].pub.ndim) s->dims_before[file][i] = dims;
  s->offsets[file] = calloc((size_t)dims + 1, sizeof *s->offsets[file]);
  if (s->offsets[file] == NULL) return no_memory(e);
  for (int i = 0; i < ac_safetensors_n_metadata(f); i++) {
    const char *key, *value;
    ac_safetensors_metadata(f, i, &key, &value);
    if (strcmp(key, ACI_SHARDING_KEY) == 0) return parse_info(s, file, value, s->offsets[file], e);
  }
  return AC_OK;
}

/* ---- tensors from chunks ---- */

static uint32_t *place_of(const aci_sharded *s, const char *name) {
  uint32_t p = (uint32_t)aci_hash_bytes(s->hash_key, name, strlen(name)) & s->hash_mask;
  while (s->hash[p] && strcmp(s->tensor[s->hash[p] - 1].name, name) != 0)
    p = (p + 1) & s->hash_mask;
  return &s->hash[p];
}

/* Counts each tensor's chunks in the first walk over all entries, then hands out room for them and
 * fills it in the second. */
static ac_status gather(aci_sharded *s, ac_err *e) {
  size_t total = 0, dims = 0, at = 0;
  for (int i = 0; i < s->n_files; i++) {
    total += (size_t)s->file[i]->n;
    dims += s->file[i]->n_dims;
  }
  if (total >= (size_t)1 << 30) return AC_FAIL(e, PARSE, "more than 2^30 tensors in the files");
  uint32_t cap = 16;
  while (cap < total * 2) cap *= 2;
  s->hash = calloc(cap, sizeof *s->hash);
  s->tensor = calloc(total + 1, sizeof *s->tensor);
  s->chunk = calloc(total + 1, sizeof *s->chunk);
  s->dims = calloc(dims + 1, sizeof *s->dims);
  if (s->hash == NULL || s->tensor == NULL || s->chunk == NULL || s->dims == NULL)
    return no_memory(e);
  s->hash_mask = cap - 1;
  s->hash_key = aci_hash_key();
  for (int i = 0; i < s->n_files; i++)
    for (int k = 0; k < s->file[i]->n; k++) {
      const ac_safetensors_entry *x = &s->file[i]->entry[k].pub;
      uint32_t *p = place_of(s, x->name);
      if (*p == 0) {
        aci_sharded_tensor *t = &s->tensor[s->n++];
        *p = (uint32_t)s->n;
        *t = (aci_sharded_tensor){.name = x->name,
                                  .dtype_name = x->dtype_name,
                                  .has_dtype = x->has_dtype,
                                  .dtype = x->dtype,
                                  .ndim = x->ndim,
                                  .shape = s->dims + at};
        at += (size_t)x->ndim;
      }
      aci_sharded_tensor *t = &s->tensor[*p - 1];
      if (t->ndim != x->ndim || strcmp(t->dtype_name, x->dtype_name) != 0)
        return aci_sharded_refuse(e, s->file[i], "C4",
                                  "tensor '%s' is %s of %d dims, in a file before %s of %d",
                                  SHOWN(x->name), x->dtype_name, x->ndim, t->dtype_name, t->ndim);
      t->n_chunks++;
    }
  aci_shard_chunk *next = s->chunk;
  for (int i = 0; i < s->n; i++) {
    s->tensor[i].chunk = next;
    next += s->tensor[i].n_chunks;
    s->tensor[i].n_chunks = 0;
  }
  for (int i = 0; i < s->n_files; i++)
    for (int k = 0; k < s->file[i]->n; k++) {
      const ac_safetensors_entry *x = &s->file[i]->entry[k].pub;
      aci_sharded_tensor *t = &s->tensor[*place_of(s, x->name) - 1];
      int64_t *shape = (int64_t *)(uintptr_t)t->shape; /* in s->dims */
      aci_shard_chunk *c = (aci_shard_chunk *)(uintptr_t)&t->chunk[t->n_chunks++];
      *c = (aci_shard_chunk){.file = i, .entry = x, .offset = s->offsets[i] + s->dims_before[i][k]};
      for (int d = 0; d < x->ndim; d++)
        if (c->offset[d] + x->shape[d] > shape[d]) shape[d] = c->offset[d] + x->shape[d];
    }
  return AC_OK;
}

/* ---- C5, C6 ---- */

static bool empty(const ac_safetensors_entry *x) {
  for (int d = 0; d < x->ndim; d++)
    if (x->shape[d] == 0) return true;
  return false;
}

typedef struct order {
  int64_t at;
  const aci_shard_chunk *c;
} order;
static int by_at(const void *a, const void *b) {
  const order *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

static bool overlap(const aci_shard_chunk *a, const aci_shard_chunk *b) {
  for (int d = 0; d < a->entry->ndim; d++)
    if (a->offset[d] + a->entry->shape[d] <= b->offset[d] ||
        b->offset[d] + b->entry->shape[d] <= a->offset[d])
      return false;
  return true;
}

/* The dim along which the chunks are cut: the one in which most chunks begin at another position
 * than their predecessor. */
static int cut_dim(const aci_sharded_tensor *t) {
  int best = 0, most = -1;
  for (int d = 0; d < t->ndim; d++) {
    int n = 0;
    for (int i = 1; i < t->n_chunks; i++) n += t->chunk[i].offset[d] != t->chunk[i - 1].offset[d];
    if (n > most) most = n, best = d;
  }
  return best;
}

static ac_status check_tiles(const aci_sharded *s, const aci_sharded_tensor *t, order *list,
                             ac_err *e) {
  uint64_t whole = 1, held = 0;
  int n = 0;
  for (int d = 0; d < t->ndim; d++)
    if (__builtin_mul_overflow(whole, (uint64_t)t->shape[d], &whole) || whole > INT64_MAX)
      whole = UINT64_MAX; /* never held */
  for (int d = 0; d < t->ndim; d++)
    if (t->shape[d] == 0) whole = 0;
  const int dim = cut_dim(t);
  for (int i = 0; i < t->n_chunks; i++) {
    const aci_shard_chunk *c = &t->chunk[i];
    if (empty(c->entry)) continue;
    uint64_t elements = 1; /* safetensors R9: does not overflow */
    for (int d = 0; d < t->ndim; d++) elements *= (uint64_t)c->entry->shape[d];
    held += elements; /* nor does this: their bytes are in files */
    list[n++] = (order){.at = t->ndim > 0 ? c->offset[dim] : 0, .c = c};
  }
  if (n > 1) qsort(list, (size_t)n, sizeof *list, by_at);
  for (int i = 0; i < n; i++)
    for (int k = i + 1; k < n; k++) {
      const aci_shard_chunk *a = list[i].c, *b = list[k].c;
      if (t->ndim > 0 && a->offset[dim] + a->entry->shape[dim] <= b->offset[dim]) break;
      char path[ACI_PATH_SHOWN];
      if (overlap(a, b))
        return aci_sharded_refuse(e, s->file[b->file], "C5", "tensor '%s' overlaps its chunk in %s",
                                  SHOWN(t->name), aci_path_shown(s->file[a->file]->path, path));
    }
  if (held != whole)
    return aci_sharded_refuse(
        e, s->file[t->chunk[0].file], "C6",
        "the chunks of tensor '%s' have %llu of its elements: one is missing, or has a wrong offset",
        SHOWN(t->name), (unsigned long long)held);
  return AC_OK;
}

static ac_status open_all(aci_sharded *s, int n, const char *const *paths, ac_err *e) {
  s->file = calloc((size_t)n + 1, sizeof *s->file);
  s->offsets = calloc((size_t)n + 1, sizeof *s->offsets);
  s->dims_before = calloc((size_t)n + 1, sizeof *s->dims_before);
  if (s->file == NULL || s->offsets == NULL || s->dims_before == NULL) return no_memory(e);
  for (int i = 0; i < n; i++) {
    AC_TRY(ac_safetensors_open(paths[i], &s->file[i], e));
    s->n_files = i + 1;
    AC_TRY(read_file_info(s, i, e));
  }
  AC_TRY(gather(s, e));
  int most = 0;
  for (int i = 0; i < s->n; i++) most = s->tensor[i].n_chunks > most ? s->tensor[i].n_chunks : most;
  order *list = malloc(((size_t)most + 1) * sizeof *list);
  if (list == NULL) return no_memory(e);
  ac_status st = AC_OK;
  for (int i = 0; i < s->n && st == AC_OK; i++) st = check_tiles(s, &s->tensor[i], list, e);
  free(list);
  return st;
}

ac_status aci_sharded_open(int n, const char *const *paths, aci_sharded **out, ac_err *e) {
  *out = NULL;
  aci_sharded *s = calloc(1, sizeof *s);
  if (s == NULL) return no_memory(e);
  ac_status st = open_all(s, n, paths, e);
  if (st == AC_OK) *out = s;
  else aci_sharded_close(s);
  return st;
}

void aci_sharded_close(aci_sharded *s) {
  if (s == NULL) return;
  for (int i = 0; i < s->n_files; i++) {
    ac_safetensors_close(s->file[i]);
    free(s->offsets[i]);
    free(s->dims_before[i]);
  }
  free(s->file);
  free(s->offsets);
  free(s->dims_before);
  free(s->hash);
  free(s->tensor);
  free(s->chunk);
  free(s->dims);
  free(s);
}

int aci_sharded_count(const aci_sharded *s) { return s->n; }
const aci_sharded_tensor *aci_sharded_at(const aci_sharded *s, int i) { return &s->tensor[i]; }
const aci_sharded_tensor *aci_sharded_find(const aci_sharded *s, const char *name) {
  const uint32_t *p = place_of(s, name);
  return *p == 0 ? NULL : &s->tensor[*p - 1];
}
int aci_sharded_n_files(const aci_sharded *s) { return s->n_files; }
ac_safetensors *aci_sharded_file(const aci_sharded *s, int i) { return s->file[i]; }
