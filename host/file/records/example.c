/* TensorFlow's Example: { 1: { 1: { 1: name, 2: { 1: bytes | 2: floats | 3: ints } } ... } }, where each
 * list is { 1: values }. */
#include <string.h>

#include "file/records/tfrecord.h"

typedef struct reader {
  const uint8_t *p, *end;
  ac_err *e;
} reader;

typedef struct field {
  uint32_t id;
  int wire; /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
  uint64_t v;
  reader bytes;
} field;

static ac_status damaged(const reader *r) {
  return AC_FAIL(r->e, PARSE, "the record is no Example, or damaged");
}

static ac_status varint(reader *r, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && r->p < r->end; shift += 7) {
    const uint8_t b = *r->p++;
    if (shift == 63 && b > 1) break;
    *out |= (uint64_t)(b & 0x7F) << shift;
    if (b < 0x80) return AC_OK;
  }
  return damaged(r);
}

static ac_status next(reader *r, field *f) {
  uint64_t key;
  AC_TRY(varint(r, &key));
  f->wire = (int)(key & 7);
  f->id = (uint32_t)(key >> 3);
  if (key >> 32 != 0 || f->id == 0) return damaged(r);
  uint64_t n = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
  if (f->wire == 0) return varint(r, &f->v);
  if (f->wire == 2) AC_TRY(varint(r, &n));
  else if (n == 0) return damaged(r); /* groups are not used */
  if (n > (uint64_t)(r->end - r->p)) return damaged(r);
  f->bytes = (reader){r->p, r->p + n, r->e};
  r->p += n;
  return AC_OK;
}

typedef struct sink {
  void (*fn)(void *, const aci_feature *);
  void *user;
  aci_feature x;
} sink;

static void put(sink *s, int event) {
  s->x.event = event;
  s->fn(s->user, &s->x);
}

static void put_float(sink *s, const uint8_t *p) {
  memcpy(&s->x.f, p, 4);
  put(s, ACI_FEATURE_VALUE);
}

/* One field of a list, packed or not. */
static ac_status values(sink *s, const field *f) {
  reader r = f->bytes;
  if (s->x.kind == ACI_FEATURE_BYTES && f->wire == 2) {
    s->x.bytes = (const char *)r.p;
    s->x.n_bytes = (size_t)(r.end - r.p);
    put(s, ACI_FEATURE_VALUE);
  } else if (s->x.kind == ACI_FEATURE_FLOATS && f->wire == 5) {
    put_float(s, r.p);
  } else if (s->x.kind == ACI_FEATURE_FLOATS && f->wire == 2 && (r.end - r.p) % 4 == 0) {
    for (; r.p < r.end; r.p += 4) put_float(s, r.p);
  } else if (s->x.kind == ACI_FEATURE_INTS && f->wire == 0) {
    s->x.i = (int64_t)f->v;
    put(s, ACI_FEATURE_VALUE);
  } else if (s->x.kind == ACI_FEATURE_INTS && f->wire == 2) {
    while (r.p < r.end) {
      uint64_t v;
      AC_TRY(varint(&r, &v));
      s->x.i = (int64_t)v;
      put(s, ACI_FEATURE_VALUE);
    }
  } else {
    return damaged(&r);
  }
  return AC_OK;
}

static ac_status feature(sink *s, reader r) {
  while (r.p < r.end) {
    field f, v;
    AC_TRY(next(&r, &f));
    if (f.id > 3) continue;
    if (f.wire != 2) return damaged(&r);
    s->x.kind = (aci_feature_kind)f.id;
    put(s, ACI_FEATURE_HAS_KIND);
    for (reader list = f.bytes; list.p < list.end;) {
      AC_TRY(next(&list, &v));
      if (v.wire != 2) v.bytes.e = r.e;
      if (v.id == 1) AC_TRY(values(s, &v));
    }
  }
  return AC_OK;
}

/* An entry of the map: a name and a feature, in any order. */
static ac_status entry(sink *s, reader r) {
  reader name = {r.p, r.p, r.e}, value = name;
  while (r.p < r.end) {
    field f;
    AC_TRY(next(&r, &f));
    if (f.id > 2) continue;
    if (f.wire != 2) return damaged(&r);
    if (f.id == 1) name = f.bytes;
    else value = f.bytes;
  }
  s->x = (aci_feature){.name = (const char *)name.p, .n_name = (size_t)(name.end - name.p)};
  put(s, ACI_FEATURE_BEGINS);
  return feature(s, value);
}

ac_status aci_example_read(const void *p, size_t n, void (*fn)(void *user, const aci_feature *x),
                           void *user, ac_err *e) {
  sink s = {.fn = fn, .user = user};
  for (reader r = {p, (const uint8_t *)p + n, e}; r.p < r.end;) {
    field f, x;
    AC_TRY(next(&r, &f));
    if (f.id != 1) continue;
    if (f.wire != 2) return damaged(&r);
    for (reader features = f.bytes; features.p < features.end;) {
      AC_TRY(next(&features, &x));
      if (x.id != 1) continue;
      if (x.wire != 2) return damaged(&r);
      AC_TRY(entry(&s, x.bytes));
    }
  }
  return AC_OK;
}
