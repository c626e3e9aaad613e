/* Parquet's metadata. */
#include <stdlib.h>
#include <string.h>

#include "file/parquet/parquet.h"

typedef struct footer {
  aci_thrift r;
  aci_pq_element *elements;
  uint32_t n_elements;
  int64_t rows;
  bool encrypted;
  const uint8_t *groups; /* the place of the row groups: they are read after the schema */
  ac_err *e;
} footer;

static ac_status damaged(footer *f) {
  return AC_FAIL(f->e, PARSE, "the footer is damaged: %s", f->r.bad != NULL ? f->r.bad : "?");
}

static int32_t small(aci_thrift *r, const aci_thrift_field *f) {
  const int64_t v = aci_thrift_int(r, f);
  if (v >= INT32_MIN && v <= INT32_MAX) return (int32_t)v;
  r->bad = "a number of more than 32 bits";
  return 0;
}

/* Time and timestamp: { 1: adjusted to UTC, 2: unit, a union without values }. */
static void read_time(aci_thrift *r, aci_pq_element *x) {
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    if (f.id == 1) {
      x->is_utc = aci_thrift_bool(r, &f);
    } else if (f.id == 2 && aci_thrift_is_struct(r, &f)) {
      for (aci_thrift_field u = {0}; aci_thrift_next(r, &u);) {
        x->unit = u.id;
        aci_thrift_skip(r, u.type);
      }
    } else {
      aci_thrift_skip(r, f.type);
    }
  }
}

static void read_numbers(aci_thrift *r, int32_t *first, int32_t *second, bool *flag) {
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    if (f.id == 1 && first != NULL) *first = small(r, &f);
    else if (f.id == 2 && second != NULL) *second = small(r, &f);
    else if (f.id == 2 && flag != NULL) *flag = aci_thrift_bool(r, &f);
    else aci_thrift_skip(r, f.type);
  }
}

static void read_logical(aci_thrift *r, aci_pq_element *x) {
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    x->logical = f.id;
    if (!aci_thrift_is_struct(r, &f)) return;
    if (f.id == 5) read_numbers(r, &x->scale, &x->precision, NULL);
    else if (f.id == 7 || f.id == 8) read_time(r, x);
    else if (f.id == 10) read_numbers(r, &x->bits, NULL, &x->is_signed);
    else aci_thrift_skip(r, f.type);
  }
}

static void read_element(aci_thrift *r, aci_pq_element *x) {
  *x = (aci_pq_element){.physical = -1, .converted = -1, .repetition = 0};
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    switch (f.id) {
      case 1: x->physical = small(r, &f); break;
      case 2: x->length = small(r, &f); break;
      case 3: x->repetition = small(r, &f); break;
      case 4: x->name = aci_thrift_text(r, &f, &x->n_name); break;
      case 5: x->children = small(r, &f); break;
      case 6: x->converted = small(r, &f); break;
      case 7: x->scale = small(r, &f); break;
      case 8: x->precision = small(r, &f); break;
      case 10:
        if (aci_thrift_is_struct(r, &f)) read_logical(r, x);
        break;
      default: aci_thrift_skip(r, f.type);
    }
  }
}

static ac_status read_schema(footer *x, const aci_thrift_field *f) {
  const uint32_t n = aci_thrift_list(&x->r, f, ACI_THRIFT_STRUCT);
  if (n > ACI_TABLE_FIELDS || x->elements != NULL)
    return AC_FAIL(x->e, PARSE, "the schema has %u elements", n);
  x->elements = calloc((size_t)n + 1, sizeof *x->elements);
  if (x->elements == NULL) return AC_FAIL(x->e, OOM, "no memory");
  for (; x->n_elements < n && x->r.bad == NULL; x->n_elements++)
    read_element(&x->r, &x->elements[x->n_elements]);
  return x->r.bad == NULL ? AC_OK : damaged(x);
}

