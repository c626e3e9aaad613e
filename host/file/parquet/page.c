/* The pages of a column chunk. */
#include <stdlib.h>

#include "base/crc32.h"
#include "file/compress/compress.h"
#include "file/io.h"
#include "file/parquet/parquet.h"

enum { DATA, INDEX, DICTIONARY, DATA_V2 };

typedef struct page {
  int32_t type, full, packed; /* sizes in bytes */
  uint32_t crc;
  bool has_crc, has_head, is_packed;
  int32_t values, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes;
} page;

typedef struct reader {
  const aci_pq_leaf *leaf;
  const aci_pq_chunk *c;
  aci_block_codec codec;
  size_t most;
  aci_pq_column *out;
  aci_pq_values dict;
  bool has_dict;
  int64_t at; /* levels done */
  uint8_t *unpacked;
  size_t n_unpacked;
  uint32_t *levels;
  size_t n_levels;
  ac_err *e;
} reader;

static ac_status codec_of(int32_t codec, aci_block_codec *out, ac_err *e) {
  static const aci_block_codec known[] = {
      ACI_BLOCK_NONE,       ACI_BLOCK_SNAPPY, ACI_BLOCK_GZIP, 0, 0,
      ACI_BLOCK_LZ4_HADOOP, ACI_BLOCK_ZSTD,   ACI_BLOCK_LZ4};
  static const char *const names[] = {"LZO", "Brotli"};
  if (codec == 3 || codec == 4)
    return AC_FAIL(e, UNSUPPORTED,
                   "pages are compressed by %s, which accel does not read; write the file with "
                   "Zstandard or Snappy",
                   names[codec - 3]);
  if (codec < 0 || codec > 7)
    return AC_FAIL(e, UNSUPPORTED, "pages are compressed by the unknown codec %d", (int)codec);
  *out = known[codec];
  return AC_OK;
}

static int32_t number(aci_thrift *r, const aci_thrift_field *f) {
  const int64_t v = aci_thrift_int(r, f);
  if (v >= 0 && v <= INT32_MAX) return (int32_t)v;
  r->bad = "a negative or huge size";
  return 0;
}

/* kind: the field of the head, 5 for version 1, 7 for a dictionary, 8 for version 2. */
static void read_data_head(aci_thrift *r, page *x, int kind) {
  const bool v2 = kind == 8;
  x->has_head = true;
  x->is_packed = true;
  for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) {
    if (f.id == 1) x->values = number(r, &f);
    else if (f.id == (v2 ? 4 : 2)) x->encoding = number(r, &f);
    else if (f.id == 3 && kind == 5) x->def_encoding = number(r, &f);
    else if (f.id == 4 && kind == 5) x->rep_encoding = number(r, &f);
    else if (f.id == 5 && v2) x->def_bytes = number(r, &f);
    else if (f.id == 6 && v2) x->rep_bytes = number(r, &f);
    else if (f.id == 7 && v2) x->is_packed = aci_thrift_bool(r, &f);
    else aci_thrift_skip(r, f.type);
  }
}

static ac_status read_head(const uint8_t **p, const uint8_t *end, page *x, ac_err *e) {
  aci_thrift r = {.p = *p, .end = end};
  *x = (page){.type = -1, .def_encoding = ACI_PQ_RLE, .rep_encoding = ACI_PQ_RLE};
  for (aci_thrift_field f = {0}; aci_thrift_next(&r, &f);) {
    if (f.id == 1) {
      x->type = number(&r, &f);
    } else if (f.id == 2) {
      x->full = number(&r, &f);
    } else if (f.id == 3) {
      x->packed = number(&r, &f);
    } else if (f.id == 4) {
      x->crc = (uint32_t)aci_thrift_int(&r, &f);
      x->has_crc = true;
    } else if ((f.id == 5 || f.id == 7 || f.id == 8) && aci_thrift_is_struct(&r, &f)) {
      read_data_head(&r, x, f.id);
    } else {
      aci_thrift_skip(&r, f.type);
    }
  }
  if (r.bad != NULL) return AC_FAIL(e, PARSE, "the head of a page is damaged: %s", r.bad);
  if (x->type < DATA || x->type > DATA_V2)
    return AC_FAIL(e, PARSE, "a page of the unknown type %d", (int)x->type);
  if (x->packed > end - r.p || (x->type != INDEX && !x->has_head))
    return AC_FAIL(e, PARSE, "a page of %d bytes is outside of its column", (int)x->packed);
  *p = r.p;
  return AC_OK;
}

