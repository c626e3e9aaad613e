/* Parquet files: footer and row groups. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "file/io.h"
#include "file/parquet/parquet.h"

static void free_node(aci_pq_node *node) {
  for (int i = 0; i < node->n_children; i++) free_node(&node->child[i]);
  free(node->child);
}

static void close_parquet(void *impl) {
  aci_pq_file *f = impl;
  free_node(&f->root);
  free(f->leaves);
  free(f->chunks);
  free(f->path);
  if (f->fd >= 0) close(f->fd);
  free(f);
}

/* Reads the columns of the file below a node. */
static ac_status read_leaves(const aci_pq_file *f, const aci_pq_chunk *chunks,
                             const aci_pq_node *node, aci_batch *b, aci_pq_column *leaves,
                             ac_err *e) {
  if (node->leaf < 0) {
    for (int i = 0; i < node->n_children; i++)
      AC_TRY(read_leaves(f, chunks, &node->child[i], b, leaves, e));
    return AC_OK;
  }
  const aci_pq_leaf *leaf = &f->leaves[node->leaf];
  ac_err why;
  const ac_status st =
      aci_pq_read_chunk(f, &chunks[node->leaf], leaf, b, &leaves[node->leaf], &why);
  return st == AC_OK
             ? st
             : ac_err_set(e, st, __FILE__, __LINE__, "column %s: %s", leaf->type->name, why.msg);
}

static ac_status read_group(aci_table *t, int64_t k, const bool *wanted, aci_batch *b, ac_err *e) {
  aci_pq_file *f = t->impl;
  aci_pq_column *leaves;
  AC_TRY(aci_batch_alloc(b, ((size_t)f->n_leaves + 1) * sizeof *leaves, true, &leaves, e));
  for (int i = 0; i < t->schema.n_children; i++) {
    if (wanted != NULL && !wanted[i]) continue;
    const aci_pq_node *node = &f->root.child[i];
    AC_TRY(read_leaves(f, f->chunks + k * f->n_leaves, node, b, leaves, e));
    AC_TRY(aci_pq_assemble(f, &t->schema.child[i], node, leaves, b, &b->columns[i], e));
    if (b->columns[i].n != b->rows)
      return AC_FAIL(e, PARSE, "column %s has %lld rows, its row group %lld",
                     t->schema.child[i].name, (long long)b->columns[i].n, (long long)b->rows);
  }
  return AC_OK;
}

static const aci_table_ops ops = {"parquet", read_group, close_parquet};

static ac_status read_footer(aci_table *t, aci_pq_file *f, ac_err *e) {
  uint8_t tail[8], head[4];
  if (f->n < 12) return AC_FAIL(e, PARSE, "the file is cut off; copy it again");
  AC_TRY(aci_pread_all(f->fd, f->path, head, 4, 0, e));
  AC_TRY(aci_pread_all(f->fd, f->path, tail, 8, f->n - 8, e));
  if (memcmp(tail + 4, "PARE", 4) == 0)
    return AC_FAIL(e, UNSUPPORTED, "the footer is encrypted, which accel does not read");
  if (memcmp(tail + 4, "PAR1", 4) != 0)
    return AC_FAIL(e, PARSE,
                   "the file does not end as a Parquet file; it is cut off, copy it again");
  if (memcmp(head, "PAR1", 4) != 0)
    return AC_FAIL(e, PARSE, "the file does not begin as a Parquet file");
  const uint32_t n = aci_load_u32(tail);
  if (n == 0 || n > f->n - 12)
    return AC_FAIL(e, PARSE, "the footer claims %u bytes, the file has %llu", n,
                   (unsigned long long)f->n);
  uint8_t *p = malloc(n);
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for a footer of %u bytes", n);
  ac_status st = aci_pread_all(f->fd, f->path, p, n, f->n - 8 - n, e);
  if (st == AC_OK) st = aci_pq_footer(t, f, p, n, e);
  free(p);
  return st;
}

ac_status aci_parquet_open(aci_table *t, int fd, uint64_t bytes, ac_err *e) {
  aci_pq_file *f = calloc(1, sizeof *f);
  if (f == NULL) return AC_FAIL(e, OOM, "no memory");
  t->impl = f;
  t->ops = &ops;
  f->n = bytes;
  f->most = t->most;
  f->path = strdup(t->path);
  f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (f->path == NULL || f->fd < 0) return AC_FAIL(e, OOM, "no memory, or no free descriptors");
  return read_footer(t, f, e);
}
