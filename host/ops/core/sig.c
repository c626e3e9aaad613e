/* Parser of signatures: recursive descent over one line of text, no allocation. Called by the
 * context when an op is first used, by the registration of foreign ops, and by accel-opgen. So it
 * knows words and numbers, but no op. */
#include "ops/core/sig.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

typedef struct parser {
  const char *text, *at;
  aci_sig *sig;
  ac_err *e;
} parser;

static const char *const type_names[] = {[AC_T_NONE] = "none",
                                         [AC_T_TENSOR] = "tensor",
                                         [AC_T_TENSORS] = "tensors",
                                         [AC_T_OPERAND] = "operand",
                                         [AC_T_SCALAR] = "scalar",
                                         [AC_T_INT] = "int",
                                         [AC_T_INTS] = "ints",
                                         [AC_T_FLOAT] = "float",
                                         [AC_T_FLOATS] = "floats",
                                         [AC_T_BOOL] = "bool",
                                         [AC_T_STRING] = "string",
                                         [AC_T_POS] = "pos",
                                         [AC_T_DIM] = "dim",
                                         [AC_T_DIMS] = "dims",
                                         [AC_T_SHAPE] = "shape",
                                         [AC_T_ENUM] = "enum",
                                         [AC_T_DTYPE] = "dtype",
                                         [AC_T_DEVICE] = "device",
                                         [AC_T_GENERATOR] = "generator"};
enum { N_TYPES = sizeof type_names / sizeof type_names[0] };

const char *aci_type_name(ac_type t) { return (unsigned)t < N_TYPES ? type_names[t] : "?"; }

static ac_status bad(const parser *p, const char *fmt, ...) AC_PRINTF(2, 3);
static ac_status bad(const parser *p, const char *fmt, ...) {
  char why[200];
  const char *at = p->at;
  va_list ap;
  while (*at == ' ' || *at == '\t' || *at == '\n') at++;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  return AC_FAIL(p->e, PARSE, "signature \"%.300s\", column %d: %s", p->text,
                 (int)(at - p->text) + 1, why);
}

/* ---- words ---- */
static bool is_alpha(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static void space(parser *p) {
  while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n') p->at++;
}

static bool accept(parser *p, const char *mark) {
  space(p);
  size_t n = strlen(mark);
  if (strncmp(p->at, mark, n) != 0) return false;
  p->at += n;
  return true;
}

static ac_status expect(parser *p, const char *mark) {
  return accept(p, mark) ? AC_OK : bad(p, "expected '%s'", mark);
}

/* Takes the word if it is the next one. */
static bool accept_word(parser *p, const char *word) {
  space(p);
  size_t n = strlen(word);
  if (strncmp(p->at, word, n) != 0 || is_alpha(p->at[n]) || is_digit(p->at[n])) return false;
  p->at += n;
  return true;
}

static ac_status word(parser *p, char *out, size_t out_bytes, const char *what) {
  space(p);
  size_t n = 0;
  if (is_alpha(p->at[0]))
    while (is_alpha(p->at[n]) || is_digit(p->at[n])) n++;
  if (n == 0) return bad(p, "expected %s", what);
  if (n >= out_bytes) return bad(p, "%s is longer than %d characters", what, (int)out_bytes - 1);
  memcpy(out, p->at, n);
  out[n] = '\0';
  p->at += n;
  return AC_OK;
}

/* Names become Lua functions and keys of option tables, so that keywords cannot be used. */
static ac_status name(parser *p, char *out, size_t out_bytes, const char *what) {
  static const char *const keywords[] = {"and",   "break", "do",       "else", "elseif", "end",
                                         "false", "for",   "function", "goto", "if",     "in",
                                         "local", "nil",   "not",      "or",   "repeat", "return",
                                         "then",  "true",  "until",    "while"};
  space(p);
  const char *start = p->at;
  AC_TRY(word(p, out, out_bytes, what));
  for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
    if (strcmp(out, keywords[i]) != 0) continue;
    p->at = start;
    return bad(p, "'%s' is a keyword of Lua", out);
  }
  return AC_OK;
}

