/* accel-embed - turns Lua files into one C table. Run by the build (lua/CMakeLists.txt), never installed.
 *
 *   accel-embed LIST OUT.c     LIST: one path per line, relative to the working directory, sorted
 *
 * The table is read by bindings/core when a host opens; the names ("lua/strict.lua") are what tracebacks
 * show. Bytes are written as numbers: C limits the length of string literals, and a table of numbers keeps
 * every byte. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHUNKS = 1024, PER_LINE = 24 };

static int die(const char *what, const char *name) {
  fprintf(stderr, "accel-embed: %s '%s': %s\n", what, name, strerror(errno));
  return 1;
}

/* Writes the bytes of one file as `static const char chunk_<i>[]`, with a terminating zero that len does not
 * count. */
static int write_bytes(FILE *out, const char *path, int i) {
  FILE *in = fopen(path, "rb");
  long n = 0;
  int c;
  if (in == NULL) return die("cannot read", path);
  fprintf(out, "static const char chunk_%d[] = {", i);
  while ((c = getc(in)) != EOF) {
    /* char may be signed: bytes above 127 are written as negative numbers that convert without a warning */
    fprintf(out, "%s%d,", n % PER_LINE == 0 ? "\n  " : "", c > 127 ? c - 256 : c);
    n++;
  }
  fprintf(out, "\n  0};\n");
  if (ferror(in)) {
    fclose(in);
    return die("cannot read", path);
  }
  fclose(in);
  return 0;
}

int main(int argc, char **argv) {
  static char *names[MAX_CHUNKS];
  static char line[4096];
  int n = 0, failed = 0;
  FILE *list, *out;
  if (argc != 3) {
    fputs("usage: accel-embed LIST OUT.c\n", stderr);
    return 2;
  }
  list = fopen(argv[1], "r");
  if (list == NULL) return die("cannot read", argv[1]);
  while (fgets(line, sizeof line, list) != NULL && n < MAX_CHUNKS) {
    line[strcspn(line, "\r\n")] = '\0';
    if (line[0] == '\0') continue;
    names[n] = strdup(line);
    if (names[n] == NULL) failed = die("no memory for", line);
    else n++;
  }
  fclose(list);
  out = failed ? NULL : fopen(argv[2], "w");
  if (!failed && out == NULL) failed = die("cannot write", argv[2]);
  if (!failed) {
    fputs("/* Generated from lua/ by accel-embed; edits are lost. */\n#include <stddef.h>\n", out);
    fputs("extern const struct aci_lua_chunk { const char *name; const char *text; size_t len; } "
          "aci_lua_chunks[];\n",
          out);
    fputs("extern const int aci_n_lua_chunks;\n", out);
    for (int i = 0; i < n && !failed; i++) failed = write_bytes(out, names[i], i);
    fputs("const struct aci_lua_chunk aci_lua_chunks[] = {\n", out);
    for (int i = 0; i < n; i++) fprintf(out, "  {\"%s\", chunk_%d, sizeof chunk_%d - 1},\n", names[i], i, i);
    fprintf(out, "  {0, 0, 0}};\nconst int aci_n_lua_chunks = %d;\n", n);
    if (fclose(out) != 0) failed = die("cannot write", argv[2]);
    if (failed) remove(argv[2]);
  }
  for (int i = 0; i < n; i++) free(names[i]);
  return failed;
}
