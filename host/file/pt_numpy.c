/* NumPy in pickles: dtypes, arrays and scalars, as NumPy 1 (numpy.core) and 2 (numpy._core) write them. An array
 * becomes a tensor on a storage whose bytes are in the pickle, a scalar a number, a dtype PyTorch's name of it.
 * Called by pt_global.c.
 *
 * Refused by name: arrays of objects, text, dates, records and every other dtype that has no tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/vmath.h"
#include "file/pt_names.h"
#include "file/safetensors.h"

#define REFUSE(rule, ...) aci_pt_refuse(e, f, f->pickle_at + at, rule, __VA_ARGS__)
#define TEXT(v) aci_st_shown((v)->s, (v)->n, (char[ACI_ST_SHOWN]){0})
#define ON_BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

static ac_status wrong(ac_pt *f, size_t at, const char *what, ac_err *e) {
  return REFUSE("arguments", "of numpy's %s", what);
}

/* ---- dtypes ---- */

/* "f8", "<i4": a dtype of PyTorch's, ACI_PT_NO_DTYPE for those that it lacks. */
static int dtype_of(const char *s, uint32_t n) {
  static const char *const of[][2] = {{"f2", "float16"},   {"f4", "float32"},    {"f8", "float64"},
                                      {"i1", "int8"},      {"i2", "int16"},      {"i4", "int32"},
                                      {"i8", "int64"},     {"u1", "uint8"},      {"u2", "uint16"},
                                      {"u4", "uint32"},    {"u8", "uint64"},     {"b1", "bool"},
                                      {"c8", "complex64"}, {"c16", "complex128"}};
  if (n > 0 && strchr("<>=|", s[0]) != NULL && s[0] != 0) s++, n--;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    if (strlen(of[i][0]) == n && memcmp(of[i][0], s, n) == 0)
      return aci_pt_dtype_find(of[i][1], strlen(of[i][1]), false);
  return ACI_PT_NO_DTYPE;
}

/* dtype("f8", False, True) */
static ac_status make_dtype(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  if (args->n < 1 || args->n > 4) return wrong(f, at, "dtype", e);
  const uint32_t name = args->item[0];
  const ac_pt_value *s = &f->value[name];
  if (s->kind != AC_PT_STR) return wrong(f, at, "dtype", e);
  const int dtype = dtype_of(s->s, s->n) | (s->n > 0 && s->s[0] == '>' ? ACI_PT_BIG : 0);
  AC_TRY(aci_pt_value(f, ACI_PT_NPDTYPE, at, id, e));
  f->value[*id].n = name;
  f->value[*id].i = dtype;
  return AC_OK;
}

/* (version, byte order, subarray, names, fields, ...): records and subarrays have no tensors. */
static ac_status build_dtype(ac_pt *f, size_t at, ac_pt_value *d, const ac_pt_value *state,
                             ac_err *e) {
  if (state->kind != AC_PT_TUPLE || state->n < 5 || f->value[state->item[1]].kind != AC_PT_STR ||
      f->value[state->item[1]].n != 1)
    return wrong(f, at, "dtype", e);
  const bool big = f->value[state->item[1]].s[0] == '>';
  for (uint32_t i = 2; i < 5; i++)
    if (f->value[state->item[i]].kind != AC_PT_NONE) d->i = ACI_PT_NO_DTYPE;
  d->i = d->i % ACI_PT_BIG + (big ? ACI_PT_BIG : 0);
  return AC_OK;
}

/* The dtype of an array or scalar, and whether its bytes are in the other order than this machine's. */
static ac_status read_dtype(ac_pt *f, size_t at, uint32_t id, int *dtype, bool *swapped,
                            ac_err *e) {
  const ac_pt_value *d = &f->value[id];
  if (d->kind != ACI_PT_NPDTYPE)
    return REFUSE("arguments", "%s in place of a NumPy dtype", aci_pt_kind_name(d->kind));
  if (d->i % ACI_PT_BIG == ACI_PT_NO_DTYPE)
    return REFUSE("arguments",
                  "NumPy's dtype '%s', which has no tensors; save a list or plain values",
                  TEXT(&f->value[d->n]));
  *dtype = (int)(d->i % ACI_PT_BIG);
  *swapped = (d->i & ACI_PT_BIG) != 0 ? !ON_BIG_ENDIAN : ON_BIG_ENDIAN;
  return AC_OK;
}

