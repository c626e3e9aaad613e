/* Text buffers and files of accel-opgen. A file is replaced only when its text changes, so that a
 * touched op recompiles only its dependents. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/core/gen/opgen.h"

void *need(void *p) {
  if (p != NULL) return p;
  fputs("accel-opgen: out of memory\n", stderr);
  exit(2);
}

char *copy_text(const char *s, size_t n) {
  char *t = need(malloc(n + 1));
  memcpy(t, s, n);
  t[n] = '\0';
  return t;
}

static void reserve(buf *b, size_t more) {
  if (b->n + more + 1 <= b->cap) return;
  b->cap = (b->n + more + 1) * 2;
  b->s = need(realloc(b->s, b->cap));
}

void put_bytes(buf *b, const char *s, size_t n) {
  reserve(b, n);
  memcpy(b->s + b->n, s, n);
  b->n += n;
  b->s[b->n] = '\0';
}

void put(buf *b, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  reserve(b, 200);
  int n = vsnprintf(b->s + b->n, 200, fmt, ap);
  va_end(ap);
  if (n < 0) exit(2);
  if (n >= 200) {
    reserve(b, (size_t)n);
    va_start(ap, fmt);
    vsnprintf(b->s + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
  }
  b->n += (size_t)n;
}

void put_back(buf *b, size_t n) {
  b->n -= n;
  b->s[b->n] = '\0';
}

void buf_free(buf *b) {
  free(b->s);
  *b = (buf){0};
}

char *read_file(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) return NULL;
  buf b = {0};
  char part[16384];
  size_t got;
  while ((got = fread(part, 1, sizeof part, f)) > 0) put_bytes(&b, part, got);
  bool failed = ferror(f) != 0;
  fclose(f);
  if (failed) {
    buf_free(&b);
    return NULL;
  }
  if (b.s == NULL) put_bytes(&b, "", 0);
  *n = b.n;
  return b.s;
}

static bool make_folders(char *path) {
  for (char *p = path + 1; *p != '\0'; p++) {
    if (*p != '/') continue;
    *p = '\0';
    bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
    *p = '/';
    if (!ok) return false;
  }
  return true;
}

bool write_if_changed(const char *dir, const char *name, const buf *b) {
  buf path = {0}, tmp = {0};
  put(&path, "%s/%s", dir, name);
  put(&tmp, "%s.%ld.tmp", path.s, (long)getpid());
  size_t n = 0;
  char *old = read_file(path.s, &n);
  bool same = old != NULL && n == b->n && memcmp(old, b->s, n) == 0, ok = true;
  free(old);
  if (!same) {
    FILE *f = make_folders(path.s) ? fopen(tmp.s, "wb") : NULL;
    ok = f != NULL && fwrite(b->s, 1, b->n, f) == b->n;
    if (f != NULL && fclose(f) != 0) ok = false;
    ok = ok && rename(tmp.s, path.s) == 0;
    if (!ok) {
      fprintf(stderr, "accel-opgen: cannot write %s: %s\n", path.s, strerror(errno));
      if (f != NULL) remove(tmp.s);
    }
  }
  buf_free(&path);
  buf_free(&tmp);
  return ok;
}
