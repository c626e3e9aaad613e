/* Arrow's schemas. */
#include <stdlib.h>
#include <string.h>

#include "file/arrow/arrow.h"

typedef struct reader {
  int n_fields; /* a buffer can name one field from many places: their sum is limited */
  ac_err *e;
} reader;

static char *copy(const char *s, size_t n) {
  char *p = malloc(n + 1);
  if (p == NULL) return NULL;
  memcpy(p, s == NULL ? "" : s, n);
  p[n] = 0;
  return p;
}

/* What the enum Type of Schema.fbs calls them. */
enum {
  T_NULL = 1,
  T_INT,
  T_FLOAT,
  T_BINARY,
  T_UTF8,
  T_BOOL,
  T_DECIMAL,
  T_DATE,
  T_TIME,
  T_TIMESTAMP,
  T_INTERVAL,
  T_LIST,
  T_STRUCT,
  T_UNION,
  T_FIXED_BINARY,
  T_FIXED_LIST,
  T_MAP,
  T_DURATION,
  T_LARGE_BINARY,
  T_LARGE_UTF8,
  T_LARGE_LIST,
  T_RUN_END,
  T_BINARY_VIEW,
  T_UTF8_VIEW
};

static ac_status read_int(const aci_flat_table *t, aci_type *out, ac_err *e) {
  const int64_t bits = aci_flat_int(t, 0, 4, 0);
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    return AC_FAIL(e, PARSE, "column %s has integers of %lld bits", out->name, (long long)bits);
  out->width = (int32_t)bits / 8;
  out->is_unsigned = aci_flat_int(t, 1, 1, 0) == 0;
  return AC_OK;
}

static ac_status read_unit(const aci_flat_table *t, int64_t fallback, aci_type *out, ac_err *e) {
  const int64_t unit = aci_flat_int(t, 0, 2, fallback);
  if (unit < 0 || unit > 3) return AC_FAIL(e, PARSE, "column %s has an unknown unit", out->name);
  out->unit = (uint8_t)unit;
  return AC_OK;
}

static ac_status read_decimal(const aci_flat_table *t, aci_type *out, ac_err *e) {
  const int64_t bits = aci_flat_int(t, 2, 4, 128);
  const int64_t precision = aci_flat_int(t, 0, 4, 0), scale = aci_flat_int(t, 1, 4, 0);
  if ((bits != 32 && bits != 64 && bits != 128 && bits != 256) || precision < 1 || precision > 76 ||
      scale < -100 || scale > 100)
    return AC_FAIL(e, PARSE, "column %s has an invalid decimal type", out->name);
  out->width = (int32_t)bits / 8;
  out->precision = (int32_t)precision;
  out->scale = (int32_t)scale;
  return AC_OK;
}

static ac_status read_size(const aci_flat_table *t, const char *what, int32_t *to, ac_err *e) {
  const int64_t n = aci_flat_int(t, 0, 4, 0);
  if (n < 0 || n > 1 << 28) return AC_FAIL(e, PARSE, "%s of %lld", what, (long long)n);
  *to = (int32_t)n;
  return AC_OK;
}

