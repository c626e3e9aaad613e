/* The folder in which jobs of this user are found: its place, its owner, a job's token, the files
 * of each rank. Called by attach.c. Readers are in lua/attach/. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_impl.h"
#include "base/json.h"
#include "base/visible.h"

enum { ATTEMPTS = 100 };

/* The user's own folder or nothing: a link, another owner or a mode that lets others in is
 * refused. */
static ac_status open_own(int parent, const char *name, const char *shown, int *fd, ac_err *e) {
  struct stat s;
  /* who tidies up may remove it in between */
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
      return AC_FAIL(e, IO, "attach: cannot make %s: %s", shown, strerror(errno));
    *fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd >= 0 || errno != ENOENT) break;
  }
  if (*fd < 0) return AC_FAIL(e, IO, "attach: cannot open %s: %s", shown, strerror(errno));
  if (fstat(*fd, &s) == 0 && s.st_uid == geteuid() && (s.st_mode & 077) == 0) return AC_OK;
  close(*fd);
  *fd = -1;
  return AC_FAIL(e, STATE,
                 "attach: %s is not this user's alone (it must be owned by uid %u with mode 0700)",
                 shown, (unsigned)geteuid());
}

static uint64_t fnv(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s != 0; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return h;
}

/* The ranks of a job race for its token: whoever links a whole file to the name first has made
 * it. */