/* ---- literals ---- */
typedef struct number {
  bool is_int;
  int64_t i;
  double f;
} number;

static ac_status parse_number(parser *p, number *out) {
  space(p);
  const char *s = p->at, *digits = *s == '-' ? s + 1 : s;
  if (strncmp(digits, "inf", 3) == 0 && !is_alpha(digits[3]) && !is_digit(digits[3])) {
    *out = (number){false, 0, *s == '-' ? -(double)INFINITY : (double)INFINITY};
    p->at = digits + 3;
    return AC_OK;
  }
  /* the span is checked here, because strtod also takes hexadecimals, "nan" and leading blanks */
  const char *q = digits;
  bool whole = true;
  int n_digits = 0;
  for (; is_digit(*q); q++) n_digits++;
  if (*q == '.') {
    whole = false;
    for (q++; is_digit(*q); q++) n_digits++;
  }
  if (n_digits == 0) return bad(p, "expected a number");
  if (*q == 'e' || *q == 'E') {
    const char *x = q + 1;
    if (*x == '+' || *x == '-') x++;
    if (!is_digit(*x)) return bad(p, "number with an empty exponent");
    whole = false;
    while (is_digit(*x)) x++;
    q = x;
  }
  if (is_alpha(*q)) return bad(p, "malformed number");
  char *end = NULL;
  *out = (number){whole, 0, aci_strtod(s, &end)};
  if (end != q) return bad(p, "malformed number");
  if (whole) {
    errno = 0;
    out->i = strtoll(s, NULL, 10);
    if (errno != 0) return bad(p, "integer out of range");
  }
  p->at = q;
  return AC_OK;
}

static ac_status parse_int(parser *p, int64_t *out) {
  number n;
  space(p);
  const char *start = p->at;
  AC_TRY(parse_number(p, &n));
  if (!n.is_int) {
    p->at = start;
    return bad(p, "expected an integer");
  }
  *out = n.i;
  return AC_OK;
}

static ac_status parse_list(parser *p, aci_param *a) {
  int n = 0, max = (int)(sizeof a->dflt_ints / sizeof a->dflt_ints[0]);
  AC_TRY(expect(p, "["));
  if (!accept(p, "]")) {
    do {
      if (n == max) return bad(p, "a default list has at most %d elements", max);
      if (a->type == AC_T_FLOATS) {
        number x;
        AC_TRY(parse_number(p, &x));
        a->dflt_floats[n++] = x.f;
      } else {
        AC_TRY(parse_int(p, &a->dflt_ints[n++]));
      }
    } while (accept(p, ","));
    AC_TRY(expect(p, "]"));
  }
  a->dflt.n = n;
  if (a->type == AC_T_FLOATS) a->dflt.floats = a->dflt_floats;
  else a->dflt.ints = a->dflt_ints;
  return AC_OK;
}

static ac_status parse_string(parser *p, aci_param *a) {
  AC_TRY(expect(p, "\""));
  const char *end = strchr(p->at, '"');
  if (end == NULL) return bad(p, "string without end");
  size_t n = (size_t)(end - p->at);
  if (n >= sizeof a->dflt_str)
    return bad(p, "default text is longer than %d bytes", (int)sizeof a->dflt_str - 1);
  memcpy(a->dflt_str, p->at, n);
  a->dflt_str[n] = '\0';
  a->dflt.str = a->dflt_str;
  p->at = end + 1;
  return AC_OK;
}

static ac_status parse_enum_word(parser *p, aci_param *a) {
  char w[sizeof a->enum_name[0]];
  space(p);
  const char *start = p->at;
  AC_TRY(word(p, w, sizeof w, "a word of the enum"));
  for (int i = 0; i < a->n_enum; i++) {
    if (strcmp(w, a->enum_name[i]) != 0) continue;
    a->dflt.i = i;
    return AC_OK;
  }
  p->at = start;
  return bad(p, "'%s' is not a word of the enum", w);
}