/* The type by its number and table, without children. */
static ac_status read_type(int64_t kind, const aci_flat_table *t, aci_type *out, ac_err *e) {
  size_t n;
  const char *zone;
  switch (kind) {
    case T_NULL: out->kind = ACI_NULLS; return AC_OK;
    case T_INT: out->kind = ACI_INTS; return read_int(t, out, e);
    case T_FLOAT: {
      const int64_t precision = aci_flat_int(t, 0, 2, 0);
      if (precision < 0 || precision > 2)
        return AC_FAIL(e, PARSE, "column %s has floats of an unknown precision", out->name);
      out->kind = ACI_FLOATS;
      out->width = 2 << precision;
      return AC_OK;
    }
    case T_LARGE_BINARY:
    case T_LARGE_UTF8:
    case T_BINARY:
    case T_UTF8:
      out->kind = ACI_STRINGS;
      out->large = kind == T_LARGE_BINARY || kind == T_LARGE_UTF8;
      out->is_text = kind == T_UTF8 || kind == T_LARGE_UTF8;
      return AC_OK;
    case T_BOOL: out->kind = ACI_BOOLS; return AC_OK;
    case T_DECIMAL: out->kind = ACI_DECIMALS; return read_decimal(t, out, e);
    case T_DATE:
      out->kind = ACI_DATES;
      out->width = aci_flat_int(t, 0, 2, 1) == 0 ? 4 : 8;
      out->unit = 1;
      return AC_OK;
    case T_TIME:
      out->kind = ACI_TIMES;
      out->width = aci_flat_int(t, 1, 4, 32) == 32 ? 4 : 8;
      return read_unit(t, 1, out, e);
    case T_TIMESTAMP:
      out->kind = ACI_TIMESTAMPS;
      out->width = 8;
      zone = aci_flat_string(t, 1, &n);
      if (n > 0 && (out->zone = copy(zone, n)) == NULL) return AC_FAIL(e, OOM, "no memory");
      return read_unit(t, 0, out, e);
    case T_DURATION:
      out->kind = ACI_DURATIONS;
      out->width = 8;
      return read_unit(t, 1, out, e);
    case T_LIST: out->kind = ACI_LISTS; return AC_OK;
    case T_LARGE_LIST:
      out->kind = ACI_LISTS;
      out->large = true;
      return AC_OK;
    case T_STRUCT: out->kind = ACI_STRUCTS; return AC_OK;
    case T_FIXED_BINARY:
      out->kind = ACI_FIXED;
      return read_size(t, "binary values", &out->width, e);
    case T_FIXED_LIST:
      out->kind = ACI_FIXED_LISTS;
      return read_size(t, "lists", &out->list_size, e);
    case T_MAP: out->kind = ACI_MAPS; return AC_OK;
    case T_RUN_END: out->kind = ACI_RUN_ENDS; return AC_OK;
    case T_BINARY_VIEW:
    case T_UTF8_VIEW:
      out->kind = ACI_VIEWS;
      out->is_text = kind == T_UTF8_VIEW;
      return AC_OK;
    case T_UNION:
      return AC_FAIL(e, UNSUPPORTED, "column %s is a union, which accel does not read", out->name);
    case T_INTERVAL:
      return AC_FAIL(e, UNSUPPORTED, "column %s has intervals, which accel does not read",
                     out->name);
    default:
      return AC_FAIL(e, UNSUPPORTED, "column %s has the unknown type %lld", out->name,
                     (long long)kind);
  }
}

static ac_status check_children(const aci_type *t, ac_err *e) {
  const int n = t->n_children;
  const bool right = t->kind == ACI_STRUCTS ||
                     (t->kind == ACI_LISTS || t->kind == ACI_FIXED_LISTS ? n == 1
                      : t->kind == ACI_RUN_ENDS                          ? n == 2
                      : t->kind == ACI_MAPS
                          ? n == 1 && t->child[0].kind == ACI_STRUCTS && t->child[0].n_children == 2
                          : n == 0);
  return right ? AC_OK : AC_FAIL(e, PARSE, "column %s has %d columns below it", t->name, n);
}

