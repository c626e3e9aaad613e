/* The reference page (ops.md) for people and the list of ops (ops.json) for tests and tools. The
 * page shows ops as scripts
 * see them, counted from 1. The list holds the signatures' own values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "ops/core/gen/opgen.h"

static size_t family_length(const op_def *d) {
  const char *slash = strchr(d->file, '/');
  return slash != NULL ? (size_t)(slash - d->file) : 0;
}

static bool same_family(const op_def *a, const op_def *b) {
  size_t n = family_length(a);
  return n == family_length(b) && memcmp(a->file, b->file, n) == 0;
}

/* ---- ops.md ---- */
static void put_call(buf *b, const op_def *d, const char *prefix, bool method, bool inplace) {
  const aci_sig *s = &d->sig;
  put(b, "%s%s%s(", prefix, d->name, inplace ? "_" : "");
  for (int i = method; i < s->n_params; i++) {
    const aci_param *a = &s->param[i];
    put(b, "%s%s", i > method ? ", " : "", a->name);
    if (!a->has_default) continue;
    put(b, " = ");
    put_lua_default(b, a);
  }
  put(b, ")");
  for (int i = 0; i < s->n_results; i++) {
    const aci_result *r = &s->result[i];
    const char *name = r->name[0] != '\0'        ? r->name
                       : r->type == AC_T_TENSORS ? "tensors"
                       : r->view_of >= 0         ? "view"
                                                 : "tensor";
    put(b, "%s%s", i > 0 ? ", " : " -> ", name);
  }
  put(b, "\n");
}

static void put_kind(buf *b, const aci_param *a) {
  switch (a->type) {
    case AC_T_TENSORS: put(b, "list of tensors"); break;
    case AC_T_OPERAND: put(b, "tensor or number"); break;
    case AC_T_SCALAR: put(b, "number"); break;
    case AC_T_INTS: put(b, a->holes ? "list of integers or false" : "list of integers"); break;
    case AC_T_FLOATS: put(b, "list of numbers"); break;
    case AC_T_INT: put(b, "integer"); break;
    case AC_T_FLOAT: put(b, "number"); break;
    case AC_T_POS: put(b, "position, from 1, negative from the end"); break;
    case AC_T_DIM: put(b, "dim, from 1, negative from the end"); break;
    case AC_T_DIMS: put(b, "dim or list of dims"); break;
    case AC_T_SHAPE: put(b, "list of extents"); break;
    case AC_T_BOOL: put(b, "boolean"); break;
    case AC_T_ENUM:
      for (int i = 0; i < a->n_enum; i++)
        put(b, "%s`\"%s\"`", i > 0 ? " or " : "", a->enum_name[i]);
      break;
    case AC_T_NONE:
    case AC_T_TENSOR:
    case AC_T_STRING:
    case AC_T_DTYPE:
    case AC_T_DEVICE:
    case AC_T_GENERATOR: put(b, "%s", aci_type_name(a->type)); break;
  }
  if (a->optional) put(b, " or nil");
  if (a->mutates) put(b, ", written to");
}

static const char *gradient_text(const op_def *d) {
  if (d->nondiff) return "none, results never require one";
  if (d->grad) return d->composed ? "yes, of any order" : "yes";
  if (d->composed) return "of the ops it is made of";
  return "no";
}

/* Further names: a line on the op's own page, and an entry that leads to it. */
static void put_aliases(buf *b, const op_def *d, bool entries) {
  char word[40];
  const char *sep = "\nOther names: ";
  for (const char *at = d->alias; next_alias(&at, word, sizeof word); sep = ", ") {
    if (entries) put(b, "\n### %s\n\nAnother name of `%s`.\n", word, d->name);
    else put(b, "%s`%s`", sep, word);
  }
  if (!entries && d->alias[0] != '\0') put(b, ".\n");
}

