/* The values that the names of a pickle make (pt_names.c lists the names): tags, never calls. Called by
 * pt_pickle.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/pt_names.h"
#include "file/safetensors.h"

#define REFUSE(rule, ...) aci_pt_refuse(e, f, f->pickle_at + at, rule, __VA_ARGS__)

static bool is(const char *a, const char *b, size_t n) {
  return strlen(a) == n && memcmp(a, b, n) == 0;
}

ac_status aci_pt_global(ac_pt *f, size_t at, const char *module, size_t n_module, const char *name,
                        size_t n_name, uint32_t *id, ac_err *e) {
  int number = -1;
  const int t = aci_pt_name_find(f, module, n_module, name, n_name, &number);
  if (t >= 0) {
    AC_TRY(aci_pt_value(f, ACI_PT_TAG, at, id, e));
    f->value[*id].n = (uint32_t)t;
    f->value[*id].i = number;
    return AC_OK;
  }
  if (is("torch", module, n_module) && (number = aci_pt_dtype_find(name, n_name, false)) >= 0)
    return aci_pt_dtype_value(f, at, number, id, e);
  return REFUSE("unknown_global",
                "%s.%s, which is not one of the names that data needs: nothing is called here; %s",
                aci_st_shown(module, n_module, (char[ACI_ST_SHOWN]){0}),
                aci_st_shown(name, n_name, (char[ACI_ST_SHOWN]){0}),
                aci_pt_name_advice(module, n_module, name, n_name));
}

ac_status aci_pt_dtype_value(ac_pt *f, size_t at, int dtype, uint32_t *id, ac_err *e) {
  AC_TRY(aci_pt_value(f, AC_PT_DTYPE, at, id, e));
  f->value[*id].s = aci_pt_dtype_at(dtype)->name;
  f->value[*id].n = (uint32_t)strlen(f->value[*id].s);
  return AC_OK;
}

static ac_status wrong(ac_pt *f, size_t at, const char *what, ac_err *e) {
  return REFUSE("arguments", "of %s", what);
}

/* OrderedDict(), or of a list of pairs as Python 2 wrote it. */
static ac_status ordered(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  /* args moves with the next value */
  const uint32_t n_args = args->n, list = n_args > 0 ? args->item[0] : 0;
  if (n_args > 1 || (n_args == 1 && f->value[list].kind != AC_PT_LIST))
    return wrong(f, at, "OrderedDict", e);
  AC_TRY(aci_pt_value(f, AC_PT_DICT, at, id, e));
  f->value[*id].mark = ACI_PT_ORDERED;
  for (uint32_t i = 0; n_args == 1 && i < f->value[list].n; i++) {
    const ac_pt_value *pair = &f->value[f->value[list].item[i]];
    if ((pair->kind != AC_PT_LIST && pair->kind != AC_PT_TUPLE) || pair->n != 2)
      return wrong(f, at, "OrderedDict", e);
    const int key = f->value[pair->item[0]].kind;
    if (key != AC_PT_STR && key != AC_PT_INT) return wrong(f, at, "OrderedDict", e);
    if ((f->copied += 2) > f->pickle_bytes)
      return REFUSE("size", "one list is copied again and again");
    AC_TRY(aci_pt_append(f, *id, pair->item, 2, e));
  }
  return AC_OK;
}

static ac_status set(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  if (args->n > 1) return wrong(f, at, "set", e);
  const uint32_t list = args->n == 1 ? args->item[0] : 0;
  const bool any = args->n == 1;
  if (any && f->value[list].kind != AC_PT_LIST && f->value[list].kind != AC_PT_TUPLE)
    return wrong(f, at, "set", e);
  AC_TRY(aci_pt_value(f, AC_PT_SET, at, id, e));
  if (!any) return AC_OK;
  if ((f->copied += f->value[list].n) > f->pickle_bytes)
    return REFUSE("size", "one list is copied again and again");
  return aci_pt_append(f, *id, f->value[list].item, f->value[list].n, e);
}

