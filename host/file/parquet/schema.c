/* Parquet's schema: elements in the order of a walk, as types, levels and columns of the file. */
#include <stdlib.h>
#include <string.h>

#include "file/parquet/parquet.h"

enum { REQUIRED, OPTIONAL, REPEATED };
/* Numbers of the union LogicalType and of the older ConvertedType. */
enum {
  L_STRING = 1,
  L_MAP,
  L_LIST,
  L_ENUM,
  L_DECIMAL,
  L_DATE,
  L_TIME,
  L_TIMESTAMP,
  L_INTEGER = 10,
  L_NULL,
  L_JSON,
  L_BSON,
  L_UUID,
  L_FLOAT16
};
enum {
  C_UTF8,
  C_MAP,
  C_MAP_KEY_VALUE,
  C_LIST,
  C_ENUM,
  C_DECIMAL,
  C_DATE,
  C_TIME_MS,
  C_TIME_US,
  C_TIMESTAMP_MS,
  C_TIMESTAMP_US,
  C_UINT8,
  C_INT8 = 15,
  C_INT64 = 18,
  C_JSON
};

typedef struct levels {
  int def, rep, outer_def, outer_rep, depth;
} levels;

typedef struct builder {
  aci_pq_file *f;
  const aci_pq_element *list;
  int n, at;
  ac_err *e;
} builder;

static ac_status no_memory(builder *s) { return AC_FAIL(s->e, OOM, "no memory"); }

static ac_status children(builder *s, int n, aci_type *type, aci_pq_node *node) {
  type->child = calloc((size_t)n + 1, sizeof *type->child);
  node->child = calloc((size_t)n + 1, sizeof *node->child);
  if (type->child == NULL || node->child == NULL) return no_memory(s);
  type->n_children = node->n_children = n;
  return AC_OK;
}

static ac_status set_name(builder *s, const aci_pq_element *x, aci_type *type) {
  if (x->name == NULL || !aci_text_is_valid((const uint8_t *)x->name, x->n_name) ||
      memchr(x->name, 0, x->n_name) != NULL)
    return AC_FAIL(s->e, PARSE, "the name of a column is missing or not UTF-8");
  type->name = malloc(x->n_name + 1);
  if (type->name == NULL) return no_memory(s);
  memcpy(type->name, x->name, x->n_name);
  type->name[x->n_name] = 0;
  return AC_OK;
}

static ac_status set_decimal(builder *s, const aci_pq_element *x, aci_type *t) {
  t->kind = ACI_DECIMALS;
  t->precision = x->precision;
  t->scale = x->scale;
  t->width = x->precision > 38 ? 32 : 16;
  const bool number = x->physical == ACI_PQ_INT32 || x->physical == ACI_PQ_INT64;
  const bool bytes = x->physical == ACI_PQ_BYTES ||
                     (x->physical == ACI_PQ_FIXED && x->length > 0 && x->length <= t->width);
  if (x->precision < 1 || x->precision > 76 || x->scale < 0 || x->scale > x->precision ||
      (!number && !bytes))
    return AC_FAIL(s->e, PARSE, "column %s has an invalid decimal type", t->name);
  return AC_OK;
}

static bool unit_of(const aci_pq_element *x, aci_type *t) {
  if (x->logical == L_TIME || x->logical == L_TIMESTAMP) t->unit = (uint8_t)x->unit;
  else t->unit = x->converted == C_TIME_MS || x->converted == C_TIMESTAMP_MS ? 1 : 2;
  return t->unit >= 1 && t->unit <= 3;
}