static ac_status read_token(aci_folder *f, ac_err *e) {
  for (int attempt = 0; attempt < 3; attempt++) {
    const int fd = openat(f->fd, "token", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
      const ssize_t n = read(fd, f->token, ACI_TOKEN);
      close(fd);
      if (n == ACI_TOKEN) return AC_OK;
      return AC_FAIL(e, IO, "attach: %s/token is cut off", f->path);
    }
    unsigned char random[ACI_TOKEN / 2];
    char text[ACI_TOKEN + 1], name[40];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
      return AC_FAIL(e, IO, "attach: the system has no random numbers");
    for (size_t i = 0; i < sizeof random; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
    snprintf(name, sizeof name, "token.%ld", (long)getpid());
    const int made = openat(f->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made < 0)
      return AC_FAIL(e, IO, "attach: cannot write %s/%s: %s", f->path, name, strerror(errno));
    const bool whole = write(made, text, ACI_TOKEN) == ACI_TOKEN;
    close(made);
    if (whole) linkat(f->fd, name, f->fd, "token", 0); /* there already: that one counts */
    unlinkat(f->fd, name, 0);
    if (!whole) return AC_FAIL(e, IO, "attach: cannot write %s/token: no space", f->path);
  }
  return AC_FAIL(e, IO, "attach: %s/token cannot be read", f->path);
}

/* Removes the folders of jobs whose ranks were killed. Ranks hold a lock on theirs. A rank whose
 * new folder was removed notices it (nlink) and makes it again. jobs: the folder of all jobs, at
 * path. */
static void tidy_killed(int jobs, const char *path, const char *own) {
  char folder[256];
  const int fd = openat(jobs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  if (d == NULL && fd >= 0) close(fd);
  for (struct dirent *x; d != NULL && (x = readdir(d)) != NULL;) {
    if (strspn(x->d_name, "0123456789abcdef") != 8 || x->d_name[8] != 0 ||
        strcmp(x->d_name, own) == 0)
      continue;
    if (snprintf(folder, sizeof folder, "%s/%s", path, x->d_name) < (int)sizeof folder)
      ac_attach_tidy(folder);
  }
  if (d != NULL) closedir(d);
}

ac_status aci_folder_open(aci_folder *f, const ac_attach_options *o, ac_err *e) {
  *f = (aci_folder){.fd = -1};
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  char parent[160], name[32], own[64];
  const bool has_runtime = runtime != NULL && runtime[0] == '/' && strlen(runtime) < sizeof parent;
  snprintf(parent, sizeof parent, "%s", has_runtime ? runtime : "/tmp");
  if (has_runtime) snprintf(name, sizeof name, "accel");
  else snprintf(name, sizeof name, "accel-%u", (unsigned)geteuid());
  if (o->job == NULL) snprintf(own, sizeof own, "%ld %lld", (long)getpid(), (long long)time(NULL));
  snprintf(f->job, sizeof f->job, "%08x", (unsigned)(fnv(o->job != NULL ? o->job : own) >> 32));
  snprintf(f->path, sizeof f->path, "%s/%s", parent, name);
  const int top = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (top < 0) return AC_FAIL(e, IO, "attach: cannot open %s: %s", parent, strerror(errno));
  int jobs = -1;
  ac_status st = open_own(top, name, f->path, &jobs, e);
  close(top);
  if (st != AC_OK) return st;
  /* the first rank of a job, for all of them */
  if (mkdirat(jobs, f->job, 0700) == 0) tidy_killed(jobs, f->path, f->job);
  snprintf(f->path + strlen(f->path), sizeof f->path - strlen(f->path), "/%s", f->job);
  for (int attempt = 0; attempt < ATTEMPTS; attempt++) { /* or between our opening and locking it */
    struct stat s;
    st = open_own(jobs, f->job, f->path, &f->fd, e);
    if (st != AC_OK) break;
    while (flock(f->fd, LOCK_SH) != 0 && errno == EINTR) continue;
    if (fstat(f->fd, &s) == 0 && s.st_nlink > 0) break;
    close(f->fd);
    f->fd = -1;
    st = AC_FAIL(e, IO, "attach: %s is removed again and again", f->path);
  }
  close(jobs);
  if (st == AC_OK) st = read_token(f, e);
  if (st != AC_OK) aci_folder_close(f);
  return st;
}

ac_status aci_folder_listen(aci_folder *f, int rank, int *fd, ac_err *e) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(f->socket, sizeof f->socket, "rank%d", rank);
  /* of an earlier attempt. Remove its description first: readers would use it to tidy up our
   * socket */
  char old[32];
  snprintf(old, sizeof old, "rank%d.json", rank);
  unlinkat(f->fd, old, 0);
  unlinkat(f->fd, f->socket, 0);
  /* by the descriptor: the folder's own path may be longer than an address has room for */
  snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", f->fd, f->socket);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*fd < 0) return AC_FAIL(e, IO, "attach: cannot create a socket: %s", strerror(errno));
  /* the folder keeps others out until the mode is set. The umask belongs to the process, and other
   * threads use it */
  if (bind(*fd, (struct sockaddr *)&a, sizeof a) == 0 && fchmodat(f->fd, f->socket, 0600, 0) == 0 &&
      listen(*fd, ACI_CLIENTS) == 0)
    return AC_OK;
  AC_FAIL(e, IO, "attach: cannot listen at %s/%s: %s", f->path, f->socket, strerror(errno));
  close(*fd);
  *fd = -1;
  return e != NULL ? e->code : AC_IO;
}

/* Clock ticks after boot at which the process began: pid and this name a process for good. */
static long long start_time(void) {
  char text[1024];
  const int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *p = strrchr(text, ')');
  for (int field = 2; p != NULL && field < 22; field++) p = strchr(p + 1, ' ');
  return p != NULL ? atoll(p + 1) : 0;
}

static void number(aci_json_writer *w, const char *key, int64_t v) {
  aci_json_key(w, key, strlen(key));
  aci_json_int(w, v);
}

/* Names of files may be any bytes, and JSON is UTF-8: other bytes are described as ps shows
 * them. */
static void text_of(aci_json_writer *w, const char *key, const char *s) {
  char shown[4 * PATH_MAX];
  const size_t n = aci_visible(shown, sizeof shown, s, strlen(s), false, NULL);
  aci_json_key(w, key, strlen(key));
  aci_json_string(w, shown, n);
}

ac_status aci_folder_describe(aci_folder *f, const ac_attach_options *o, ac_err *e) {
  aci_strbuf text = {0};
  aci_json_writer w = {.out = &text};
  char part[40];
  snprintf(f->description, sizeof f->description, "rank%d.json", o->rank);
  snprintf(part, sizeof part, "%s.part", f->description);
  aci_json_begin(&w, true);
  number(&w, "rank", o->rank);
  number(&w, "ranks", o->ranks);
  number(&w, "pid", getpid());
  number(&w, "start", start_time());
  number(&w, "began", (int64_t)time(NULL));
  number(&w, "segment", o->segment);
  text_of(&w, "script", o->script != NULL ? o->script : "");
  if (o->hosts != NULL && o->hosts[0] != 0) text_of(&w, "hosts", o->hosts);
  aci_json_end(&w);
  ac_status st = aci_json_finish(&w, e);
  if (st != AC_OK) {
    aci_strbuf_fini(&text);
    return st;
  }
  /* under another name first: a reader finds a whole one or none */
  const int fd = openat(f->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  const bool whole = fd >= 0 && write(fd, text.s, text.len) == (ssize_t)text.len;
  const int error = errno;
  if (fd >= 0) close(fd);
  aci_strbuf_fini(&text);
  if (whole && renameat(f->fd, part, f->fd, f->description) == 0) return AC_OK;
  unlinkat(f->fd, part, 0);
  return AC_FAIL(e, IO, "attach: cannot write %s/%s: %s", f->path, f->description, strerror(error));
}

/* Removes the files of ranks, and the folder itself. We alone hold its lock: no rank has it or
 * enters it meanwhile. */
static void remove_all(int folder, const char *path) {
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  if (d == NULL && fd >= 0) close(fd);
  for (struct dirent *x; d != NULL && (x = readdir(d)) != NULL;)
    if (strncmp(x->d_name, "rank", 4) == 0 || strncmp(x->d_name, "token", 5) == 0)
      unlinkat(folder, x->d_name, 0);
  if (d != NULL) closedir(d);
  rmdir(path);
}

bool ac_attach_tidy(const char *folder) {
  struct stat s;
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const bool ours =
      fd >= 0 && fstat(fd, &s) == 0 && s.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (ours) remove_all(fd, folder);
  if (fd >= 0) close(fd);
  return ours;
}

void aci_folder_close(aci_folder *f) {
  if (f->fd < 0) return;
  if (f->description[0] != 0) unlinkat(f->fd, f->description, 0);
  if (f->socket[0] != 0) unlinkat(f->fd, f->socket, 0);
  /* else another rank is there, and the last one does it */
  if (flock(f->fd, LOCK_EX | LOCK_NB) == 0) remove_all(f->fd, f->path);
  close(f->fd);
  *f = (aci_folder){.fd = -1};
}