static void put_reference(buf *b, const op_def *d) {
  put(b, "\n### %s\n\n```lua\n", d->name);
  put_call(b, d, "accel.", false, false);
  if (is_method(&d->sig)) {
    buf prefix = {0};
    put(&prefix, "%s:", d->sig.param[0].name);
    put_call(b, d, prefix.s, true, false);
    if (d->inplace || d->rebinds) put_call(b, d, prefix.s, true, true);
    buf_free(&prefix);
  }
  put(b, "```\n\n");
  for (int i = 0; i < d->sig.n_params; i++) {
    const aci_param *a = &d->sig.param[i];
    put(b, "- `%s`: ", a->name);
    put_kind(b, a);
    put(b, "\n");
  }
  if (d->doc[0] != '\0') put(b, "\n```text\n%s\n```\n", d->doc);
  if (d->examples[0] != '\0') put(b, "\n```lua\n%s```\n", d->examples);
  put_aliases(b, d, false);
  put(b, "\nGradient: %s. Autocast: %s.%s File: `host/ops/%s`.\n", gradient_text(d),
      d->autocast[0] == '\0' ? "as it comes" : d->autocast,
      d->sig.dynamic ? " The shape of the result depends on data." : "", d->file);
  put_aliases(b, d, true);
}

void emit_reference(buf *b, const op_list *ops) {
  put(b,
      "# Ops\n\nGenerated from the signatures in `host/ops`. Every op is a function `accel.<op>` and, "
      "when its first argument is a\n"
      "tensor, a method; `<op>_` writes into its first argument. Arguments are positional, then at most "
      "one table with\n"
      "names. Dims and positions count from 1, negative ones from the end; what index tensors hold counts "
      "from 0.\n"
      "Examples are run by the tests: behind the arrow stands what comes out, tensors as lists.\n"
      "\nAutocast: `lower` runs in the lower precision of `accel.autocast`, `f32` in f32, `promote` in "
      "the widest of its inputs.\n");
  for (int i = 0; i < ops->n; i++) {
    const op_def *d = ops->v[i];
    bool first = !d->hidden;
    for (int k = 0; k < i && first; k++) first = ops->v[k]->hidden || !same_family(ops->v[k], d);
    if (!first) continue;
    put(b, "\n## %.*s\n", (int)family_length(d), d->file);
    for (int k = i; k < ops->n; k++)
      if (!ops->v[k]->hidden && same_family(ops->v[k], d)) put_reference(b, ops->v[k]);
  }
}

/* ---- ops.json ---- */
static void put_json_text(buf *b, const char *s) {
  put(b, "\"");
  for (; *s != '\0'; s++) {
    if (*s == '"' || *s == '\\') put(b, "\\%c", *s);
    else if ((unsigned char)*s < 0x20) put(b, "\\u%04x", (unsigned)(unsigned char)*s);
    else put_bytes(b, s, 1);
  }
  put(b, "\"");
}

/* JSON has no infinities: they are the texts "inf" and "-inf". */
static void put_json_number(buf *b, double f) {
  char text[32];
  aci_f64_text(text, f);
  put(b, isinf(f) ? "\"%s\"" : "%s", text);
}

static void put_json_default(buf *b, const aci_param *a) {
  const ac_value *v = &a->dflt;
  switch (v->kind) {
    case AC_T_SCALAR:
      if (v->scalar.kind == AC_SCALAR_BOOL) put(b, v->scalar.i ? "true" : "false");
      else if (v->scalar.kind == AC_SCALAR_INT) put(b, "%lld", (long long)v->scalar.i);
      else put_json_number(b, v->scalar.f);
      break;
    case AC_T_INT:
    case AC_T_POS:
    case AC_T_DIM: put(b, "%lld", (long long)v->i); break;
    case AC_T_FLOAT: put_json_number(b, v->f); break;
    case AC_T_INTS:
    case AC_T_DIMS:
    case AC_T_SHAPE:
    case AC_T_FLOATS:
      put(b, "[");
      for (int i = 0; i < v->n; i++) {
        put(b, "%s", i > 0 ? ", " : "");
        if (v->kind == AC_T_FLOATS) put_json_number(b, v->floats[i]);
        else put(b, "%lld", (long long)v->ints[i]);
      }
      put(b, "]");
      break;
    case AC_T_BOOL: put(b, v->b ? "true" : "false"); break;
    case AC_T_STRING: put_json_text(b, v->str); break;
    case AC_T_ENUM: put_json_text(b, a->enum_name[v->i]); break;
    case AC_T_DTYPE: put_lua_default(b, a); break; /* a quoted name in both */
    case AC_T_NONE:
    case AC_T_TENSOR:
    case AC_T_TENSORS:
    case AC_T_OPERAND:
    case AC_T_DEVICE:
    case AC_T_GENERATOR: put(b, "null"); break;
  }
}