static ac_status set_int(builder *s, const aci_pq_element *x, aci_type *t) {
  const bool wide = x->physical == ACI_PQ_INT64;
  const int logical = x->logical, converted = logical != 0 ? -1 : x->converted;
  t->kind = ACI_INTS;
  t->width = wide ? 8 : 4;
  if (logical == L_DECIMAL || converted == C_DECIMAL) return set_decimal(s, x, t);
  if (logical == L_INTEGER) {
    t->width = x->bits / 8;
    t->is_unsigned = !x->is_signed;
  } else if (converted >= C_UINT8 && converted <= C_INT64) {
    t->width = 1 << ((converted - C_UINT8) % 4);
    t->is_unsigned = converted < C_INT8;
  } else if (logical == L_DATE || converted == C_DATE) {
    t->kind = ACI_DATES;
  } else if (logical == L_TIME || converted == C_TIME_MS || converted == C_TIME_US) {
    t->kind = ACI_TIMES;
    if (!unit_of(x, t) || (t->unit == 1) == wide) t->width = 0;
  } else if (logical == L_TIMESTAMP || converted == C_TIMESTAMP_MS || converted == C_TIMESTAMP_US) {
    t->kind = ACI_TIMESTAMPS;
    if (!unit_of(x, t) || !wide) t->width = 0;
    if (logical == L_TIMESTAMP && x->is_utc && (t->zone = strdup("UTC")) == NULL)
      return no_memory(s);
  } else if (logical == L_NULL) {
    t->kind = ACI_NULLS;
  }
  const bool narrow = t->kind == ACI_INTS && !wide && (t->width == 1 || t->width == 2);
  if (!narrow && t->width != (wide ? 8 : 4))
    return AC_FAIL(s->e, PARSE, "column %s has a logical type that its values cannot have",
                   t->name);
  return AC_OK;
}

static ac_status set_leaf(builder *s, const aci_pq_element *x, aci_type *t) {
  const bool text = x->logical == L_STRING || x->logical == L_JSON || x->logical == L_ENUM ||
                    (x->logical == 0 &&
                     (x->converted == C_UTF8 || x->converted == C_ENUM || x->converted == C_JSON));
  const bool decimal = x->logical == L_DECIMAL || (x->logical == 0 && x->converted == C_DECIMAL);
  switch (x->physical) {
    case ACI_PQ_BOOL: t->kind = ACI_BOOLS; break;
    case ACI_PQ_INT32:
    case ACI_PQ_INT64: return set_int(s, x, t);
    case ACI_PQ_INT96:
      t->kind = ACI_TIMESTAMPS;
      t->width = 8;
      t->unit = 3;
      break;
    case ACI_PQ_FLOAT:
    case ACI_PQ_DOUBLE:
      t->kind = ACI_FLOATS;
      t->width = x->physical == ACI_PQ_FLOAT ? 4 : 8;
      break;
    case ACI_PQ_BYTES:
      if (decimal) return set_decimal(s, x, t);
      t->kind = ACI_STRINGS;
      t->is_text = text;
      break;
    case ACI_PQ_FIXED:
      if (x->length < 0 || x->length > 1 << 24)
        return AC_FAIL(s->e, PARSE, "column %s has values of %d bytes", t->name, (int)x->length);
      if (decimal) return set_decimal(s, x, t);
      t->kind = ACI_FIXED;
      t->width = x->length;
      if (x->logical == L_FLOAT16 && x->length == 2) t->kind = ACI_FLOATS;
      break;
    default:
      return AC_FAIL(s->e, PARSE, "column %s has the unknown physical type %d", t->name,
                     (int)x->physical);
  }
  return AC_OK;
}

static ac_status add_leaf(builder *s, const aci_pq_element *x, const levels *at, aci_type *t,
                          aci_pq_node *node) {
  AC_TRY(set_leaf(s, x, t));
  node->leaf = s->f->n_leaves;
  s->f->leaves[s->f->n_leaves++] = (aci_pq_leaf){.physical = (aci_pq_physical)x->physical,
                                                 .length = x->length,
                                                 .most_def = (uint8_t)at->def,
                                                 .most_rep = (uint8_t)at->rep,
                                                 .type = t};
  return AC_OK;
}

static ac_status build(builder *s, levels at, bool element, aci_type *t, aci_pq_node *node);

/* Levels inside of a list at `at`. */
static levels inner(const levels *at) {
  return (levels){at->def + 1, at->rep + 1, at->def + 1, at->rep + 1, at->depth + 1};
}

static ac_status begin_list(builder *s, const levels *at, aci_kind kind, aci_type *t,
                            aci_pq_node *node) {
  t->kind = kind;
  node->list_def = (uint8_t)(at->def + 1);
  node->list_rep = (uint8_t)(at->rep + 1);
  return children(s, 1, t, node);
}