static ac_status read_meta(footer *x, aci_table *t, const aci_thrift_field *f) {
  const uint32_t n = aci_thrift_list(&x->r, f, ACI_THRIFT_STRUCT);
  if (t->meta != NULL) return AC_FAIL(x->e, PARSE, "the footer has two lists of metadata");
  t->meta = calloc((size_t)n + 1, sizeof *t->meta);
  if (t->meta == NULL) return AC_FAIL(x->e, OOM, "no memory");
  for (uint32_t i = 0; i < n && x->r.bad == NULL; i++) {
    aci_meta_pair *m = &t->meta[t->n_meta++];
    for (aci_thrift_field k = {0}; aci_thrift_next(&x->r, &k);) {
      char **to = k.id == 1 ? &m->key : &m->value;
      size_t *len = k.id == 1 ? &m->n_key : &m->n_value;
      if (k.id > 2 || *to != NULL) {
        aci_thrift_skip(&x->r, k.type);
        continue;
      }
      const char *s = aci_thrift_text(&x->r, &k, len);
      *to = malloc(*len + 1);
      if (*to == NULL) return AC_FAIL(x->e, OOM, "no memory");
      memcpy(*to, s, *len);
    }
    if (m->key == NULL) m->key = calloc(1, 1);
    if (m->value == NULL) m->value = calloc(1, 1);
    if (m->key == NULL || m->value == NULL) return AC_FAIL(x->e, OOM, "no memory");
  }
  return x->r.bad == NULL ? AC_OK : damaged(x);
}

/* ColumnMetaData. */
static void read_column(footer *x, aci_pq_chunk *c) {
  aci_thrift *r = &x->r;
  int64_t data = -1, dict = 0;
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    switch (f.id) {
      case 1: c->physical = small(r, &f); break;
      case 4: c->codec = small(r, &f); break;
      case 5: c->values = aci_thrift_int(r, &f); break;
      case 7: c->bytes = aci_thrift_int(r, &f); break;
      case 9: data = aci_thrift_int(r, &f); break;
      case 11: dict = aci_thrift_int(r, &f); break;
      default: aci_thrift_skip(r, f.type);
    }
  }
  c->at = dict > 0 && dict < data ? dict : data;
}

static ac_status read_chunk(footer *x, aci_pq_chunk *c) {
  size_t n;
  bool found = false;
  *c = (aci_pq_chunk){.physical = -1};
  for (aci_thrift_field f = {0}; aci_thrift_next(&x->r, &f);) {
    if (f.id == 1) {
      aci_thrift_text(&x->r, &f, &n);
      if (n > 0)
        return AC_FAIL(x->e, UNSUPPORTED, "a column is in another file, which accel does not open");
    } else if (f.id == 3 && aci_thrift_is_struct(&x->r, &f)) {
      read_column(x, c);
      found = true;
    } else if (f.id == 8 || f.id == 9) {
      return AC_FAIL(x->e, UNSUPPORTED, "a column is encrypted, which accel does not read");
    } else {
      aci_thrift_skip(&x->r, f.type);
    }
  }
  if (x->r.bad != NULL) return damaged(x);
  return found ? AC_OK : AC_FAIL(x->e, PARSE, "a column of a row group lacks its metadata");
}

static ac_status check_chunk(const aci_pq_file *f, const aci_pq_chunk *c, const aci_pq_leaf *leaf,
                             int64_t rows, ac_err *e) {
  const char *name = leaf->type->name;
  if (c->physical != (int32_t)leaf->physical)
    return AC_FAIL(e, PARSE, "column %s has the physical type %d, its chunk %d", name,
                   (int)leaf->physical, (int)c->physical);
  if (c->values != 0 && (c->at < 4 || c->bytes < 0 || (uint64_t)c->at > f->n ||
                         (uint64_t)c->bytes > f->n - (uint64_t)c->at))
    return AC_FAIL(e, PARSE, "column %s is at byte %lld with %lld bytes, outside of the file", name,
                   (long long)c->at, (long long)c->bytes);
  if (c->values < 0 || c->values > (int64_t)1 << 40 || (leaf->most_rep == 0 && c->values != rows) ||
      c->values < rows)
    return AC_FAIL(e, PARSE, "column %s has %lld values for %lld rows", name, (long long)c->values,
                   (long long)rows);
  return AC_OK;
}

