/* Columns of a table from the levels and values of Parquet's columns.
 *
 * An entry of a column has a repetition level, the innermost list that it continues, and a definition
 * level, how much of its path is there. A node of the schema has a slot for each entry that does not
 * continue a list inside the node (rep <= outer_rep) and whose element of the list around exists
 * (def >= outer_def). It is not null if def >= node->def. */
#include <stdlib.h>

#include "file/parquet/parquet.h"

/* Some column of the file below a node: all of them have the levels of the node. */
static int some_leaf(const aci_pq_node *node) {
  while (node->leaf < 0) node = &node->child[0];
  return node->leaf;
}

static bool is_slot(const aci_pq_column *x, const aci_pq_node *node, int64_t i) {
  return (x->rep == NULL || x->rep[i] <= node->outer_rep) &&
         (x->def == NULL || x->def[i] >= node->outer_def);
}

static bool is_there(const aci_pq_column *x, const aci_pq_node *node, int64_t i) {
  return x->def == NULL || x->def[i] >= node->def;
}

/* The number of slots, and the bits of those that are not null. */
static ac_status read_validity(const aci_type *t, const aci_pq_node *node, const aci_pq_column *x,
                               aci_batch *b, aci_column *out, ac_err *e) {
  uint8_t *valid = NULL;
  out->type = t;
  if (x->def == NULL && x->rep == NULL) {
    out->n = x->n;
    return AC_OK;
  }
  /* a required column below an optional struct has no value where the struct is null */
  const bool may_lack = t->nullable || node->def > node->outer_def;
  if (may_lack) AC_TRY(aci_batch_alloc(b, (size_t)(x->n + 7) / 8, true, &valid, e));
  int64_t n = 0, nulls = 0;
  for (int64_t i = 0; i < x->n; i++) {
    if (!is_slot(x, node, i)) continue;
    if (!is_there(x, node, i)) nulls++;
    else if (valid != NULL) valid[n >> 3] |= (uint8_t)(1 << (n & 7));
    n++;
  }
  out->n = n;
  out->valid = nulls > 0 ? valid : NULL;
  if (nulls > 0 && valid == NULL)
    return AC_FAIL(e, PARSE, "column %s has nulls, which its type excludes", t->name);
  return AC_OK;
}

/* ---- values ---- */

/* Moves the n_dense values of `width` bytes, which begin the buffer, to the rows that are not null. */
static void spread(uint8_t *p, int width, int64_t n_dense, const aci_column *c) {
  int64_t k = n_dense;
  if (c->valid == NULL) return;
  for (int64_t i = c->n - 1; i >= 0; i--) {
    if (aci_bit(c->valid, i)) {
      k--;
      if (k != i) memmove(p + i * width, p + k * width, (size_t)width);
    } else {
      memset(p + i * width, 0, (size_t)width);
    }
  }
}

static void spread_offsets(int32_t *o, int64_t n_dense, const aci_column *c) {
  int64_t k = n_dense;
  if (c->valid == NULL) return;
  for (int64_t i = c->n; i > 0; i--) {
    o[i] = o[k];
    if (aci_bit(c->valid, i - 1)) k--;
  }
}

static ac_status narrow(uint8_t *p, int64_t n, const aci_type *t, ac_err *e) {
  for (int64_t i = 0; i < n; i++) {
    const int32_t v = aci_load_i32(p + 4 * i);
    memcpy(p + i * t->width, &v, (size_t)t->width);
    if (aci_load_int(p, i, t->width, t->is_unsigned) != v)
      return AC_FAIL(e, PARSE, "column %s has the value %d, which its type excludes", t->name, v);
  }
  return AC_OK;
}

/* 8 bytes of nanoseconds in a day and 4 of the Julian day. */
static void from_int96(uint8_t *p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const uint64_t ns = aci_load_u64(p + 12 * i);
    const int64_t day = (int64_t)aci_load_u32(p + 12 * i + 8) - 2440588;
    const uint64_t v = (uint64_t)day * 86400000000000u + ns;
    memcpy(p + 8 * i, &v, 8);
  }
}

/* A decimal as 16 or 32 bytes, little-endian, from big-endian bytes or a number. */
static void decimal(uint8_t *to, int width, const uint8_t *p, int n, bool big) {
  const int sign = n > 0 && p[big ? 0 : n - 1] >> 7 ? 0xFF : 0;
  for (int i = 0; i < width; i++) to[i] = i < n ? p[big ? n - 1 - i : i] : (uint8_t)sign;
}

