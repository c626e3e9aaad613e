/* Dtypes, storages and tensors of a pickle. A tensor is a view of a storage whose bounds are
 * checked here. Storages are identified by their keys and find their bytes later, in pt_zip.c or
 * pt_legacy.c. Called by pt_pickle.c and pt_global.c. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/pt.h"
#include "file/safetensors.h"

static const aci_pt_dtype dtypes[] = {
    {"untyped", "UntypedStorage", AC_U8, 1}, /* ACI_PT_UNTYPED */
    {"float64", "DoubleStorage", AC_F64, 8},
    {"float32", "FloatStorage", AC_F32, 4},
    {"float16", "HalfStorage", AC_F16, 2},
    {"bfloat16", "BFloat16Storage", AC_BF16, 2},
    {"int64", "LongStorage", AC_I64, 8},
    {"int32", "IntStorage", AC_I32, 4},
    {"int16", "ShortStorage", AC_I16, 2},
    {"int8", "CharStorage", AC_I8, 1},
    {"uint8", "ByteStorage", AC_U8, 1},
    {"bool", "BoolStorage", AC_BOOL, 1},
    {"uint16", NULL, AC_U16, 2},
    {"uint32", NULL, AC_U32, 4},
    {"uint64", NULL, AC_I64, 8},
    {"float8_e4m3fn", NULL, AC_F8_E4M3, 1},
    {"float8_e5m2", NULL, AC_F8_E5M2, 1},
    {"float8_e4m3fnuz", NULL, -1, 1},
    {"float8_e5m2fnuz", NULL, -1, 1},
    {"float8_e8m0fnu", NULL, -1, 1},
    {"complex32", NULL, -1, 4},
    {"complex64", "ComplexFloatStorage", -1, 8},
    {"complex128", "ComplexDoubleStorage", -1, 16},
};

int aci_pt_dtype_find(const char *name, size_t n, bool of_storage) {
  for (int i = 0; i < (int)(sizeof dtypes / sizeof *dtypes); i++) {
    const char *is = of_storage ? dtypes[i].storage : i == ACI_PT_UNTYPED ? NULL : dtypes[i].name;
    if (is != NULL && strlen(is) == n && memcmp(is, name, n) == 0) return i;
  }
  return -1;
}
const aci_pt_dtype *aci_pt_dtype_at(int i) { return &dtypes[i]; }

#define REFUSE(rule, ...) aci_pt_refuse(e, f, f->pickle_at + at, rule, __VA_ARGS__)
#define KEY(s) aci_st_shown((s)->key, (s)->key_len, (char[ACI_ST_SHOWN]){0})

/* ---- storages ---- */

static uint32_t slot_of(const ac_pt *f, const char *key, size_t n) {
  uint32_t p = (uint32_t)aci_hash_bytes(f->hash_key, key, n) & f->key_mask;
  for (; f->key_hash[p]; p = (p + 1) & f->key_mask) {
    const aci_pt_storage *s = &f->storage[f->key_hash[p] - 1];
    if (s->key_len == n && memcmp(s->key, key, n) == 0) break;
  }
  return p;
}

aci_pt_storage *aci_pt_storage_find(const ac_pt *f, const char *key, size_t n) {
  if (f->key_hash == NULL) return NULL;
  const uint32_t p = slot_of(f, key, n);
  return f->key_hash[p] ? &f->storage[f->key_hash[p] - 1] : NULL;
}

/* The table is at most half full. */
static ac_status grow_table(ac_pt *f, ac_err *e) {
  if (f->key_hash != NULL && (f->n_storages + 1) * 2 <= f->key_mask) return AC_OK;
  const uint32_t cap = f->key_hash == NULL ? 64 : (f->key_mask + 1) * 2;
  uint32_t *table = calloc(cap, sizeof *table);
  if (table == NULL) return aci_pt_no_memory(e, f);
  if (f->key_hash == NULL) f->hash_key = aci_hash_key();
  free(f->key_hash);
  f->key_hash = table;
  f->key_mask = cap - 1;
  for (uint32_t i = 0; i < f->n_storages; i++)
    f->key_hash[slot_of(f, f->storage[i].key, f->storage[i].key_len)] = i + 1;
  return AC_OK;
}

/* ('storage', type, key, location, numel), and in the old layout one more, the view, which is
 * None. */