static ac_status read_field(reader *r, const aci_flat_table *f, int depth, aci_type *out) {
  size_t n;
  if (depth > ACI_TABLE_DEPTH || ++r->n_fields > ACI_TABLE_FIELDS)
    return AC_FAIL(r->e, PARSE, "the schema is nested too deep or has too many columns");
  const char *name = aci_flat_string(f, 0, &n);
  if ((out->name = copy(name, n)) == NULL) return AC_FAIL(r->e, OOM, "no memory");
  if (strlen(out->name) != n || !aci_text_is_valid((const uint8_t *)out->name, n))
    return AC_FAIL(r->e, PARSE, "the name of a column is not UTF-8");
  out->nullable = aci_flat_int(f, 1, 1, 0) != 0;
  const aci_flat_table t = aci_flat_child(f, 3), coded = aci_flat_child(f, 4);
  AC_TRY(read_type(aci_flat_int(f, 2, 1, 0) & 0xFF, &t, out, r->e));
  const aci_flat_vector children = aci_flat_list(f, 5, 4);
  if (children.n > ACI_TABLE_FIELDS) return AC_FAIL(r->e, PARSE, "the schema has too many columns");
  if (children.n > 0) {
    out->child = calloc(children.n, sizeof *out->child);
    if (out->child == NULL) return AC_FAIL(r->e, OOM, "no memory");
  }
  for (uint32_t i = 0; i < children.n; i++) {
    const aci_flat_table c = aci_flat_at(&children, i);
    out->n_children = (int)i + 1;
    AC_TRY(read_field(r, &c, depth + 1, &out->child[i]));
  }
  AC_TRY(check_children(out, r->e));
  if (coded.at == 0) return AC_OK;
  aci_type *values = calloc(1, sizeof *values);
  if (values == NULL) return AC_FAIL(r->e, OOM, "no memory");
  *values = *out;
  *out = (aci_type){.kind = ACI_DICTS, .nullable = values->nullable, .width = 4};
  out->name = values->name;
  values->name = copy("", 0);
  out->child = values;
  out->n_children = 1;
  out->dict_id = aci_flat_int(&coded, 0, 8, 0);
  out->ordered = aci_flat_int(&coded, 2, 1, 0) != 0;
  const aci_flat_table index = aci_flat_child(&coded, 1);
  return index.at == 0 ? AC_OK : read_int(&index, out, r->e);
}

static ac_status read_meta(const aci_flat_vector *pairs, aci_table *t, ac_err *e) {
  if (pairs->n > ACI_TABLE_FIELDS) return AC_FAIL(e, PARSE, "the schema has too much metadata");
  t->meta = calloc((size_t)pairs->n + 1, sizeof *t->meta);
  if (t->meta == NULL) return AC_FAIL(e, OOM, "no memory");
  for (uint32_t i = 0; i < pairs->n; i++) {
    const aci_flat_table pair = aci_flat_at(pairs, i);
    aci_meta_pair *m = &t->meta[t->n_meta++];
    const char *key = aci_flat_string(&pair, 0, &m->n_key);
    m->key = copy(key, m->n_key);
    const char *value = aci_flat_string(&pair, 1, &m->n_value);
    m->value = copy(value, m->n_value);
    if (m->key == NULL || m->value == NULL) return AC_FAIL(e, OOM, "no memory");
  }
  return AC_OK;
}

ac_status aci_arrow_schema(const aci_flat_table *schema, aci_type *out, aci_table *t, ac_err *e) {
  reader r = {.e = e};
  if (aci_flat_int(schema, 0, 2, 0) != 0)
    return AC_FAIL(e, UNSUPPORTED, "big-endian tables are not read");
  const aci_flat_vector fields = aci_flat_list(schema, 1, 4), pairs = aci_flat_list(schema, 2, 4);
  if (schema->at == 0 || fields.n > ACI_TABLE_FIELDS)
    return AC_FAIL(e, PARSE, "the schema is damaged or has too many columns");
  out->child = calloc((size_t)fields.n + 1, sizeof *out->child);
  if (out->child == NULL) return AC_FAIL(e, OOM, "no memory");
  for (uint32_t i = 0; i < fields.n; i++) {
    const aci_flat_table f = aci_flat_at(&fields, i);
    out->n_children = (int)i + 1;
    AC_TRY(read_field(&r, &f, 1, &out->child[i]));
  }
  if (t != NULL) AC_TRY(read_meta(&pairs, t, e));
  return schema->b->bad ? AC_FAIL(e, PARSE, "the schema is damaged") : AC_OK;
}
