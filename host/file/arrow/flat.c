/* FlatBuffers: flat.h. */
#include "file/arrow/flat.h"

#include <string.h>

static bool inside(aci_flat *b, uint64_t at, uint64_t n) {
  if (at <= b->n && n <= b->n - at) return true;
  b->bad = true;
  return false;
}

static uint64_t get(aci_flat *b, uint64_t at, int width) {
  uint64_t v = 0;
  if (inside(b, at, (uint64_t)width)) memcpy(&v, b->p + at, (size_t)width);
  return v;
}

static int64_t get_signed(aci_flat *b, uint64_t at, int width) {
  const uint64_t v = get(b, at, width);
  return width == 1 ? (int8_t)v : width == 2 ? (int16_t)v : width == 4 ? (int32_t)v : (int64_t)v;
}

static aci_flat_table table_at(aci_flat *b, uint64_t at) {
  aci_flat_table t = {.b = b};
  if (!inside(b, at, 4)) return t;
  const int64_t vtable = (int64_t)at - get_signed(b, at, 4);
  if (vtable < 0 || !inside(b, (uint64_t)vtable, 4)) {
    b->bad = true;
    return t;
  }
  t.n_vtable = (uint16_t)get(b, (uint64_t)vtable, 2);
  t.size = (uint16_t)get(b, (uint64_t)vtable + 2, 2);
  if (t.n_vtable < 4 || t.n_vtable % 2 != 0 || t.size < 4 ||
      !inside(b, (uint64_t)vtable, t.n_vtable) || !inside(b, at, t.size)) {
    b->bad = true;
    return (aci_flat_table){.b = b};
  }
  t.at = (size_t)at;
  t.vtable = (size_t)vtable;
  return t;
}

aci_flat_table aci_flat_root(aci_flat *b) { return table_at(b, get(b, 0, 4)); }

/* The place of a field of `width` bytes, 0 if it is absent. */
static size_t field(const aci_flat_table *t, int i, int width) {
  const int at = 4 + 2 * i;
  if (t->at == 0 || at + 2 > t->n_vtable) return 0;
  const uint16_t offset = (uint16_t)get(t->b, t->vtable + (size_t)at, 2);
  if (offset == 0) return 0;
  if (offset < 4 || offset + width > t->size) {
    t->b->bad = true;
    return 0;
  }
  return t->at + offset;
}

int64_t aci_flat_int(const aci_flat_table *t, int i, int width, int64_t fallback) {
  const size_t at = field(t, i, width);
  return at == 0 ? fallback : get_signed(t->b, at, width);
}

static uint64_t follow(const aci_flat_table *t, int i) {
  const size_t at = field(t, i, 4);
  return at == 0 ? 0 : at + get(t->b, at, 4);
}

aci_flat_table aci_flat_child(const aci_flat_table *t, int i) {
  const uint64_t at = follow(t, i);
  return at == 0 ? (aci_flat_table){.b = t->b} : table_at(t->b, at);
}

aci_flat_vector aci_flat_list(const aci_flat_table *t, int i, size_t element) {
  aci_flat_vector v = {.b = t->b};
  const uint64_t at = follow(t, i);
  if (at == 0) return v;
  const uint32_t n = (uint32_t)get(t->b, at, 4);
  if (!inside(t->b, at + 4, (uint64_t)n * element)) return v;
  v.at = (size_t)at + 4;
  v.n = n;
  return v;
}

const char *aci_flat_string(const aci_flat_table *t, int i, size_t *len) {
  const aci_flat_vector v = aci_flat_list(t, i, 1);
  *len = v.n;
  return v.at == 0 ? NULL : (const char *)v.b->p + v.at;
}

aci_flat_table aci_flat_at(const aci_flat_vector *v, uint32_t i) {
  const uint64_t at = v->at + 4 * (uint64_t)i;
  return i < v->n ? table_at(v->b, at + get(v->b, at, 4)) : (aci_flat_table){.b = v->b};
}

int64_t aci_flat_in(const aci_flat_vector *v, uint32_t i, size_t element, size_t byte, int width) {
  return i < v->n ? get_signed(v->b, v->at + (uint64_t)i * element + byte, width) : 0;
}
