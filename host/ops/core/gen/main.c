/* accel-opgen --out DIR [--src DIR] [FILE.c ...] [--calls ROOT HEADER.h ...]
 *
 * Run by the build. --src takes every <family>/<op>.c below a folder (except the generator's own
 * folder). Further files, for example of a test, may be named one by one. --calls reads headers
 * below ROOT for the functions that modules of devices may call. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ops/core/gen/opgen.h"

typedef struct paths {
  char **v;
  int n, cap;
} paths;

static void add_path(paths *p, const char *s) {
  if (p->n == p->cap) {
    p->cap = p->cap * 2 + 64;
    p->v = need(realloc(p->v, (size_t)p->cap * sizeof *p->v));
  }
  p->v[p->n++] = copy_text(s, strlen(s));
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}
static int by_name(const void *a, const void *b) {
  return strcmp((*(op_def *const *)a)->name, (*(op_def *const *)b)->name);
}

static bool ends_in_c(const char *s) {
  size_t n = strlen(s);
  return n > 2 && strcmp(s + n - 2, ".c") == 0;
}

/* Names below dir that `want` accepts: folders when depth is 1, files when it is 0. */
static bool list_folder(const char *dir, int depth, paths *out) {
  DIR *d = opendir(dir);
  if (d == NULL) {
    fprintf(stderr, "accel-opgen: cannot open folder %s\n", dir);
    return false;
  }
  bool ok = true;
  for (struct dirent *f; ok && (f = readdir(d)) != NULL;) {
    struct stat st;
    buf path = {0};
    if (f->d_name[0] == '.' || (depth == 1 && strcmp(f->d_name, "gen") == 0)) continue;
    put(&path, "%s/%s", dir, f->d_name);
    if (stat(path.s, &st) == 0) {
      if (depth == 1 && S_ISDIR(st.st_mode)) ok = list_folder(path.s, 0, out);
      else if (depth == 0 && S_ISREG(st.st_mode) && ends_in_c(f->d_name)) add_path(out, path.s);
    }
    buf_free(&path);
  }
  closedir(d);
  return ok;
}

static const op_def *find_alias(const op_list *ops, int before, const char *name) {
  char word[40];
  for (int i = 0; i < before; i++)
    for (const char *at = ops->v[i]->alias; next_alias(&at, word, sizeof word);)
      if (strcmp(word, name) == 0) return ops->v[i];
  return NULL;
}

/* An alias is neither an op nor another op's alias. */
static bool check_aliases(const op_list *ops) {
  bool ok = true;
  char word[40];
  for (int i = 0; i < ops->n; i++) {
    const op_def *a = ops->v[i];
    for (const char *at = a->alias; next_alias(&at, word, sizeof word);) {
      const op_def *b = find_alias(ops, i, word);
      for (int k = 0; k < ops->n && b == NULL; k++)
        if (strcmp(ops->v[k]->name, word) == 0) b = ops->v[k];
      if (b == NULL) continue;
      fprintf(stderr, "%s:%d: the alias '%s' is also a name of op '%s'\n", a->path, a->line, word,
              b->name);
      ok = false;
    }
  }
  return ok;
}

/* Names are one space: an op, its in-place form and every other op differ. */
static bool check_names(const op_list *ops) {
  bool ok = check_aliases(ops);
  for (int i = 0; i < ops->n; i++) {
    const op_def *a = ops->v[i];
    if (i > 0 && strcmp(a->name, ops->v[i - 1]->name) == 0) {
      const op_def *b = ops->v[i - 1];
      fprintf(stderr, "%s:%d: op '%s' is also defined at %s:%d\n", a->path, a->line, a->name,
              b->path, b->line);
      ok = false;
    }
    if (!a->inplace) continue;
    for (int k = 0; k < ops->n; k++) {
      const op_def *b = ops->v[k];
      size_t n = strlen(a->name);
      if (strncmp(b->name, a->name, n) != 0 || strcmp(b->name + n, "_") != 0) continue;
      fprintf(stderr, "%s:%d: op '%s' is also the in-place form of '%s'\n", b->path, b->line,
              b->name, a->name);
      ok = false;
    }
  }
  if (ops->n > 60000) {
    fprintf(stderr, "accel-opgen: the table of in-place forms holds 16-bit positions\n");
    ok = false;
  }
  return ok;
}

static bool write_all(const char *out, const op_list *ops) {
  static const struct {
    const char *name;
    void (*emit)(buf *b, const op_list *ops);
  } files[] = {{"accel/ops.h", emit_public_header},
               {"ops_x.h", emit_expr_header},
               {"ops_api.c", emit_api},
               {"ops_table.c", emit_table},
               {"lua/meta/ops.lua", emit_stubs},
               {"ops.md", emit_reference},
               {"ops.json", emit_json}};
  bool ok = true;
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    buf b = {0};
    files[i].emit(&b, ops);
    ok = write_if_changed(out, files[i].name, &b) && ok;
    buf_free(&b);
  }
  return ok;
}

int main(int argc, char **argv) {
  const char *out = NULL, *root = NULL;
  paths files = {0}, headers = {0};
  op_list ops = {0};
  bool ok = true;
  for (int i = 1; ok && i < argc; i++) {
    if (strcmp(argv[i], "--out") == 0 && i + 1 < argc) out = argv[++i];
    else if (strcmp(argv[i], "--src") == 0 && i + 1 < argc) ok = list_folder(argv[++i], 1, &files);
    else if (strcmp(argv[i], "--calls") == 0 && i + 1 < argc) root = argv[++i];
    else if (argv[i][0] == '-') out = NULL, i = argc;
    else add_path(root != NULL ? &headers : &files, argv[i]);
  }
  if (out == NULL) {
    fprintf(stderr,
            "usage: accel-opgen --out DIR [--src DIR] [FILE.c ...] [--calls ROOT HEADER.h ...]\n");
    ok = false;
  }
  if (files.n > 0) qsort(files.v, (size_t)files.n, sizeof *files.v, by_text);
  for (int i = 0; out != NULL && i < files.n; i++) ok = scan_file(files.v[i], &ops) && ok;
  if (ops.n > 0) qsort(ops.v, (size_t)ops.n, sizeof *ops.v, by_name);
  ok = ok && check_names(&ops) && write_all(out, &ops) && emit_maps(out, files.v, files.n) &&
       emit_map_texts(out, files.v, files.n);
  if (headers.n > 0) qsort(headers.v, (size_t)headers.n, sizeof *headers.v, by_text);
  if (root != NULL) ok = ok && emit_calls(out, root, headers.v, headers.n);

  for (int i = 0; i < ops.n; i++) {
    op_def *d = ops.v[i];
    free(d->path);
    free(d->file);
    free(d->sig_text);
    free(d->alias);
    free(d->doc);
    free(d->examples);
    free(d);
  }
  free(ops.v);
  for (int i = 0; i < files.n; i++) free(files.v[i]);
  free(files.v);
  for (int i = 0; i < headers.n; i++) free(headers.v[i]);
  free(headers.v);
  return ok ? 0 : 1;
}