static void put_json_param(buf *b, const aci_param *a) {
  put(b, "{\"name\": \"%s\", \"type\": \"%s\", \"optional\": %s, \"mutates\": %s", a->name,
      aci_type_name(a->type), a->optional ? "true" : "false", a->mutates ? "true" : "false");
  if (a->n_enum > 0) {
    put(b, ", \"enum\": [");
    for (int i = 0; i < a->n_enum; i++) put(b, "%s\"%s\"", i > 0 ? ", " : "", a->enum_name[i]);
    put(b, "]");
  }
  if (a->has_default) {
    put(b, ", \"default\": ");
    put_json_default(b, a);
  }
  put(b, "}");
}

static void put_json_flag(buf *b, const char *name, bool on) {
  put(b, ",\n   \"%s\": %s", name, on ? "true" : "false");
}

static void put_json_examples(buf *b, const op_def *d) {
  const char *sep = "", *p = d->examples;
  put(b, ",\n   \"examples\": [");
  for (const char *nl; (nl = strchr(p, '\n')) != NULL; p = nl + 1, sep = ",\n     ") {
    char *line = copy_text(p, (size_t)(nl - p));
    put(b, "%s", sep);
    put_json_text(b, line);
    free(line);
  }
  put(b, "]");
}

static void put_json_op(buf *b, const op_def *d) {
  const aci_sig *s = &d->sig;
  put(b, "  {\"name\": \"%s\",\n   \"sig\": ", d->name);
  put_json_text(b, d->sig_text);
  put(b, ",\n   \"file\": ");
  put_json_text(b, d->file);
  put(b, ",\n   \"autocast\": \"%s\"", d->autocast);
  put(b, ",\n   \"alias\": ");
  put_json_text(b, d->alias);
  put_json_flag(b, "inplace", d->inplace);
  put_json_flag(b, "rebinds", d->rebinds);
  put_json_flag(b, "hidden", d->hidden);
  put_json_flag(b, "nondiff", d->nondiff);
  put_json_flag(b, "grad", d->grad);
  put_json_flag(b, "composed", d->composed);
  put_json_flag(b, "kernel", d->kernel);
  put_json_flag(b, "method", is_method(s) && !d->hidden);
  put_json_flag(b, "dynamic", s->dynamic);
  put_json_examples(b, d);
  put(b, ",\n   \"params\": [");
  for (int i = 0; i < s->n_params; i++) {
    put(b, "%s", i > 0 ? ",\n     " : "\n     ");
    put_json_param(b, &s->param[i]);
  }
  put(b, "],\n   \"results\": [");
  for (int i = 0; i < s->n_results; i++) {
    const aci_result *r = &s->result[i];
    put(b,
        "%s{\"name\": \"%s\", \"type\": \"%s\", \"optional\": %s, \"view_of\": ", i > 0 ? ", " : "",
        r->name, aci_type_name(r->type), r->optional ? "true" : "false");
    put(b, r->view_of >= 0 ? "\"%s\"}" : "null}", r->view_of >= 0 ? s->param[r->view_of].name : "");
  }
  put(b, "]}");
}

void emit_json(buf *b, const op_list *ops) {
  put(b, "{\"format\": 1,\n \"ops\": [");
  for (int i = 0; i < ops->n; i++) {
    put(b, "%s", i > 0 ? ",\n" : "\n");
    put_json_op(b, ops->v[i]);
  }
  put(b, "\n]}\n");
}
