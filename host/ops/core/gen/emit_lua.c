/* Data on the ops for editors: LuaCATS stubs (lua/meta/ops.lua), one function and, if the first
 * argument is a tensor, one method per op and in-place form. Positional arguments first, then at
 * most one table that names the optional ones. */
#include <string.h>

#include "base/number.h"
#include "ops/core/gen/opgen.h"

static void put_type(buf *b, const aci_param *a) {
  switch (a->type) {
    case AC_T_TENSOR: put(b, "accel.Tensor"); break;
    case AC_T_TENSORS: put(b, "accel.Tensor[]"); break;
    case AC_T_OPERAND: put(b, "accel.Tensor|number|boolean"); break;
    case AC_T_SCALAR: put(b, "number|boolean"); break;
    case AC_T_INT:
    case AC_T_POS:
    case AC_T_DIM: put(b, "integer"); break;
    case AC_T_INTS:
    case AC_T_SHAPE: put(b, a->holes ? "(integer|false)[]" : "integer[]"); break;
    case AC_T_DIMS: put(b, "integer|integer[]"); break;
    case AC_T_FLOAT: put(b, "number"); break;
    case AC_T_FLOATS: put(b, "number[]"); break;
    case AC_T_BOOL: put(b, "boolean"); break;
    case AC_T_STRING: put(b, "string"); break;
    case AC_T_DTYPE: put(b, "accel.DType"); break;
    case AC_T_DEVICE: put(b, "string"); break;
    case AC_T_GENERATOR: put(b, "accel.Generator"); break;
    case AC_T_ENUM:
      for (int i = 0; i < a->n_enum; i++) put(b, "%s\"%s\"", i > 0 ? "|" : "", a->enum_name[i]);
      break;
    case AC_T_NONE: break;
  }
}

static void put_lua_number(buf *b, double f) {
  char text[32];
  aci_f64_text(text, f);
  put(b, "%s",
      strcmp(text, "inf") == 0    ? "math.huge"
      : strcmp(text, "-inf") == 0 ? "-math.huge"
                                  : text);
}

void put_lua_default(buf *b, const aci_param *a) {
  const ac_value *v = &a->dflt;
  ac_type t = v->kind;
  bool counted = a->type == AC_T_DIM || a->type == AC_T_DIMS || a->type == AC_T_POS;
  if (t == AC_T_NONE) {
    put(b, "nil");
  } else if (t == AC_T_SCALAR && v->scalar.kind == AC_SCALAR_BOOL) {
    put(b, v->scalar.i ? "true" : "false");
  } else if (t == AC_T_SCALAR || t == AC_T_FLOAT) {
    if (t == AC_T_SCALAR && v->scalar.kind == AC_SCALAR_INT) {
      put(b, "%lld", (long long)v->scalar.i);
      return;
    }
    put_lua_number(b, t == AC_T_FLOAT ? v->f : v->scalar.f);
  } else if (is_list_type(t)) {
    put(b, "{");
    for (int i = 0; i < v->n; i++) {
      if (i > 0) put(b, ", ");
      if (t == AC_T_FLOATS) put_lua_number(b, v->floats[i]);
      else put(b, "%lld", (long long)(v->ints[i] + (counted && v->ints[i] >= 0)));
    }
    put(b, "}");
  } else if (t == AC_T_BOOL) {
    put(b, v->b ? "true" : "false");
  } else if (t == AC_T_STRING) {
    put(b, "\"%s\"", v->str);
  } else if (t == AC_T_ENUM) {
    put(b, "\"%s\"", a->enum_name[v->i]);
  } else if (t == AC_T_DTYPE) {
    static const char *const names[] = {
#define AC_X(id, s, torch, bytes, cls) s,
        AC_DTYPE_LIST(AC_X)
#undef AC_X
    };
    put(b, "\"%s\"", names[v->dtype]);
  } else {
    put(b, "%lld", (long long)(v->i + (counted && v->i >= 0)));
  }
}

static void put_result_types(buf *b, const aci_sig *s) {
  for (int i = 0; i < s->n_results; i++) {
    const aci_result *r = &s->result[i];
    put(b, "%saccel.Tensor%s%s", i > 0 ? ", " : "", r->type == AC_T_TENSORS ? "[]" : "",
        r->optional ? "?" : "");
  }
}

