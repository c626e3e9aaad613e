/* Finding the secret of a job. See secret.h. */
#include "comm/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/tcp/mesh_impl.h"

enum { FRESH = 32, PATH = 1024, SHORT = 16 };

typedef struct secret {
  char text[ACI_SECRET_MOST + 1];
  size_t n;
  mode_t mode; /* of the file that it comes from; 0: none */
} secret;

void aci_forget(void *p, size_t n) { explicit_bzero(p, n); }

ac_status aci_run_id_of(const char *run_id, const char *address, int port, char out[ACI_RUN_ID],
                        ac_err *e) {
  char place[280];
  const char *id = run_id[0] != 0 ? run_id : aci_endpoint_text(address, port, place, sizeof place);
  if (strlen(id) < ACI_RUN_ID) {
    memcpy(out, id, strlen(id) + 1);
    return AC_OK;
  }
  return AC_FAIL(
      e, INVALID,
      "run_id: %s '%.80s' is longer than %d bytes; give all machines a shorter --run-id (TORCHELASTIC_RUN_ID)",
      run_id[0] != 0 ? "the name of the job" : "the address of rank 0 names the job and", id,
      ACI_RUN_ID - 1);
}

/* Without the end of the last line, which editors and echo add. */
static void trim(secret *s) {
  while (s->n > 0 && (s->text[s->n - 1] == '\n' || s->text[s->n - 1] == '\r')) s->n--;
  s->text[s->n] = 0;
}

/* "-": the first line of standard input and not a byte more, since the rest may be the script's. */
static ac_status read_line(secret *s, ac_err *e) {
  for (s->n = 0; s->n < ACI_SECRET_MOST; s->n++) {
    const ssize_t k = read(0, s->text + s->n, 1);
    if (k < 0 && errno == EINTR) {
      s->n--;
      continue;
    }
    if (k < 0)
      return AC_FAIL(e, IO, "--job-secret-file -: cannot read standard input: %s", strerror(errno));
    if (k == 0 || s->text[s->n] == '\n') break;
  }
  trim(s);
  return AC_OK;
}

static ac_status read_secret(int fd, const char *path, secret *s, ac_err *e) {
  s->n = 0;
  for (;;) {
    const ssize_t k = read(fd, s->text + s->n, sizeof s->text - s->n);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0)
      return AC_FAIL(e, IO, "%s: cannot read the secret of jobs: %s", path, strerror(errno));
    s->n += (size_t)k;
    if (k == 0) break;
    if (s->n > ACI_SECRET_MOST)
      return AC_FAIL(e, INVALID, "%s: a secret has at most %d bytes; write fewer", path,
                     (int)ACI_SECRET_MOST);
  }
  trim(s);
  return AC_OK;
}

static ac_status read_file(const char *path, secret *s, ac_err *e) {
  struct stat st;
  if (strcmp(path, "-") == 0) return read_line(s, e);
  /* a FIFO is not waited for */
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return AC_FAIL(e, IO,
                   "--job-secret-file %s: %s; create it on every machine with the same contents",
                   path, strerror(errno));
  const bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  s->mode = regular ? st.st_mode & 0777 : 0;
  ac_status status =
      regular
          ? read_secret(fd, path, s, e)
          : AC_FAIL(e, INVALID,
                    "--job-secret-file %s: expected a regular file, or - for standard input", path);
  close(fd);
  return status;
}

/* ---- the file of the user ---- */
static ac_status own_path(char *out, size_t n, ac_err *e) {
  const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  struct passwd entry, *found = NULL;
  char names[PATH * 2];
  if ((config == NULL || config[0] != '/') && (home == NULL || home[0] != '/') &&
      getpwuid_r(geteuid(), &entry, names, sizeof names, &found) == 0 && found != NULL)
    home = found->pw_dir;
  int k = -1;
  if (config != NULL && config[0] == '/') k = snprintf(out, n, "%s/accel/job_secret", config);
  else if (home != NULL && home[0] == '/')
    k = snprintf(out, n, "%s/.config/accel/job_secret", home);
  if (k > 0 && k < (int)n) return AC_OK;
  return AC_FAIL(
      e, INVALID,
      "this user has no home folder for the secret of jobs; set ACCEL_JOB_SECRET or --job-secret-file");
}

static ac_status make_folders(char *path, ac_err *e) {
  for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    const int rc = mkdir(path, 0700), why = errno;
    if (rc != 0 && why != EEXIST) {
      AC_FAIL(
          e, IO,
          "cannot create %s for the secret of jobs: %s; set ACCEL_JOB_SECRET or --job-secret-file",
          path, strerror(why));
      *slash = '/';
      return AC_IO;
    }
    *slash = '/';
  }
  return AC_OK;
}

