/* The note of a set of files and the switch that it stands for: see set.h. The note is text: "accel
 * set 1", then a line for each file, "put TEMPORARY\tNAME" or "remove NAME", then "end". A note
 * that is not whole changes nothing and is set aside. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/json.h"
#include "file/left_over.h"
#include "file/set.h"

enum { NAPS = 2000, NAP_US = 5000, MOST_NOTE = 64 << 20, A_LINK = -2 };

static ac_status no_memory(const char *folder, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  return AC_FAIL(e, OOM, "%s: no memory for the note of a set of files",
                 aci_path_shown(folder, shown));
}

char *aci_set_join(const char *folder, const char *name) {
  const size_t n = strlen(folder) + strlen(name) + 2;
  char *p = malloc(n);
  if (p != NULL) snprintf(p, n, "%s/%s", folder, name);
  return p;
}

bool aci_set_fine(const char *name) {
  if (name[0] == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) > 255)
    return false;
  for (const char *c = name; *c != 0; c++)
    if (*c == '/' || (unsigned char)*c < 32 || *c == 127) return false;
  return true;
}

static ac_status stuck(const char *folder, const char *name, int err, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  if (err == EROFS || err == EACCES || err == EPERM)
    return AC_FAIL(
        e, IO,
        "%s: a save was interrupted here and cannot be completed (%s: %s); load the folder once as a user who may write to it",
        aci_path_shown(folder, shown), name, strerror(err));
  return AC_FAIL(e, IO, "%s: a save was interrupted here and cannot be completed: %s: %s",
                 aci_path_shown(folder, shown), name, strerror(err));
}

/* Renames from to name, or removes name if from is NULL. at: the folder, -1: by its path. Returns
 * errno, 0: done. */
static int change(const char *folder, int at, const char *from, const char *name) {
  int rc = -1;
  if (at >= 0) {
    if (from != NULL) ACI_AGAIN(rc, renameat(at, from, at, name));
    else ACI_AGAIN(rc, unlinkat(at, name, 0));
    return rc == 0 ? 0 : errno;
  }
  char *to = aci_set_join(folder, name), *of = from != NULL ? aci_set_join(folder, from) : NULL;
  errno = ENOMEM;
  if (to != NULL && of != NULL) ACI_AGAIN(rc, rename(of, to));
  else if (to != NULL && from == NULL) ACI_AGAIN(rc, unlink(to));
  const int err = rc == 0 ? 0 : errno;
  free(to);
  free(of);
  return err;
}

/* A damaged note cannot be completed: the existing files stay, and later saves may replace the
 * note. at: as for change. */
static ac_status set_aside(const char *folder, int at, ac_err *e) {
  char shown[ACI_PATH_SHOWN], id[ACI_TEMP_ID], name[sizeof ACI_SET_NOTE + 16 + ACI_TEMP_ID];
  aci_temp_id(id);
  snprintf(name, sizeof name, ACI_SET_NOTE ".damaged-%s", id);
  const int err = change(folder, at, ACI_SET_NOTE, name);
  if (err == ENOMEM) return no_memory(folder, e);
  const char *where = aci_path_shown(folder, shown);
  if (err == 0)
    ac_log_write(
        AC_LOG_WARN, "io",
        "%s/%s: the note of an interrupted save is damaged, and was renamed %s; the files here may be of two "
        "saves, so save again or compare them",
        where, ACI_SET_NOTE, name);
  else if (err != ENOENT)
    ac_log_write(
        AC_LOG_WARN, "io",
        "%s/%s: the note of an interrupted save is damaged and cannot be renamed: %s; remove it",
        where, ACI_SET_NOTE, strerror(err));
  return AC_OK;
}

/* Splits a line of a note: *from is NULL if the file is to be removed. */
static bool parse_line(char *line, char **from, char **name) {
  char *tab = strchr(line, '\t');
  const bool put = strncmp(line, "put ", 4) == 0;
  if (put ? tab == NULL : strncmp(line, "remove ", 7) != 0) return false;
  if (put) *tab = 0;
  *from = put ? line + 4 : NULL;
  *name = put ? tab + 1 : line + 7;
  return aci_set_fine(*name) && (!put || (aci_set_fine(*from) && aci_temp_of_set(*from)));
}

/* Is the note whole? Its lines, `*lines` of them, then end in a zero and have no tab. */
static bool parse(char *text, size_t n, int *lines) {
  const size_t first = sizeof ACI_SET_FIRST - 1, last = sizeof ACI_SET_LAST - 1;
  char *from, *name;
  *lines = 0;
  if (n < first + last || memcmp(text, ACI_SET_FIRST, first) != 0 ||
      memcmp(text + n - last, ACI_SET_LAST, last) != 0)
    return false;
  text[n - last] = 0;
  for (char *line = text + first, *end; line < text + n - last; line = end + 1, ++*lines) {
    if ((end = strchr(line, '\n')) == NULL) return false;
    *end = 0;
    if (!parse_line(line, &from, &name)) return false;
    if (from != NULL) name[-1] = '\t';
  }
  return true;
}

/* Carries out a note that is whole, and removes it. Repeating any part of it changes nothing. at:
 * the folder that holds the note of another user, who might meanwhile replace it by a link to some
 * other folder. -1: the note is ours. */