static ac_status encode(ac_pt *f, size_t at, const ac_pt_value *args, const char *what,
                        uint32_t *id, ac_err *e) {
  if (args->n != 2) return wrong(f, at, what, e);
  const ac_pt_value *s = &f->value[args->item[0]], *how = &f->value[args->item[1]];
  if (s->kind != AC_PT_STR || how->kind != AC_PT_STR ||
      (!is("latin1", how->s, how->n) && !is("latin-1", how->s, how->n)))
    return wrong(f, at, what, e);
  return aci_pt_latin1(f, at, s, id, e);
}

static ac_status bytearray(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  if (args->n == 0) {
    AC_TRY(aci_pt_value(f, AC_PT_BYTES, at, id, e));
    f->value[*id].s = "";
    return AC_OK;
  }
  if (args->n == 2) return encode(f, at, args, "bytearray", id, e);
  if (args->n != 1 || f->value[args->item[0]].kind != AC_PT_BYTES)
    return wrong(f, at, "bytearray", e);
  *id = args->item[0];
  return AC_OK;
}

/* "cuda" or "cuda:0". */
static ac_status device(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  if (args->n < 1 || args->n > 2 || f->value[args->item[0]].kind != AC_PT_STR)
    return wrong(f, at, "torch.device", e);
  const ac_pt_value type = f->value[args->item[0]];
  *id = args->item[0];
  if (args->n == 1) return AC_OK;
  if (f->value[args->item[1]].kind != AC_PT_INT || type.n > 32)
    return wrong(f, at, "torch.device", e);
  const long long index = f->value[args->item[1]].i;
  AC_TRY(aci_pt_room(e, f, &f->text, f->n_text, &f->cap_text, sizeof *f->text));
  char *out = malloc(64);
  if (out == NULL) return aci_pt_no_memory(e, f);
  f->text[f->n_text++] = out;
  const int n = snprintf(out, 64, "%.*s:%lld", (int)type.n, type.s, index);
  AC_TRY(aci_pt_value(f, AC_PT_STR, at, id, e));
  f->value[*id].s = out;
  f->value[*id].n = (uint32_t)n;
  return AC_OK;
}

static bool is_tag(const ac_pt *f, uint32_t id, aci_pt_tag tag) {
  return f->value[id].kind == ACI_PT_TAG && f->value[id].n == (uint32_t)tag;
}

/* A defaultdict without its factory. */
static ac_status defaultdict(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id,
                             ac_err *e) {
  if (args->n > 1 || (args->n == 1 && !is_tag(f, args->item[0], ACI_PT_FACTORY) &&
                      f->value[args->item[0]].kind != AC_PT_NONE))
    return wrong(f, at, "defaultdict", e);
  return aci_pt_value(f, AC_PT_DICT, at, id, e);
}

/* deque((), maximal length), which APPENDS fills. */
static ac_status deque(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  if (args->n > 2 || (args->n > 0 && (f->value[args->item[0]].kind != AC_PT_TUPLE ||
                                      f->value[args->item[0]].n != 0)))
    return wrong(f, at, "deque", e);
  return aci_pt_value(f, AC_PT_LIST, at, id, e);
}

/* An object of a class: its name, and then its state. */
static ac_status object(ac_pt *f, size_t at, uint32_t cls, uint32_t *id, ac_err *e) {
  const char *name = aci_pt_class_name((int)f->value[cls].i);
  uint32_t text = 0;
  AC_TRY(aci_pt_value(f, AC_PT_STR, at, &text, e));
  f->value[text].s = name;
  f->value[text].n = (uint32_t)strlen(name);
  AC_TRY(aci_pt_value(f, AC_PT_OBJECT, at, id, e));
  return aci_pt_append(f, *id, &text, 1, e);
}

static ac_status object_of(ac_pt *f, size_t at, uint32_t cls, uint32_t state, uint32_t *id,
                           ac_err *e) {
  AC_TRY(object(f, at, cls, id, e));
  return aci_pt_append(f, *id, &state, 1, e);
}