static ac_status parse_dtype(parser *p, aci_param *a) {
  static const char *const names[] = {
#define AC_X(id, s, t, bytes, cls) s,
      AC_DTYPE_LIST(AC_X)
#undef AC_X
  };
  char w[16];
  space(p);
  const char *start = p->at;
  AC_TRY(word(p, w, sizeof w, "a dtype"));
  for (int i = 0; i < AC_DTYPE_COUNT; i++) {
    if (strcmp(w, names[i]) != 0) continue;
    a->dflt.dtype = (ac_dtype)i;
    return AC_OK;
  }
  p->at = start;
  return bad(p, "'%s' is not a dtype", w);
}

static ac_status parse_scalar(parser *p, ac_scalar *out) {
  *out = (ac_scalar){.kind = AC_SCALAR_BOOL};
  if (accept_word(p, "true")) {
    out->i = 1;
    return AC_OK;
  }
  if (accept_word(p, "false")) return AC_OK;
  number n;
  AC_TRY(parse_number(p, &n));
  out->kind = n.is_int ? AC_SCALAR_INT : AC_SCALAR_FLOAT;
  if (n.is_int) out->i = n.i;
  else out->f = n.f;
  return AC_OK;
}

static bool enum_has(const aci_param *a, const char *w) {
  for (int i = 0; i < a->n_enum; i++)
    if (strcmp(a->enum_name[i], w) == 0) return true;
  return false;
}

static ac_status parse_default(parser *p, aci_param *a) {
  space(p);
  const char *start = p->at;
  if (!enum_has(a, "none") && accept_word(p, "none")) {
    if (a->optional) return AC_OK; /* dflt.kind is NONE already */
    p->at = start;
    return bad(p, "only a parameter with '?' may be none");
  }
  a->dflt.kind = a->type == AC_T_OPERAND ? AC_T_SCALAR : a->type;
  switch (a->type) {
    case AC_T_OPERAND:
    case AC_T_SCALAR: return parse_scalar(p, &a->dflt.scalar);
    case AC_T_INT:
    case AC_T_POS:
    case AC_T_DIM: return parse_int(p, &a->dflt.i);
    case AC_T_FLOAT: {
      number n;
      AC_TRY(parse_number(p, &n));
      a->dflt.f = n.f;
      return AC_OK;
    }
    case AC_T_INTS:
    case AC_T_DIMS:
    case AC_T_SHAPE:
    case AC_T_FLOATS: return parse_list(p, a);
    case AC_T_BOOL:
      if (accept_word(p, "true")) a->dflt.b = true;
      else if (!accept_word(p, "false")) return bad(p, "expected true or false");
      return AC_OK;
    case AC_T_STRING: return parse_string(p, a);
    case AC_T_ENUM: return parse_enum_word(p, a);
    case AC_T_DTYPE: return parse_dtype(p, a);
    case AC_T_NONE:
    case AC_T_TENSOR:
    case AC_T_TENSORS:
    case AC_T_DEVICE:
    case AC_T_GENERATOR: break;
  }
  return bad(p, "a %s cannot have this default; use '?'", aci_type_name(a->type));
}

/* ---- parameters and results ---- */
static ac_status parse_type(parser *p, aci_param *a) {
  char w[16];
  space(p);
  const char *start = p->at;
  AC_TRY(word(p, w, sizeof w, "a type"));
  int t = AC_T_TENSOR;
  while (t < N_TYPES && strcmp(type_names[t], w) != 0) t++;
  if (t == N_TYPES) {
    p->at = start;
    return bad(p, "unknown type '%s'", w);
  }
  a->type = (ac_type)t;
  a->holes = a->type == AC_T_INTS && accept(p, "|none");
  if (a->type != AC_T_ENUM) return AC_OK;
  AC_TRY(expect(p, "("));
  do {
    if (a->n_enum == ACI_MAX_ENUM) return bad(p, "an enum has at most %d words", ACI_MAX_ENUM);
    char e[sizeof a->enum_name[0]];
    AC_TRY(word(p, e, sizeof e, "a word of the enum"));
    if (enum_has(a, e)) return bad(p, "the enum has '%s' twice", e);
    memcpy(a->enum_name[a->n_enum++], e, sizeof e);
  } while (accept(p, "|"));
  return expect(p, ")");
}