static ac_status apply(const char *folder, int at, char *text, int lines, ac_err *e) {
  char *from, *name, *line = text + sizeof ACI_SET_FIRST - 1;
  bool in_vain = false; /* a folder has the name of a file: no later try would help */
  for (int i = 0; i < lines; i++) {
    char *next = line + strlen(line) + 1;
    if (!parse_line(line, &from, &name)) return AC_FAIL(e, INTERNAL, "a note of a set changed");
    /* a temporary file that is missing was renamed before the process that wrote the note was
     * killed */
    const int err = change(folder, at, from, name);
    if (err == ENOMEM) return no_memory(folder, e);
    in_vain |= err == EISDIR || err == ENOTDIR;
    if (err != 0 && err != ENOENT && err != EISDIR && err != ENOTDIR)
      return stuck(folder, name, err, e);
    line = next;
  }
  AC_TRY(aci_sync_folder(folder, e)); /* the note may only go when nothing is left to do */
  if (in_vain) return set_aside(folder, at, e);
  const int err = change(folder, at, NULL, ACI_SET_NOTE);
  if (err == ENOMEM) return no_memory(folder, e);
  if (err != 0 && err != ENOENT) return stuck(folder, ACI_SET_NOTE, err, e);
  return aci_sync_folder(folder, e);
}

/* Whether there is a note whose writer may direct our renames and removals. Anyone who can make a
 * file in a folder can do both himself, except in a sticky folder such as /tmp: there a note counts
 * when it belongs to us or to the folder's owner. */
static bool counts(const char *folder, const char *note) {
  struct stat mine, there;
  if (lstat(note, &mine) != 0 || stat(folder, &there) != 0) return false;
  return !(there.st_mode & S_ISVTX) || mine.st_uid == geteuid() || mine.st_uid == there.st_uid;
}

/* Locks the note that is in place now. *fd: -1 when there is none, A_LINK when a symbolic link has
 * its name. */
static ac_status hold_note(const char *folder, const char *note, int *out, ac_err *e) {
  char shown[ACI_PATH_SHOWN];
  struct stat mine, there;
  *out = -1;
  for (int naps = 0; naps < NAPS; naps++) {
    int fd, rc;
    if (!counts(folder, note)) return AC_OK;
    ACI_AGAIN(fd, open(note, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (fd < 0 && errno == ELOOP) *out = A_LINK;
    if (fd < 0)
      return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                 ? AC_OK
                 : stuck(folder, ACI_SET_NOTE, errno, e);
    ACI_AGAIN(rc, flock(fd, LOCK_EX | LOCK_NB));
    const bool busy = rc != 0 && errno == EWOULDBLOCK;
    if (!busy && fstat(fd, &mine) == 0 && lstat(note, &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev) {
      *out = fd;
      return AC_OK;
    }
    close(fd);
    if (busy) usleep(NAP_US);
  }
  return AC_FAIL(
      e, TIMEOUT,
      "%s: another process has been replacing files here for %d seconds; wait for it or end it",
      aci_path_shown(folder, shown), NAPS / (1000000 / NAP_US));
}

/* The folder itself, if the note held as fd belongs to another user. -1: the note is ours. */
static ac_status pin(const char *folder, int fd, int *at, ac_err *e) {
  struct stat held, there;
  *at = -1;
  if (fstat(fd, &held) == 0 && held.st_uid == geteuid()) return AC_OK;
  ACI_AGAIN(*at, open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (*at < 0) return stuck(folder, ACI_SET_NOTE, errno, e);
  if (fstatat(*at, ACI_SET_NOTE, &there, AT_SYMLINK_NOFOLLOW) == 0 && held.st_ino == there.st_ino &&
      held.st_dev == there.st_dev)
    return AC_OK;
  return stuck(folder, ACI_SET_NOTE, ESTALE, e); /* somebody exchanges folders under us */
}

/* Reads and carries out the note that is held as fd. */
static ac_status complete(const char *folder, const char *note, int fd, ac_err *e) {
  struct stat sb;
  char *text;
  int at = -1, lines;
  if (fstat(fd, &sb) != 0 || !S_ISREG(sb.st_mode) || sb.st_size > MOST_NOTE)
    return set_aside(folder, -1, e);
  if ((text = malloc((size_t)sb.st_size + 1)) == NULL) return no_memory(folder, e);
  ac_status st = aci_pread_all(fd, note, text, (size_t)sb.st_size, 0, e);
  if (st == AC_OK && !parse(text, (size_t)sb.st_size, &lines)) st = set_aside(folder, -1, e);
  else if (st == AC_OK && (st = pin(folder, fd, &at, e)) == AC_OK)
    st = apply(folder, at, text, lines, e);
  if (at >= 0) close(at);
  free(text);
  return st;
}

ac_status aci_set_recover(const char *folder, ac_err *e) {
  int fd;
  char *note = aci_set_join(folder, ACI_SET_NOTE);
  if (note == NULL) return no_memory(folder, e);
  ac_status st = hold_note(folder, note, &fd, e);
  if (fd == A_LINK) st = set_aside(folder, -1, e);
  else if (fd >= 0) st = complete(folder, note, fd, e);
  if (fd >= 0) close(fd);
  free(note);
  return st;
}

ac_status aci_set_recover_beside(const char *path, ac_err *e) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL) return aci_set_recover(".", e);
  char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
  if (folder == NULL) return no_memory(path, e);
  const ac_status st = aci_set_recover(folder, e);
  free(folder);
  return st;
}

ac_status aci_set_apply(const char *folder, char *text, size_t n, ac_err *e) {
  int lines;
  return parse(text, n, &lines) ? apply(folder, -1, text, lines, e)
                                : AC_FAIL(e, INTERNAL, "the note of a set is not whole");
}