/* (rebuild, type, its arguments, state) */
static ac_status from_type(ac_pt *f, size_t at, const ac_pt_value *args, uint32_t *id, ac_err *e) {
  static const char what[] = "_rebuild_from_type_v2";
  if (args->n != 4 || f->value[args->item[2]].kind != AC_PT_TUPLE) return wrong(f, at, what, e);
  const uint32_t made = args->item[0], type = args->item[1], inner = args->item[2],
                 state = args->item[3];
  if (is_tag(f, type, ACI_PT_TYPE) && is_tag(f, made, ACI_PT_TENSOR_V2))
    return aci_pt_tensor(f, at, inner, 2, id, e);
  if (is_tag(f, type, ACI_PT_TYPE) && is_tag(f, made, ACI_PT_TENSOR_V3))
    return aci_pt_tensor(f, at, inner, 3, id, e);
  if (!is_tag(f, made, ACI_PT_WRAPPER) || !is_tag(f, type, ACI_PT_CLASS) || f->value[inner].n < 3)
    return wrong(f, at, what, e);
  const uint32_t size = f->value[inner].item[2]; /* (class, dtype, size, ...) */
  const int kind = f->value[size].kind, of = f->value[state].kind;
  if (kind != AC_PT_TUPLE || (of != AC_PT_DICT && of != AC_PT_TUPLE)) return wrong(f, at, what, e);
  AC_TRY(object_of(f, at, type, state, id, e));
  return aci_pt_append(f, *id, &size, 1, e);
}

ac_status aci_pt_reduce(ac_pt *f, size_t at, uint32_t callee, uint32_t arguments, uint32_t *id,
                        ac_err *e) {
  const ac_pt_value *c = &f->value[callee], *args = &f->value[arguments];
  if (c->kind != ACI_PT_TAG)
    return REFUSE("arguments", "REDUCE of %s, which is not a name", aci_pt_kind_name(c->kind));
  if (args->kind != AC_PT_TUPLE)
    return REFUSE("arguments", "REDUCE with %s for its arguments", aci_pt_kind_name(args->kind));
  const int first = args->n > 0 ? f->value[args->item[0]].kind : AC_PT_KINDS;
  switch ((aci_pt_tag)c->n) {
    case ACI_PT_ODICT: return ordered(f, at, args, id, e);
    case ACI_PT_COUNTER:
      if (args->n == 0) return aci_pt_value(f, AC_PT_DICT, at, id, e);
      if (args->n != 1 || first != AC_PT_DICT) return wrong(f, at, "Counter", e);
      *id = args->item[0];
      return AC_OK;
    case ACI_PT_DEFAULTDICT: return defaultdict(f, at, args, id, e);
    case ACI_PT_DEQUE: return deque(f, at, args, id, e);
    case ACI_PT_SET_OF: return set(f, at, args, id, e);
    case ACI_PT_BYTEARRAY: return bytearray(f, at, args, id, e);
    case ACI_PT_COMPLEX_OF: {
      if (args->n != 2 || first != AC_PT_FLOAT || f->value[args->item[1]].kind != AC_PT_FLOAT)
        return wrong(f, at, "complex", e);
      const uint32_t parts[2] = {args->item[0], args->item[1]};
      AC_TRY(aci_pt_value(f, AC_PT_COMPLEX, at, id, e));
      return aci_pt_append(f, *id, parts, 2, e);
    }
    case ACI_PT_ENCODE: return encode(f, at, args, "_codecs.encode", id, e);
    case ACI_PT_TENSOR_V1: return aci_pt_tensor(f, at, arguments, 1, id, e);
    case ACI_PT_TENSOR_V2: return aci_pt_tensor(f, at, arguments, 2, id, e);
    case ACI_PT_TENSOR_V3: return aci_pt_tensor(f, at, arguments, 3, id, e);
    case ACI_PT_PARAMETER: return aci_pt_parameter(f, at, arguments, id, e);
    case ACI_PT_SIZE: {
      if (args->n != 1 || (first != AC_PT_TUPLE && first != AC_PT_LIST))
        return wrong(f, at, "torch.Size", e);
      const ac_pt_value *size = &f->value[args->item[0]];
      for (uint32_t i = 0; i < size->n; i++)
        if (f->value[size->item[i]].kind != AC_PT_INT) return wrong(f, at, "torch.Size", e);
      *id = args->item[0];
      return AC_OK;
    }
    case ACI_PT_DEVICE: return device(f, at, args, id, e);
    case ACI_PT_LAYOUT:
      if (args->n != 1 || first != AC_PT_STR) return wrong(f, at, "_get_layout", e);
      *id = args->item[0];
      return AC_OK;
    case ACI_PT_FROM_TYPE: return from_type(f, at, args, id, e);
    case ACI_PT_GETATTR: /* a member of an enumeration that is in the list */
      if (args->n != 2 || !is_tag(f, args->item[0], ACI_PT_CLASS) ||
          f->value[args->item[1]].kind != AC_PT_STR)
        return REFUSE("unknown_global",
                      "builtins.getattr of anything but an enumeration; save plain values");
      return object_of(f, at, args->item[0], args->item[1], id, e);
    case ACI_PT_CLASS: /* a member of an enumeration, a path: its constructor's argument */
      return object_of(f, at, callee, arguments, id, e);
    case ACI_PT_ARRAY_OF:
    case ACI_PT_ARRAY_FROM:
    case ACI_PT_SCALAR_OF:
    case ACI_PT_NPDTYPE_OF: return aci_pt_numpy(f, at, (int)c->n, arguments, id, e);
    case ACI_PT_STORAGE_OF: return REFUSE("arguments", "a storage made of values");
    case ACI_PT_FACTORY:
    case ACI_PT_WRAPPER:
    case ACI_PT_TYPE:
    case ACI_PT_NDARRAY: break;
  }
  return REFUSE("arguments", "a call that makes no value of data; save plain values and tensors");
}

