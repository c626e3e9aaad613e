/* Dtypes, storages and tensors of a pickle. A tensor is a view of a storage whose bounds are
 * checked here. Storages are identified by their keys and find their bytes later, in pt_zip.c or
 * pt_legacy.c. Called by pt_pickle.c and pt_global.c. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "file/elements.h"
#include "file/pt_names.h"
#include "file/safetensors.h"

static const aci_pt_dtype dtypes[] = {
    {"untyped", "UntypedStorage", AC_U8, 1, false}, /* ACI_PT_UNTYPED */
    {"float64", "DoubleStorage", AC_F64, 8, false},
    {"float32", "FloatStorage", AC_F32, 4, false},
    {"float16", "HalfStorage", AC_F16, 2, false},
    {"bfloat16", "BFloat16Storage", AC_BF16, 2, false},
    {"int64", "LongStorage", AC_I64, 8, false},
    {"int32", "IntStorage", AC_I32, 4, false},
    {"int16", "ShortStorage", AC_I16, 2, false},
    {"int8", "CharStorage", AC_I8, 1, false},
    {"uint8", "ByteStorage", AC_U8, 1, false},
    {"bool", "BoolStorage", AC_BOOL, 1, false},
    {"uint16", NULL, AC_U16, 2, false},
    {"uint32", NULL, AC_U32, 4, false},
    {"uint64", NULL, -1, 8, false},
    {"float8_e4m3fn", NULL, AC_F8_E4M3, 1, false},
    {"float8_e5m2", NULL, AC_F8_E5M2, 1, false},
    {"float8_e4m3fnuz", NULL, -1, 1, false},
    {"float8_e5m2fnuz", NULL, -1, 1, false},
    {"float8_e8m0fnu", NULL, -1, 1, false},
    {"float4_e2m1fn_x2", NULL, -1, 1, false},
    {"complex32", NULL, AC_F16, 4, true},
    {"complex64", "ComplexFloatStorage", AC_C64, 8, true},
    {"complex128", "ComplexDoubleStorage", AC_C128, 16, true},
};

int aci_pt_dtype_find(const char *name, size_t n, bool of_storage) {
  for (int i = 0; i < (int)(sizeof dtypes / sizeof *dtypes); i++) {
    const char *is = of_storage ? dtypes[i].storage : i == ACI_PT_UNTYPED ? NULL : dtypes[i].name;
    if (is != NULL && strlen(is) == n && memcmp(is, name, n) == 0) return i;
  }
  return -1;
}
int aci_pt_dtype_of(ac_dtype d) {
  for (int i = ACI_PT_UNTYPED + 1; i < (int)(sizeof dtypes / sizeof *dtypes); i++)
    if (dtypes[i].dtype == (int)d) return i; /* before those that are only read as d */
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
  /* one that was made of another has its key, and NumPy's have none */
  for (uint32_t i = 0; i < f->n_storages; i++)
    if (f->storage[i].from == 0 && f->storage[i].data == NULL)
      f->key_hash[slot_of(f, f->storage[i].key, f->storage[i].key_len)] = i + 1;
  return AC_OK;
}

/* A view (key, first element, elements) of a storage of numel elements. *number: 1 + its number, 0 for
 * None. */
static ac_status read_view(ac_pt *f, size_t at, const ac_pt_value *v, int64_t numel,
                           uint32_t *number, ac_err *e) {
  *number = 0;
  if (v->kind == AC_PT_NONE) return AC_OK;
  if (v->kind != AC_PT_TUPLE || v->n != 3 || f->value[v->item[1]].kind != AC_PT_INT ||
      f->value[v->item[2]].kind != AC_PT_INT)
    return REFUSE("arguments", "a view of a storage that is not (key, offset, size)");
  const int64_t first = f->value[v->item[1]].i, n = f->value[v->item[2]].i;
  if (first < 0 || n < 0 || first > numel || n > numel - first)
    return REFUSE("bounds", "a view of %lld elements at %lld leaves its storage of %lld",
                  (long long)n, (long long)first, (long long)numel);
  AC_TRY(aci_pt_room(e, f, &f->view, f->n_views, &f->cap_views, sizeof *f->view));
  f->view[f->n_views++] = (aci_pt_view){.first = (uint64_t)first, .numel = (uint64_t)n};
  *number = f->n_views;
  return AC_OK;
}

