/* The names that a pickle of torch.save may hold, and the value each makes. Nothing is called.
 * Called by pt_pickle.c.
 *
 * Everything else is refused by name. The names of torch.distributed.checkpoint's metadata count
 * only while that is read. DeepSpeed's checkpoints hold objects of a few classes (loss scaler,
 * stage, addresses of fragments). They become their states, as do those of the metadata. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/pt.h"
#include "file/safetensors.h"

typedef enum tag {
  ODICT,
  COUNTER,
  SET,
  BYTEARRAY,
  COMPLEX,
  ENCODE,
  TENSOR_V2,
  TENSOR_V3,
  PARAMETER,
  SIZE,
  DEVICE,
  STORAGE, /* i: index of the dtype */
  /* a tensor of a subclass: the result of its rebuild, without the attributes of the subclass */
  FROM_TYPE,
  TYPE, /* torch.Tensor, the subclass in question */
  CLASS /* of the metadata, of DeepSpeed: an object that keeps its state */
} tag;

static const struct {
  const char *module, *name;
  tag tag;
} names[] = {
    {"collections", "OrderedDict", ODICT},
    {"collections", "Counter", COUNTER},
    {"builtins", "set", SET},
    {"builtins", "frozenset", SET},
    {"builtins", "bytearray", BYTEARRAY},
    {"builtins", "complex", COMPLEX},
    {"_codecs", "encode", ENCODE},
    {"torch._utils", "_rebuild_tensor_v2", TENSOR_V2},
    {"torch._utils", "_rebuild_tensor_v3", TENSOR_V3},
    {"torch._utils", "_rebuild_parameter", PARAMETER},
    {"torch", "Size", SIZE},
    {"torch", "device", DEVICE},
    {"torch._tensor", "_rebuild_from_type_v2", FROM_TYPE},
    {"torch", "Tensor", TYPE},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler", CLASS},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler", CLASS},
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", CLASS},
    {"deepspeed.utils.tensor_fragment", "fragment_address", CLASS},
};
static const char *const metadata[][2] = {
    {"torch.distributed.checkpoint.metadata", "Metadata"},
    {"torch.distributed.checkpoint.metadata", "TensorStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "BytesStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"},
    {"torch.distributed.checkpoint.metadata", "TensorProperties"},
    {"torch.distributed.checkpoint.metadata", "MetadataIndex"},
    {"torch.distributed.checkpoint.metadata", "StorageMeta"},
    {"torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    {"torch.distributed.checkpoint.filesystem", "_StoragePrefix"},
    {"torch.serialization", "_get_layout"},
    {"pathlib", "PosixPath"},
};

static bool is(const char *a, const char *b, size_t n) {
  return strlen(a) == n && memcmp(a, b, n) == 0;
}

#define REFUSE(rule, ...) aci_pt_refuse(e, f, f->pickle_at + at, rule, __VA_ARGS__)

static int find(const ac_pt *f, const char *module, size_t n_module, const char *name,
                size_t n_name, int *dtype) {
  if (is("__builtin__", module, n_module)) module = "builtins", n_module = 8;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (is(names[i].module, module, n_module) && is(names[i].name, name, n_name))
      return (int)names[i].tag;
  for (size_t i = 0; f->metadata && i < sizeof metadata / sizeof *metadata; i++)
    if (is(metadata[i][0], module, n_module) && is(metadata[i][1], name, n_name)) return CLASS;
  if (is("torch.storage", module, n_module) && is("UntypedStorage", name, n_name))
    module = "torch", n_module = 5;
  if (is("torch", module, n_module) && (*dtype = aci_pt_dtype_find(name, n_name, true)) >= 0)
    return STORAGE;
  return -1;
}

ac_status aci_pt_global(ac_pt *f, size_t at, const char *module, size_t n_module, const char *name,
                        size_t n_name, uint32_t *id, ac_err *e) {
  int dtype = -1;
  const int t = find(f, module, n_module, name, n_name, &dtype);
  if (t >= 0) {
    AC_TRY(aci_pt_value(f, ACI_PT_TAG, at, id, e));
    f->value[*id].n = (uint32_t)t;
    f->value[*id].i = dtype;
    return AC_OK;
  }
  if (is("torch", module, n_module) && (dtype = aci_pt_dtype_find(name, n_name, false)) >= 0) {
    AC_TRY(aci_pt_value(f, AC_PT_DTYPE, at, id, e));
    f->value[*id].s = aci_pt_dtype_at(dtype)->name;
    f->value[*id].n = (uint32_t)strlen(f->value[*id].s);
    return AC_OK;
  }
  return REFUSE("unknown_global",
                "%s.%s, which is not one of the names that data needs: nothing is called here",
                aci_st_shown(module, n_module, (char[ACI_ST_SHOWN]){0}),
                aci_st_shown(name, n_name, (char[ACI_ST_SHOWN]){0}));
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

ac_status aci_pt_reduce(ac_pt *f, size_t at, uint32_t callee, uint32_t arguments, uint32_t *id,
                        ac_err *e) {
  const ac_pt_value *c = &f->value[callee], *args = &f->value[arguments];
  if (c->kind != ACI_PT_TAG)
    return REFUSE("arguments", "REDUCE of %s, which is not a name", aci_pt_kind_name(c->kind));
  if (args->kind != AC_PT_TUPLE)
    return REFUSE("arguments", "REDUCE with %s for its arguments", aci_pt_kind_name(args->kind));
  const int first = args->n > 0 ? f->value[args->item[0]].kind : AC_PT_KINDS;
  switch ((tag)c->n) {
    case ODICT: return ordered(f, at, args, id, e);
    case COUNTER:
      if (args->n == 0) return aci_pt_value(f, AC_PT_DICT, at, id, e);
      if (args->n != 1 || first != AC_PT_DICT) return wrong(f, at, "Counter", e);
      *id = args->item[0];
      return AC_OK;
    case SET: return set(f, at, args, id, e);
    case BYTEARRAY: return bytearray(f, at, args, id, e);
    case COMPLEX: {
      if (args->n != 2 || first != AC_PT_FLOAT || f->value[args->item[1]].kind != AC_PT_FLOAT)
        return wrong(f, at, "complex", e);
      const uint32_t parts[2] = {args->item[0], args->item[1]};
      AC_TRY(aci_pt_value(f, AC_PT_COMPLEX, at, id, e));
      return aci_pt_append(f, *id, parts, 2, e);
    }
    case ENCODE: return encode(f, at, args, "_codecs.encode", id, e);
    case TENSOR_V2: return aci_pt_tensor(f, at, arguments, 2, id, e);
    case TENSOR_V3: return aci_pt_tensor(f, at, arguments, 3, id, e);
    case PARAMETER: return aci_pt_parameter(f, at, arguments, id, e);
    case SIZE: {
      if (args->n != 1 || (first != AC_PT_TUPLE && first != AC_PT_LIST))
        return wrong(f, at, "torch.Size", e);
      const ac_pt_value *size = &f->value[args->item[0]];
      for (uint32_t i = 0; i < size->n; i++)
        if (f->value[size->item[i]].kind != AC_PT_INT) return wrong(f, at, "torch.Size", e);
      *id = args->item[0];
      return AC_OK;
    }
    case DEVICE: return device(f, at, args, id, e);
    case STORAGE: return REFUSE("arguments", "a storage made of values");
    case TYPE: return REFUSE("arguments", "a torch.Tensor made of values");
    case FROM_TYPE: { /* (rebuild, type, its arguments, attributes) */
      if (args->n != 4) return wrong(f, at, "_rebuild_from_type_v2", e);
      const ac_pt_value *made = &f->value[args->item[0]], *type = &f->value[args->item[1]];
      if (made->kind != ACI_PT_TAG || (made->n != TENSOR_V2 && made->n != TENSOR_V3) ||
          type->kind != ACI_PT_TAG || type->n != TYPE ||
          f->value[args->item[2]].kind != AC_PT_TUPLE)
        return wrong(f, at, "_rebuild_from_type_v2", e);
      return aci_pt_tensor(f, at, args->item[2], made->n == TENSOR_V2 ? 2 : 3, id, e);
    }
    case CLASS: /* a member of an enumeration, a layout, a path: its constructor's argument */
      AC_TRY(aci_pt_value(f, AC_PT_OBJECT, at, id, e));
      return aci_pt_append(f, *id, &arguments, 1, e);
  }
  return REFUSE("arguments", "REDUCE of an unknown name");
}

ac_status aci_pt_newobj(ac_pt *f, size_t at, uint32_t cls, uint32_t args, uint32_t *id, ac_err *e) {
  const ac_pt_value *c = &f->value[cls], *a = &f->value[args];
  if (c->kind != ACI_PT_TAG || c->n != CLASS)
    return REFUSE("opcode", "NEWOBJ, which data has no use for");
  if (a->kind != AC_PT_TUPLE || a->n != 0) return wrong(f, at, "a class of the metadata", e);
  return aci_pt_value(f, AC_PT_OBJECT, at, id, e);
}

/* OrderedDict's attributes (_metadata of a state dict) are left out. */
ac_status aci_pt_build(ac_pt *f, size_t at, uint32_t object, uint32_t state, ac_err *e) {
  const ac_pt_value *o = &f->value[object], *s = &f->value[state];
  if (o->kind == AC_PT_OBJECT && o->n == 0 && (s->kind == AC_PT_DICT || s->kind == AC_PT_TUPLE))
    return aci_pt_append(f, object, &state, 1, e);
  if (o->kind == AC_PT_DICT && o->mark == ACI_PT_ORDERED && s->kind == AC_PT_DICT) return AC_OK;
  return REFUSE("build", "BUILD of %s", aci_pt_kind_name(o->kind));
}
