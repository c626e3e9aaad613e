/* Thrift's compact protocol: thrift.h. */
#include "file/parquet/thrift.h"

enum { MOST_DEPTH = 32 };

static void fail(aci_thrift *r, const char *why) {
  if (r->bad == NULL) r->bad = why;
  r->p = r->end;
}

uint64_t aci_thrift_varint(aci_thrift *r) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (r->p == r->end) break;
    const uint8_t b = *r->p++;
    v |= (uint64_t)(b & 0x7F) << shift;
    if (b < 0x80) return v;
  }
  fail(r, "a number that does not end");
  return 0;
}

int64_t aci_thrift_zigzag(aci_thrift *r) {
  const uint64_t v = aci_thrift_varint(r);
  return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

const char *aci_thrift_bytes(aci_thrift *r, size_t *n) {
  const uint64_t len = aci_thrift_varint(r);
  *n = 0;
  if (len > (uint64_t)(r->end - r->p)) {
    fail(r, "a text longer than the metadata");
    return "";
  }
  const char *s = (const char *)r->p;
  r->p += len;
  *n = (size_t)len;
  return s;
}

bool aci_thrift_next(aci_thrift *r, aci_thrift_field *f) {
  if (r->bad != NULL) return false;
  if (r->p == r->end) {
    fail(r, "the metadata is cut off");
    return false;
  }
  const uint8_t b = *r->p++;
  f->type = (aci_thrift_type)(b & 15);
  if (f->type == ACI_THRIFT_STOP) return false;
  if (f->type > ACI_THRIFT_STRUCT) fail(r, "a field of an unknown type");
  const int64_t id = b >> 4 != 0 ? f->id + (b >> 4) : aci_thrift_zigzag(r);
  if (id < 0 || id > INT16_MAX) fail(r, "an invalid field number");
  f->id = (int)id;
  return r->bad == NULL;
}

static uint32_t list_head(aci_thrift *r, aci_thrift_type *element) {
  if (r->p == r->end) {
    fail(r, "the metadata is cut off");
    return 0;
  }
  const uint8_t b = *r->p++;
  uint64_t n = b >> 4;
  *element = (aci_thrift_type)(b & 15);
  if (n == 15) n = aci_thrift_varint(r);
  if (n > (uint64_t)(r->end - r->p)) {
    fail(r, "a list longer than the metadata");
    return 0;
  }
  return (uint32_t)n;
}

static void skip_element(aci_thrift *r, aci_thrift_type type) {
  if (type == ACI_THRIFT_TRUE || type == ACI_THRIFT_FALSE)
    type = ACI_THRIFT_I8; /* a byte in lists */
  aci_thrift_skip(r, type);
}

void aci_thrift_skip(aci_thrift *r, aci_thrift_type type) {
  aci_thrift_type key, value;
  size_t n;
  if (++r->depth > MOST_DEPTH) fail(r, "the metadata is nested too deep");
  switch (r->bad == NULL ? type : ACI_THRIFT_TRUE) {
    case ACI_THRIFT_TRUE:
    case ACI_THRIFT_FALSE: break;
    case ACI_THRIFT_DOUBLE:
      if (r->end - r->p < 8) fail(r, "the metadata is cut off");
      else r->p += 8;
      break;
    case ACI_THRIFT_I8:
      if (r->p == r->end) fail(r, "the metadata is cut off");
      else r->p++;
      break;
    case ACI_THRIFT_I16:
    case ACI_THRIFT_I32:
    case ACI_THRIFT_I64: aci_thrift_varint(r); break;
    case ACI_THRIFT_BINARY: aci_thrift_bytes(r, &n); break;
    case ACI_THRIFT_LIST:
    case ACI_THRIFT_SET:
      for (uint32_t left = list_head(r, &value); left > 0 && r->bad == NULL; left--)
        skip_element(r, value);
      break;
    case ACI_THRIFT_MAP: {
      uint64_t left = aci_thrift_varint(r);
      if (left > (uint64_t)(r->end - r->p)) fail(r, "a map longer than the metadata");
      if (left == 0 || r->p == r->end) break;
      key = (aci_thrift_type)(*r->p >> 4);
      value = (aci_thrift_type)(*r->p++ & 15);
      for (; left > 0 && r->bad == NULL; left--) {
        skip_element(r, key);
        skip_element(r, value);
      }
      break;
    }
    case ACI_THRIFT_STRUCT:
      for (aci_thrift_field f = {0}; aci_thrift_next(r, &f);) aci_thrift_skip(r, f.type);
      break;
    default: fail(r, "a value of an unknown type");
  }
  r->depth--;
}

int64_t aci_thrift_int(aci_thrift *r, const aci_thrift_field *f) {
  if (f->type == ACI_THRIFT_I8) {
    if (r->p < r->end) return (int8_t)*r->p++;
    fail(r, "the metadata is cut off");
    return 0;
  }
  if (f->type == ACI_THRIFT_I16 || f->type == ACI_THRIFT_I32 || f->type == ACI_THRIFT_I64)
    return aci_thrift_zigzag(r);
  fail(r, "a number was expected");
  return 0;
}

bool aci_thrift_bool(aci_thrift *r, const aci_thrift_field *f) {
  if (f->type != ACI_THRIFT_TRUE && f->type != ACI_THRIFT_FALSE) fail(r, "a boolean was expected");
  return f->type == ACI_THRIFT_TRUE;
}

const char *aci_thrift_text(aci_thrift *r, const aci_thrift_field *f, size_t *n) {
  *n = 0;
  if (f->type == ACI_THRIFT_BINARY) return aci_thrift_bytes(r, n);
  fail(r, "a text was expected");
  return "";
}

uint32_t aci_thrift_list(aci_thrift *r, const aci_thrift_field *f, aci_thrift_type element) {
  aci_thrift_type found;
  if (f->type != ACI_THRIFT_LIST) {
    fail(r, "a list was expected");
    return 0;
  }
  const uint32_t n = list_head(r, &found);
  if (n > 0 && found != element) fail(r, "a list of other elements was expected");
  return r->bad == NULL ? n : 0;
}

bool aci_thrift_is_struct(aci_thrift *r, const aci_thrift_field *f) {
  if (f->type != ACI_THRIFT_STRUCT) fail(r, "a structure was expected");
  return r->bad == NULL;
}