static ac_status decimals(const aci_type *t, aci_pq_values *v, aci_batch *b, int64_t room,
                          uint8_t **out, ac_err *e) {
  AC_TRY(aci_batch_alloc(b, (size_t)room * (size_t)t->width, false, out, e));
  for (int64_t i = 0; i < v->n; i++) {
    uint8_t *to = *out + i * t->width;
    if (v->physical == ACI_PQ_BYTES) {
      const int n = v->offsets[i + 1] - v->offsets[i];
      if (n > t->width) return AC_FAIL(e, PARSE, "column %s has a decimal of %d bytes", t->name, n);
      decimal(to, t->width, n > 0 ? v->data + v->offsets[i] : to, n, true);
    } else {
      decimal(to, t->width, v->fixed + i * v->width, v->width, v->physical == ACI_PQ_FIXED);
    }
  }
  return AC_OK;
}

static ac_status bools(const aci_pq_values *v, aci_batch *b, aci_column *out, ac_err *e) {
  uint8_t *bits;
  AC_TRY(aci_batch_alloc(b, (size_t)(out->n + 7) / 8, true, &bits, e));
  int64_t k = 0;
  for (int64_t i = 0; i < out->n; i++)
    if (aci_is_valid(out, i) && v->fixed[k++] != 0) bits[i >> 3] |= (uint8_t)(1 << (i & 7));
  out->values = bits;
  return AC_OK;
}

static ac_status build_values(const aci_type *t, aci_pq_column *x, aci_batch *b, aci_column *out,
                              ac_err *e) {
  aci_pq_values *v = &x->values;
  static const uint8_t nothing[64];
  if (t->kind == ACI_NULLS) return AC_OK;
  if (t->kind == ACI_BOOLS) return bools(v, b, out, e);
  if (t->kind == ACI_STRINGS) {
    spread_offsets(v->offsets, v->n, out);
    out->values = (const uint8_t *)v->offsets;
    out->data = v->data != NULL ? v->data : nothing;
    out->n_data = (int64_t)v->n_data;
    return aci_column_check(out, e);
  }
  uint8_t *p = v->fixed;
  if (t->kind == ACI_DECIMALS) AC_TRY(decimals(t, v, b, out->n, &p, e));
  else if (v->physical == ACI_PQ_INT96) from_int96(p, v->n);
  else if (v->physical == ACI_PQ_INT32 && t->width < 4) AC_TRY(narrow(p, v->n, t, e));
  spread(p, t->width, v->n, out);
  out->values = p;
  return AC_OK;
}

/* ---- lists ---- */

static ac_status build_offsets(const aci_pq_node *node, const aci_pq_column *x, aci_batch *b,
                               aci_column *out, ac_err *e) {
  int32_t *offsets;
  int64_t slot = 0, n = 0;
  AC_TRY(aci_batch_alloc(b, ((size_t)out->n + 1) * sizeof *offsets, true, &offsets, e));
  for (int64_t i = 0; i < x->n; i++) {
    if (is_slot(x, node, i)) offsets[slot++] = (int32_t)n;
    if (x->rep[i] <= node->list_rep && x->def[i] >= node->list_def) {
      if (slot == 0) return AC_FAIL(e, PARSE, "a list continues before the first one begins");
      n++;
    }
  }
  if (n > INT32_MAX)
    return AC_FAIL(e, UNSUPPORTED, "more than 2^31 values in the lists of a row group");
  offsets[slot] = (int32_t)n;
  out->values = (const uint8_t *)offsets;
  return AC_OK;
}

ac_status aci_pq_assemble(const aci_pq_file *f, const aci_type *t, const aci_pq_node *node,
                          aci_pq_column *leaves, aci_batch *b, aci_column *out, ac_err *e) {
  aci_pq_column *x = &leaves[some_leaf(node)];
  AC_TRY(read_validity(t, node, x, b, out, e));
  if (node->leaf >= 0) {
    ac_err why;
    const ac_status st = build_values(t, x, b, out, &why);
    return st == AC_OK ? st
                       : ac_err_set(e, st, __FILE__, __LINE__, "column %s: %s", t->name, why.msg);
  }
  if (t->kind == ACI_LISTS || t->kind == ACI_MAPS) AC_TRY(build_offsets(node, x, b, out, e));
  AC_TRY(aci_batch_alloc(b, (size_t)t->n_children * sizeof *out->child, true, &out->child, e));
  out->n_children = t->n_children;
  for (int i = 0; i < t->n_children; i++) {
    AC_TRY(aci_pq_assemble(f, &t->child[i], &node->child[i], leaves, b, &out->child[i], e));
    /* the columns below one list must agree about its lengths */
    if (t->kind == ACI_STRUCTS && out->child[i].n != out->n)
      return AC_FAIL(e, PARSE, "column %s: its parts have %lld and %lld values", t->name,
                     (long long)out->n, (long long)out->child[i].n);
  }
  return aci_column_check(out, e);
}