static ac_status room(reader *r, void *list, size_t *have, size_t bytes) {
  void *p;
  memcpy(&p, list, sizeof p);
  if (p != NULL && *have >= bytes) return AC_OK;
  if (r->most > 0 && bytes > r->most)
    return AC_FAIL(r->e, PARSE,
                   "a page takes more than the limit of %zu bytes in memory; " ACI_RAISE_LIMIT,
                   r->most);
  free(p);
  p = malloc(bytes + 64);
  memcpy(list, &p, sizeof p);
  *have = p == NULL ? 0 : bytes;
  return p != NULL ? AC_OK : AC_FAIL(r->e, OOM, "no memory for a page of %zu bytes", bytes);
}

/* The content of n packed bytes, `full` of them. */
static ac_status unpack(reader *r, const uint8_t **p, size_t n, size_t full, bool packed) {
  if (!packed || r->codec == ACI_BLOCK_NONE) {
    if (n == full) return AC_OK;
    return AC_FAIL(r->e, PARSE, "a page has %zu bytes, its head says %zu", n, full);
  }
  AC_TRY(room(r, &r->unpacked, &r->n_unpacked, full));
  if (full > 0 || n > 0) AC_TRY(aci_unpack_block(r->codec, *p, n, r->unpacked, full, r->e));
  *p = r->unpacked;
  return AC_OK;
}

static int width_of(int most) {
  int w = 0;
  while (most >> w != 0) w++;
  return w;
}

/* n levels of a page, in the bytes p .. end. */
static ac_status read_levels(reader *r, const uint8_t *p, const uint8_t *end, int most, int64_t n,
                             uint8_t *to) {
  AC_TRY(room(r, &r->levels, &r->n_levels, ((size_t)n + 1) * sizeof *r->levels));
  AC_TRY(aci_pq_hybrid(p, end, width_of(most), n, r->levels, r->e));
  for (int64_t i = 0; i < n; i++) {
    if (r->levels[i] > (uint32_t)most)
      return AC_FAIL(r->e, PARSE, "the level %u, the most is %d", r->levels[i], most);
    to[i] = (uint8_t)r->levels[i];
  }
  return AC_OK;
}

/* Levels of a page of version 1: their size in 4 bytes, and runs. */
static ac_status sized_levels(reader *r, const uint8_t **p, const uint8_t *end, int encoding,
                              int most, int64_t n, uint8_t *to) {
  if (most == 0) return AC_OK;
  if (encoding != ACI_PQ_RLE)
    return AC_FAIL(r->e, UNSUPPORTED, "levels have the encoding %d, which accel does not read",
                   encoding);
  if (end - *p < 4) return AC_FAIL(r->e, PARSE, "the levels of a page are cut off");
  const uint32_t len = aci_load_u32(*p);
  *p += 4;
  if (len > (uint64_t)(end - *p))
    return AC_FAIL(r->e, PARSE, "levels of %u bytes are longer than their page", len);
  AC_TRY(read_levels(r, *p, *p + len, most, n, to));
  *p += len;
  return AC_OK;
}

static int64_t count_values(const reader *r, int64_t n) {
  int64_t k = 0;
  if (r->leaf->most_def == 0) return n;
  for (int64_t i = 0; i < n; i++) k += r->out->def[r->at + i] == r->leaf->most_def;
  return k;
}

static ac_status read_values(reader *r, const page *x, const uint8_t *p, const uint8_t *end) {
  const int64_t n = count_values(r, x->values);
  r->at += x->values;
  return aci_pq_decode(&r->out->values, (aci_pq_encoding)x->encoding, p, end, n,
                       r->has_dict ? &r->dict : NULL, r->e);
}

static ac_status read_data(reader *r, const page *x, const uint8_t *p) {
  const aci_pq_leaf *leaf = r->leaf;
  const size_t n = (size_t)x->packed;
  const uint8_t *end;
  if (x->values > r->c->values - r->at)
    return AC_FAIL(r->e, PARSE, "the pages hold more values than the %lld of the column",
                   (long long)r->c->values);
  uint8_t *def = r->out->def != NULL ? r->out->def + r->at : NULL;
  uint8_t *rep = r->out->rep != NULL ? r->out->rep + r->at : NULL;
  if (x->type == DATA) {
    AC_TRY(unpack(r, &p, n, (size_t)x->full, true));
    end = p + x->full;
    AC_TRY(sized_levels(r, &p, end, x->rep_encoding, leaf->most_rep, x->values, rep));
    AC_TRY(sized_levels(r, &p, end, x->def_encoding, leaf->most_def, x->values, def));
    return read_values(r, x, p, end);
  }
  const size_t levels = (size_t)x->rep_bytes + (size_t)x->def_bytes;
  if (levels > n || levels > (size_t)x->full)
    return AC_FAIL(r->e, PARSE, "levels of %zu bytes are longer than their page", levels);
  if (leaf->most_rep > 0)
    AC_TRY(read_levels(r, p, p + x->rep_bytes, leaf->most_rep, x->values, rep));
  p += x->rep_bytes;
  if (leaf->most_def > 0)
    AC_TRY(read_levels(r, p, p + x->def_bytes, leaf->most_def, x->values, def));
  p += x->def_bytes;
  AC_TRY(unpack(r, &p, n - levels, (size_t)x->full - levels, x->is_packed));
  return read_values(r, x, p, p + x->full - levels);
}

