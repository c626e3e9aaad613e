/* The header of a safetensors file, event by event: entries and metadata, or the rule that it
 * breaks. Called by safetensors_read.c. The header's bytes bound the allocations here, whatever
 * sizes they claim. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/elements.h"
#include "file/io.h"
#include "file/safetensors.h"

typedef struct reader {
  ac_safetensors *f;
  enum { TOP, NAME, META, META_VALUE, TENSOR, FIELD, SHAPE, OFFSETS } at;
  enum { F_NONE, F_DTYPE = 1, F_SHAPE = 2, F_OFFSETS = 4 } field;
  int seen, n_offsets;
  bool is_crc; /* the next metadata value is our checksums */
  aci_json_fault fault;
} reader;

const char *aci_st_shown(const char *s, size_t n, char buf[ACI_ST_SHOWN]) {
  size_t most = n < 64 ? n : 64, k = most;
  while (k > 0 && k < n && ((unsigned char)s[k] & 0xC0) == 0x80) k--; /* no half characters */
  for (size_t i = 0; i < k; i++) buf[i] = (unsigned char)s[i] < ' ' || s[i] == 0x7f ? '?' : s[i];
  strcpy(buf + k, k < n ? "..." : "");
  return buf;
}

ac_status aci_st_refuse(ac_err *e, const ac_safetensors *f, uint64_t at, const char *rule,
                        const char *fmt, ...) {
  char what[300], path[ACI_PATH_SHOWN];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return AC_FAIL(e, PARSE, "%s: not a valid safetensors file: rule %s at byte %llu: %s",
                 aci_path_shown(f->path, path), rule, (unsigned long long)at, what);
}

