/* Writing a set of files: see set.h. The note and the switch are in set_note.c. */
#include "file/set.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "file/left_over.h"

enum { NAME_BYTES = 180 };

typedef struct set_entry {
  char *name;
  char *tmp; /* on disk. NULL: a file to remove, or one that is open or was given up */
  bool removed;
  aci_atomic_file *open;
} set_entry;

struct aci_set {
  char *folder;
  char id[ACI_TEMP_ID];
  unsigned mode;
  aci_atomic_file note;
  int n, cap;
  set_entry *entry;
  bool closed;
};

static ac_status no_memory(const char *folder, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory for a set of files", aci_path_shown(folder, shown));
}

/* ---- a set ---- */

ac_status aci_set_open(const char *folder, unsigned mode, aci_set **out, ac_err *e) {
  ac_status st;
  *out = NULL;
  aci_set *s = calloc(1, sizeof *s);
  if (s == NULL) return no_memory(folder, e);
  s->note.fd = -1;
  s->mode = mode;
  s->folder = strdup(folder[0] != 0 ? folder : ".");
  for (size_t n = s->folder == NULL ? 0 : strlen(s->folder); n > 1 && s->folder[n - 1] == '/';)
    s->folder[--n] = 0;
  char *note = s->folder == NULL ? NULL : aci_set_join(s->folder, ACI_SET_NOTE);
  if (note == NULL) {
    st = no_memory(folder, e);
    goto fail;
  }
  AC_GOTO(fail, st, aci_make_folders(s->folder, e));
  AC_GOTO(fail, st, aci_set_recover(s->folder, e)); /* first: the next call follows a link */
  AC_GOTO(fail, st, aci_atomic_open_as(&s->note, note, mode, 0, e));
  snprintf(s->id, sizeof s->id, "%s", s->note.tmp + strlen(s->note.tmp) - (ACI_TEMP_ID - 1));
  free(note);
  *out = s;
  return AC_OK;
fail:
  free(note);
  aci_set_free(s);
  return st;
}

static ac_status new_entry(aci_set *s, const char *name, set_entry **out, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (s->closed)
    return AC_FAIL(e, RELEASED, "%s: the set of files is closed", aci_path_shown(s->folder, shown));
  if (!aci_set_fine(name) || strcmp(name, ACI_SET_NOTE) == 0)
    return AC_FAIL(
        e, INVALID,
        "%s: '%.100s' is not a valid name for a file of a set; use one component without control characters",
        aci_path_shown(s->folder, shown), name);
  for (int i = 0; i < s->n; i++)
    if (strcmp(s->entry[i].name, name) == 0 &&
        (s->entry[i].tmp != NULL || s->entry[i].open != NULL || s->entry[i].removed))
      return AC_FAIL(e, INVALID, "%s: the set already has a file '%s'",
                     aci_path_shown(s->folder, shown), name);
  if (s->n == s->cap) {
    const int cap = s->cap > 0 ? 2 * s->cap : 8;
    set_entry *more = realloc(s->entry, (size_t)cap * sizeof *more);
    if (more == NULL) return no_memory(s->folder, e);
    s->entry = more;
    s->cap = cap;
  }
  set_entry *x = &s->entry[s->n];
  *x = (set_entry){.name = strdup(name)};
  if (x->name == NULL) return no_memory(s->folder, e);
  s->n++;
  *out = x;
  return AC_OK;
}

/* May this file be replaced or removed? In a sticky folder only by its owner. A note that cannot be
 * carried out would stay for good. */
static ac_status may_change(const aci_set *s, const char *path, const struct stat *sb, ac_err *e) {
  struct stat there;
  if (geteuid() == 0 || sb->st_uid == geteuid() || stat(s->folder, &there) != 0) return AC_OK;
  if (!(there.st_mode & S_ISVTX) || there.st_uid == geteuid()) return AC_OK;
  return aci_io_error(e, path, "another user's file in a shared folder", EPERM);
}

