/* Values of Parquet's pages, by their encoding. */
#include <stdlib.h>

#include "file/parquet/parquet.h"

static ac_status short_of(ac_err *e) {
  return AC_FAIL(e, PARSE, "a page has fewer values than it says");
}

/* Room for n more bytes of data. */
static ac_status need(aci_pq_values *v, size_t n, ac_err *e) {
  if (n > (size_t)INT32_MAX - v->n_data)
    return AC_FAIL(e, UNSUPPORTED, "more than 2 GiB of bytes in a column of one row group");
  if (v->n_data + n <= v->cap_data) return AC_OK;
  size_t cap = v->cap_data < 4096 ? 4096 : v->cap_data;
  while (cap < v->n_data + n) cap *= 2;
  if (v->most > 0 && v->n_data + n > v->most)
    return AC_FAIL(e, PARSE, ACI_ROWS_OVER_LIMIT, v->most);
  uint8_t *p = realloc(v->data, cap + 64);
  if (p == NULL) return AC_FAIL(e, OOM, "no memory for %zu bytes of a table", cap);
  v->data = p;
  v->cap_data = cap;
  return AC_OK;
}

static void push(aci_pq_values *v, const uint8_t *p, size_t n) {
  if (n > 0) memcpy(v->data + v->n_data, p, n);
  v->n_data += n;
  v->offsets[++v->n] = (int32_t)v->n_data;
}

static ac_status plain_bools(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                             ac_err *e) {
  if ((n + 7) / 8 > end - p) return short_of(e);
  for (int64_t i = 0; i < n; i++) v->fixed[v->n + i] = aci_bit(p, i);
  v->n += n;
  return AC_OK;
}

static ac_status plain_bytes(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                             ac_err *e) {
  AC_TRY(need(v, (size_t)(end - p), e));
  for (int64_t i = 0; i < n; i++) {
    if (end - p < 4) return short_of(e);
    const uint32_t len = aci_load_u32(p);
    p += 4;
    if (len > (uint64_t)(end - p))
      return AC_FAIL(e, PARSE, "a value of %u bytes is longer than its page", len);
    push(v, p, len);
    p += len;
  }
  return AC_OK;
}

static ac_status plain(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                       ac_err *e) {
  if (v->physical == ACI_PQ_BOOL) return plain_bools(v, p, end, n, e);
  if (v->width == 0 && v->physical == ACI_PQ_BYTES) return plain_bytes(v, p, end, n, e);
  if (v->width > 0 && n > (end - p) / v->width) return short_of(e);
  if (n > 0 && v->width > 0) memcpy(v->fixed + v->n * v->width, p, (size_t)(n * v->width));
  v->n += n;
  return AC_OK;
}

static ac_status split(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                       ac_err *e) {
  if (v->width == 0 || v->physical == ACI_PQ_BOOL)
    return AC_FAIL(e, PARSE, "bytes are split that have no fixed size");
  if (n > (end - p) / v->width) return short_of(e);
  uint8_t *to = v->fixed + v->n * v->width;
  for (int k = 0; k < v->width; k++)
    for (int64_t i = 0; i < n; i++) to[i * v->width + k] = p[k * n + i];
  v->n += n;
  return AC_OK;
}

/* Memory of a call. */
typedef struct scratch {
  int64_t *a, *b;
  uint32_t *u;
} scratch;

static void scratch_free(scratch *s) {
  free(s->a);
  free(s->b);
  free(s->u);
}

static ac_status dictionary(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                            const aci_pq_values *dict, scratch *s, ac_err *e) {
  if (dict == NULL) return AC_FAIL(e, PARSE, "a page needs a dictionary, and the column has none");
  if (n == 0) return AC_OK;
  if (p == end) return short_of(e);
  const int width = *p++;
  if (width > 32) return AC_FAIL(e, PARSE, "dictionary indices of %d bits", width);
  if ((s->u = malloc((size_t)n * sizeof *s->u)) == NULL) return AC_FAIL(e, OOM, "no memory");
  AC_TRY(aci_pq_hybrid(p, end, width, n, s->u, e));
  for (int64_t i = 0; i < n; i++)
    if (s->u[i] >= (uint64_t)dict->n)
      return AC_FAIL(e, PARSE, "the dictionary index %u of %lld", s->u[i], (long long)dict->n);
  if (v->physical == ACI_PQ_BYTES) {
    for (int64_t i = 0; i < n; i++) {
      const int32_t at = dict->offsets[s->u[i]];
      const size_t len = (size_t)(dict->offsets[s->u[i] + 1] - at);
      AC_TRY(need(v, len, e));
      push(v, dict->data + at, len);
    }
    return AC_OK;
  }
  uint8_t *to = v->fixed + v->n * v->width;
  switch (v->width) { /* constant sizes become moves */
    case 4:
      for (int64_t i = 0; i < n; i++) memcpy(to + 4 * i, dict->fixed + 4 * (size_t)s->u[i], 4);
      break;
    case 8:
      for (int64_t i = 0; i < n; i++) memcpy(to + 8 * i, dict->fixed + 8 * (size_t)s->u[i], 8);
      break;
    default:
      for (int64_t i = 0; i < n; i++)
        memcpy(to + i * v->width, dict->fixed + (int64_t)s->u[i] * v->width, (size_t)v->width);
  }
  v->n += n;
  return AC_OK;
}

/* Exactly n numbers. */
static ac_status deltas(const uint8_t *p, const uint8_t *end, int64_t n, int64_t **out,
                        size_t *used, ac_err *e) {
  int64_t found;
  if ((*out = malloc(((size_t)n + 1) * sizeof **out)) == NULL) return AC_FAIL(e, OOM, "no memory");
  AC_TRY(aci_pq_deltas(p, end, n, *out, &found, used, e));
  return found == n ? AC_OK : short_of(e);
}

