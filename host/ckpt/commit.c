/* From files on disk to a checkpoint. Parts meet in the temporary folder alone. Each leaves a
 * manifest of its files. Part 0 waits for all of them, lists everything in MANIFEST.json and
 * renames the folder. The others see it there. A part that fails leaves its message instead, which
 * ends the save for all. The lock reveals a part whose process has ended. Runs in the save's thread
 * (save.c). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/ckpt_impl.h"
#include "file/io.h"

enum { FIRST_NAP_US = 1000, LONGEST_NAP_US = 20000, LIFE_EVERY_MS = 500, GRACE_MS = 5000 };

static ac_status no_memory(ac_err *e) { return AC_FAIL(e, OOM, "no memory for a checkpoint"); }

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(int *us) {
  usleep((unsigned)*us);
  *us = *us * 2 < LONGEST_NAP_US ? *us * 2 : LONGEST_NAP_US;
}

static char *part_path(const ac_ckpt_save *s, int part, const char *what) {
  char name[48];
  snprintf(name, sizeof name, "part-%d.%s", part, what);
  return aci_ckpt_join(s->folder, name);
}

/* ---- small files of the protocol ---- */

static ac_status write_whole(const char *path, const char *text, size_t n, ac_err *e) {
  aci_atomic_file f = {.fd = -1};
  ac_status st = aci_atomic_open(&f, path, n, e);
  if (st == AC_OK) st = aci_atomic_write(&f, text, n, e);
  if (st == AC_OK) st = aci_atomic_commit(&f, e);
  aci_atomic_abort(&f);
  return st;
}

static ac_status write_manifest(const aci_manifest *m, const aci_json *state, char *path_take,
                                ac_err *e) {
  aci_strbuf text = {0};
  ac_status st = path_take != NULL ? aci_manifest_text(m, state, &text, e) : no_memory(e);
  if (st == AC_OK && text.len > ACI_CKPT_MAX_MANIFEST)
    st = AC_FAIL(e, INVALID, "%s: the manifest would have %zu bytes (limit %llu)", path_take,
                 text.len, (unsigned long long)ACI_CKPT_MAX_MANIFEST);
  if (st == AC_OK) st = write_whole(path_take, text.s, text.len, e);
  aci_strbuf_fini(&text);
  free(path_take);
  return st;
}

static ac_status own_manifest(const ac_ckpt_save *s, aci_manifest *m, ac_err *e) {
  m->parts = s->parts;
  memcpy(m->id, s->id, ACI_CKPT_ID);
  for (int i = 0; i < s->n; i++)
    AC_TRY(aci_manifest_add(m, s->file[i].name, s->file[i].size, s->file[i].crc, e));
  return aci_manifest_sort(m, s->path, e);
}

/* ---- looking at the others ---- */

/* The message of a part that failed by itself, if one did. */
static ac_status look_for_failure(ac_ckpt_save *s, ac_err *e) {
  DIR *d = opendir(s->folder);
  if (d == NULL) return AC_OK; /* renamed or removed: the caller looks */
  ac_status st = AC_OK;
  for (struct dirent *x; st == AC_OK && (x = readdir(d)) != NULL;) {
    int part = -1, used = 0;
    if (sscanf(x->d_name, "part-%9d.failed%n", &part, &used) != 1 || used == 0 ||
        x->d_name[used] != 0)
      continue;
    if (part == s->part) continue;
    char *path = aci_ckpt_join(s->folder, x->d_name), *text = NULL, shown[ACI_PATH_SHOWN];
    size_t n = 0;
    if (path != NULL && aci_read_whole(path, 4096, &text, &n, NULL) == AC_OK && n == 0) {
      free(text); /* being written */
      free(path);
      continue;
    }
    s->other = true;
    st = AC_FAIL(e, IO, "%s: part %d could not write its files: %.380s",
                 aci_path_shown(s->path, shown), part,
                 text != NULL ? text : "its message cannot be read");
    free(text);
    free(path);
  }
  closedir(d);
  return st;
}

static ac_status ended(const ac_ckpt_save *s, int part, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, PEER, "%s: the process that wrote part %d ended before it was done",
                 aci_path_shown(s->path, shown), part);
}

/* ---- part 0 ---- */

