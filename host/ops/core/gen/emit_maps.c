/* The formulas of map-like ops and optimizers, out of their .c files into gen/cuda/map_<i>.cu,
 * which CUDA compiles (ops/map/map.cuh and ops/optim/step.cuh use them).
 *
 * From a file that makes maps or steps it takes these top-level pieces. Macros. `static inline`
 * functions of values (no pointers: a formula may call only functions that touch nothing but their
 * arguments). Shared parts of an optimizer's elements (factors, and the functions marked
 * ACI_STEP_FACTORS that make them). Enums. Invocations of the macros that define loops (AC_MAP*,
 * ACI_LOOP*, ACI_LOSS, ACI_STEP*) or that the file itself defines without touching the CPU's
 * multiversioning. Everything else - gradient rules, shape rules, kernels - is host code and is not
 * taken. Every file gets a namespace of its own, and its macros end with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/gen/opgen.h"

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
static bool begins(const char *s, const char *w) { return strncmp(s, w, strlen(w)) == 0; }

/* Past blanks and comments. */
static const char *blank(const char *p) {
  for (;;) {
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == ';') p++;
    if (p[0] != '/' || p[1] != '*') return p;
    const char *end = strstr(p + 2, "*/");
    p = end == NULL ? p + strlen(p) : end + 2;
  }
}

/* Past one character, string, character constant or comment. */
static const char *past(const char *p) {
  if (p[0] == '/' && p[1] == '*') {
    const char *end = strstr(p + 2, "*/");
    return end == NULL ? p + strlen(p) : end + 2;
  }
  const char quote = *p++;
  if (quote != '"' && quote != '\'') return p;
  while (*p != '\0' && *p != quote) p += *p == '\\' && p[1] != '\0' ? 2 : 1;
  return *p == '\0' ? p : p + 1;
}

/* To the end of the line, continued lines included. */
static const char *line_end(const char *p) {
  while (*p != '\0' && (*p != '\n' || p[-1] == '\\')) p++;
  return p;
}

/* Past the parentheses that begin at p. */
static const char *parens(const char *p) {
  int depth = 0;
  do {
    if (*p == '(') depth++;
    if (*p == ')') depth--;
    p = past(p);
  } while (*p != '\0' && depth > 0);
  return p;
}

/* Past a definition: to the ';' outside brackets, or to the '}' of a function's body. */
static const char *definition(const char *p) {
  int depth = 0;
  bool value = begins(p, "typedef"); /* after '=' too: braces do not end it */
  while (*p != '\0') {
    const char c = *p;
    if (c == '{' || c == '(') depth++;
    if (c == '}' || c == ')') depth--;
    if (c == '=' && depth == 0) value = true;
    p = past(p);
    if (depth == 0 && (c == ';' || (c == '}' && !value))) break;
  }
  return p;
}

static bool makes_maps(const char *w, size_t n) {
  return (n > 6 && begins(w, "AC_MAP")) || (n > 8 && begins(w, "ACI_LOOP")) ||
         (n == 8 && begins(w, "ACI_LOSS")) || (n > 8 && begins(w, "ACI_STEP"));
}

/* Whether w is a macro defined in the pieces taken so far, and does not make functions for the
 * CPU's instruction sets. */
static bool own_macro(const char *taken, const char *w, size_t n) {
  for (const char *p = taken; p != NULL && *p != '\0'; p = strchr(p, '\n'), p += p != NULL) {
    if (!begins(p, "#define ") || strncmp(p + 8, w, n) != 0 || p[8 + n] != '(') continue;
    const char *end = line_end(p);
    for (const char *q = p; q < end; q++)
      if (begins(q, "AC_ISA_FN") || begins(q, "ac_") || begins(q, "aci_reduce") ||
          begins(q, "AC_OP"))
        return false;
    return true;
  }
  return false;
}

static void take(buf *b, const char *from, const char *to) {
  put_bytes(b, from, (size_t)(to - from));
  put(b, "\n");
}

/* Whether the macro defined at p is of a template, whose #include follows: its type, or a name. Kernels
 * are templates, formulas are not. */
static bool of_template(const char *p) {
  const char *name = p + sizeof "#define " - 1;
  while (is_word(*name)) name++;
  if (*name == '(') return false;
  while (begins(p, "#define ")) {
    p = line_end(p);
    p += *p == '\n';
  }
  return begins(p, "#include \"");
}

bool map_pieces(const char *text, buf *b) {
  bool any = false;
  put_bytes(b, "", 0);
  for (const char *p = blank(text); *p != '\0'; p = blank(p)) {
    const char *from = p;
    if (*p == '#') {
      p = line_end(p);
      if ((begins(from, "#define") && !of_template(from)) || begins(from, "#undef"))
        take(b, from, p);
      continue;
    }
    size_t n = 0;
    while (is_word(p[n])) n++;
    const bool call = n > 0 && p[n] == '(';
    if (call && (makes_maps(p, n) || own_macro(b->s, p, n))) {
      any = any || makes_maps(p, n);
      p = parens(p + n);
      take(b, from, p);
    } else if (call && !begins(p, "AC_ISA_FN")) {
      p = parens(p + n);
    } else {
      p = definition(p);
      const char *list = memchr(from, '(', (size_t)(p - from));
      const bool function = begins(from, "static inline") || begins(from, "ACI_VM");
      if (function && list != NULL && memchr(list, '*', (size_t)(parens(list) - list)) == NULL)
        take(b, from, p);
      if (begins(from, "ACI_STEP_FACTORS") || begins(from, "typedef struct factors"))
        take(b, from, p);
      if (begins(from, "enum")) put(b, "%.*s;\n", (int)(p - from), from);
    }
  }
  return any;
}

static void emit_file(buf *b, const char *stem, const char *text) {
  put(b, "\n#define ACI_STEM \"%s\"\nnamespace aci_map_%s {\n%s}\n", stem, stem, text);
  for (const char *p = text; *p != '\0'; p = line_end(p), p += *p == '\n') {
    size_t n = 0;
    if (!begins(p, "#define ")) continue;
    while (is_word(p[8 + n])) n++;
    put(b, "#undef %.*s\n", (int)n, p + 8);
  }
  put(b, "#undef ACI_STEM\n");
}

bool emit_maps(const char *out, char *const *paths, int n) {
  buf part[MAP_PARTS] = {{0}};
  bool ok = true;
  for (int i = 0; i < MAP_PARTS; i++)
    put(&part[i],
        "/* Generated by accel-opgen from the formulas in host/ops; do not edit. */\n#include \"ops/map/map.cuh\"\n"
        "#include \"ops/optim/step.cuh\"\n");
  for (int i = 0; i < n; i++) {
    size_t size = 0;
    char *text = read_file(paths[i], &size), stem[64];
    buf b = {0};
    if (text != NULL && map_pieces(text, &b)) {
      const char *slash = strrchr(paths[i], '/'), *base = slash != NULL ? slash + 1 : paths[i];
      snprintf(stem, sizeof stem, "%.*s", (int)strlen(base) - 2, base);
      int least = 0; /* the parts take about the same time: each is compiled on its own */
      for (int k = 1; k < MAP_PARTS; k++)
        if (part[k].n < part[least].n) least = k;
      emit_file(&part[least], stem, b.s);
    }
    buf_free(&b);
    free(text);
  }
  for (int i = 0; i < MAP_PARTS; i++) {
    char name[32];
    snprintf(name, sizeof name, "cuda/map_%d.cu", i);
    ok = write_if_changed(out, name, &part[i]) && ok;
    buf_free(&part[i]);
  }
  return ok;
}
