/* The columns of Arrow's record batches and dictionaries. */
#include <string.h>

#include "file/arrow/arrow.h"
#include "file/compress/compress.h"
#include "file/table/load.h"

typedef struct reader {
  aci_arrow *f;
  aci_batch *b;
  const aci_arrow_message *m;
  int64_t until;
  aci_flat_vector nodes, buffers, counts;
  uint32_t node, buffer, count;
  int codec; /* -1: none */
  bool v4;
  ac_err *e;
} reader;

typedef struct bytes {
  const uint8_t *p;
  int64_t n;
} bytes;

static const uint8_t nothing[64];

/* A compressed buffer: its size in 8 bytes, -1 if it is stored. */
static ac_status unpack(reader *r, bytes *x) {
  if (x->n < 8) return AC_FAIL(r->e, PARSE, "a compressed buffer of %lld bytes", (long long)x->n);
  const int64_t full = aci_load_i64(x->p);
  const bytes packed = {x->p + 8, x->n - 8};
  if (full == -1) {
    *x = packed;
    return AC_OK;
  }
  /* neither codec packs more than 1:256 for LZ4 and about 1:2^17 for Zstandard */
  if (full < 0 || full / (r->codec == 0 ? 256 : 1 << 18) > packed.n)
    return AC_FAIL(r->e, PARSE, "a compressed buffer claims to hold %lld bytes", (long long)full);
  uint8_t *to;
  AC_TRY(aci_batch_alloc(r->b, (size_t)full, false, &to, r->e));
  AC_TRY(aci_unpack_block(r->codec == 0 ? ACI_BLOCK_LZ4_FRAME : ACI_BLOCK_ZSTD, packed.p,
                          (size_t)packed.n, to, (size_t)full, r->e));
  *x = (bytes){to, full};
  return AC_OK;
}

/* The next buffer, which must have `least` bytes. wanted false: it is left out. */
static ac_status next_buffer(reader *r, int64_t least, bool wanted, bytes *out) {
  *out = (bytes){nothing, 0};
  if (r->buffer >= r->buffers.n) return AC_FAIL(r->e, PARSE, "a batch has too few buffers");
  const int64_t at = aci_flat_in(&r->buffers, r->buffer, 16, 0, 8);
  const int64_t n = aci_flat_in(&r->buffers, r->buffer++, 16, 8, 8);
  if (at < 0 || n < 0 || (uint64_t)at > r->m->n_body || (uint64_t)n > r->m->n_body - (uint64_t)at)
    return AC_FAIL(r->e, PARSE, "a buffer at byte %lld with %lld bytes is outside its batch",
                   (long long)at, (long long)n);
  if (!wanted) return AC_OK;
  if (n > 0) *out = (bytes){r->f->p + r->m->body + (uint64_t)at, n};
  if (r->codec >= 0 && n > 0) AC_TRY(unpack(r, out));
  if (out->n < least)
    return AC_FAIL(r->e, PARSE, "a buffer has %lld bytes, expected %lld", (long long)out->n,
                   (long long)least);
  return AC_OK;
}

static ac_status read_column(reader *r, const aci_type *t, bool wanted, int depth, aci_column *c);

static ac_status read_children(reader *r, const aci_type *t, bool wanted, int depth,
                               aci_column *c) {
  AC_TRY(aci_batch_alloc(r->b, (size_t)t->n_children * sizeof *c->child, true, &c->child, r->e));
  c->n_children = t->n_children;
  for (int i = 0; i < t->n_children; i++)
    AC_TRY(read_column(r, &t->child[i], wanted, depth + 1, &c->child[i]));
  return AC_OK;
}