/* Waits for the manifests of parts 1 .. n-1 and adds their files to m. */
static ac_status collect(ac_ckpt_save *s, aci_manifest *m, ac_err *e) {
  int us = FIRST_NAP_US;
  int64_t looked = now_ms();
  for (int r = 1; r < s->parts;) {
    char *path = part_path(s, r, "json");
    if (path == NULL) return no_memory(e);
    const bool there = access(path, F_OK) == 0;
    ac_status st = AC_OK;
    if (there) {
      aci_manifest part = {.part = -1};
      st = aci_manifest_read(&part, path, r, e);
      if (st == AC_OK && (strcmp(part.id, s->id) != 0 || part.parts != s->parts))
        st = AC_FAIL(e, MISMATCH, "%s: part %d belongs to another save, or counts %d parts, not %d",
                     s->path, r, part.parts, s->parts);
      for (int i = 0; i < part.n && st == AC_OK; i++)
        st = aci_manifest_add(m, part.file[i].name, part.file[i].bytes, part.file[i].crc32c, e);
      aci_manifest_fini(&part);
    }
    free(path);
    AC_TRY(st);
    if (there) {
      r++;
      us = FIRST_NAP_US;
      continue;
    }
    AC_TRY(aci_ckpt_stopped(s, e));
    AC_TRY(look_for_failure(s, e));
    if (now_ms() - looked >= LIFE_EVERY_MS) {
      for (int k = r; k < s->parts; k++) {
        if (aci_owner_look(s->folder, k) != ACI_OWNER_DEAD) continue;
        char *json = part_path(s, k, "json");
        const bool wrote = json != NULL && access(json, F_OK) == 0;
        free(json);
        if (!wrote) return ended(s, k, e);
      }
      looked = now_ms();
    }
    nap(&us);
  }
  return aci_manifest_sort(m, s->path, e);
}

static ac_status remove_file(char *path_take, ac_err *e) {
  int rc;
  if (path_take == NULL) return no_memory(e);
  ACI_AGAIN(rc, unlink(path_take));
  const ac_status st =
      rc == 0 || errno == ENOENT ? AC_OK : aci_io_error(e, path_take, "cannot remove", errno);
  free(path_take);
  return st;
}

/* Removes the files that parts left for part 0. Its own lock stays, otherwise another save's sweep
 * would take the folder. */
static ac_status tidy(const ac_ckpt_save *s, ac_err *e) {
  for (int r = 0; r < s->parts; r++) {
    char name[32];
    AC_TRY(remove_file(part_path(s, r, "json"), e));
    snprintf(name, sizeof name, "owner-%d.lock", r);
    if (r > 0) AC_TRY(remove_file(aci_ckpt_join(s->folder, name), e));
  }
  return AC_OK;
}

/* Brings the folders to disk, of all parts' files. */
static ac_status sync_folders(const ac_ckpt_save *s, const aci_manifest *m, ac_err *e) {
  char *last = NULL;
  ac_status st = AC_OK;
  for (int i = 0; i < m->n && st == AC_OK; i++) {
    char *p = aci_ckpt_join(s->folder, m->file[i].name);
    if (p == NULL) st = no_memory(e);
    /* from the file's folder up to the checkpoint's. The manifest is sorted, so that neighbours
     * share them */
    for (char *slash; st == AC_OK && (slash = strrchr(p, '/')) > p + strlen(s->folder);) {
      *slash = 0;
      if (last != NULL && strcmp(last, p) == 0) break;
      st = aci_sync_folder(p, e);
      free(last);
      last = strdup(p);
    }
    free(p);
  }
  free(last);
  return st == AC_OK ? aci_sync_folder(s->folder, e) : st;
}

static ac_status cannot_rename(const ac_ckpt_save *s, int err, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (err == EEXIST || err == ENOTEMPTY)
    return AC_FAIL(e, IO, "%s: already exists; choose another name or set the option replace",
                   aci_path_shown(s->path, shown));
  return aci_io_error(e, s->path, "cannot rename its temporary folder", err);
}

/* Replaces the committed checkpoint at path. Both are exchanged in one step if the file system can.
 * Otherwise the old one gets a name under which readers still find it. *old: the folder to remove
 * afterwards, malloc'ed. */
static ac_status rename_over(const ac_ckpt_save *s, char **old, ac_err *e) {
  int rc;
  ACI_AGAIN(rc, aci_rename_as(s->folder, s->path, ACI_RENAME_EXCHANGE));
  if (rc == 0) {
    *old = strdup(s->folder);
    return AC_OK;
  }
  if (errno != EINVAL && errno != ENOSYS) return cannot_rename(s, errno, e);
  const size_t n = strlen(s->path) + 32;
  if ((*old = malloc(n)) == NULL) return no_memory(e);
  snprintf(*old, n, "%s.old-%s", s->path, s->id);
  ACI_AGAIN(rc, rename(s->path, *old));
  if (rc != 0) return cannot_rename(s, errno, e);
  ACI_AGAIN(rc, rename(s->folder, s->path));
  if (rc == 0) return AC_OK;
  const ac_status st = cannot_rename(s, errno, e);
  ACI_AGAIN(rc, rename(*old, s->path));
  return st;
}

static ac_status rename_folder(const ac_ckpt_save *s, char **old, ac_err *e) {
  struct stat sb;
  int rc;
  if (s->replace && lstat(s->path, &sb) == 0) return rename_over(s, old, e);
  ACI_AGAIN(rc, aci_rename_as(s->folder, s->path, ACI_RENAME_NEW));
  if (rc == 0) return AC_OK;
  if (errno != EINVAL && errno != ENOSYS) return cannot_rename(s, errno, e);
  if (lstat(s->path, &sb) == 0) return cannot_rename(s, EEXIST, e);
  ACI_AGAIN(rc, rename(s->folder, s->path));
  return rc == 0 ? AC_OK : cannot_rename(s, errno, e);
}

/* Greater than every sequence in the folder and than the run's last, even if the clock was set
 * back. */