static ac_status read_group(footer *x, aci_table *t, aci_pq_file *file, int64_t g) {
  const int64_t leaves = file->n_leaves;
  int64_t rows = -1;
  uint32_t n = 0;
  for (aci_thrift_field f = {0}; aci_thrift_next(&x->r, &f);) {
    if (f.id == 1) {
      n = aci_thrift_list(&x->r, &f, ACI_THRIFT_STRUCT);
      if (n != leaves)
        return x->r.bad != NULL
                   ? damaged(x)
                   : AC_FAIL(x->e, PARSE, "row group %lld has %u columns, the schema %lld",
                             (long long)g, n, (long long)leaves);
      for (uint32_t i = 0; i < n; i++) AC_TRY(read_chunk(x, &file->chunks[g * leaves + i]));
    } else if (f.id == 3) {
      rows = aci_thrift_int(&x->r, &f);
    } else {
      aci_thrift_skip(&x->r, f.type);
    }
  }
  if (x->r.bad != NULL) return damaged(x);
  if (rows < 0 || rows > (int64_t)1 << 40 || n != leaves)
    return AC_FAIL(x->e, PARSE, "row group %lld has %lld rows and %u columns", (long long)g,
                   (long long)rows, n);
  for (int64_t i = 0; i < leaves; i++)
    AC_TRY(check_chunk(file, &file->chunks[g * leaves + i], &file->leaves[i], rows, x->e));
  t->batch_rows[g] = rows;
  t->rows += rows;
  return AC_OK;
}

static ac_status read_groups(footer *x, aci_table *t, aci_pq_file *file) {
  if (x->groups == NULL) return AC_FAIL(x->e, PARSE, "the footer lists no row groups");
  x->r.p = x->groups;
  const uint32_t n =
      aci_thrift_list(&x->r, &(aci_thrift_field){4, ACI_THRIFT_LIST}, ACI_THRIFT_STRUCT);
  if (x->r.bad != NULL) return damaged(x);
  if ((uint64_t)n * (uint64_t)file->n_leaves > (uint64_t)(x->r.end - x->r.p))
    return AC_FAIL(x->e, PARSE, "the footer is too small for %u row groups", n);
  t->batch_rows = calloc((size_t)n + 1, sizeof *t->batch_rows);
  file->chunks = calloc((size_t)n * (size_t)file->n_leaves + 1, sizeof *file->chunks);
  if (t->batch_rows == NULL || file->chunks == NULL) return AC_FAIL(x->e, OOM, "no memory");
  t->n_batches = n;
  for (uint32_t g = 0; g < n; g++) AC_TRY(read_group(x, t, file, g));
  if (t->rows != x->rows)
    return AC_FAIL(x->e, PARSE, "the footer says %lld rows, its row groups have %lld",
                   (long long)x->rows, (long long)t->rows);
  return AC_OK;
}

static ac_status read_footer(footer *x, aci_table *t, aci_pq_file *file) {
  for (aci_thrift_field f = {0}; aci_thrift_next(&x->r, &f);) {
    switch (f.id) {
      case 2: AC_TRY(read_schema(x, &f)); break;
      case 3: x->rows = aci_thrift_int(&x->r, &f); break;
      case 4:
        x->groups = x->r.p;
        aci_thrift_skip(&x->r, f.type);
        break;
      case 5: AC_TRY(read_meta(x, t, &f)); break;
      case 8:
        return AC_FAIL(x->e, UNSUPPORTED, "the columns are encrypted, which accel does not read");
      default: aci_thrift_skip(&x->r, f.type);
    }
  }
  if (x->r.bad != NULL) return damaged(x);
  AC_TRY(aci_pq_schema(t, file, x->elements, (int)x->n_elements, x->e));
  return read_groups(x, t, file);
}

ac_status aci_pq_footer(aci_table *t, aci_pq_file *f, const uint8_t *p, size_t n, ac_err *e) {
  footer x = {.r = {.p = p, .end = p + n}, .rows = -1, .e = e};
  const ac_status st = read_footer(&x, t, f);
  free(x.elements);
  return st;
}
