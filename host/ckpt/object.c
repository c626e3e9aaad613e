/* Objects of an opened checkpoint: which files belong to each, and their tensors as whole ones.
 * Called by the bindings. open.c makes the list. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt_impl.h"
#include "file/io.h"
#include "file/sharded.h"
#include "tensor/tensor_impl.h"

static const char ending[] = ".safetensors";

static ac_status no_memory(ac_err *e) { return AC_FAIL(e, OOM, "no memory to open a checkpoint"); }

bool aci_is_safetensors(const char *name) {
  const size_t n = strlen(name), k = sizeof ending - 1;
  return n > k && strcmp(name + n - k, ending) == 0;
}

/* Length of the object's name in a file's. 0: it belongs to none. */
static size_t object_of(const char *file) {
  if (!aci_is_safetensors(file)) return 0;
  const char *slash = strchr(file, '/');
  return slash != NULL ? (size_t)(slash - file) : strlen(file) - (sizeof ending - 1);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const aci_ckpt_object *)a)->name, ((const aci_ckpt_object *)b)->name);
}

ac_status aci_ckpt_list_objects(ac_ckpt *c, ac_err *e) {
  if ((c->object = calloc((size_t)c->m.n + 1, sizeof *c->object)) == NULL) return no_memory(e);
  for (int i = 0; i < c->m.n; i++) {
    const char *file = c->m.file[i].name;
    const size_t n = object_of(file);
    if (n == 0) continue;
    if ((c->object[c->n_objects].name = strndup(file, n)) == NULL) return no_memory(e);
    c->n_objects++;
  }
  if (c->n_objects > 1) qsort(c->object, (size_t)c->n_objects, sizeof *c->object, by_name);
  int n = 0;
  for (int i = 0; i < c->n_objects; i++) {
    if (n > 0 && strcmp(c->object[n - 1].name, c->object[i].name) == 0) free(c->object[i].name);
    else c->object[n++] = c->object[i];
  }
  c->n_objects = n;
  return AC_OK;
}

void aci_ckpt_close_objects(ac_ckpt *c) {
  for (int i = 0; i < c->n_objects; i++) {
    aci_sharded_close(c->object[i].s);
    free(c->object[i].name);
  }
  free(c->object);
}

static aci_ckpt_object *object_named(const ac_ckpt *c, const char *name, size_t n) {
  int lo = 0, hi = c->n_objects - 1;
  while (lo <= hi) {
    const int mid = (lo + hi) / 2, by = strncmp(c->object[mid].name, name, n);
    const int order = by != 0 ? by : c->object[mid].name[n] != 0;
    if (order == 0) return &c->object[mid];
    if (order < 0) lo = mid + 1;
    else hi = mid - 1;
  }
  return NULL;
}

const ac_safetensors *aci_ckpt_opened(const ac_ckpt *c, const char *file, const char *path) {
  const size_t n = object_of(file);
  const aci_ckpt_object *o = n > 0 ? object_named(c, file, n) : NULL;
  for (int i = 0; o != NULL && o->s != NULL && i < aci_sharded_n_files(o->s); i++) {
    const ac_safetensors *f = aci_sharded_file(o->s, i);
    if (strcmp(f->path, path) == 0) return f;
  }
  return NULL;
}

int ac_ckpt_n_objects(const ac_ckpt *c) { return c->n_objects; }
const char *ac_ckpt_object_at(const ac_ckpt *c, int i) { return c->object[i].name; }

static ac_status open_object(ac_ckpt *c, const char *object, aci_sharded **out, ac_err *e) {
  char shown[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  aci_ckpt_object *o = object_named(c, object, strlen(object));
  if (o == NULL)
    return AC_FAIL(e, NOT_FOUND, "%s: no object '%s' in this checkpoint",
                   aci_path_shown(c->path, shown), aci_st_shown(object, strlen(object), name));
  ac_status st = AC_OK;
  if (o->s == NULL) {
    int n = 0;
    char **paths = calloc((size_t)c->m.n + 1, sizeof *paths);
    if (paths == NULL) return no_memory(e);
    for (int i = 0; i < c->m.n && st == AC_OK; i++) {
      const char *file = c->m.file[i].name;
      if (object_of(file) != strlen(object) || strncmp(file, object, strlen(object)) != 0) continue;
      if ((paths[n] = aci_ckpt_join(c->path, file)) == NULL) st = no_memory(e);
      else n++;
    }
    if (st == AC_OK) st = aci_sharded_open(n, (const char *const *)paths, &o->s, e);
    for (int i = 0; i < n; i++) free(paths[i]);
    free(paths);
  }
  *out = o->s;
  return st;
}

ac_status ac_ckpt_object(ac_ckpt *c, const char *object, int *n, ac_err *e) {
  aci_sharded *s;
  AC_TRY(open_object(c, object, &s, e));
  *n = aci_sharded_count(s);
  return AC_OK;
}

static void describe(const aci_sharded_tensor *t, ac_ckpt_tensor *out) {
  *out = (ac_ckpt_tensor){t->name, t->dtype_name, t->has_dtype, t->dtype, t->ndim, t->shape};
}

ac_status ac_ckpt_tensor_at(ac_ckpt *c, const char *object, int i, ac_ckpt_tensor *out, ac_err *e) {
  aci_sharded *s;
  AC_TRY(open_object(c, object, &s, e));
  if (i < 0 || i >= aci_sharded_count(s))
    return AC_FAIL(e, INDEX, "object '%s' has no tensor %d", object, i);
  describe(aci_sharded_at(s, i), out);
  return AC_OK;
}

static ac_status find(ac_ckpt *c, const char *object, const char *name, aci_sharded **s,
                      const aci_sharded_tensor **t, ac_err *e) {
  char shown[ACI_PATH_SHOWN], text[ACI_ST_SHOWN];
  AC_TRY(open_object(c, object, s, e));
  if ((*t = aci_sharded_find(*s, name)) != NULL) return AC_OK;
  return AC_FAIL(e, NOT_FOUND, "%s: object '%.64s' has no tensor '%s'",
                 aci_path_shown(c->path, shown), object, aci_st_shown(name, strlen(name), text));
}

ac_status ac_ckpt_tensor_find(ac_ckpt *c, const char *object, const char *name, ac_ckpt_tensor *out,
                              ac_err *e) {
  aci_sharded *s;
  const aci_sharded_tensor *t;
  AC_TRY(find(c, object, name, &s, &t, e));
  describe(t, out);
  return AC_OK;
}

ac_status ac_ckpt_read(ac_ckpt *c, const char *object, const char *name, const int64_t *offsets,
                       ac_tensor *dst, ac_err *e) {
  static const int64_t zeros[ACI_ST_MAX_DIMS];
  aci_sharded *s;
  const aci_sharded_tensor *t;
  char shown[ACI_PATH_SHOWN], text[ACI_ST_SHOWN], is[128];
  AC_TRY(find(c, object, name, &s, &t, e));
  if (t->ndim != dst->ndim)
    return AC_FAIL(e, SHAPE, "%s: tensor '%s' of object '%.64s' has %d dims, its destination is %s",
                   aci_path_shown(c->path, shown), aci_st_shown(name, strlen(name), text), object,
                   t->ndim, aci_tensor_str(dst, is, sizeof is));
  return aci_sharded_read(s, t, offsets != NULL ? offsets : zeros, dst->shape, dst, e);
}