static bool is_bytes(const ac_pt_value *v) {
  return v->kind == AC_PT_BYTES || v->kind == AC_PT_STR;
}

/* ---- arrays ---- */

typedef struct array {
  uint32_t shape, dtype, data; /* values */
  bool fortran;
} array;

/* Value `id` becomes a tensor on a storage of these bytes. */
static ac_status make_tensor(ac_pt *f, size_t at, array a, uint32_t id, ac_err *e) {
  const ac_pt_value *shape = &f->value[a.shape], *data = &f->value[a.data];
  ac_pt_tensor t = {.ndim = (int)shape->n, .storage = (int)f->n_storages};
  int dtype;
  bool swapped;
  AC_TRY(read_dtype(f, at, a.dtype, &dtype, &swapped, e));
  if (!is_bytes(data)) return REFUSE("arguments", "an array of Python objects; save a list");
  AC_TRY(aci_pt_dims(f, at, shape, "size", t.shape, e));
  const uint64_t width = (uint64_t)aci_pt_dtype_at(dtype)->bytes;
  uint64_t numel = 1;
  for (int k = 0; k < t.ndim; k++) {
    const int d = a.fortran ? k : t.ndim - 1 - k; /* the dim that moves fastest is first */
    t.stride[d] = (int64_t)numel;
    if (__builtin_mul_overflow(numel, (uint64_t)t.shape[d], &numel) || numel > INT64_MAX / 16)
      return REFUSE("bounds", "an array whose size overflows 64 bits");
  }
  if (numel * width != data->n)
    return REFUSE("size", "an array of %llu elements of %llu bytes, which has %u bytes",
                  (unsigned long long)numel, (unsigned long long)width, data->n);
  AC_TRY(aci_pt_room(e, f, &f->storage, f->n_storages, &f->cap_storages, sizeof *f->storage));
  f->storage[f->n_storages++] = (aci_pt_storage){.made_at = at,
                                                 .key = "",
                                                 .dtype = dtype,
                                                 .numel = numel,
                                                 .bytes = data->n,
                                                 .placed = true,
                                                 .data = data->s,
                                                 .data_swapped = swapped};
  int64_t index = 0;
  AC_TRY(aci_pt_tensor_add(f, at, t, dtype, &index, e));
  f->value[id] = (ac_pt_value){.kind = AC_PT_TENSOR, .at = (uint32_t)at, .i = index};
  return AC_OK;
}

/* _reconstruct(ndarray, (0,), b"b"): an array that BUILD fills. */
static ac_status begin_array(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id,
                             ac_err *e) {
  if (args->n != 3 || f->value[args->item[0]].kind != ACI_PT_TAG ||
      f->value[args->item[0]].n != ACI_PT_NDARRAY)
    return wrong(f, at, "_reconstruct; save the array as a plain ndarray", e);
  return aci_pt_value(f, ACI_PT_ARRAY, at, id, e);
}

/* (version, shape, dtype, whether it is in Fortran's order, bytes) */
static ac_status build_array(ac_pt *f, size_t at, uint32_t id, const ac_pt_value *state,
                             ac_err *e) {
  if (state->kind != AC_PT_TUPLE || (state->n != 5 && state->n != 4))
    return wrong(f, at, "ndarray", e);
  const uint32_t *item = state->item + (state->n - 4);
  if (f->value[item[2]].kind != AC_PT_BOOL && f->value[item[2]].kind != AC_PT_INT)
    return wrong(f, at, "ndarray", e);
  return make_tensor(f, at, (array){item[0], item[1], item[3], f->value[item[2]].i != 0}, id, e);
}

/* _frombuffer(bytes, dtype, shape, "C") */
static ac_status from_buffer(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id,
                             ac_err *e) {
  if (args->n != 4 || f->value[args->item[3]].kind != AC_PT_STR || f->value[args->item[3]].n != 1)
    return wrong(f, at, "_frombuffer", e);
  const array a = {args->item[2], args->item[1], args->item[0],
                   f->value[args->item[3]].s[0] == 'F'};
  AC_TRY(aci_pt_value(f, ACI_PT_ARRAY, at, id, e));
  return make_tensor(f, at, a, *id, e);
}

/* ---- scalars ---- */