/* Buffers whose number the batch gives. */
static ac_status read_view_buffers(reader *r, bool wanted, aci_column *c) {
  const int64_t n = aci_flat_in(&r->counts, r->count, 8, 0, 8);
  if (r->count++ >= r->counts.n || n < 0 || n > r->buffers.n)
    return AC_FAIL(r->e, PARSE, "a column of views has no valid number of buffers");
  AC_TRY(aci_batch_alloc(r->b, (size_t)n * sizeof *c->buffers, false, &c->buffers, r->e));
  AC_TRY(aci_batch_alloc(r->b, (size_t)n * sizeof *c->buffer_bytes, false, &c->buffer_bytes, r->e));
  for (int64_t i = 0; i < n; i++) {
    bytes x;
    AC_TRY(next_buffer(r, 0, wanted, &x));
    c->buffers[i] = x.p;
    c->buffer_bytes[i] = x.n;
  }
  c->n_buffers = n;
  return AC_OK;
}

static ac_status read_offsets(reader *r, bool large, bool wanted, aci_column *c) {
  bytes x;
  const int64_t width = large ? 8 : 4;
  AC_TRY(next_buffer(r, c->n == 0 ? 0 : (c->n + 1) * width, wanted, &x));
  c->values = x.p;
  return AC_OK;
}

static ac_status read_values(reader *r, int64_t least, bool wanted, aci_column *c) {
  bytes x;
  AC_TRY(next_buffer(r, least, wanted, &x));
  c->values = x.p;
  return AC_OK;
}

/* The buffers of a column after its validity. */
static ac_status read_buffers(reader *r, const aci_type *t, bool wanted, int depth, aci_column *c) {
  bytes x;
  switch (t->kind) {
    case ACI_BOOLS: return read_values(r, (c->n + 7) / 8, wanted, c);
    case ACI_STRINGS:
      AC_TRY(read_offsets(r, t->large, wanted, c));
      AC_TRY(next_buffer(r, 0, wanted, &x));
      c->data = x.p;
      c->n_data = x.n;
      return AC_OK;
    case ACI_VIEWS:
      AC_TRY(read_values(r, 16 * c->n, wanted, c));
      return read_view_buffers(r, wanted, c);
    case ACI_LISTS:
    case ACI_MAPS: AC_TRY(read_offsets(r, t->large, wanted, c)); break;
    case ACI_NULLS: return AC_OK;
    case ACI_FIXED_LISTS:
    case ACI_STRUCTS:
    case ACI_RUN_ENDS: break;
    case ACI_DICTS:
      AC_TRY(read_values(r, c->n * t->width, wanted, c));
      return wanted ? aci_arrow_dictionary(r->f, t->dict_id, r->until, &t->child[0], &c->dict, r->e)
                    : AC_OK;
    default: return read_values(r, c->n * t->width, wanted, c);
  }
  return read_children(r, t, wanted, depth, c);
}

static ac_status read_column(reader *r, const aci_type *t, bool wanted, int depth, aci_column *c) {
  bytes x;
  if (depth > ACI_TABLE_DEPTH) return AC_FAIL(r->e, PARSE, "columns are nested too deep");
  if (r->node >= r->nodes.n) return AC_FAIL(r->e, PARSE, "a batch has too few columns");
  c->n = aci_flat_in(&r->nodes, r->node, 16, 0, 8);
  const int64_t nulls = aci_flat_in(&r->nodes, r->node++, 16, 8, 8);
  /* sizes below stay within 63 bits */
  if (c->n < 0 || c->n > (int64_t)1 << 32 || nulls < 0 || nulls > c->n)
    return AC_FAIL(r->e, PARSE, "column %s has %lld rows and %lld nulls", t->name, (long long)c->n,
                   (long long)nulls);
  c->type = t;
  if (t->kind != ACI_NULLS && t->kind != ACI_RUN_ENDS) {
    AC_TRY(next_buffer(r, nulls > 0 ? (c->n + 7) / 8 : 0, wanted, &x));
    if (nulls > 0) c->valid = x.p;
  }
  AC_TRY(read_buffers(r, t, wanted, depth, c));
  if (!wanted) return AC_OK;
  ac_err why;
  const ac_status st = aci_column_check(c, &why);
  return st == AC_OK ? st
                     : ac_err_set(r->e, st, __FILE__, __LINE__, "column %s: %s", t->name, why.msg);
}

