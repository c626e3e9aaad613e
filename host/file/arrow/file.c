/* Arrow's files and streams: an index of their messages, and batches on request. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/arrow/arrow.h"
#include "file/table/load.h"

enum { SCHEMA = 1, DICTIONARY = 2, RECORD = 3 };
static const int64_t MOST_ROWS = (int64_t)1 << 32;

/* What the map holds is no longer there if the file was cut. */
static ac_status still_whole(const aci_arrow *f, ac_err *e) {
  struct stat s;
  if (fstat(f->fd, &s) == 0 && (uint64_t)s.st_size >= f->n) return AC_OK;
  return AC_FAIL(e, IO, "the file was cut after it was opened");
}

static void close_arrow(void *impl) {
  aci_arrow *f = impl;
  for (int64_t i = 0; i < f->n_messages; i++) aci_batch_release(f->messages[i].read);
  free(f->messages);
  free(f->batches);
  if (f->p != NULL) munmap((void *)f->p, f->n);
  if (f->fd >= 0) close(f->fd);
  free(f);
}

static ac_status read_batch(aci_table *t, int64_t k, const bool *wanted, aci_batch *b, ac_err *e) {
  aci_arrow *f = t->impl;
  AC_TRY(still_whole(f, e));
  const aci_arrow_message *m = &f->messages[f->batches[k]];
  aci_flat flat = {f->p + m->meta, m->n_meta, false};
  const aci_flat_table root = aci_flat_root(&flat), record = aci_flat_child(&root, 2);
  return aci_arrow_body(f, &record, m, f->batches[k], t->schema.child, t->schema.n_children, wanted,
                        b->columns, b, e);
}

static const aci_table_ops ops = {"arrow", read_batch, close_arrow};

/* Doubles the room of a list at powers of two. */
static bool grow(void *list, int64_t n, size_t size) {
  void *p;
  if ((n & (n - 1)) != 0) return true;
  memcpy(&p, list, sizeof p);
  p = realloc(p, (size_t)(n == 0 ? 1 : 2 * n) * size);
  if (p != NULL) memcpy(list, &p, sizeof p);
  return p != NULL;
}

static ac_status add_message(aci_table *t, const aci_flat_table *root, aci_arrow_message m,
                             int64_t kind, ac_err *e) {
  aci_arrow *f = t->impl;
  const aci_flat_table head = aci_flat_child(root, 2);
  const aci_flat_table record = kind == DICTIONARY ? aci_flat_child(&head, 1) : head;
  const int64_t rows = aci_flat_int(&record, 0, 8, 0);
  m.dictionary = kind == DICTIONARY;
  m.dict_id = aci_flat_int(&head, 0, 8, 0);
  m.delta = m.dictionary && aci_flat_int(&head, 2, 1, 0) != 0;
  if (record.at == 0 || root->b->bad || rows < 0 || rows > MOST_ROWS)
    return AC_FAIL(e, PARSE, "the metadata of the batch at byte %llu is damaged",
                   (unsigned long long)m.meta);
  if (!grow(&f->messages, f->n_messages, sizeof *f->messages)) return AC_FAIL(e, OOM, "no memory");
  f->messages[f->n_messages++] = m;
  if (m.dictionary) return AC_OK;
  if (!grow(&f->batches, t->n_batches, sizeof *f->batches) ||
      !grow(&t->batch_rows, t->n_batches, sizeof *t->batch_rows))
    return AC_FAIL(e, OOM, "no memory");
  f->batches[t->n_batches] = f->n_messages - 1;
  t->batch_rows[t->n_batches++] = rows;
  t->rows += rows;
  return AC_OK;
}

static ac_status check_version(const aci_flat_table *root, ac_err *e) {
  const int64_t version = aci_flat_int(root, 0, 2, 0);
  if (version == ACI_ARROW_V4 || version == ACI_ARROW_V5) return AC_OK;
  return AC_FAIL(e, UNSUPPORTED, "metadata of version %lld, expected 4 or 5",
                 (long long)version + 1);
}