/* The group of a list: its one child repeats. Older writers leave a level out. */
static ac_status build_list(builder *s, const aci_pq_element *x, const levels *at, aci_type *t,
                            aci_pq_node *node) {
  const aci_pq_element *r = &s->list[s->at];
  AC_TRY(begin_list(s, at, ACI_LISTS, t, node));
  const bool tuple = r->n_name == x->n_name + 6 && memcmp(r->name, x->name, x->n_name) == 0 &&
                     memcmp(r->name + x->n_name, "_tuple", 6) == 0;
  const bool itself =
      r->children != 1 || tuple || (r->n_name == 5 && memcmp(r->name, "array", 5) == 0);
  if (!itself) s->at++;
  return build(s, inner(at), itself, &t->child[0], &node->child[0]);
}

static ac_status build_map(builder *s, const levels *at, aci_type *t, aci_pq_node *node) {
  AC_TRY(begin_list(s, at, ACI_MAPS, t, node));
  AC_TRY(build(s, inner(at), true, &t->child[0], &node->child[0]));
  if (t->child[0].kind != ACI_STRUCTS || t->child[0].n_children != 2)
    return AC_FAIL(s->e, PARSE, "the map %s has no pairs of a key and a value", t->name);
  return AC_OK;
}

static ac_status build_struct(builder *s, int n, const levels *at, aci_type *t, aci_pq_node *node) {
  levels below = *at;
  below.depth++;
  t->kind = ACI_STRUCTS;
  AC_TRY(children(s, n, t, node));
  for (int i = 0; i < n; i++) AC_TRY(build(s, below, false, &t->child[i], &node->child[i]));
  return AC_OK;
}

/* The type of the next element, with all below it. element: it repeats as the element of a list. */
static ac_status build(builder *s, levels at, bool element, aci_type *t, aci_pq_node *node) {
  if (s->at >= s->n) return AC_FAIL(s->e, PARSE, "the schema lacks columns that it counts");
  if (at.depth > ACI_TABLE_DEPTH) return AC_FAIL(s->e, PARSE, "columns are nested too deep");
  const aci_pq_element *x = &s->list[s->at++];
  *node = (aci_pq_node){.leaf = -1};
  AC_TRY(set_name(s, x, t));
  if (x->children < 0 || x->children > s->n - s->at || x->repetition < 0 || x->repetition > 2)
    return AC_FAIL(s->e, PARSE, "column %s has %d columns below it", t->name, (int)x->children);
  const bool repeats = x->repetition == REPEATED && !element;
  if (x->repetition == OPTIONAL) {
    at.def++;
    t->nullable = true;
  }
  node->def = (uint8_t)at.def;
  node->outer_def = (uint8_t)at.outer_def;
  node->outer_rep = (uint8_t)at.outer_rep;
  if (repeats) { /* a list without a group */
    s->at--;
    AC_TRY(begin_list(s, &at, ACI_LISTS, t, node));
    return build(s, inner(&at), true, &t->child[0], &node->child[0]);
  }
  if (x->children == 0) return add_leaf(s, x, &at, t, node);
  const bool one = x->children == 1 && s->at < s->n && s->list[s->at].repetition == REPEATED &&
                   s->list[s->at].name != NULL;
  if (one && (x->logical == L_LIST || (x->logical == 0 && x->converted == C_LIST)))
    return build_list(s, x, &at, t, node);
  if (one && s->list[s->at].children == 2 &&
      (x->logical == L_MAP ||
       (x->logical == 0 && (x->converted == C_MAP || x->converted == C_MAP_KEY_VALUE))))
    return build_map(s, &at, t, node);
  return build_struct(s, x->children, &at, t, node);
}

ac_status aci_pq_schema(aci_table *t, aci_pq_file *f, const aci_pq_element *list, int n,
                        ac_err *e) {
  builder s = {f, list, n, 1, e};
  if (n < 1) return AC_FAIL(e, PARSE, "the footer has no schema");
  if (list[0].children < 0 || list[0].children > n - 1)
    return AC_FAIL(e, PARSE, "the schema counts %d columns and has %d", (int)list[0].children,
                   n - 1);
  f->leaves = calloc((size_t)n, sizeof *f->leaves);
  if (f->leaves == NULL) return no_memory(&s);
  AC_TRY(build_struct(&s, list[0].children, &(levels){0}, &t->schema, &f->root));
  if (s.at != n) return AC_FAIL(e, PARSE, "the schema has columns that no group counts");
  return AC_OK;
}