static int find_param(const aci_sig *s, const char *w) {
  for (int i = 0; i < s->n_params; i++)
    if (strcmp(s->param[i].name, w) == 0) return i;
  return -1;
}

static ac_status parse_param(parser *p) {
  aci_sig *s = p->sig;
  if (s->n_params == AC_MAX_ARGS) return bad(p, "an op has at most %d parameters", AC_MAX_ARGS);
  aci_param *a = &s->param[s->n_params];
  AC_TRY(name(p, a->name, sizeof a->name, "a parameter's name"));
  if (find_param(s, a->name) >= 0) return bad(p, "parameter '%s' is there twice", a->name);
  a->mutates = accept(p, "!");
  AC_TRY(expect(p, ":"));
  AC_TRY(parse_type(p, a));
  if (a->mutates && a->type != AC_T_TENSOR && a->type != AC_T_TENSORS)
    return bad(p, "only tensors can be mutated, not a parameter of type %s",
               aci_type_name(a->type));
  a->optional = a->has_default = accept(p, "?");
  if (accept(p, "=")) {
    a->has_default = true;
    AC_TRY(parse_default(p, a));
  }
  s->n_params++;
  return AC_OK;
}

/* tensor[?] | tensors | view(x) | dynamic */
static ac_status parse_result_type(parser *p, aci_result *r) {
  r->type = AC_T_TENSOR;
  r->view_of = -1;
  if (accept_word(p, "tensors")) {
    r->type = AC_T_TENSORS;
  } else if (accept_word(p, "tensor")) {
    r->optional = accept(p, "?");
  } else if (accept_word(p, "dynamic")) {
    p->sig->dynamic = true;
  } else if (accept_word(p, "view")) {
    char w[sizeof p->sig->param[0].name];
    AC_TRY(expect(p, "("));
    space(p);
    const char *start = p->at;
    AC_TRY(word(p, w, sizeof w, "a parameter"));
    r->view_of = find_param(p->sig, w);
    if (r->view_of < 0 || p->sig->param[r->view_of].type != AC_T_TENSOR) {
      p->at = start;
      return bad(p, "'%s' is not a parameter of type tensor", w);
    }
    AC_TRY(expect(p, ")"));
  } else {
    return bad(p, "expected tensor, tensors, view(x), dynamic or ()");
  }
  return AC_OK;
}

static ac_status parse_results(parser *p) {
  aci_sig *s = p->sig;
  if (!accept(p, "(")) {
    s->n_results = 1;
    return parse_result_type(p, &s->result[0]);
  }
  if (accept(p, ")")) return AC_OK;
  do {
    if (s->n_results == AC_MAX_RESULTS)
      return bad(p, "an op has at most %d results", AC_MAX_RESULTS);
    aci_result *r = &s->result[s->n_results];
    AC_TRY(name(p, r->name, sizeof r->name, "a result's name"));
    for (int i = 0; i < s->n_results; i++)
      if (strcmp(s->result[i].name, r->name) == 0)
        return bad(p, "result '%s' is there twice", r->name);
    AC_TRY(expect(p, ":"));
    AC_TRY(parse_result_type(p, r));
    if (r->type == AC_T_TENSORS) return bad(p, "a list of tensors can only be the single result");
    s->n_results++;
  } while (accept(p, ","));
  return expect(p, ")");
}

ac_status aci_sig_parse(const char *text, aci_sig *out, ac_err *e) {
  parser p = {text, text, out, e};
  memset(out, 0, sizeof *out);
  AC_TRY(name(&p, out->name, sizeof out->name, "the op's name"));
  AC_TRY(expect(&p, "("));
  if (!accept(&p, ")")) {
    do AC_TRY(parse_param(&p));
    while (accept(&p, ","));
    AC_TRY(expect(&p, ")"));
  }
  AC_TRY(expect(&p, "->"));
  AC_TRY(parse_results(&p));
  if (accept_word(&p, "dynamic")) out->dynamic = true;
  space(&p);
  return *p.at == '\0' ? AC_OK : bad(&p, "unexpected text after the result");
}