static ac_status delta_ints(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                            scratch *s, ac_err *e) {
  size_t used;
  if (v->physical != ACI_PQ_INT32 && v->physical != ACI_PQ_INT64)
    return AC_FAIL(e, PARSE, "deltas of values that are not integers");
  AC_TRY(deltas(p, end, n, &s->a, &used, e));
  uint8_t *to = v->fixed + v->n * v->width; /* little-endian: the low bytes come first */
  for (int64_t i = 0; i < n; i++) memcpy(to + i * v->width, &s->a[i], (size_t)v->width);
  v->n += n;
  return AC_OK;
}

static ac_status delta_lengths(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                               scratch *s, ac_err *e) {
  size_t used;
  if (v->physical != ACI_PQ_BYTES) return AC_FAIL(e, PARSE, "lengths of values that are not bytes");
  AC_TRY(deltas(p, end, n, &s->a, &used, e));
  p += used;
  AC_TRY(need(v, (size_t)(end - p), e));
  for (int64_t i = 0; i < n; i++) {
    if (s->a[i] < 0 || s->a[i] > end - p)
      return AC_FAIL(e, PARSE, "a value of %lld bytes is longer than its page", (long long)s->a[i]);
    push(v, p, (size_t)s->a[i]);
    p += s->a[i];
  }
  return AC_OK;
}

/* Each value: so many bytes of the one before, and its own. */
static ac_status delta_bytes(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                             scratch *s, ac_err *e) {
  size_t used;
  if (v->physical != ACI_PQ_BYTES && v->physical != ACI_PQ_FIXED)
    return AC_FAIL(e, PARSE, "prefixes of values that are not bytes");
  AC_TRY(deltas(p, end, n, &s->a, &used, e));
  p += used;
  AC_TRY(deltas(p, end, n, &s->b, &used, e));
  p += used;
  int64_t before = 0; /* bytes of the value before */
  for (int64_t i = 0; i < n; i++) {
    const int64_t keep = s->a[i], own = s->b[i];
    if (keep < 0 || keep > before || own < 0 || own > end - p)
      return AC_FAIL(e, PARSE, "a value has a prefix of %lld of %lld bytes", (long long)keep,
                     (long long)before);
    if (v->physical == ACI_PQ_FIXED) {
      uint8_t *to = v->fixed + v->n * v->width;
      if (keep + own != v->width)
        return AC_FAIL(e, PARSE, "a value of %lld bytes, expected %d", (long long)(keep + own),
                       v->width);
      if (keep > 0) memcpy(to, to - v->width, (size_t)keep);
      if (own > 0) memcpy(to + keep, p, (size_t)own);
      v->n++;
    } else {
      AC_TRY(need(v, (size_t)(keep + own), e));
      if (keep > 0) memcpy(v->data + v->n_data, v->data + v->offsets[v->n] - before, (size_t)keep);
      if (own > 0) memcpy(v->data + v->n_data + keep, p, (size_t)own);
      v->n_data += (size_t)(keep + own);
      v->offsets[++v->n] = (int32_t)v->n_data;
    }
    before = keep + own;
    p += own;
  }
  return AC_OK;
}

/* Booleans in runs, after their size in 4 bytes. */
static ac_status run_bools(aci_pq_values *v, const uint8_t *p, const uint8_t *end, int64_t n,
                           scratch *s, ac_err *e) {
  if (v->physical != ACI_PQ_BOOL || end - p < 4)
    return AC_FAIL(e, PARSE, "runs of values that are not booleans, or too few bytes");
  const uint32_t len = aci_load_u32(p);
  p += 4;
  if (len > (uint64_t)(end - p)) return AC_FAIL(e, PARSE, "runs of booleans are cut off");
  if ((s->u = malloc(((size_t)n + 1) * sizeof *s->u)) == NULL) return AC_FAIL(e, OOM, "no memory");
  AC_TRY(aci_pq_hybrid(p, p + len, 1, n, s->u, e));
  for (int64_t i = 0; i < n; i++) v->fixed[v->n + i] = (uint8_t)s->u[i];
  v->n += n;
  return AC_OK;
}

ac_status aci_pq_decode(aci_pq_values *v, aci_pq_encoding enc, const uint8_t *p, const uint8_t *end,
                        int64_t n, const aci_pq_values *dict, ac_err *e) {
  scratch s = {0};
  ac_status st;
  if (n > v->cap - v->n) return AC_FAIL(e, PARSE, "the pages hold more values than the column");
  switch (enc) {
    case ACI_PQ_PLAIN: return plain(v, p, end, n, e);
    case ACI_PQ_PLAIN_DICTIONARY:
    case ACI_PQ_RLE_DICTIONARY: st = dictionary(v, p, end, n, dict, &s, e); break;
    case ACI_PQ_DELTA: st = delta_ints(v, p, end, n, &s, e); break;
    case ACI_PQ_DELTA_LENGTH: st = delta_lengths(v, p, end, n, &s, e); break;
    case ACI_PQ_DELTA_BYTES: st = delta_bytes(v, p, end, n, &s, e); break;
    case ACI_PQ_STREAM_SPLIT: return split(v, p, end, n, e);
    case ACI_PQ_RLE: st = run_bools(v, p, end, n, &s, e); break;
    default: return AC_FAIL(e, UNSUPPORTED, "values have the unknown encoding %d", (int)enc);
  }
  scratch_free(&s);
  return st;
}
