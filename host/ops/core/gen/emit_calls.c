/* The table of functions that modules of devices take from the library. A module cannot link them:
 * a stock interpreter loads the library privately (RTLD_LOCAL), and one module file serves every
 * way in which the library is loaded.
 *
 * Headers are read for declarations that begin a line with AC_API (public headers) or
 * ACI_MODULE_API (private functions that modules may call). Of each follow a field of the table,
 * its row in the library, and a function of the same name in the module, which calls through the
 * table. Both sides read structs of one another: the table begins with a hash of all headers that
 * were given, which must agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/gen/opgen.h"

typedef struct call {
  char *result, *name, *params; /* "ac_status", "ac_block_alloc", "ac_device *d, size_t bytes" */
} call;

typedef struct call_list {
  call *v;
  int n, cap;
  uint64_t hash;
  buf includes;
} call_list;

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The text without comments, with each run of blanks as one. Ends of lines stay. Strings in headers
 * hold no comment signs. */
static void strip(const char *s, buf *out) {
  put_bytes(out, "\n", 1);
  while (*s != '\0') {
    if (s[0] == '/' && s[1] == '*') {
      const char *end = strstr(s + 2, "*/");
      s = end != NULL ? end + 2 : s + strlen(s);
      put_bytes(out, " ", 1);
    } else if (s[0] == '/' && s[1] == '/') {
      s += strcspn(s, "\n");
    } else {
      const char c = *s == '\t' || *s == '\r' ? ' ' : *s;
      if (c != ' ' || out->n == 0 || out->s[out->n - 1] != ' ') put_bytes(out, &c, 1);
      s++;
    }
  }
  put_bytes(out, "\n", 1);
}

/* One declaration of n characters, without the marker and the semicolon. */
static bool take_declaration(const char *path, char *text, call_list *list) {
  char *to = text;
  for (const char *p = text; *p != '\0'; p++) { /* one line, single blanks */
    const char c = *p == '\n' ? ' ' : *p;
    if (c != ' ' || to == text || to[-1] != ' ') *to++ = c;
  }
  *to = '\0';
  char *open = strchr(text, '('), *close = NULL, *name;
  int depth = 0;
  for (char *p = open; p != NULL && *p != '\0' && close == NULL; p++) {
    depth += (*p == '(') - (*p == ')');
    if (depth == 0) close = p;
  }
  name = open;
  while (name != NULL && name > text && is_word(name[-1])) name--;
  if (close == NULL || name == text || name == open) {
    fprintf(stderr, "%s: a declaration for modules that is not a function's: %s\n", path, text);
    return false;
  }
  if (list->n == list->cap) {
    list->cap = list->cap * 2 + 64;
    list->v = need(realloc(list->v, (size_t)list->cap * sizeof *list->v));
  }
  char *end = name;
  while (end > text && end[-1] == ' ') end--;
  while (*text == ' ') text++;
  list->v[list->n++] =
      (call){copy_text(text, (size_t)(end - text)), copy_text(name, (size_t)(open - name)),
             copy_text(open + 1, (size_t)(close - open - 1))};
  return true;
}

static bool scan_header(const char *root, const char *path, call_list *list) {
  static const char *const markers[] = {"\nAC_API ", "\nACI_MODULE_API "};
  size_t n = 0;
  char *text = read_file(path, &n);
  bool ok = text != NULL, any = false;
  if (!ok) {
    fprintf(stderr, "%s:1: cannot be read\n", path);
    return false;
  }
  buf plain = {0};
  strip(text, &plain);
  for (int k = 0; k < 2 && ok; k++)
    for (const char *at = plain.s; ok && (at = strstr(at, markers[k])) != NULL;) {
      at += strlen(markers[k]);
      const size_t length = strcspn(at, ";{");
      if (at[length] != ';') continue; /* defined here: the module has it as well */
      char *declaration = copy_text(at, length);
      ok = take_declaration(path, declaration, list);
      free(declaration);
      any = true;
    }
  for (size_t i = 0; i < plain.n; i++)
    if (plain.s[i] != ' ' && plain.s[i] != '\n')
      list->hash = (list->hash ^ (unsigned char)plain.s[i]) * UINT64_C(1099511628211);
  const size_t skip = strlen(root);
  const char *name = strncmp(path, root, skip) == 0 ? path + skip + 1 : path;
  if (any)
    put(&list->includes, "#include \"%s\"\n", strncmp(name, "include/", 8) == 0 ? name + 8 : name);
  buf_free(&plain);
  free(text);
  return ok;
}

