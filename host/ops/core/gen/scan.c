/* Finds the definitions of ops in a C file: AC_OP(name, ...), AC_MAP*(name, ...) and
 * AC_REDUCE*(name, ...) that start a line outside comments and strings. It reads designators (.sig
 * = "...") and not the values of other arguments, so that it needs no preprocessor. That is why the
 * signature must be written as string literals. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/gen/opgen.h"

typedef struct scanner {
  const char *path, *text, *at;
  int line; /* of *at, from 1 */
  bool failed;
} scanner;

static void complain(scanner *s, int line, const char *fmt, ...) AC_PRINTF(3, 4);
static void complain(scanner *s, int line, const char *fmt, ...) {
  va_list ap;
  fprintf(stderr, "%s:%d: ", s->path, line);
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  s->failed = true;
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void step(scanner *s) {
  if (*s->at == '\n') s->line++;
  s->at++;
}

/* Past a comment, string or character constant that begins here. False when none does. */
static bool skip_opaque(scanner *s) {
  if (s->at[0] == '/' && s->at[1] == '*') {
    s->at += 2;
    while (*s->at != '\0' && !(s->at[0] == '*' && s->at[1] == '/')) step(s);
    if (*s->at != '\0') s->at += 2;
    return true;
  }
  if (s->at[0] == '/' && s->at[1] == '/') {
    while (*s->at != '\0' && *s->at != '\n') s->at++;
    return true;
  }
  if (*s->at != '"' && *s->at != '\'') return false;
  char quote = *s->at++;
  while (*s->at != '\0' && *s->at != quote && *s->at != '\n') {
    if (*s->at == '\\' && s->at[1] != '\0') s->at++;
    step(s);
  }
  if (*s->at == quote) s->at++;
  return true;
}

static void skip_blank(scanner *s) {
  for (;;) {
    while (is_space(*s->at)) step(s);
    if (!(s->at[0] == '/' && (s->at[1] == '*' || s->at[1] == '/'))) return;
    skip_opaque(s);
  }
}

static size_t take_word(scanner *s, char *out, size_t out_bytes) {
  size_t n = 0;
  while (is_word(s->at[n])) n++;
  if (n < out_bytes) {
    memcpy(out, s->at, n);
    out[n] = '\0';
  } else {
    out[0] = '\0';
  }
  s->at += n;
  return n;
}

/* AC_OP, AC_MAP<X>, AC_REDUCE<X> with X of capitals, digits and underscores. */
static bool is_macro(const char *w) {
  if (strcmp(w, "AC_OP") == 0) return true;
  const char *rest = strncmp(w, "AC_MAP", 6) == 0      ? w + 6
                     : strncmp(w, "AC_REDUCE", 9) == 0 ? w + 9
                                                       : NULL;
  if (rest == NULL) return false;
  for (; *rest != '\0'; rest++)
    if (*rest >= 'a' && *rest <= 'z') return false;
  return true;
}

/* Concatenates the string literals at s->at. False (with message) when there is something else. */
static bool take_literals(scanner *s, const char *field, buf *out) {
  int n = 0;
  for (skip_blank(s); *s->at == '"'; skip_blank(s), n++) {
    for (s->at++; *s->at != '"'; s->at++) {
      char c = *s->at;
      if (c == '\0' || c == '\n') return complain(s, s->line, "string without end"), false;
      if (c == '\\') {
        c = *++s->at;
        if (c != '"' && c != '\\')
          return complain(s, s->line, "escape '\\%c' in .%s", c, field), false;
      }
      put_bytes(out, &c, 1);
    }
    s->at++;
  }
  if (n == 0 || (*s->at != ',' && *s->at != ')'))
    return complain(s, s->line, ".%s must be written as string literals", field), false;
  return true;
}

/* To the comma or parenthesis that ends an argument, or to the end of the file. */
static void skip_argument(scanner *s) {
  int depth = 0;
  while (*s->at != '\0') {
    if (skip_opaque(s)) continue;
    char c = *s->at;
    if (depth == 0 && (c == ',' || c == ')')) return;
    if (c == '(' || c == '[' || c == '{') depth++;
    if (c == ')' || c == ']' || c == '}') depth--;
    step(s);
  }
}

static bool starts_word(const scanner *s, const char *w) {
  size_t n = strlen(w);
  return strncmp(s->at, w, n) == 0 && !is_word(s->at[n]);
}

static void take_flag(scanner *s, const char *field, bool *out) {
  if (starts_word(s, "true")) *out = true;
  else if (!starts_word(s, "false")) complain(s, s->line, ".%s must be true or false", field);
}

static void take_autocast(scanner *s, op_def *d) {
  static const char *const words[][2] = {{"AC_CAST_NONE", ""},
                                         {"AC_CAST_LOWER", "lower"},
                                         {"AC_CAST_F32", "f32"},
                                         {"AC_CAST_PROMOTE", "promote"}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if (!starts_word(s, words[i][0])) continue;
    snprintf(d->autocast, sizeof d->autocast, "%s", words[i][1]);
    return;
  }
  complain(s, s->line,
           ".autocast must be one of AC_CAST_NONE, AC_CAST_LOWER, AC_CAST_F32, AC_CAST_PROMOTE");
}

/* One argument of the macro. False after a message that makes the definition useless. */
static bool take_argument(scanner *s, op_def *d, buf *sig, buf *alias) {
  char field[32] = "";
  skip_blank(s);
  if (*s->at == '.') {
    s->at++;
    take_word(s, field, sizeof field);
    skip_blank(s);
  }
  if (field[0] == '\0' || *s->at != '=') {
    skip_argument(s);
    return true;
  }
  s->at++;
  skip_blank(s);
  bool given = !starts_word(s, "NULL");
  if (strcmp(field, "sig") == 0) {
    if (!take_literals(s, field, sig)) return false;
  } else if (strcmp(field, "alias") == 0) {
    if (!take_literals(s, field, alias)) return false;
  } else if (strcmp(field, "inplace") == 0) {
    take_flag(s, field, &d->inplace);
  } else if (strcmp(field, "hidden") == 0) {
    take_flag(s, field, &d->hidden);
  } else if (strcmp(field, "nondiff") == 0) {
    take_flag(s, field, &d->nondiff);
  } else if (strcmp(field, "autocast") == 0) {
    take_autocast(s, d);
  } else if (strcmp(field, "grad") == 0) {
    d->grad = given;
  } else if (strcmp(field, "composed") == 0) {
    d->composed = given;
  } else if (strcmp(field, "cpu") == 0) {
    d->kernel = given;
  }
  skip_argument(s);
  return true;
}

/* Reads one definition, s->at being after the macro's name, and appends it to ops, which owns it.
 * Mistakes are reported with their line, and s->failed is set. Scanning continues, so that one run
 * reports all of them. */
static void take_definition(scanner *s, const char *macro, const char *doc, const char *examples,
                            op_list *ops) {
  op_def *d = need(calloc(1, sizeof *d));
  buf sig = {0}, alias = {0};
  ac_err e;
  int line = s->line;
  put_bytes(&alias, "", 0);
  bool ok = true;
  snprintf(d->macro, sizeof d->macro, "%s", macro);
  d->line = line;
  d->kernel = strcmp(macro, "AC_OP") != 0;
  s->at++; /* the parenthesis */
  skip_blank(s);
  if (take_word(s, d->name, sizeof d->name) == 0 || d->name[0] == '\0') {
    complain(s, line, "%s without a name", macro);
    ok = false;
  }
  skip_blank(s);
  while (ok && *s->at == ',') {
    s->at++;
    ok = take_argument(s, d, &sig, &alias);
  }
  if (ok && *s->at != ')') {
    complain(s, line, "%s(%s: no closing parenthesis", macro, d->name);
    ok = false;
  }
  if (ok && sig.n == 0) {
    complain(s, line, "%s(%s) has no .sig", macro, d->name);
    ok = false;
  }
  if (ok && aci_sig_parse(sig.s, &d->sig, &e) != AC_OK) {
    complain(s, line, "%s", e.msg);
    ok = false;
  }
  if (ok && strcmp(d->sig.name, d->name) != 0) {
    complain(s, line, "%s(%s) has the signature of '%s'", macro, d->name, d->sig.name);
    ok = false;
  }
  const aci_param *first = &d->sig.param[0];
  if (ok && d->inplace &&
      (d->sig.n_params == 0 || d->sig.n_results == 0 ||
       (first->type != AC_T_TENSOR && first->type != AC_T_OPERAND) || first->optional ||
       first->mutates || d->sig.result[0].type != AC_T_TENSOR)) {
    complain(
        s, line,
        "'%s' cannot be in place: its first parameter must be a tensor or operand, its result a tensor",
        d->name);
    ok = false;
  }
  if (!ok) {
    s->failed = true;
    free(d);
    buf_free(&sig);
    buf_free(&alias);
    return;
  }
  if (d->inplace && d->sig.result[0].view_of >= 0) {
    d->inplace = false;
    d->rebinds = true;
  }
  d->alias = alias.s;
  d->sig_text = sig.s;
  d->path = copy_text(s->path, strlen(s->path));
  d->doc = copy_text(doc, strlen(doc));
  const char *slash = strrchr(s->path, '/'), *start = s->path;
  for (const char *p = s->path; slash != NULL && p < slash; p++)
    if (*p == '/') start = p + 1;
  d->file = copy_text(start, strlen(start));
  const char *base = slash != NULL ? slash + 1 : s->path;
  size_t n = strlen(d->name);
  bool is_main = strncmp(base, d->name, n) == 0 && strcmp(base + n, ".c") == 0;
  d->examples = copy_text(examples, is_main ? strlen(examples) : 0);
  if (ops->n == ops->cap) {
    ops->cap = ops->cap * 2 + 64;
    ops->v = need(realloc(ops->v, (size_t)ops->cap * sizeof *ops->v));
  }
  ops->v[ops->n++] = d;
}

/* The comment at the top of the file, without slashes, stars, common indent and trailing blanks.
 * Text from "example:" up to the line with its arrow goes to the examples, as one line. */
static void head_comment(const char *text, buf *out, buf *examples) {
  static const char mark[] = "example: ";
  const size_t n_mark = sizeof mark - 1;
  put_bytes(out, "", 0);
  put_bytes(examples, "", 0);
  bool open = false; /* inside of an example whose arrow did not come yet */
  while (is_space(*text)) text++;
  const char *end = strncmp(text, "/*", 2) == 0 ? strstr(text, "*/") : NULL;
  if (end == NULL) return;
  for (const char *p = text + 2; p < end;) {
    const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl != NULL ? nl : end;
    const char *a = p, *z = stop;
    while (a < z && (*a == ' ' || *a == '\t') && a - p < 3) a++;
    if (a < z && *a == '*') a++;
    if (a < z && *a == ' ' && a - p < 3) a++;
    while (z > a && is_space(z[-1])) z--;
    const char *word = a;
    while (word < z && *word == ' ') word++;
    bool example = (size_t)(z - word) > n_mark && strncmp(word, mark, n_mark) == 0;
    if (example || open) {
      size_t from = examples->n;
      a = example ? word + n_mark : word;
      put_bytes(examples, a, (size_t)(z - a));
      open = strstr(examples->s + from, "-->") == NULL;
      put_bytes(examples, open ? " " : "\n", 1);
    } else {
      put_bytes(out, a, (size_t)(z - a));
      put_bytes(out, "\n", 1);
    }
    p = stop + (nl != NULL);
  }
  if (open) put_bytes(examples, "\n", 1);
  while (out->n > 0 && is_space(out->s[out->n - 1])) put_back(out, 1);
}

bool scan_file(const char *path, op_list *ops) {
  size_t n = 0;
  char *text = read_file(path, &n);
  if (text == NULL) {
    fprintf(stderr, "%s:1: cannot be read\n", path);
    return false;
  }
  scanner s = {path, text, text, 1, false};
  buf doc = {0}, examples = {0};
  head_comment(text, &doc, &examples);
  int first = ops->n;
  while (*s.at != '\0') {
    bool line_start = s.at == text || s.at[-1] == '\n';
    if (line_start && strncmp(s.at, "AC_", 3) == 0) {
      char w[32];
      take_word(&s, w, sizeof w);
      while (*s.at == ' ') s.at++;
      if (*s.at == '(' && is_macro(w)) take_definition(&s, w, doc.s, examples.s, ops);
    } else if (!skip_opaque(&s)) {
      step(&s);
    }
  }
  /* the name of the file is how people and errors find an op */
  const char *slash = strrchr(path, '/'), *base = slash != NULL ? slash + 1 : path;
  size_t stem = strlen(base) - (strlen(base) > 2 ? 2 : 0);
  bool found = ops->n == first;
  for (int i = first; i < ops->n; i++)
    found = found || (strlen(ops->v[i]->name) == stem && strncmp(ops->v[i]->name, base, stem) == 0);
  if (!found && !s.failed)
    complain(&s, ops->v[first]->line, "no op of this file is called '%.*s'", (int)stem, base);
  buf_free(&doc);
  buf_free(&examples);
  free(text);
  return !s.failed;
}

bool next_alias(const char **at, char *word, size_t room) {
  const char *p = *at;
  while (*p == ' ') p++;
  const size_t n = strcspn(p, " ");
  *at = p + n;
  if (n == 0) return false;
  snprintf(word, room, "%.*s", (int)n, p);
  return true;
}

/* A sentence ends at a full stop before a new line, two blanks or a capital. */
static size_t sentence(const char *s) {
  size_t i = 0;
  for (; s[i] != '\0'; i++) {
    if (s[i] == '\n' && (s[i + 1] == '\n' || s[i + 1] == '\0')) break;
    if (s[i] == ' ' && s[i + 1] == ' ' && s[i + 2] == ' ') break;
    if (s[i] != '.') continue;
    char a = s[i + 1], b = a != '\0' ? s[i + 2] : '\0';
    if (a == '\0' || a == '\n' || (a == ' ' && (b == ' ' || (b >= 'A' && b <= 'Z')))) break;
  }
  return i;
}

void doc_line(buf *b, const op_def *d) {
  const char *p = d->doc;
  size_t n = strlen(d->name);
  for (const char *q = d->doc; q != NULL && *q != '\0';) {
    if (strncmp(q, d->name, n) == 0 && q[n] == ':') {
      p = q + n + 1;
      break;
    }
    q = strchr(q, '\n');
    if (q != NULL) q++;
  }
  if (p == d->doc) { /* it speaks of the file's main op */
    const char *colon = p;
    while (is_word(*colon)) colon++;
    if (colon > p && *colon == ':') p = colon + 1;
  }
  while (is_space(*p)) p++;
  size_t len = sentence(p);
  for (size_t i = 0; i < len; i++) {
    bool blank = is_space(p[i]);
    if (blank && b->n > 0 && b->s[b->n - 1] == ' ') continue;
    /* a doc line is put into a C comment */
    if (p[i] == '/' && i > 0 && p[i - 1] == '*') put_bytes(b, " ", 1);
    put_bytes(b, blank ? " " : &p[i], 1);
  }
}