static int64_t next_sequence(const ac_ckpt_save *s) {
  struct timespec t;
  const int64_t there = ac_ckpt_last_sequence(s->parent),
                last = there > s->after ? there : s->after;
  const int64_t now =
      clock_gettime(CLOCK_REALTIME, &t) == 0 ? (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000 : 0;
  return now > last ? now : last < ACI_CKPT_MAX_SEQUENCE ? last + 1 : ACI_CKPT_MAX_SEQUENCE;
}

static ac_status commit_all(ac_ckpt_save *s, aci_manifest *m, ac_err *e) {
  AC_TRY(own_manifest(s, m, e));
  AC_TRY(collect(s, m, e));
  AC_TRY(look_for_failure(s, e));
  memcpy(m->run, s->run, sizeof m->run);
  m->continues = s->continues != NULL ? aci_json_root(s->continues) : NULL;
  m->sequence = next_sequence(s);
  AC_TRY(write_manifest(m, s->state != NULL ? aci_json_root(s->state) : NULL,
                        aci_ckpt_join(s->folder, ACI_CKPT_MANIFEST), e));
  AC_TRY(tidy(s, e));
  AC_TRY(sync_folders(s, m, e));
  AC_TRY(aci_ckpt_stopped(s, e));
  char *old = NULL;
  ac_status st = rename_folder(s, &old, e);
  if (st == AC_OK) {
    atomic_store_explicit(&s->sequence, m->sequence, memory_order_relaxed);
    s->committed = true; /* from here on it is there, whatever else happens */
    st = aci_sync_folder(s->parent, e);
    remove_file(aci_ckpt_join(s->path, "owner-0.lock"), NULL);
    if (st == AC_OK && old != NULL) aci_ckpt_discard(old, NULL);
    if (st == AC_OK) aci_ckpt_sweep(s->parent, s->folder);
  }
  free(old);
  return st;
}

/* ---- the other parts ---- */

/* Is the checkpoint at path the one we wrote into? */
static bool is_committed(const ac_ckpt_save *s) {
  char *path = aci_ckpt_join(s->path, ACI_CKPT_MANIFEST);
  aci_manifest m = {.part = -1};
  const bool yes =
      path != NULL && aci_manifest_read(&m, path, -1, NULL) == AC_OK && strcmp(m.id, s->id) == 0;
  aci_manifest_fini(&m);
  free(path);
  return yes;
}

static ac_status await_commit(ac_ckpt_save *s, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  int us = FIRST_NAP_US;
  for (int64_t looked = now_ms();;) {
    AC_TRY(look_for_failure(s, e));
    if (access(s->folder, F_OK) != 0 && errno == ENOENT) {
      s->committed = is_committed(s);
      if (s->committed) return AC_OK;
      return AC_FAIL(e, IO, "%s: part 0 gave up the save", aci_path_shown(s->path, shown));
    }
    AC_TRY(aci_ckpt_stopped(s, e));
    if (now_ms() - looked >= LIFE_EVERY_MS) {
      if (aci_owner_look(s->folder, 0) == ACI_OWNER_DEAD) return ended(s, 0, e);
      looked = now_ms();
    }
    nap(&us);
  }
}

ac_status aci_ckpt_commit(ac_ckpt_save *s, ac_err *e) {
  aci_manifest m = {.part = s->part > 0 ? s->part : -1};
  ac_status st;
  if (s->part == 0) {
    st = commit_all(s, &m, e);
  } else {
    st = own_manifest(s, &m, e);
    if (st == AC_OK) st = write_manifest(&m, NULL, part_path(s, s->part, "json"), e);
    if (st == AC_OK) st = await_commit(s, e);
  }
  aci_manifest_fini(&m);
  return st;
}

/* ---- failure ---- */

void aci_ckpt_give_up(ac_ckpt_save *s, const char *why) {
  if (s->committed || s->folder == NULL) return;
  if (s->parts > 1) {
    char *path = part_path(s, s->part, s->other ? "left" : "failed");
    if (path != NULL && access(s->folder, F_OK) == 0) {
      ac_err e;
      const char *text = why != NULL && why[0] != 0 ? why : "it was given up";
      if (write_whole(path, text, strlen(text), &e) != AC_OK)
        ac_log_write(AC_LOG_WARN, "ckpt", "%s", e.msg);
    }
    free(path);
  }
  if (s->part > 0) return;
  /* the others read why, and say that they did by a message of their own, before the folder goes */
  int us = FIRST_NAP_US;
  for (const int64_t until = now_ms() + GRACE_MS; s->parts > 1 && now_ms() < until; nap(&us)) {
    bool all = true;
    for (int r = 1; r < s->parts && all; r++) {
      char *failed = part_path(s, r, "failed"), *left = part_path(s, r, "left");
      all = failed == NULL || left == NULL || access(failed, F_OK) == 0 ||
            access(left, F_OK) == 0 || aci_owner_look(s->folder, r) != ACI_OWNER_LIVE;
      free(failed);
      free(left);
    }
    if (all) break;
  }
  aci_ckpt_remove_tree(s->folder, NULL);
}
