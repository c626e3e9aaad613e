/* Checks of a column's buffers. They run once, when a batch is read: everything after may trust
 * them. */
#include "base/json.h" /* aci_utf8_length */
#include "file/table/load.h"

bool aci_text_is_valid(const uint8_t *p, size_t n) {
  for (size_t i = 0; i < n;) {
    if (i + 8 <= n && (aci_load_u64(p + i) & 0x8080808080808080u) == 0) {
      i += 8;
      continue;
    }
    const int k = p[i] < 0x80 ? 1 : aci_utf8_length(p + i, n - i);
    if (k == 0) return false;
    i += (size_t)k;
  }
  return true;
}

/* Offsets that never fall, from 0 or more to `end` or less. */
static ac_status check_offsets(const aci_column *c, int64_t end, ac_err *e) {
  int64_t before = aci_offset_at(c, 0);
  if (before < 0) return AC_FAIL(e, PARSE, "a negative offset");
  for (int64_t i = 1; i <= c->n; i++) {
    const int64_t at = aci_offset_at(c, i);
    if (at < before) return AC_FAIL(e, PARSE, "offsets fall at row %lld", (long long)i);
    before = at;
  }
  if (before > end)
    return AC_FAIL(e, PARSE, "offsets end at %lld, after the %lld values or bytes there are",
                   (long long)before, (long long)end);
  return AC_OK;
}

static ac_status check_strings(const aci_column *c, ac_err *e) {
  if (c->n == 0) return AC_OK;
  AC_TRY(check_offsets(c, c->n_data, e));
  if (!c->type->is_text) return AC_OK;
  const int64_t first = aci_offset_at(c, 0), end = aci_offset_at(c, c->n);
  if (!aci_text_is_valid(c->data + first, (size_t)(end - first)))
    return AC_FAIL(e, PARSE, "text that is not UTF-8");
  for (int64_t i = 1; i < c->n; i++) {
    const int64_t at = aci_offset_at(c, i);
    if (at < end && (c->data[at] & 0xC0) == 0x80)
      return AC_FAIL(e, PARSE, "row %lld begins inside a character", (long long)i);
  }
  return AC_OK;
}

static ac_status check_views(const aci_column *c, ac_err *e) {
  for (int64_t i = 0; i < c->n; i++) {
    if (!aci_is_valid(c, i)) continue;
    const uint8_t *v = c->values + 16 * i, *text = v + 4;
    const int32_t len = aci_load_i32(v);
    if (len < 0) return AC_FAIL(e, PARSE, "row %lld has a negative length", (long long)i);
    if (len > 12) {
      const int32_t k = aci_load_i32(v + 8), at = aci_load_i32(v + 12);
      if (k < 0 || k >= c->n_buffers || at < 0 || (int64_t)at + len > c->buffer_bytes[k])
        return AC_FAIL(e, PARSE, "the view of row %lld is outside its buffers", (long long)i);
      text = c->buffers[k] + at;
    }
    if (c->type->is_text && !aci_text_is_valid(text, (size_t)len))
      return AC_FAIL(e, PARSE, "text that is not UTF-8 in row %lld", (long long)i);
  }
  return AC_OK;
}

static ac_status check_indices(const aci_column *c, ac_err *e) {
  int64_t n = 0;
  for (const aci_column *d = c->dict; d != NULL; d = d->next) n += d->n;
  for (int64_t i = 0; i < c->n; i++) {
    if (!aci_is_valid(c, i)) continue;
    const int64_t k = aci_load_int(c->values, i, c->type->width, c->type->is_unsigned);
    if (k < 0 || k >= n)
      return AC_FAIL(e, PARSE, "row %lld has the dictionary index %lld of %lld", (long long)i,
                     (long long)k, (long long)n);
  }
  return AC_OK;
}

static ac_status check_runs(const aci_column *c, ac_err *e) {
  const aci_column *ends = &c->child[0];
  int64_t before = 0;
  if (ends->type->kind != ACI_INTS || ends->valid != NULL)
    return AC_FAIL(e, PARSE, "ends of runs that are not plain integers");
  for (int64_t i = 0; i < ends->n; i++) {
    const int64_t at = aci_load_int(ends->values, i, ends->type->width, ends->type->is_unsigned);
    if (at <= before) return AC_FAIL(e, PARSE, "ends of runs that do not rise");
    before = at;
  }
  if (before < c->n || c->child[1].n < ends->n)
    return AC_FAIL(e, PARSE, "runs of %lld rows, expected %lld", (long long)before,
                   (long long)c->n);
  return AC_OK;
}

ac_status aci_column_check(const aci_column *c, ac_err *e) {
  switch (c->type->kind) {
    case ACI_STRINGS: return check_strings(c, e);
    case ACI_VIEWS: return check_views(c, e);
    case ACI_LISTS:
    case ACI_MAPS: return c->n == 0 ? AC_OK : check_offsets(c, c->child[0].n, e);
    case ACI_FIXED_LISTS:
      if (c->type->list_size > 0 && c->child[0].n / c->type->list_size < c->n)
        return AC_FAIL(e, PARSE, "lists of %d with %lld values for %lld rows", c->type->list_size,
                       (long long)c->child[0].n, (long long)c->n);
      return AC_OK;
    case ACI_STRUCTS:
      for (int i = 0; i < c->n_children; i++)
        if (c->child[i].n < c->n)
          return AC_FAIL(e, PARSE, "field %s has %lld rows, expected %lld", c->type->child[i].name,
                         (long long)c->child[i].n, (long long)c->n);
      return AC_OK;
    case ACI_RUN_ENDS: return check_runs(c, e);
    case ACI_DICTS: return check_indices(c, e);
    default: return AC_OK;
  }
}