/* fun(required, ..., opts: {optional?: type, ...}): results. Nothing when no parameter is
 * optional. */
static void put_overload(buf *b, const aci_sig *s, bool method) {
  int n_opts = 0;
  for (int i = 0; i < s->n_params; i++) n_opts += s->param[i].has_default;
  if (n_opts == 0) return;
  put(b, "---@overload fun(");
  for (int i = 0; i < s->n_params; i++) {
    const aci_param *a = &s->param[i];
    if (a->has_default) continue;
    put(b, "%s: ", method && i == 0 ? "self" : a->name);
    put_type(b, a);
    put(b, ", ");
  }
  put(b, "opts: {");
  bool first = true;
  for (int i = 0; i < s->n_params; i++) {
    const aci_param *a = &s->param[i];
    if (!a->has_default) continue;
    put(b, "%s%s?: ", first ? "" : ", ", a->name);
    put_type(b, a);
    first = false;
  }
  put(b, "})");
  if (s->n_results > 0) put(b, ": ");
  put_result_types(b, s);
  put(b, "\n");
}

static void put_function(buf *b, const op_def *d, const char *name, bool inplace, bool method) {
  const aci_sig *s = &d->sig;
  put(b, "\n---");
  size_t before = b->n;
  if (strcmp(name, d->name) != 0) put(b, "Another name of %s", d->name);
  else doc_line(b, d);
  if (b->n == before) put(b, "%s", d->sig_text);
  put(b, ".%s\n", inplace ? " Writes into its first argument." : "");
  for (int i = method; i < s->n_params; i++) {
    const aci_param *a = &s->param[i];
    put(b, "---@param %s%s ", a->name, a->has_default ? "?" : "");
    if (inplace && i == 0) put(b, "accel.Tensor");
    else put_type(b, a);
    if (a->has_default && a->dflt.kind != AC_T_NONE) {
      put(b, " default ");
      put_lua_default(b, a);
    }
    put(b, "\n");
  }
  for (int i = 0; i < s->n_results; i++) {
    const aci_result *r = &s->result[i];
    put(b, "---@return accel.Tensor%s%s %s\n", r->type == AC_T_TENSORS ? "[]" : "",
        r->optional ? "?" : "", r->name);
    if (r->name[0] == '\0') {
      put_back(b, 2);
      put(b, "\n");
    }
  }
  put_overload(b, s, method);
  put(b, "function %s%s%s(", method ? "Tensor:" : "accel.", name, inplace ? "_" : "");
  for (int i = method; i < s->n_params; i++)
    put(b, "%s%s", i > method ? ", " : "", s->param[i].name);
  put(b, ") end\n");
}

/* A word of Lua cannot follow a dot: t["repeat"](t, 2). */
static bool is_keyword(const char *name) {
  static const char *const words[] = {"and", "end", "in", "not", "or", "repeat", "return"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(name, words[i]) == 0) return true;
  return false;
}

/* The function and the method of this name, and their in-place forms. */
static void put_names(buf *b, const op_def *d, const char *name) {
  if (is_keyword(name)) return;
  put_function(b, d, name, false, false);
  if (is_method(&d->sig)) put_function(b, d, name, false, true);
  if (d->inplace) put_function(b, d, name, true, false);
  if (d->inplace || d->rebinds) put_function(b, d, name, true, true);
}

void emit_stubs(buf *b, const op_list *ops) {
  char word[40];
  put(b, "---@meta\n"
         "-- Generated by accel-opgen from the signatures in host/ops; do not edit.\n"
         "-- Dims and positions count from 1, negative ones from the end.\n\n"
         "---@alias accel.DType");
  const char *bar = " ";
#define AC_X(id, s, t, bytes, cls) \
  put(b, "%s\"%s\"", bar, s);      \
  bar = "|";
  AC_DTYPE_LIST(AC_X)
#undef AC_X
  put(b, "\n\n---@class accel\nlocal accel = {}\n\n---@class accel.Tensor\nlocal Tensor = {}\n");
  for (int i = 0; i < ops->n; i++) {
    const op_def *d = ops->v[i];
    if (d->hidden) continue;
    put_names(b, d, d->name);
    for (const char *at = d->alias; next_alias(&at, word, sizeof word);) put_names(b, d, word);
  }
  put(b, "\nreturn accel\n");
}