static ac_status no_memory(const ac_safetensors *f, ac_err *e) {
  char path[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory for the header", aci_path_shown(f->path, path));
}

#define RULE(rule, ...) aci_st_refuse(e, r->f, 8 + ev->offset, rule, __VA_ARGS__)
/* The tensor being described, for messages. */
#define CURRENT current(r, (char[ACI_ST_SHOWN]){0})
static const char *current(const reader *r, char buf[ACI_ST_SHOWN]) {
  const ac_safetensors *f = r->f;
  const char *name = f->text + f->entry[f->n - 1].name_at;
  return aci_st_shown(name, strlen(name), buf);
}
#define TEXT_OF(ev) aci_st_shown((ev)->text, (ev)->len, (char[ACI_ST_SHOWN]){0})

static const char *type_name(aci_json_type t) {
  static const char *const names[] = {"null",     "a boolean", "an integer", "a number",
                                      "a string", "a list",    "an object"};
  return t <= ACI_JSON_OBJECT ? names[t] : "nothing";
}

static ac_status keep(ac_safetensors *f, const char *s, size_t n, size_t *at, ac_err *e) {
  if (f->text_len + n + 1 > f->text_cap) {
    size_t cap = (f->text_cap + n + 1) * 2;
    char *t = realloc(f->text, cap);
    if (t == NULL) return no_memory(f, e);
    f->text = t;
    f->text_cap = cap;
  }
  *at = f->text_len;
  if (n > 0) memcpy(f->text + f->text_len, s, n);
  f->text[f->text_len + n] = 0;
  f->text_len += n + 1;
  return AC_OK;
}

static ac_status new_entry(reader *r, const aci_json_event *ev, ac_err *e) {
  ac_safetensors *f = r->f;
  if (ev->len > ACI_ST_MAX_NAME)
    return RULE("R13", "tensor '%s' has a name of %zu bytes, more than %d", TEXT_OF(ev), ev->len,
                ACI_ST_MAX_NAME);
  if (memchr(ev->text, 0, ev->len) != NULL)
    return RULE("R13", "tensor '%s' has a zero byte in its name", TEXT_OF(ev));
  if (f->n == f->cap) {
    int cap = f->cap ? f->cap * 2 : 64;
    aci_st_entry *v = realloc(f->entry, (size_t)cap * sizeof *v);
    if (v == NULL) return no_memory(f, e);
    f->entry = v;
    f->cap = cap;
  }
  aci_st_entry *t = &f->entry[f->n];
  memset(t, 0, sizeof *t);
  t->header_at = 8 + ev->offset;
  t->dims_at = f->n_dims;
  AC_TRY(keep(f, ev->text, ev->len, &t->name_at, e));
  f->n++;
  r->seen = 0;
  r->n_offsets = 0;
  return AC_OK;
}

static ac_status add_dim(reader *r, const aci_json_event *ev, ac_err *e) {
  ac_safetensors *f = r->f;
  aci_st_entry *t = &f->entry[f->n - 1];
  if (t->pub.ndim == ACI_ST_MAX_DIMS)
    return RULE("R13", "tensor '%s' has more than %d dims", CURRENT, ACI_ST_MAX_DIMS);
  if (f->n_dims == f->cap_dims) {
    size_t cap = f->cap_dims ? f->cap_dims * 2 : 256;
    int64_t *v = realloc(f->dims, cap * sizeof *v);
    if (v == NULL) return no_memory(f, e);
    f->dims = v;
    f->cap_dims = cap;
  }
  f->dims[f->n_dims++] = ev->i;
  t->pub.ndim++;
  return AC_OK;
}

static ac_status on_tensor_key(reader *r, const aci_json_event *ev, ac_err *e) {
  r->field = ev->len == 5 && memcmp(ev->text, "dtype", 5) == 0            ? F_DTYPE
             : ev->len == 5 && memcmp(ev->text, "shape", 5) == 0          ? F_SHAPE
             : ev->len == 12 && memcmp(ev->text, "data_offsets", 12) == 0 ? F_OFFSETS
                                                                          : F_NONE;
  if (r->field == F_NONE)
    return RULE("R6",
                "tensor '%s' has a key '%s'; only dtype, shape and data_offsets may stand there",
                CURRENT, TEXT_OF(ev));
  r->seen |= (int)r->field;
  r->at = FIELD;
  return AC_OK;
}

static ac_status on_field(reader *r, const aci_json_event *ev, ac_err *e) {
  aci_st_entry *t = &r->f->entry[r->f->n - 1];
  if (r->field == F_DTYPE) {
    if (ev->type != ACI_JSON_STRING)
      return RULE("R6", "tensor '%s': dtype is %s, not a string", CURRENT, type_name(ev->type));
    const aci_st_dtype *d = aci_st_dtype_find(ev->text, ev->len);
    if (d == NULL)
      return RULE("R9", "tensor '%s' has the unknown dtype '%s'", CURRENT, TEXT_OF(ev));
    t->pub.dtype_name = d->name;
    t->bits = (uint32_t)d->bits;
    t->pub.has_dtype = d->dtype >= 0;
    t->element = d->dtype >= 0 ? NULL : aci_element_of(d->name, NULL);
    t->pub.widens = t->element != NULL;
    t->pub.dtype = t->element != NULL ? t->element->to : d->dtype >= 0 ? (ac_dtype)d->dtype : AC_U8;
    r->at = TENSOR;
    return AC_OK;
  }
  if (ev->type != ACI_JSON_ARRAY)
    return RULE("R6", "tensor '%s': %s is %s, not a list", CURRENT,
                r->field == F_SHAPE ? "shape" : "data_offsets", type_name(ev->type));
  r->at = r->field == F_SHAPE ? SHAPE : OFFSETS;
  return AC_OK;
}

static ac_status on_list(reader *r, const aci_json_event *ev, ac_err *e) {
  aci_st_entry *t = &r->f->entry[r->f->n - 1];
  if (ev->type == ACI_JSON_ARRAY_END) {
    if (r->at == OFFSETS && r->n_offsets != 2)
      return RULE("R6", "tensor '%s': data_offsets has %d numbers, not 2", CURRENT, r->n_offsets);
    r->at = TENSOR;
    return AC_OK;
  }
  if (ev->type != ACI_JSON_INT || ev->text[0] == '-') {
    bool number = ev->type == ACI_JSON_INT || ev->type == ACI_JSON_DOUBLE;
    return RULE("R8", "tensor '%s': expected a plain non-negative integer, got %s", CURRENT,
                number ? TEXT_OF(ev) : type_name(ev->type));
  }
  if (r->at == SHAPE) return add_dim(r, ev, e);
  if (r->n_offsets == 2)
    return RULE("R6", "tensor '%s': data_offsets has more than 2 numbers", CURRENT);
  *(r->n_offsets++ == 0 ? &t->pub.begin : &t->pub.end) = (uint64_t)ev->i;
  return AC_OK;
}

static ac_status end_tensor(reader *r, const aci_json_event *ev, ac_err *e) {
  aci_st_entry *t = &r->f->entry[r->f->n - 1];
  if (r->seen != (F_DTYPE | F_SHAPE | F_OFFSETS))
    return RULE("R6", "tensor '%s' lacks %s", CURRENT,
                !(r->seen & F_DTYPE)   ? "dtype"
                : !(r->seen & F_SHAPE) ? "shape"
                                       : "data_offsets");
  uint64_t n = 1;
  bool over = false;
  for (int d = 0; d < t->pub.ndim; d++)
    over |= __builtin_mul_overflow(n, (uint64_t)r->f->dims[t->dims_at + (size_t)d], &n);
  over |= __builtin_mul_overflow(n, (uint64_t)t->bits, &n);
  if (over) return RULE("R9", "tensor '%s': the size of its shape overflows", CURRENT);
  if (n % 8 != 0)
    return RULE("R9", "tensor '%s': %llu bits are no whole bytes", CURRENT, (unsigned long long)n);
  if (t->pub.end < t->pub.begin || t->pub.end - t->pub.begin != n / 8)
    return RULE("R9", "tensor '%s': offsets %llu to %llu do not span the %llu bytes of its shape",
                CURRENT, (unsigned long long)t->pub.begin, (unsigned long long)t->pub.end,
                (unsigned long long)(n / 8));
  r->at = NAME;
  return AC_OK;
}

static ac_status add_meta(reader *r, const aci_json_event *ev, ac_err *e) {
  ac_safetensors *f = r->f;
  bool key = ev->type == ACI_JSON_KEY;
  if (memchr(ev->text, 0, ev->len) != NULL)
    return RULE("R13", "__metadata__ has a zero byte in '%s'", TEXT_OF(ev));
  if (key)
    r->is_crc = ev->len == strlen(ACI_ST_CRC_KEY) && memcmp(ev->text, ACI_ST_CRC_KEY, ev->len) == 0;
  /* the checksums belong to this file and are not handed to callers, who might copy them into
   * another one */
  if (r->is_crc) {
    f->has_crc = true;
    f->crc_header_at = 8 + ev->offset;
    return key ? AC_OK : keep(f, ev->text, ev->len, &f->crc_at, e);
  }
  if (f->n_meta == f->cap_meta) {
    int cap = f->cap_meta ? f->cap_meta * 2 : 16;
    size_t *v = realloc(f->meta_at, (size_t)cap * sizeof *v);
    if (v == NULL) return no_memory(f, e);
    f->meta_at = v;
    f->cap_meta = cap;
  }
  return keep(f, ev->text, ev->len, &f->meta_at[f->n_meta++], e);
}

static ac_status on_event(void *user, const aci_json_event *ev, ac_err *e) {
  reader *r = user;
  switch (r->at) {
    case TOP:
      if (ev->type != ACI_JSON_OBJECT)
        return RULE("R5", "the header is %s, not an object", type_name(ev->type));
      r->at = NAME;
      return AC_OK;
    case NAME: {
      if (ev->type != ACI_JSON_KEY) return AC_OK; /* the end */
      bool meta = ev->len == 12 && memcmp(ev->text, "__metadata__", 12) == 0;
      r->at = meta ? META : TENSOR;
      return meta ? AC_OK : new_entry(r, ev, e);
    }
    case META:
      if (ev->type == ACI_JSON_OBJECT && ev->depth == 1) return AC_OK;
      if (ev->type == ACI_JSON_OBJECT_END) {
        r->at = NAME;
        return AC_OK;
      }
      if (ev->type != ACI_JSON_KEY)
        return RULE("R6", "__metadata__ is %s, not an object", type_name(ev->type));
      r->at = META_VALUE;
      return add_meta(r, ev, e);
    case META_VALUE:
      if (ev->type != ACI_JSON_STRING)
        return RULE("R6", "a value of __metadata__ is %s, not a string", type_name(ev->type));
      r->at = META;
      return add_meta(r, ev, e);
    case TENSOR:
      if (ev->type == ACI_JSON_OBJECT && ev->depth == 1) return AC_OK;
      if (ev->type == ACI_JSON_OBJECT_END) return end_tensor(r, ev, e);
      if (ev->type == ACI_JSON_KEY) return on_tensor_key(r, ev, e);
      return RULE("R6", "tensor '%s' is %s, not an object", CURRENT, type_name(ev->type));
    case FIELD: return on_field(r, ev, e);
    case SHAPE:
    case OFFSETS: return on_list(r, ev, e);
  }
  return AC_OK;
}

ac_status aci_st_header(ac_safetensors *f, const char *header, size_t n, ac_err *e) {
  reader r = {.f = f};
  for (size_t i = 0; i < n;) {
    int len = (unsigned char)header[i] < 0x80
                  ? 1
                  : aci_utf8_length((const unsigned char *)header + i, n - i);
    if (len == 0) return aci_st_refuse(e, f, 8 + i, "R4", "the header is not UTF-8");
    i += (size_t)len;
  }
  aci_json_opts opts = {.max_bytes = ACI_ST_MAX_HEADER, .max_depth = 4, .fault = &r.fault};
  ac_status st = aci_json_read(header, n, &opts, on_event, &r, e);
  if (st != AC_PARSE || r.fault.kind == ACI_JSON_NO_FAULT)
    return st; /* fine, no memory, or one of our rules */
  const char *rule = r.fault.kind == ACI_JSON_BAD_NUMBER     ? "R8"
                     : r.fault.kind == ACI_JSON_REPEATED_KEY ? "R7"
                                                             : "R5";
  if (r.at >= TENSOR) {
    char name[ACI_ST_SHOWN];
    return aci_st_refuse(e, f, 8 + r.fault.offset, rule, "tensor '%s': %s", current(&r, name),
                         r.fault.what);
  }
  return aci_st_refuse(e, f, 8 + r.fault.offset, rule, "%s", r.fault.what);
}
