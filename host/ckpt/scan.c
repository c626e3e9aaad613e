/* Folders of checkpoints: their contents in the order of age, and the ones to remove. This is the
 * only such order: every request for the newest or the oldest comes here. Called by commit.c and
 * the bindings. */
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
  free(x->run);
  free(x->continues);
}

void ac_ckpt_list_free(ac_ckpt_list *l) {
  for (int i = 0; i < l->n; i++) free_entry(&l->entry[i]);
  free(l->entry);
  *l = (ac_ckpt_list){0};
}

/* The digits at the end of the first n bytes. -1: none, or too many for a number. */
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

/* Those with an age first, the oldest in front. The others by number. */
static int by_age(const void *a, const void *b) {
  const ac_ckpt_entry *x = a, *y = b;
  if ((x->sequence > 0) != (y->sequence > 0)) return x->sequence > 0 ? -1 : 1;
  if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
  return x->number != y->number ? (x->number < y->number ? -1 : 1) : strcmp(x->name, y->name);
}

/* Sorts. An entry without an age, usually a save under way, goes after the last one whose number is
 * not greater. Folders that are not checkpoints go in front. Damaged ones without a number stay at
 * the end, where they are noticed. */
static void sort(ac_ckpt_list *l) {
  int aged = 0;
  if (l->n > 1) qsort(l->entry, (size_t)l->n, sizeof *l->entry, by_age);
  while (aged < l->n && l->entry[aged].sequence > 0) aged++;
  for (int i = aged, front = 0; i < l->n; i++) {
    const ac_ckpt_entry x = l->entry[i];
    int at = i;
    if (x.number < 0) at = x.status == AC_CKPT_FOREIGN ? front : i;
    else
      while (at > front && l->entry[at - 1].number > x.number) at--;
    front += at == front && x.status == AC_CKPT_FOREIGN;
    memmove(&l->entry[at + 1], &l->entry[at], (size_t)(i - at) * sizeof x);
    l->entry[at] = x;
  }
}

static char *json_of(const aci_json *v) {
  if (v == NULL) return strdup("[]");
  aci_strbuf b = {0};
  aci_json_writer w = {.out = &b};
  char *text = NULL;
  aci_json_value(&w, v);
  if (aci_json_finish(&w, NULL) == AC_OK) text = aci_strbuf_take(&b, NULL);
  aci_strbuf_fini(&b);
  return text;
}

/* Takes age and run from the manifest. */
static bool take_age(ac_ckpt_entry *x, const aci_manifest *m) {
  x->sequence = m->sequence;
  x->run = strdup(m->run);
  x->continues = json_of(m->continues);
  return x->run != NULL && x->continues != NULL;
}

/* Fills an entry whose path is set. */
static ac_status look(ac_ckpt_entry *x, ac_err *e) {
  ac_ckpt *c = NULL;
  ac_err why;
  bool memory = true;
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
    x->bytes = c->m.bytes;
    x->state = json_of(c->m.state);
    memory = x->state != NULL && take_age(x, &c->m);
    ac_ckpt_close(c);
  } else if (x->status == AC_CKPT_DAMAGED) { /* a file is damaged, and the manifest may be right */
    aci_manifest m = {.part = -1};
    char *path = aci_ckpt_join(x->path, ACI_CKPT_MANIFEST);
    memory = path != NULL && (aci_manifest_read(&m, path, -1, NULL) != AC_OK || take_age(x, &m));
    aci_manifest_fini(&m);
    free(path);
  }
  x->reason = strdup(x->status == AC_CKPT_OK ? "" : why.msg);
  return x->reason != NULL && memory ? AC_OK : AC_FAIL(e, OOM, "no memory to look at a folder");
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
  if (d == NULL) return aci_io_error(e, parent, "cannot read the folder", errno);
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
  else sort(out);
  return st;
}

int64_t ac_ckpt_last_sequence(const char *parent) {
  int64_t last = 0;
  DIR *d = opendir(parent);
  if (d == NULL) return 0;
  for (struct dirent *f; (f = readdir(d)) != NULL;) {
    if (f->d_name[0] == '.' || aci_ckpt_base_of(f->d_name, ".tmp-") > 0) continue;
    aci_manifest m = {.part = -1};
    char *folder = aci_ckpt_join(parent, f->d_name),
         *path = folder != NULL ? aci_ckpt_join(folder, ACI_CKPT_MANIFEST) : NULL;
    if (path != NULL && aci_manifest_read(&m, path, -1, NULL) == AC_OK && m.sequence > last)
      last = m.sequence;
    aci_manifest_fini(&m);
    free(path);
    free(folder);
  }
  closedir(d);
  return last;
}

static bool counts(const ac_ckpt_entry *x, const ac_ckpt_prune_options *o) {
  if (x->status != AC_CKPT_OK || x->number < 0) return false;
  for (int i = 0; i < o->n_runs && o->runs != NULL; i++)
    if (strcmp(o->runs[i], x->run) == 0) return true;
  return o->runs == NULL;
}

ac_status ac_ckpt_prune_with(const char *parent, int keep, const ac_ckpt_prune_options *o,
                             ac_ckpt_list *out, ac_err *e) {
  static const ac_ckpt_prune_options defaults = AC_CKPT_PRUNE_OPTIONS_INIT;
  ac_ckpt_list all;
  int whole = 0, cap = 0;
  *out = (ac_ckpt_list){0};
  if (o == NULL) o = &defaults;
  if (keep < 1) return AC_FAIL(e, INVALID, "prune keeps 1 checkpoint or more, not %d", keep);
  AC_TRY(ac_ckpt_scan(parent, &all, e));
  ac_status st = AC_OK;
  for (int i = 0; i < all.n; i++) whole += counts(&all.entry[i], o);
  for (int i = 0; i < all.n && whole > keep && st == AC_OK; i++) {
    ac_ckpt_entry *x = &all.entry[i];
    if (!counts(x, o)) continue;
    whole--;
    if (o->spare != NULL && strcmp(o->spare, x->name) == 0) continue;
    if (!o->dry_run) st = aci_ckpt_discard(x->path, e);
    if (st == AC_OK) {
      st = append(out, &cap, *x, e);
      *x = (ac_ckpt_entry){0};
    }
  }
  ac_ckpt_list_free(&all);
  if (st != AC_OK) ac_ckpt_list_free(out);
  return st;
}

ac_status ac_ckpt_prune(const char *parent, int keep, ac_ckpt_list *out, ac_err *e) {
  return ac_ckpt_prune_with(parent, keep, NULL, out, e);
}