ac_status aci_arrow_body(aci_arrow *f, const aci_flat_table *record, const aci_arrow_message *m,
                         int64_t until, const aci_type *fields, int n, const bool *wanted,
                         aci_column *out, aci_batch *b, ac_err *e) {
  reader r = {.f = f, .b = b, .m = m, .until = until, .codec = -1, .e = e};
  r.nodes = aci_flat_list(record, 1, 16);
  r.buffers = aci_flat_list(record, 2, 16);
  r.counts = aci_flat_list(record, 4, 8);
  const aci_flat_table compression = aci_flat_child(record, 3);
  if (compression.at != 0) {
    r.codec = (int)aci_flat_int(&compression, 0, 1, 0);
    if (r.codec < 0 || r.codec > 1 || aci_flat_int(&compression, 1, 1, 0) != 0)
      return AC_FAIL(e, UNSUPPORTED, "buffers are compressed by the unknown codec %d", r.codec);
  }
  for (int i = 0; i < n; i++) {
    const bool want = wanted == NULL || wanted[i];
    AC_TRY(read_column(&r, &fields[i], want, 1, &out[i]));
    if (out[i].n != b->rows)
      return AC_FAIL(e, PARSE, "column %s has %lld rows, its batch %lld", fields[i].name,
                     (long long)out[i].n, (long long)b->rows);
    if (!want) out[i] = (aci_column){0};
  }
  return record->b->bad ? AC_FAIL(e, PARSE, "the metadata of a batch is damaged") : AC_OK;
}

/* One dictionary batch, read once. */
static ac_status read_dictionary(aci_arrow *f, int64_t k, const aci_type *values, ac_err *e) {
  aci_arrow_message *m = &f->messages[k];
  if (m->read != NULL) return AC_OK;
  aci_flat flat = {f->p + m->meta, m->n_meta, false};
  const aci_flat_table root = aci_flat_root(&flat), head = aci_flat_child(&root, 2);
  const aci_flat_table record = aci_flat_child(&head, 1);
  aci_batch *b = aci_batch_new(f->most);
  if (b == NULL) return AC_FAIL(e, OOM, "no memory for a dictionary");
  b->rows = aci_flat_int(&record, 0, 8, 0);
  ac_status st = aci_batch_alloc(b, sizeof *b->columns, true, &b->columns, e);
  if (st == AC_OK && (f->depth > 8 || record.at == 0))
    st = AC_FAIL(e, PARSE, "a dictionary is damaged");
  f->depth++;
  if (st == AC_OK) st = aci_arrow_body(f, &record, m, k, values, 1, NULL, b->columns, b, e);
  f->depth--;
  if (st == AC_OK) m->read = b;
  else aci_batch_release(b);
  return st;
}

ac_status aci_arrow_dictionary(aci_arrow *f, int64_t id, int64_t until, const aci_type *values,
                               const aci_column **out, ac_err *e) {
  int64_t first = until;
  *out = NULL;
  for (int64_t k = until - 1; k >= 0; k--) { /* the last whole dictionary, and what follows it */
    const aci_arrow_message *m = &f->messages[k];
    if (!m->dictionary || m->dict_id != id) continue;
    first = k;
    if (!m->delta) break;
  }
  aci_column *last = NULL;
  for (int64_t k = first; k < until; k++) {
    const aci_arrow_message *m = &f->messages[k];
    if (!m->dictionary || m->dict_id != id) continue;
    AC_TRY(read_dictionary(f, k, values, e));
    if (m->read->columns[0].type != values) {
      /* two columns share the dictionary: their types must agree */
      if (m->read->columns[0].type->kind != values->kind ||
          m->read->columns[0].type->width != values->width)
        return AC_FAIL(e, PARSE, "two columns of different types share a dictionary");
    }
    if (last == NULL) *out = &m->read->columns[0];
    else last->next = &m->read->columns[0];
    last = &m->read->columns[0];
  }
  return AC_OK;
}