ac_status aci_pt_persistent(ac_pt *f, size_t at, uint32_t pid, uint32_t *id, ac_err *e) {
  const ac_pt_value *t = &f->value[pid];
  if (f->metadata || t->kind != AC_PT_TUPLE || (t->n != 5 && t->n != 6))
    return REFUSE("arguments", "a persistent id that is not a storage");
  const ac_pt_value *word = &f->value[t->item[0]], *type = &f->value[t->item[1]],
                    *key = &f->value[t->item[2]];
  const ac_pt_value *location = &f->value[t->item[3]], *numel = &f->value[t->item[4]];
  const bool view = t->n == 6 && f->value[t->item[5]].kind != AC_PT_NONE;
  if (word->kind != AC_PT_STR || word->n != 7 || memcmp(word->s, "storage", 7) != 0 ||
      type->kind != ACI_PT_TAG || type->i < 0 || key->kind != AC_PT_STR ||
      location->kind != AC_PT_STR || numel->kind != AC_PT_INT || view)
    return REFUSE("arguments",
                  "a persistent id that is not ('storage', type, key, location, numel)");
  const int dtype = (int)type->i;
  uint64_t bytes;
  if (numel->i < 0 ||
      __builtin_mul_overflow((uint64_t)numel->i, (uint64_t)dtypes[dtype].bytes, &bytes) ||
      bytes > INT64_MAX)
    return REFUSE("size", "storage '%s' of %lld elements",
                  aci_st_shown(key->s, key->n, (char[ACI_ST_SHOWN]){0}), (long long)numel->i);
  AC_TRY(grow_table(f, e));
  const uint32_t p = slot_of(f, key->s, key->n);
  if (f->key_hash[p] == 0) {
    AC_TRY(aci_pt_room(e, f, &f->storage, f->n_storages, &f->cap_storages, sizeof *f->storage));
    f->storage[f->n_storages++] = (aci_pt_storage){.made_at = at,
                                                   .key = key->s,
                                                   .key_len = key->n,
                                                   .dtype = dtype,
                                                   .numel = (uint64_t)numel->i,
                                                   .bytes = bytes};
    f->key_hash[p] = f->n_storages;
  }
  const aci_pt_storage *s = &f->storage[f->key_hash[p] - 1];
  if (s->dtype != dtype || s->bytes != bytes)
    return REFUSE("size", "storage '%s' is %llu elements of %s, and before it was %llu of %s",
                  KEY(s), (unsigned long long)numel->i, dtypes[dtype].name,
                  (unsigned long long)s->numel, dtypes[s->dtype].name);
  const uint32_t index = f->key_hash[p] - 1;
  AC_TRY(aci_pt_value(f, ACI_PT_STORAGE, at, id, e));
  f->value[*id].i = index;
  return AC_OK;
}

/* ---- tensors ---- */

static ac_status read_dims(ac_pt *f, size_t at, const ac_pt_value *t, const char *what,
                           int64_t *out, ac_err *e) {
  if (t->kind != AC_PT_TUPLE)
    return REFUSE("arguments", "a tensor's %s is %s", what, aci_pt_kind_name(t->kind));
  if (t->n > AC_MAX_DIMS)
    return REFUSE("bounds", "a tensor of %u dims, more than %d", t->n, AC_MAX_DIMS);
  for (uint32_t i = 0; i < t->n; i++) {
    const ac_pt_value *v = &f->value[t->item[i]];
    if (v->kind == AC_PT_WIDE_INT) return REFUSE("bounds", "a tensor's %s beyond 64 bits", what);
    if (v->kind != AC_PT_INT)
      return REFUSE("arguments", "a tensor's %s holds %s", what, aci_pt_kind_name(v->kind));
    if (v->i < 0) return REFUSE("bounds", "a tensor's %s holds %lld", what, (long long)v->i);
    out[i] = v->i;
  }
  return AC_OK;
}

static ac_status check_bounds(ac_pt *f, size_t at, const ac_pt_tensor *t, const aci_pt_storage *s,
                              int width, ac_err *e) {
  const uint64_t room = s->bytes / (uint64_t)width;
  uint64_t last = (uint64_t)t->offset, numel = 1;
  bool none = false, wide = false;
  for (int d = 0; d < t->ndim; d++) {
    uint64_t span;
    if (t->shape[d] == 0) none = true;
    else {
      wide = wide || __builtin_mul_overflow(numel, (uint64_t)t->shape[d], &numel);
      wide = wide ||
             __builtin_mul_overflow((uint64_t)t->shape[d] - 1, (uint64_t)t->stride[d], &span) ||
             __builtin_add_overflow(last, span, &last);
    }
  }
  if (wide || numel > INT64_MAX / 16 || last > INT64_MAX)
    return REFUSE("bounds", "a tensor of storage '%s' whose size overflows 64 bits", KEY(s));
  if (none ? (uint64_t)t->offset > room : last >= room)
    return REFUSE("bounds", "a tensor reaches element %llu of storage '%s', which has %llu",
                  (unsigned long long)last, KEY(s), (unsigned long long)room);
  const uint64_t file = f->end - f->begin, most = file > 1 << 20 ? file : 1 << 20;
  if (!none && numel * (uint64_t)width > most)
    return REFUSE(
        "size",
        "a tensor of %llu elements in the %llu of storage '%s': more than the file has bytes for",
        (unsigned long long)numel, (unsigned long long)room, KEY(s));
  return AC_OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata]). v3 has a
 * dtype before the metadata. */