static bool write_all(int fd, const char *p, size_t n) {
  for (size_t at = 0; at < n;) {
    const ssize_t k = write(fd, p + at, n - at);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}

/* Complete under another name first, then linked: of several machines that start at once one wins,
 * and all read the winner's. */
static ac_status create_own(char *path, ac_err *e) {
  char draft[PATH + 16], text[2 * FRESH + 2];
  uint8_t fresh[FRESH];
  AC_TRY(make_folders(path, e));
  AC_TRY(aci_random_bytes(fresh, sizeof fresh, e));
  for (int i = 0; i < FRESH; i++) snprintf(text + 2 * i, 3, "%02x", fresh[i]);
  text[sizeof text - 2] = '\n';
  snprintf(draft, sizeof draft, "%s.XXXXXX", path);
  const int fd = mkostemp(draft, O_CLOEXEC); /* mode 0600 */
  bool ok = fd >= 0 && write_all(fd, text, sizeof text - 1) && fsync(fd) == 0;
  int why = errno;
  if (fd >= 0) close(fd);
  if (ok && link(draft, path) != 0 && errno != EEXIST) {
    why = errno;
    ok = false;
  }
  if (fd >= 0) unlink(draft);
  aci_forget(fresh, sizeof fresh);
  aci_forget(text, sizeof text);
  if (ok) return AC_OK;
  return AC_FAIL(
      e, IO,
      "cannot create %s with a secret of jobs: %s; set ACCEL_JOB_SECRET or --job-secret-file", path,
      strerror(why));
}

static ac_status read_own(char *path, secret *s, ac_err *e) {
  struct stat st;
  int fd = -1;
  for (int turn = 0; turn < 2 && fd < 0; turn++) {
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && turn == 0) AC_TRY(create_own(path, e));
    else if (fd < 0)
      return AC_FAIL(
          e, IO,
          "%s: cannot read the secret of jobs: %s; set ACCEL_JOB_SECRET or --job-secret-file", path,
          strerror(errno));
  }
  if (fd < 0)
    return AC_FAIL(
        e, IO, "%s: the secret of jobs vanished; set ACCEL_JOB_SECRET or --job-secret-file", path);
  ac_status status = AC_OK;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    status = AC_FAIL(
        e, INVALID,
        "%s: expected a regular file with the secret of jobs; remove it, and the next start creates one",
        path);
  else if (st.st_uid != geteuid())
    status = AC_FAIL(
        e, INVALID,
        "%s: the secret of jobs belongs to user %u; remove it, and the next start creates one",
        path, (unsigned)st.st_uid);
  else if ((st.st_mode & 077) != 0)
    status = AC_FAIL(
        e, INVALID,
        "%s: other users can read the secret of jobs (mode %04o); remove it on all machines, and the next "
        "start creates one",
        path, (unsigned)(st.st_mode & 07777));
  else status = read_secret(fd, path, s, e);
  close(fd);
  return status;
}

/* ---- the key ---- */
static ac_status find(const ac_params *p, secret *s, char *origin, size_t n, ac_err *e) {
  const char *text = ac_params_str(p, "JOB_SECRET"), *file = ac_params_str(p, "JOB_SECRET_FILE");
  if (file[0] != 0) {
    snprintf(origin, n, "%s%.150s", strcmp(file, "-") == 0 ? "standard input" : "",
             strcmp(file, "-") == 0 ? "" : file);
    AC_TRY(read_file(file, s, e));
  } else if (text[0] != 0) {
    snprintf(origin, n, "ACCEL_JOB_SECRET");
    s->n = strlen(text);
    if (s->n > ACI_SECRET_MOST)
      return AC_FAIL(e, INVALID, "ACCEL_JOB_SECRET: a secret has at most %d bytes; write fewer",
                     (int)ACI_SECRET_MOST);
    memcpy(s->text, text, s->n + 1);
  } else {
    char path[PATH];
    AC_TRY(own_path(path, sizeof path, e));
    snprintf(origin, n, "%.190s", path);
    AC_TRY(read_own(path, s, e));
  }
  if (s->n > 0) return AC_OK;
  return AC_FAIL(
      e, INVALID,
      "the secret of jobs in %s is empty; write 32 or more random characters there, the same on all machines",
      origin);
}

ac_status aci_job_key_make(aci_job_key *out, ac_err *e) {
  memset(out, 0, sizeof *out);
  snprintf(out->origin, sizeof out->origin, "the launcher");
  return aci_random_bytes(out->key, sizeof out->key, e);
}

void aci_job_key_warn(const aci_job_key *k) {
  if (k->weak[0] != 0)
    ac_log_write(AC_LOG_WARN, "comm", "the secret of jobs in %s %s", k->origin, k->weak);
  if (!k->insecure) return;
  ac_log_write(
      AC_LOG_WARN, "comm",
      "--insecure: whoever reaches this job's ports can read and change it; leave it out on networks "
      "that others use");
}

/* A rank proves itself to whoever listens at the address of rank 0, who can then try short secrets
 * at leisure. */
static void judge(const secret *s, aci_job_key *k) {
  if (s->n < SHORT)
    snprintf(k->weak, sizeof k->weak,
             "has %zu bytes and can be guessed; use 32 or more random characters", s->n);
  else if ((s->mode & 077) != 0)
    snprintf(k->weak, sizeof k->weak,
             "can be read by other users of this machine (mode %04o); chmod 600 it",
             (unsigned)s->mode);
}

ac_status aci_job_key_find(const ac_params *p, const char *run_id, bool one_machine,
                           aci_job_key *out, ac_err *e) {
  const char *version;
  ac_err why;
  memset(out, 0, sizeof *out);
  out->insecure = ac_params_int(p, "INSECURE") != 0;
  if (out->insecure) return AC_OK;
  if (aci_hmac_library(&version, &why) != AC_OK) {
    if (!one_machine)
      return AC_FAIL(
          e, UNSUPPORTED,
          "ranks of several machines must prove who they are: %s, or start with --insecure on every machine",
          why.msg);
    ac_log_write(AC_LOG_WARN, "comm", "ranks do not prove who they are: %s", why.msg);
    out->insecure = true;
    return AC_OK;
  }
  secret *s = malloc(sizeof *s);
  if (s == NULL) return AC_FAIL(e, OOM, "no memory for the secret of jobs");
  s->mode = 0;
  ac_status st = find(p, s, out->origin, sizeof out->origin, e);
  if (st == AC_OK) judge(s, out);
  if (st == AC_OK) st = aci_hmac(s->text, s->n, run_id, strlen(run_id), out->key, e);
  aci_forget(s, sizeof *s);
  free(s);
  return st;
}
