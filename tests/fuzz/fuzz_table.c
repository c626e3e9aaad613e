/* Fuzz entry of tables: any bytes are refused, or every value of every batch (Arrow) or row group (Parquet) can be reached. */
#include "file/table/load.h"
#include "temporary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t sum; /* of all bytes that values have */

static void bytes(const uint8_t *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) sum += p[i];
}

static void visit(const aci_column *c, int64_t i, int depth);

static void visit_all(const aci_column *c, int64_t from, int64_t to, int depth) {
  if (to - from > 1000) to = from + 1000; /* of nulls there may be billions */
  for (int64_t i = from; i < to; i++) visit(c, i, depth);
}

static void visit_run(const aci_column *c, int64_t i, int depth) {
  int64_t k = 0;
  while (aci_load_int(c->child[0].values, k, c->child[0].type->width, false) <= i) k++;
  visit(&c->child[1], k, depth + 1);
}

static void visit(const aci_column *c, int64_t i, int depth) {
  const aci_column *d = c->dict;
  int64_t k;
  REQUIRE(i >= 0 && i < c->n && depth < 100);
  if (!aci_is_valid(c, i)) return;
  switch (c->type->kind) {
    case ACI_NULLS: break;
    case ACI_BOOLS: sum += aci_bit(c->values, i); break;
    case ACI_STRINGS: bytes(c->data + aci_offset_at(c, i), aci_offset_at(c, i + 1) - aci_offset_at(c, i)); break;
    case ACI_VIEWS:
      k = aci_load_i32(c->values + 16 * i);
      if (k <= 12) bytes(c->values + 16 * i + 4, k);
      else bytes(c->buffers[aci_load_i32(c->values + 16 * i + 8)] + aci_load_i32(c->values + 16 * i + 12), k);
      break;
    case ACI_LISTS:
    case ACI_MAPS: visit_all(&c->child[0], aci_offset_at(c, i), aci_offset_at(c, i + 1), depth + 1); break;
    case ACI_FIXED_LISTS: visit_all(&c->child[0], i * c->type->list_size, (i + 1) * c->type->list_size, depth + 1); break;
    case ACI_STRUCTS:
      for (int f = 0; f < c->n_children; f++) visit(&c->child[f], i, depth + 1);
      break;
    case ACI_RUN_ENDS: visit_run(c, i, depth); break;
    case ACI_DICTS:
      k = aci_load_int(c->values, i, c->type->width, c->type->is_unsigned);
      for (; d != NULL && k >= d->n; d = d->next) k -= d->n;
      REQUIRE(d != NULL && k >= 0);
      visit(d, k, depth + 1);
      break;
    default: bytes(c->values + i * c->type->width, c->type->width);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ac_err e;
  aci_table *t;
  temporary file = temporary_of(data, n);
  if (aci_table_open(file.path, 8 << 20, &t, &e) == AC_OK) {
    aci_strbuf text = {0};
    aci_type_describe(&t->schema, &text);
    aci_strbuf_fini(&text);
    for (int64_t k = 0; k < t->n_batches && k < 100; k++) {
      aci_batch *b;
      if (aci_table_read(t, k, NULL, &b, &e) != AC_OK) continue;
      for (int i = 0; i < b->n_columns; i++) {
        REQUIRE(b->columns[i].n == b->rows);
        visit_all(&b->columns[i], 0, b->rows, 0);
      }
      aci_batch_release(b);
    }
    aci_table_release(t);
  } else {
    REQUIRE(e.msg[0] != 0);
  }
  close(file.fd);
  return 0;
}