/* Room for n values. */
static ac_status make_values(const aci_pq_leaf *leaf, int64_t n, aci_batch *b, aci_pq_values *v,
                             ac_err *e) {
  static const int widths[] = {1, 4, 8, 12, 4, 8, 0, 0};
  *v = (aci_pq_values){.physical = leaf->physical, .cap = n, .most = b->most};
  v->width = leaf->physical == ACI_PQ_FIXED ? leaf->length : widths[leaf->physical];
  if (v->width > 0 && n > INT64_MAX / 2 / v->width) return AC_FAIL(e, OOM, "no memory for values");
  if (leaf->physical != ACI_PQ_BYTES)
    return aci_batch_alloc(b, (size_t)(n * v->width), false, &v->fixed, e);
  return aci_batch_alloc(b, ((size_t)n + 1) * sizeof *v->offsets, true, &v->offsets, e);
}

static ac_status read_dictionary(reader *r, const page *x, const uint8_t *p, aci_batch *b) {
  if (r->has_dict || r->at > 0)
    return AC_FAIL(r->e, PARSE, "a column has a dictionary after its values, or two");
  if (x->encoding != ACI_PQ_PLAIN && x->encoding != ACI_PQ_PLAIN_DICTIONARY)
    return AC_FAIL(r->e, UNSUPPORTED, "a dictionary has the encoding %d", (int)x->encoding);
  AC_TRY(unpack(r, &p, (size_t)x->packed, (size_t)x->full, true));
  AC_TRY(make_values(r->leaf, x->values, b, &r->dict, r->e));
  r->has_dict = true;
  return aci_pq_decode(&r->dict, ACI_PQ_PLAIN, p, p + x->full, x->values, NULL, r->e);
}

static ac_status read_pages(reader *r, const uint8_t *p, const uint8_t *end, aci_batch *b) {
  while (r->at < r->c->values) {
    page x;
    AC_TRY(read_head(&p, end, &x, r->e));
    if (x.has_crc && aci_crc32(0, p, (size_t)x.packed) != x.crc)
      return AC_FAIL(r->e, PARSE, "a page does not match its checksum: the file is damaged");
    if (x.type == DICTIONARY) AC_TRY(read_dictionary(r, &x, p, b));
    else if (x.type != INDEX) AC_TRY(read_data(r, &x, p));
    p += x.packed;
  }
  return AC_OK;
}

ac_status aci_pq_read_chunk(const aci_pq_file *f, const aci_pq_chunk *c, const aci_pq_leaf *leaf,
                            aci_batch *b, aci_pq_column *out, ac_err *e) {
  reader r = {.leaf = leaf, .c = c, .most = b->most, .out = out, .e = e};
  *out = (aci_pq_column){.n = c->values};
  AC_TRY(codec_of(c->codec, &r.codec, e));
  if (leaf->most_def > 0) AC_TRY(aci_batch_alloc(b, (size_t)c->values, false, &out->def, e));
  if (leaf->most_rep > 0) AC_TRY(aci_batch_alloc(b, (size_t)c->values, false, &out->rep, e));
  AC_TRY(make_values(leaf, c->values, b, &out->values, e));
  if (c->values == 0) return AC_OK;
  uint8_t *bytes = malloc((size_t)c->bytes + 64);
  if (bytes == NULL)
    return AC_FAIL(e, OOM, "no memory for a column of %lld bytes", (long long)c->bytes);
  ac_status st = aci_pread_all(f->fd, f->path, bytes, (size_t)c->bytes, (uint64_t)c->at, e);
  if (st == AC_OK) st = read_pages(&r, bytes, bytes + c->bytes, b);
  free(bytes);
  free(r.unpacked);
  free(r.levels);
  free(r.dict.data);
  if (st == AC_OK && out->values.data != NULL)
    st = aci_batch_adopt(b, out->values.data, out->values.cap_data, e);
  else free(out->values.data);
  return st;
}
