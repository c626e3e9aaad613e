/* Folders of checkpoints: what is there, in the order of their numbers, and which of them to remove. Called by the bindings. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"
#include "file/io.h"

const char *ac_ckpt_status_name(ac_ckpt_status s) {
  static const char *const names[] = {"ok", "unfinished", "damaged", "foreign"};
  return names[s];
}

static void free_entry(ac_ckpt_entry *x) {
  free(x->name);
  free(x->path);
  free(x->reason);
  free(x->state);
}

void ac_ckpt_list_free(ac_ckpt_list *l) {
  for (int i = 0; i < l->n; i++) free_entry(&l->entry[i]);
  free(l->entry);
  *l = (ac_ckpt_list){0};
}

/* The digits at the end of the first n bytes; -1: none, or more than a number has. */
static int64_t number_of(const char *name, size_t n) {
  size_t from = n;
  while (from > 0 && isdigit((unsigned char)name[from - 1])) from--;
  int64_t v = 0;
  for (size_t i = from; i < n; i++) {
    if (v > (INT64_MAX - 9) / 10) return -1;
    v = 10 * v + (name[i] - '0');
  }
  return from < n ? v : -1;
}

static int by_number(const void *a, const void *b) {
  const ac_ckpt_entry *x = a, *y = b;
  return x->number != y->number ? (x->number < y->number ? -1 : 1) : strcmp(x->name, y->name);
}

/* Fills an entry whose path is set. */
static ac_status look(ac_ckpt_entry *x, ac_err *e) {
  ac_ckpt *c = NULL;
  ac_err why;
  const size_t tmp = aci_ckpt_base_of(x->name, ".tmp-"), old = aci_ckpt_base_of(x->name, ".old-");
  x->number = number_of(x->name, tmp > 0 ? tmp : old > 0 ? old : strlen(x->name));
  why.msg[0] = 0;
  if (tmp > 0) {
    x->status = AC_CKPT_UNFINISHED;
    snprintf(why.msg, sizeof why.msg, "a save that is under way, or ended before it was committed");
  } else {
    const ac_status st = ac_ckpt_open(x->path, &c, &why);
    if (st == AC_OOM) {
      if (e != NULL) *e = why;
      return st;
    }
    x->status = st == AC_OK ? AC_CKPT_OK : st == AC_NOT_FOUND ? AC_CKPT_FOREIGN : AC_CKPT_DAMAGED;
  }
  if (c != NULL) {
    aci_strbuf b = {0};
    aci_json_writer w = {.out = &b};
    aci_json_value(&w, c->m.state);
    x->bytes = c->m.bytes;
    if (aci_json_finish(&w, NULL) == AC_OK) x->state = aci_strbuf_take(&b, NULL);
    aci_strbuf_fini(&b);
    ac_ckpt_close(c);
  }
  x->reason = strdup(x->status == AC_CKPT_OK ? "" : why.msg);
  return x->reason != NULL && (x->status != AC_CKPT_OK || x->state != NULL) ? AC_OK : AC_FAIL(e, OOM, "no memory to look at a folder");
}

static ac_status append(ac_ckpt_list *l, int *cap, ac_ckpt_entry x, ac_err *e) {
  if (l->n == *cap) {
    *cap = *cap > 0 ? 2 * *cap : 16;
    ac_ckpt_entry *v = realloc(l->entry, (size_t)*cap * sizeof *v);
    if (v == NULL) {
      free_entry(&x);
      return AC_FAIL(e, OOM, "no memory to look at a folder");
    }
    l->entry = v;
  }
  l->entry[l->n++] = x;
  return AC_OK;
}

ac_status ac_ckpt_scan(const char *parent, ac_ckpt_list *out, ac_err *e) {
  int cap = 0;
  ac_status st = AC_OK;
  *out = (ac_ckpt_list){0};
  DIR *d = opendir(parent);
  if (d == NULL) return aci_io_error(e, parent, "cannot look into the folder", errno);
  for (struct dirent *f; st == AC_OK && (f = readdir(d)) != NULL;) {
    struct stat sb;
    if (f->d_name[0] == '.') continue;
    ac_ckpt_entry x = {.name = strdup(f->d_name), .path = aci_ckpt_join(parent, f->d_name)};
    if (x.name == NULL || x.path == NULL) {
      st = AC_FAIL(e, OOM, "no memory to look at a folder");
    } else if (stat(x.path, &sb) == 0 && S_ISDIR(sb.st_mode)) {
      st = look(&x, e);
      if (st == AC_OK) {
        st = append(out, &cap, x, e);
        continue;
      }
    }
    free_entry(&x);
  }
  closedir(d);
  if (st != AC_OK) ac_ckpt_list_free(out);
  else if (out->n > 1) qsort(out->entry, (size_t)out->n, sizeof *out->entry, by_number);
  return st;
}

ac_status ac_ckpt_prune(const char *parent, int keep, ac_ckpt_list *out, ac_err *e) {
  ac_ckpt_list all;
  int whole = 0, cap = 0;
  *out = (ac_ckpt_list){0};
  if (keep < 1) return AC_FAIL(e, INVALID, "prune keeps 1 checkpoint or more, not %d", keep);
  AC_TRY(ac_ckpt_scan(parent, &all, e));
  ac_status st = AC_OK;
  for (int i = 0; i < all.n; i++) whole += all.entry[i].status == AC_CKPT_OK && all.entry[i].number >= 0;
  for (int i = 0; i < all.n && whole > keep && st == AC_OK; i++) {
    ac_ckpt_entry *x = &all.entry[i];
    if (x->status != AC_CKPT_OK || x->number < 0) continue;
    st = aci_ckpt_discard(x->path, e);
    if (st == AC_OK) {
      st = append(out, &cap, *x, e);
      *x = (ac_ckpt_entry){0};
    }
    whole--;
  }
  ac_ckpt_list_free(&all);
  if (st != AC_OK) ac_ckpt_list_free(out);
  return st;
}