/* The message at byte `at`. *kind 0: the end of the stream. *next: the byte after it. */
static ac_status read_message(aci_arrow *f, uint64_t at, aci_flat *flat, aci_arrow_message *m,
                              int64_t *kind, uint64_t *next, ac_err *e) {
  *m = (aci_arrow_message){0};
  *kind = 0;
  *next = at;
  if (at == f->n) return AC_OK;
  if (f->n - at < 4)
    return AC_FAIL(e, PARSE, "the stream is cut off at byte %llu", (unsigned long long)at);
  int32_t n = aci_load_i32(f->p + at);
  at += 4;
  if (n == -1) { /* before Arrow 0.15 the mark of a continuation was missing */
    if (f->n - at < 4)
      return AC_FAIL(e, PARSE, "the stream is cut off at byte %llu", (unsigned long long)at);
    n = aci_load_i32(f->p + at);
    at += 4;
  }
  if (n == 0) return AC_OK;
  if (n < 0 || (uint64_t)n > f->n - at)
    return AC_FAIL(e, PARSE,
                   "not an Arrow or Parquet file, or cut off: metadata of %d bytes at byte %llu", n,
                   (unsigned long long)at);
  *flat = (aci_flat){f->p + at, (size_t)n, false};
  const aci_flat_table root = aci_flat_root(flat);
  const int64_t body = aci_flat_int(&root, 3, 8, 0);
  *kind = aci_flat_int(&root, 1, 1, 0);
  m->meta = at;
  m->n_meta = (uint32_t)n;
  m->body = at + (uint64_t)n;
  m->n_body = (uint64_t)body;
  if (flat->bad || root.at == 0)
    return AC_FAIL(e, PARSE, "damaged metadata at byte %llu", (unsigned long long)at);
  if (body < 0 || (uint64_t)body > f->n - m->body)
    return AC_FAIL(e, PARSE,
                   "the batch at byte %llu has %lld bytes, the file ends before; copy the "
                   "file again",
                   (unsigned long long)at, (long long)body);
  *next = m->body + (uint64_t)body;
  return check_version(&root, e);
}

static ac_status index_stream(aci_table *t, uint64_t at, ac_err *e) {
  aci_arrow *f = t->impl;
  for (bool schema = false;;) {
    aci_flat flat;
    aci_arrow_message m;
    int64_t kind;
    AC_TRY(read_message(f, at, &flat, &m, &kind, &at, e));
    if (kind == 0) return schema ? AC_OK : AC_FAIL(e, PARSE, "the stream has no schema");
    const aci_flat_table root = aci_flat_root(&flat);
    if ((kind == SCHEMA) == schema || kind > RECORD)
      return AC_FAIL(e, PARSE, "a message of kind %lld, expected %s", (long long)kind,
                     schema ? "rows" : "the schema");
    if (kind == SCHEMA) {
      const aci_flat_table head = aci_flat_child(&root, 2);
      AC_TRY(aci_arrow_schema(&head, &t->schema, t, e));
      schema = true;
      continue;
    }
    AC_TRY(add_message(t, &root, m, kind, e));
  }
}

static ac_status index_blocks(aci_table *t, const aci_flat_vector *blocks, int64_t kind,
                              ac_err *e) {
  aci_arrow *f = t->impl;
  for (uint32_t i = 0; i < blocks->n; i++) {
    const int64_t at = aci_flat_in(blocks, i, 24, 0, 8);
    aci_flat flat;
    aci_arrow_message m;
    int64_t found;
    uint64_t next;
    if (at < 8 || (uint64_t)at >= f->n)
      return AC_FAIL(e, PARSE, "the footer names a batch at byte %lld, outside of the file",
                     (long long)at);
    AC_TRY(read_message(f, (uint64_t)at, &flat, &m, &found, &next, e));
    if (found != kind)
      return AC_FAIL(e, PARSE, "the footer names a batch at byte %lld, where there is none",
                     (long long)at);
    const aci_flat_table root = aci_flat_root(&flat);
    AC_TRY(add_message(t, &root, m, kind, e));
  }
  return AC_OK;
}

static ac_status index_file(aci_table *t, ac_err *e) {
  aci_arrow *f = t->impl;
  if (f->n < 8 + 4 + 6 || memcmp(f->p + f->n - 6, "ARROW1", 6) != 0)
    return AC_FAIL(e, PARSE,
                   "the file does not end as an Arrow file; it is cut off, copy it again");
  const int32_t n = aci_load_i32(f->p + f->n - 10);
  if (n <= 0 || (uint64_t)n > f->n - 18)
    return AC_FAIL(e, PARSE, "the footer claims %d bytes, the file has %llu", n,
                   (unsigned long long)f->n);
  aci_flat flat = {f->p + f->n - 10 - n, (size_t)n, false};
  const aci_flat_table root = aci_flat_root(&flat), schema = aci_flat_child(&root, 1);
  const aci_flat_vector dictionaries = aci_flat_list(&root, 2, 24),
                        batches = aci_flat_list(&root, 3, 24);
  if (flat.bad || schema.at == 0) return AC_FAIL(e, PARSE, "the footer is damaged");
  AC_TRY(check_version(&root, e));
  AC_TRY(aci_arrow_schema(&schema, &t->schema, t, e));
  AC_TRY(index_blocks(t, &dictionaries, DICTIONARY, e));
  return index_blocks(t, &batches, RECORD, e);
}

ac_status aci_arrow_open(aci_table *t, int fd, uint64_t bytes, ac_err *e) {
  aci_arrow *f = calloc(1, sizeof *f);
  if (f == NULL) return AC_FAIL(e, OOM, "no memory");
  t->impl = f;
  t->ops = &ops;
  f->most = t->most;
  f->n = bytes;
  f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  /* private: tensors of columns may be written, and the file stays unchanged */
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED || f->fd < 0) return AC_FAIL(e, IO, "the file cannot be mapped");
  f->p = p;
  return memcmp(f->p, "ARROW1", 6) == 0 ? index_file(t, e) : index_stream(t, 0, e);
}