static ac_status push_float(ac_pt *f, size_t at, double x, uint32_t *id, ac_err *e) {
  AC_TRY(aci_pt_value(f, AC_PT_FLOAT, at, id, e));
  f->value[*id].f = x;
  return AC_OK;
}

/* An integer beyond 2^63: its bytes and a zero. */
static ac_status push_wide(ac_pt *f, size_t at, uint64_t bits, uint32_t *id, ac_err *e) {
  AC_TRY(aci_pt_room(e, f, &f->text, f->n_text, &f->cap_text, sizeof *f->text));
  char *s = malloc(9);
  if (s == NULL) return aci_pt_no_memory(e, f);
  f->text[f->n_text++] = s;
  for (int i = 0; i < 9; i++, bits >>= 8) s[i] = (char)(bits & 255);
  AC_TRY(aci_pt_value(f, AC_PT_WIDE_INT, at, id, e));
  f->value[*id].s = s;
  f->value[*id].n = 9;
  return AC_OK;
}

static double as_float(uint64_t bits, int width) {
  double x;
  float y;
  const uint32_t low = (uint32_t)bits;
  if (width == 2) return (double)aci_f16_to_f32((uint16_t)bits);
  memcpy(&y, &low, 4);
  memcpy(&x, &bits, 8);
  return width == 4 ? (double)y : x;
}

/* The bytes of one number, lowest first whatever the order of the file. */
static uint64_t number(const char *s, int width, bool big) {
  uint64_t bits = 0;
  for (int i = 0; i < width; i++) bits = bits << 8 | (unsigned char)s[big ? i : width - 1 - i];
  return bits;
}

static ac_status push_number(ac_pt *f, size_t at, char kind, uint64_t bits, int width, uint32_t *id,
                             ac_err *e) {
  if (kind == 'f') return push_float(f, at, as_float(bits, width), id, e);
  if (kind == 'u' && width == 8 && bits >> 63) return push_wide(f, at, bits, id, e);
  AC_TRY(aci_pt_value(f, kind == 'b' ? AC_PT_BOOL : AC_PT_INT, at, id, e));
  if (kind == 'i' && width < 8 && bits >> (8 * width - 1)) bits |= UINT64_MAX << (8 * width);
  f->value[*id].i = kind == 'b' ? bits != 0 : (int64_t)bits;
  return AC_OK;
}

/* scalar(dtype, bytes) */
static ac_status make_scalar(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id,
                             ac_err *e) {
  int dtype;
  bool swapped;
  if (args->n != 2) return wrong(f, at, "scalar", e);
  const ac_pt_value *data = &f->value[args->item[1]];
  AC_TRY(read_dtype(f, at, args->item[0], &dtype, &swapped, e));
  const aci_pt_dtype *d = aci_pt_dtype_at(dtype);
  if (!is_bytes(data) || data->n != (uint32_t)d->bytes) return wrong(f, at, "scalar", e);
  const bool big = swapped != ON_BIG_ENDIAN;
  const char *s = data->s;
  if (!d->pairs) return push_number(f, at, d->name[0], number(s, d->bytes, big), d->bytes, id, e);
  const int half = d->bytes / 2;
  uint32_t parts[2] = {0, 0};
  for (int i = 0; i < 2; i++)
    AC_TRY(push_float(f, at, as_float(number(s + i * half, half, big), half), &parts[i], e));
  AC_TRY(aci_pt_value(f, AC_PT_COMPLEX, at, id, e));
  return aci_pt_append(f, *id, parts, 2, e);
}

/* ---- calls ---- */

ac_status aci_pt_numpy(ac_pt *f, size_t at, int tag, uint32_t arguments, uint32_t *id, ac_err *e) {
  const ac_pt_value *args = &f->value[arguments];
  switch (tag) {
    case ACI_PT_NPDTYPE_OF: return make_dtype(f, at, args, id, e);
    case ACI_PT_SCALAR_OF: return make_scalar(f, at, args, id, e);
    case ACI_PT_ARRAY_FROM: return from_buffer(f, at, args, id, e);
    default: return begin_array(f, at, args, id, e);
  }
}

ac_status aci_pt_numpy_build(ac_pt *f, size_t at, uint32_t object, uint32_t state, ac_err *e) {
  const ac_pt_value *s = &f->value[state];
  if (f->value[object].kind == ACI_PT_NPDTYPE) return build_dtype(f, at, &f->value[object], s, e);
  return build_array(f, at, object, s, e);
}