ac_status aci_pt_tensor(ac_pt *f, size_t at, uint32_t args, int version, uint32_t *id, ac_err *e) {
  const ac_pt_value *a = &f->value[args];
  const uint32_t least = version == 3 ? 7 : 6;
  if (a->n != least && a->n != least + 1)
    return REFUSE("arguments", "_rebuild_tensor_v%d with %u arguments", version, a->n);
  const ac_pt_value *v[8];
  for (uint32_t i = 0; i < a->n; i++) v[i] = &f->value[a->item[i]];
  if (v[0]->kind != ACI_PT_STORAGE || v[4]->kind != AC_PT_BOOL || v[5]->kind != AC_PT_DICT ||
      v[5]->n != 0)
    return REFUSE("arguments", "of _rebuild_tensor_v%d", version);
  const ac_pt_value *more =
      a->n > least ? v[least] : NULL; /* bits such as a conjugate's would change the values */
  if (more != NULL && more->kind != AC_PT_NONE && (more->kind != AC_PT_DICT || more->n != 0))
    return REFUSE("arguments", "_rebuild_tensor_v%d with attributes of the tensor", version);
  if (v[1]->kind == AC_PT_WIDE_INT || (v[1]->kind == AC_PT_INT && v[1]->i < 0))
    return REFUSE("bounds", "a tensor's offset is negative or beyond 64 bits");
  if (v[1]->kind != AC_PT_INT)
    return REFUSE("arguments", "a tensor's offset is %s", aci_pt_kind_name(v[1]->kind));
  aci_pt_storage *s = &f->storage[v[0]->i];
  int dtype = s->dtype;
  if (version == 3) {
    if (v[6]->kind != AC_PT_DTYPE)
      return REFUSE("arguments", "a tensor's dtype is %s", aci_pt_kind_name(v[6]->kind));
    dtype = aci_pt_dtype_find(v[6]->s, v[6]->n, false);
  } else if (dtype == ACI_PT_UNTYPED) {
    return REFUSE("arguments", "a tensor of an untyped storage without a dtype");
  }
  ac_pt_tensor t = {.dtype_name = dtypes[dtype].name,
                    .has_dtype = dtypes[dtype].dtype >= 0,
                    .requires_grad = v[4]->i != 0,
                    .ndim = (int)v[2]->n,
                    .offset = v[1]->i,
                    .storage = (int)v[0]->i};
  if (t.has_dtype) t.dtype = (ac_dtype)dtypes[dtype].dtype;
  AC_TRY(read_dims(f, at, v[2], "size", t.shape, e));
  AC_TRY(read_dims(f, at, v[3], "stride", t.stride, e));
  if (v[2]->n != v[3]->n)
    return REFUSE("bounds", "a tensor has %u sizes and %u strides", v[2]->n, v[3]->n);
  AC_TRY(check_bounds(f, at, &t, s, dtypes[dtype].bytes, e));
  s->has_u64 = s->has_u64 || strcmp(t.dtype_name, "uint64") == 0;
  s->has_bool = s->has_bool || t.dtype == AC_BOOL;
  AC_TRY(aci_pt_room(e, f, &f->tensor, f->n_tensors, &f->cap_tensors, sizeof *f->tensor));
  f->tensor[f->n_tensors] = t;
  AC_TRY(aci_pt_value(f, AC_PT_TENSOR, at, id, e));
  f->value[*id].i = f->n_tensors++;
  return AC_OK;
}

/* _rebuild_parameter(tensor, requires_grad, hooks): another tensor on the same storage. */
ac_status aci_pt_parameter(ac_pt *f, size_t at, uint32_t args, uint32_t *id, ac_err *e) {
  const ac_pt_value *a = &f->value[args];
  if (a->n != 3 || f->value[a->item[0]].kind != AC_PT_TENSOR ||
      f->value[a->item[1]].kind != AC_PT_BOOL || f->value[a->item[2]].kind != AC_PT_DICT ||
      f->value[a->item[2]].n != 0)
    return REFUSE("arguments", "of _rebuild_parameter");
  ac_pt_tensor t = f->tensor[f->value[a->item[0]].i];
  t.requires_grad = f->value[a->item[1]].i != 0;
  t.parameter = true;
  AC_TRY(aci_pt_room(e, f, &f->tensor, f->n_tensors, &f->cap_tensors, sizeof *f->tensor));
  f->tensor[f->n_tensors] = t;
  AC_TRY(aci_pt_value(f, AC_PT_TENSOR, at, id, e));
  f->value[*id].i = f->n_tensors++;
  return AC_OK;
}