/* What builtins.getattr made: the class of an object and the name of its member. */
static bool is_member(const ac_pt *f, uint32_t id) {
  const ac_pt_value *v = &f->value[id];
  return v->kind == AC_PT_OBJECT && v->n == 2 && f->value[v->item[1]].kind == AC_PT_STR;
}

ac_status aci_pt_newobj(ac_pt *f, size_t at, uint32_t cls, uint32_t args, uint32_t *id, ac_err *e) {
  if (is_member(f, cls) && f->value[args].kind == AC_PT_TUPLE && f->value[args].n == 0) {
    const uint32_t name = f->value[cls].item[1]; /* a class inside another one */
    AC_TRY(aci_pt_value(f, AC_PT_OBJECT, at, id, e));
    return aci_pt_append(f, *id, &name, 1, e);
  }
  if (!is_tag(f, cls, ACI_PT_CLASS)) return REFUSE("opcode", "NEWOBJ, which data has no use for");
  if (f->value[args].kind != AC_PT_TUPLE) return wrong(f, at, "a class", e);
  if (f->value[args].n > 0) return object_of(f, at, cls, args, id, e); /* a tuple with names */
  return object(f, at, cls, id, e);
}

/* OrderedDict's attributes (_metadata of a state dict) are left out. */
ac_status aci_pt_build(ac_pt *f, size_t at, uint32_t object, uint32_t state, ac_err *e) {
  const ac_pt_value *o = &f->value[object], *s = &f->value[state];
  if (o->kind == AC_PT_OBJECT && o->n == 1 && (s->kind == AC_PT_DICT || s->kind == AC_PT_TUPLE))
    return aci_pt_append(f, object, &state, 1, e);
  if (o->kind == AC_PT_DICT && o->mark == ACI_PT_ORDERED && s->kind == AC_PT_DICT) return AC_OK;
  if (o->kind == ACI_PT_ARRAY || o->kind == ACI_PT_NPDTYPE)
    return aci_pt_numpy_build(f, at, object, state, e);
  return REFUSE("build", "BUILD of %s", aci_pt_kind_name(o->kind));
}