/* Names of parameters as arguments. Of a variadic function those before the dots. */
static void put_arguments(buf *b, const char *params, bool *variadic) {
  *variadic = strstr(params, "...") != NULL;
  const char *at = params;
  for (int k = 0; *at != '\0'; k++) {
    int depth = 0;
    const char *end = at, *name;
    size_t n = 0;
    for (; *end != '\0' && (*end != ',' || depth > 0); end++)
      depth += (*end == '(') - (*end == ')');
    const char *inner = memchr(at, '(', (size_t)(end - at)); /* void (*fn)(void *user) */
    if (inner != NULL) {
      for (name = inner; *name == '(' || *name == '*' || *name == ' ';) name++;
    } else {
      const char *last = memchr(at, '[', (size_t)(end - at));
      if (last == NULL) last = end;
      while (last > at && !is_word(last[-1])) last--;
      for (name = last; name > at && is_word(name[-1]);) name--;
    }
    while (is_word(name[n])) n++;
    const bool none = n == 0 || (n == 4 && memcmp(name, "void", 4) == 0);
    if (!none) put(b, "%s%.*s", k > 0 ? ", " : "", (int)n, name);
    at = *end == ',' ? end + 1 : end;
  }
}

/* The last parameter before the dots: a format. */
static void put_variadic(buf *b, const call *c, const char *arguments) {
  const char *format = strrchr(arguments, ' ');
  const size_t fixed = format != NULL ? (size_t)(format - arguments) : 0;
  format = format != NULL ? format + 1 : arguments;
  put(b,
      "  char text[1024];\n  va_list ap;\n  va_start(ap, %s);\n  vsnprintf(text, sizeof text, %s, ap);\n  va_end(ap);\n",
      format, format);
  put(b, "  %slibrary.%s(%.*s \"%%s\", text);\n", strcmp(c->result, "void") == 0 ? "" : "return ",
      c->name, (int)fixed, arguments);
}

static bool write_header(const char *out, const call_list *list) {
  buf b = {0};
  put(&b,
      "/* Generated by accel-opgen: what modules of devices take from the library. */\n#ifndef ACI_MODULE_CALLS_H\n"
      "#define ACI_MODULE_CALLS_H\n");
  put_bytes(&b, list->includes.s, list->includes.n);
  put(&b,
      "#define ACI_MODULE_HASH UINT64_C(0x%llx)\ntypedef struct aci_module_calls {\n  uint64_t hash;\n",
      (unsigned long long)list->hash);
  for (int i = 0; i < list->n; i++)
    put(&b, "  %s (*%s)(%s);\n", list->v[i].result, list->v[i].name, list->v[i].params);
  put(&b, "} aci_module_calls;\n#endif\n");
  const bool ok = write_if_changed(out, "module_calls.h", &b);
  buf_free(&b);
  return ok;
}

static bool write_table(const char *out, const call_list *list) {
  buf b = {0};
  put(&b,
      "#include \"module_calls.h\"\n\nextern const aci_module_calls aci_module_table;\nconst aci_module_calls aci_module_table = {\n"
      "    ACI_MODULE_HASH,\n");
  for (int i = 0; i < list->n; i++) put(&b, "    %s,\n", list->v[i].name);
  put(&b, "};\n");
  const bool ok = write_if_changed(out, "module_table.c", &b);
  buf_free(&b);
  return ok;
}

static bool write_stubs(const char *out, const call_list *list) {
  buf b = {0};
  put(&b,
      "#include <stdarg.h>\n#include <stdio.h>\n\n#include \"module_calls.h\"\n\nstatic aci_module_calls library;\n\n"
      "bool aci_module_take(const aci_module_calls *calls);\nbool aci_module_take(const aci_module_calls *calls) {\n"
      "  if (calls->hash != ACI_MODULE_HASH) return false;\n  library = *calls;\n  return true;\n}\n");
  for (int i = 0; i < list->n; i++) {
    const call *c = &list->v[i];
    buf arguments = {0};
    bool variadic;
    put_arguments(&arguments, c->params, &variadic);
    put(&b, "\n%s %s(%s) {\n", c->result, c->name, c->params);
    if (variadic) put_variadic(&b, c, arguments.s);
    else
      put(&b, "  %slibrary.%s(%s);\n", strcmp(c->result, "void") == 0 ? "" : "return ", c->name,
          arguments.n > 0 ? arguments.s : "");
    put(&b, "}\n");
    buf_free(&arguments);
  }
  const bool ok = write_if_changed(out, "module_stubs.c", &b);
  buf_free(&b);
  return ok;
}

bool emit_calls(const char *out, const char *root, char *const *headers, int n) {
  call_list list = {.hash = UINT64_C(14695981039346656037)};
  bool ok = true;
  for (int i = 0; i < n && ok; i++) ok = scan_header(root, headers[i], &list);
  ok = ok && write_header(out, &list) && write_table(out, &list) && write_stubs(out, &list);
  for (int i = 0; i < list.n; i++) {
    free(list.v[i].result);
    free(list.v[i].name);
    free(list.v[i].params);
  }
  free(list.v);
  buf_free(&list.includes);
  return ok;
}