/* ('storage', type, key, location, numel), and in the old layout one more, the view. */
ac_status aci_pt_persistent(ac_pt *f, size_t at, uint32_t pid, uint32_t *id, ac_err *e) {
  const ac_pt_value *t = &f->value[pid];
  if (f->metadata || t->kind != AC_PT_TUPLE || (t->n != 5 && t->n != 6))
    return REFUSE("arguments", "a persistent id that is not a storage");
  const ac_pt_value *word = &f->value[t->item[0]], *type = &f->value[t->item[1]],
                    *key = &f->value[t->item[2]];
  const ac_pt_value *location = &f->value[t->item[3]], *numel = &f->value[t->item[4]];
  const uint32_t last = t->item[t->n - 1];
  const bool has_view = t->n == 6;
  uint32_t view = 0;
  if (word->kind != AC_PT_STR || word->n != 7 || memcmp(word->s, "storage", 7) != 0 ||
      type->kind != ACI_PT_TAG || type->n != ACI_PT_STORAGE_OF || key->kind != AC_PT_STR ||
      location->kind != AC_PT_STR || numel->kind != AC_PT_INT)
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
  if (has_view) AC_TRY(read_view(f, at, &f->value[last], numel->i, &view, e));
  AC_TRY(aci_pt_value(f, ACI_PT_STORAGE, at, id, e));
  f->value[*id].i = index;
  f->value[*id].n = view;
  return AC_OK;
}

/* ---- tensors ---- */