ac_status aci_set_add(aci_set *s, const char *name, uint64_t expected_bytes, aci_atomic_file *f,
                      ac_err *e) {
  struct stat sb;
  set_entry *x;
  ac_status st;
  *f = (aci_atomic_file){.fd = -1};
  AC_TRY(new_entry(s, name, &x, e));
  const size_t room = strlen(s->folder) + NAME_BYTES + 64;
  f->path = aci_set_join(s->folder, name);
  f->tmp = malloc(room);
  if (f->path == NULL || f->tmp == NULL) {
    free(f->tmp);
    f->tmp = NULL;
    st = no_memory(s->folder, e);
    goto fail;
  }
  snprintf(f->tmp, room, "%s/%.*s.%d" ACI_SET_MARK "%s", s->folder, NAME_BYTES, name, s->n, s->id);
  const bool exists = lstat(f->path, &sb) == 0, linked = exists && S_ISLNK(sb.st_mode);
  st = exists && !linked ? aci_atomic_refuse(f->path, &sb, e) : AC_OK;
  if (st == AC_OK && exists) st = may_change(s, f->path, &sb, e);
  if (st != AC_OK) {
    free(f->tmp); /* not made */
    f->tmp = NULL;
    goto fail;
  }
  /* as in io.c: private until it has its permissions */
  const unsigned mode = s->mode != 0 ? s->mode : exists && !linked ? 0600 : 0666;
  ACI_AGAIN(f->fd, open(f->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (f->fd < 0) {
    st = aci_io_error(e, f->path, "cannot create a temporary file next to it", errno);
    free(f->tmp);
    f->tmp = NULL;
    goto fail;
  }
  f->set = s;
  x->open = f;
  AC_GOTO(fail, st, aci_atomic_inherit(f, f->path, exists && !linked ? &sb : NULL, s->mode, e));
  AC_GOTO(fail, st, aci_reserve(f->fd, f->path, expected_bytes, true, e));
  return AC_OK;
fail:
  aci_atomic_abort(f);
  return st;
}

static set_entry *entry_of(const aci_atomic_file *f) {
  for (int i = f->set->n; i-- > 0;)
    if (f->set->entry[i].open == f) return &f->set->entry[i];
  return NULL;
}

void aci_set_written(aci_atomic_file *f) {
  set_entry *x = entry_of(f);
  x->open = NULL;
  x->tmp = f->tmp;
  free(f->path);
  *f = (aci_atomic_file){.fd = -1};
}

void aci_set_given_up(aci_atomic_file *f) {
  set_entry *x = entry_of(f);
  if (x != NULL) x->open = NULL;
  f->set = NULL;
}

ac_status aci_set_remove(aci_set *s, const char *name, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  struct stat sb;
  set_entry *x;
  AC_TRY(new_entry(s, name, &x, e));
  char *path = aci_set_join(s->folder, name);
  if (path == NULL) return no_memory(s->folder, e);
  ac_status st = AC_OK;
  if (lstat(path, &sb) == 0) {
    if (S_ISDIR(sb.st_mode))
      st = AC_FAIL(e, IO, "%s: is a folder and cannot be removed", aci_path_shown(path, shown));
    else st = may_change(s, path, &sb, e);
  }
  free(path);
  if (st != AC_OK) return st;
  x->removed = true;
  return AC_OK;
}

/* Writes the note to disk under its temporary name, with every temporary name. */
static ac_status write_note(aci_set *s, aci_strbuf *text, ac_err *e) {
  aci_strbuf_puts(text, ACI_SET_FIRST);
  for (int i = 0; i < s->n; i++) {
    const set_entry *x = &s->entry[i];
    if (x->tmp != NULL) aci_strbuf_printf(text, "put %s\t%s\n", strrchr(x->tmp, '/') + 1, x->name);
  }
  for (int i = 0; i < s->n; i++)
    if (s->entry[i].removed) aci_strbuf_printf(text, "remove %s\n", s->entry[i].name);
  aci_strbuf_puts(text, ACI_SET_LAST);
  if (text->failed) return no_memory(s->folder, e);
  int rc;
  AC_TRY(aci_atomic_write(&s->note, text->s, text->len, e));
  ACI_AGAIN(rc, fsync(s->note.fd));
  if (rc != 0) return aci_io_error(e, s->note.path, "cannot sync it to disk", errno);
  return aci_sync_folder(s->folder, e);
}

/* The moment of the switch. Another set of this folder that is in the way is completed first. */
static ac_status place_note(aci_set *s, ac_err *e) {
  int rc;
  struct stat before, after;
  for (int tries = 0; tries < 100; tries++) {
    rc = aci_rename_new(s->note.tmp, s->note.path);
    if (rc == 0 || errno != EEXIST) break;
    const bool there = lstat(s->note.path, &before) == 0;
    AC_TRY(aci_set_recover(s->folder, e));
    const bool stays = there && lstat(s->note.path, &after) == 0 && before.st_ino == after.st_ino &&
                       before.st_dev == after.st_dev &&
                       before.st_ctim.tv_sec == after.st_ctim.tv_sec &&
                       before.st_ctim.tv_nsec == after.st_ctim.tv_nsec;
    errno = EEXIST;
    if (stays) break; /* nobody can complete it or set it aside */
  }
  if (rc != 0)
    return aci_io_error(e, s->note.path,
                        errno == EEXIST ? "the note of another save is in the way"
                                        : "cannot be put in place",
                        errno);
  free(s->note.tmp); /* its name is no longer temporary */
  s->note.tmp = NULL;
  const ac_status st = aci_sync_folder(s->folder, e);
  if (st != AC_OK) unlink(s->note.path); /* the old files stay */
  return st;
}

static ac_status commit_one(aci_set *s, set_entry *x, ac_err *e) {
  int rc;
  char *to = aci_set_join(s->folder, x->name);
  if (to == NULL) return no_memory(s->folder, e);
  ACI_AGAIN(rc, rename(x->tmp, to));
  const ac_status st = rc == 0 ? AC_OK : aci_io_error(e, to, "cannot replace it", errno);
  free(to);
  AC_TRY(st);
  free(x->tmp);
  x->tmp = NULL;
  return aci_sync_folder(s->folder, e);
}

ac_status aci_set_commit(aci_set *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  set_entry *last = NULL;
  int files = 0, removals = 0;
  if (s->closed)
    return AC_FAIL(e, RELEASED, "%s: the set of files is closed", aci_path_shown(s->folder, shown));
  for (int i = 0; i < s->n; i++) {
    if (s->entry[i].open != NULL)
      return AC_FAIL(e, STATE,
                     "%s: the file '%s' of the set is still open; commit or close it first",
                     aci_path_shown(s->folder, shown), s->entry[i].name);
    if (s->entry[i].tmp != NULL) files++, last = &s->entry[i];
    removals += s->entry[i].removed;
  }
  s->closed = true;
  if (files == 1 && removals == 0) return commit_one(s, last, e);
  if (files + removals == 0) return AC_OK;
  aci_strbuf text = {0};
  ac_status st = write_note(s, &text, e);
  if (st == AC_OK) st = place_note(s, e);
  if (st == AC_OK) {
    for (int i = 0; i < s->n; i++) {
      free(s->entry[i].tmp); /* the note has them now */
      s->entry[i].tmp = NULL;
    }
    st = aci_set_apply(s->folder, text.s, text.len, e);
  }
  aci_strbuf_fini(&text);
  return st;
}

const char *aci_set_folder(const aci_set *s) { return s->folder; }

void aci_set_free(aci_set *s) {
  if (s == NULL) return;
  for (int i = 0; i < s->n; i++) {
    set_entry *x = &s->entry[i];
    if (x->open != NULL) aci_atomic_abort(x->open);
    if (x->tmp != NULL) unlink(x->tmp);
    free(x->tmp);
    free(x->name);
  }
  /* after the files: while its lock is held they do not count as left over */
  aci_atomic_abort(&s->note);
  free(s->entry);
  free(s->folder);
  free(s);
}
