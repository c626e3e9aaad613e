/* Opens tables, by the first bytes of their files, and reads their batches. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/compress/compress.h"
#include "file/io.h"
#include "file/table/table.h"

ac_status aci_table_failed(const char *path, ac_status st, const ac_err *why, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return ac_err_set(e, st, __FILE__, __LINE__, "%s: %s", aci_path_shown(path, shown), why->msg);
}

void aci_table_retain(aci_table *t) { atomic_fetch_add_explicit(&t->ref, 1, memory_order_relaxed); }

void aci_table_release(aci_table *t) {
  if (t == NULL || !aci_unref(&t->ref)) return;
  if (t->impl != NULL) t->ops->close(t->impl);
  for (int i = 0; i < t->n_meta; i++) {
    free(t->meta[i].key);
    free(t->meta[i].value);
  }
  free(t->meta);
  free(t->batch_rows);
  free(t->path);
  aci_type_fini(&t->schema);
  free(t);
}

/* A compressed file is replaced by its content, in memory. */
static ac_status unpack(const char *path, size_t most, int *fd, uint64_t *bytes, ac_err *e) {
  aci_content *s;
  AC_TRY(aci_content_open(path, 0, &s, e));
  const bool packed = aci_content_codec(s) != NULL;
  aci_content_close(s);
  if (!packed) return AC_OK;
  int to;
  AC_TRY(aci_content_unpack(path, most, &to, bytes, e));
  close(*fd);
  *fd = to;
  return AC_OK;
}

static ac_status open_fd(aci_table *t, int fd, uint64_t bytes, ac_err *e) {
  unsigned char head[8] = {0}, tail[4];
  if (bytes < 8)
    return AC_FAIL(e, PARSE, "%llu bytes are too few for a table", (unsigned long long)bytes);
  AC_TRY(aci_pread_all(fd, t->path, head, 8, 0, e));
  AC_TRY(aci_pread_all(fd, t->path, tail, 4, bytes - 4, e));
  if (memcmp(head, "PAR", 3) == 0 || memcmp(tail, "PAR", 3) == 0)
    return aci_parquet_open(t, fd, bytes, e);
  if (memcmp(head, "FEA1", 4) == 0)
    return AC_FAIL(e, PARSE,
                   "Feather version 1 is not read; write the table again as Feather 2 or Parquet");
  return aci_arrow_open(t, fd, bytes, e);
}

ac_status aci_table_open(const char *path, size_t most, aci_table **out, ac_err *e) {
  *out = NULL;
  int fd;
  uint64_t bytes;
  AC_TRY(aci_open_read(path, &fd, &bytes, e));
  aci_table *t = calloc(1, sizeof *t);
  if (t == NULL || (t->path = strdup(path)) == NULL) {
    free(t);
    close(fd);
    return AC_FAIL(e, OOM, "no memory to open a table");
  }
  t->ref = 1;
  t->most = (size_t)aci_unpacked_limit(most, bytes);
  t->schema.kind = ACI_STRUCTS;
  ac_status st = unpack(path, most, &fd, &bytes, e);
  ac_err why;
  if (st == AC_OK && (st = open_fd(t, fd, bytes, &why)) != AC_OK)
    st = aci_table_failed(path, st, &why, e);
  close(fd);
  if (st != AC_OK) {
    aci_table_release(t);
    return st;
  }
  *out = t;
  return AC_OK;
}

ac_status aci_table_read(aci_table *t, int64_t k, const bool *wanted, aci_batch **out, ac_err *e) {
  *out = NULL;
  aci_batch *b = aci_batch_new(t->most);
  if (b == NULL) return AC_FAIL(e, OOM, "no memory for rows of a table");
  aci_table_retain(t);
  b->table = t;
  ac_err why;
  ac_status st = aci_batch_alloc(b, (size_t)t->schema.n_children * sizeof *b->columns, true,
                                 &b->columns, &why);
  if (st == AC_OK) {
    b->n_columns = t->schema.n_children;
    b->rows = t->batch_rows[k];
    st = t->ops->read(t, k, wanted, b, &why);
  }
  if (st == AC_OK) {
    *out = b;
    return AC_OK;
  }
  aci_batch_release(b);
  return aci_table_failed(t->path, st, &why, e);
}