ac_status aci_pt_dims(ac_pt *f, size_t at, const ac_pt_value *t, const char *what, int64_t *out,
                      ac_err *e) {
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

/* The storage that holds the elements of t->storage as a dtype of ours. */
static ac_status converted(ac_pt *f, size_t at, ac_pt_tensor *t, const aci_element *k, ac_err *e) {
  aci_pt_storage *s = &f->storage[t->storage];
  const uint32_t was = s->converted;
  for (uint32_t i = was; i > 0; i = f->storage[i - 1].converted) {
    if (f->storage[i - 1].element != k) continue;
    t->storage = (int)i - 1;
    return AC_OK;
  }
  AC_TRY(aci_pt_room(e, f, &f->storage, f->n_storages, &f->cap_storages, sizeof *f->storage));
  s = &f->storage[t->storage];
  const uint64_t n = s->bytes * 8 / (uint64_t)k->bits;
  f->storage[f->n_storages++] = (aci_pt_storage){.made_at = at,
                                                 .key = s->key,
                                                 .key_len = s->key_len,
                                                 .dtype = s->dtype,
                                                 .numel = n,
                                                 .bytes = n * ac_dtype_bytes(k->to),
                                                 .placed = true,
                                                 .converted = was,
                                                 .from = (uint32_t)t->storage + 1,
                                                 .element = k};
  s->converted = f->n_storages;
  t->storage = (int)f->n_storages - 1;
  return AC_OK;
}

/* Elements that are several of ours, side by side: complex numbers as (real, imaginary) in one more dim, two
 * values of four bits in the last dim. */
static ac_status widen(ac_pt *f, size_t at, ac_pt_tensor *t, bool new_dim, ac_err *e) {
  const int last = t->ndim - 1;
  if (new_dim && t->ndim == AC_MAX_DIMS)
    return REFUSE("bounds", "a %s of %d dims, which would have %d here", t->dtype_name, t->ndim,
                  t->ndim + 1);
  if (!new_dim && (t->ndim == 0 || (t->shape[last] > 1 && t->stride[last] != 1)))
    return REFUSE("arguments", "a %s whose last dim is not dense; save its contiguous()",
                  t->dtype_name);
  for (int d = 0; d < t->ndim; d++) {
    if (t->stride[d] > INT64_MAX / 2 || t->shape[d] > INT64_MAX / 2)
      return REFUSE("bounds", "a %s whose extents overflow 64 bits", t->dtype_name);
    t->stride[d] *= 2;
  }
  t->offset *= 2; /* within its storage */
  if (new_dim) {
    t->shape[t->ndim] = 2;
    t->stride[t->ndim++] = 1;
  } else {
    t->shape[last] *= 2;
    t->stride[last] = 1;
  }
  return AC_OK;
}

ac_status aci_pt_tensor_add(ac_pt *f, size_t at, ac_pt_tensor t, int dtype, int64_t *index,
                            ac_err *e) {
  const aci_pt_dtype *d = &dtypes[dtype];
  const aci_element *k = d->dtype < 0 ? aci_element_of(NULL, d->name) : NULL;
  t.dtype_name = d->name;
  t.has_dtype = d->dtype >= 0 || k != NULL;
  AC_TRY(check_bounds(f, at, &t, &f->storage[t.storage], d->bytes, e));
  if (t.has_dtype) t.dtype = k != NULL ? k->to : (ac_dtype)d->dtype;
  if (d->pairs && !ac_dtype_is_complex(t.dtype)) AC_TRY(widen(f, at, &t, true, e));
  if (k != NULL && k->bits < 8 * d->bytes) AC_TRY(widen(f, at, &t, false, e));
  if (k != NULL) AC_TRY(converted(f, at, &t, k, e));
  if (t.dtype == AC_BOOL) f->storage[t.storage].has_bool = true;
  AC_TRY(aci_pt_room(e, f, &f->tensor, f->n_tensors, &f->cap_tensors, sizeof *f->tensor));
  f->tensor[f->n_tensors] = t;
  *index = f->n_tensors++;
  return AC_OK;
}

/* Whether a tensor's hooks are none: None or an empty dict. */
static bool no_hooks(const ac_pt_value *v) {
  return v->kind == AC_PT_NONE || (v->kind == AC_PT_DICT && v->n == 0);
}

/* requires_grad, hooks, and of v3 the dtype: the arguments from the fifth on. */
static ac_status read_rest(ac_pt *f, size_t at, const ac_pt_value *a, int version, int *dtype,
                           ac_err *e) {
  const uint32_t least = version == 3 ? 7 : 6;
  const ac_pt_value *grad = &f->value[a->item[4]], *type = &f->value[a->item[least - 1]],
                    *more = a->n > least ? &f->value[a->item[least]] : NULL;
  if (grad->kind != AC_PT_BOOL || !no_hooks(&f->value[a->item[5]]))
    return REFUSE("arguments", "of _rebuild_tensor_v%d", version);
  /* bits such as a conjugate's would change the values */
  if (more != NULL && more->kind != AC_PT_NONE && (more->kind != AC_PT_DICT || more->n != 0))
    return REFUSE("arguments",
                  "a tensor with attributes, such as a conjugate or negative view; save its "
                  "resolve_conj() or resolve_neg()");
  if (version != 3) return AC_OK;
  if (type->kind != AC_PT_DTYPE)
    return REFUSE("arguments", "a tensor's dtype is %s", aci_pt_kind_name(type->kind));
  *dtype = aci_pt_dtype_find(type->s, type->n, false);
  return AC_OK;
}

/* _rebuild_tensor(storage, offset, size, stride), before PyTorch 0.4. v2 has requires_grad and hooks as well, and
 * may have metadata. v3 has a dtype before the metadata. */
ac_status aci_pt_tensor(ac_pt *f, size_t at, uint32_t args, int version, uint32_t *id, ac_err *e) {
  static const uint32_t counts[] = {0, 4, 6, 7};
  const ac_pt_value *a = &f->value[args];
  const uint32_t least = counts[version];
  if (a->n != least && (version == 1 || a->n != least + 1))
    return REFUSE("arguments", "_rebuild_tensor_v%d with %u arguments", version, a->n);
  const ac_pt_value *v[4];
  for (uint32_t i = 0; i < 4; i++) v[i] = &f->value[a->item[i]];
  if (v[0]->kind != ACI_PT_STORAGE) return REFUSE("arguments", "of _rebuild_tensor_v%d", version);
  if (v[1]->kind == AC_PT_WIDE_INT || (v[1]->kind == AC_PT_INT && v[1]->i < 0))
    return REFUSE("bounds", "a tensor's offset is negative or beyond 64 bits");
  if (v[1]->kind != AC_PT_INT)
    return REFUSE("arguments", "a tensor's offset is %s", aci_pt_kind_name(v[1]->kind));
  const aci_pt_storage *s = &f->storage[v[0]->i];
  int dtype = s->dtype;
  if (version != 1) AC_TRY(read_rest(f, at, a, version, &dtype, e));
  if (dtype == ACI_PT_UNTYPED)
    return REFUSE("arguments", "a tensor of an untyped storage without a dtype");
  ac_pt_tensor t = {.requires_grad = version != 1 && f->value[a->item[4]].i != 0,
                    .ndim = (int)v[2]->n,
                    .offset = v[1]->i,
                    .storage = (int)v[0]->i};
  AC_TRY(aci_pt_dims(f, at, v[2], "size", t.shape, e));
  AC_TRY(aci_pt_dims(f, at, v[3], "stride", t.stride, e));
  if (v[2]->n != v[3]->n)
    return REFUSE("bounds", "a tensor has %u sizes and %u strides", v[2]->n, v[3]->n);
  if (v[0]->n > 0 && dtype != s->dtype)
    return REFUSE("arguments", "a tensor of %s in a view of a storage of another dtype",
                  dtypes[dtype].name);
  if (v[0]->n > 0) { /* the bounds of the view, in a storage that ends with it */
    const aci_pt_view w = f->view[v[0]->n - 1];
    aci_pt_storage part = *s;
    part.bytes = w.numel * (uint64_t)dtypes[s->dtype].bytes;
    AC_TRY(check_bounds(f, at, &t, &part, dtypes[dtype].bytes, e));
    t.offset += (int64_t)w.first;
  }
  int64_t index = 0;
  AC_TRY(aci_pt_tensor_add(f, at, t, dtype, &index, e));
  AC_TRY(aci_pt_value(f, AC_PT_TENSOR, at, id, e));
  f->value[*id].i = index;
  return AC_OK;
}

/* _rebuild_parameter(tensor, requires_grad, hooks[, attributes]): another tensor on the same storage. Attributes
 * that a script gave the parameter are left out. */
ac_status aci_pt_parameter(ac_pt *f, size_t at, uint32_t args, uint32_t *id, ac_err *e) {
  const ac_pt_value *a = &f->value[args];
  if ((a->n != 3 && a->n != 4) || f->value[a->item[0]].kind != AC_PT_TENSOR ||
      f->value[a->item[1]].kind != AC_PT_BOOL || !no_hooks(&f->value[a->item[2]]))
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
