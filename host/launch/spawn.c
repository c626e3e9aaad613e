/* Starting one rank: its environment, its pipes, fork and exec. Called by launch.c for each rank of
 * an attempt.
 *
 * Between fork and exec the child makes only async-signal-safe calls. It asks for SIGKILL when we
 * die and then checks that we still live. SIGKILL and not SIGTERM, because a stopped process would
 * not receive that. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "launch/launch_impl.h"

extern char **environ;

enum { MAX_SET = 24 };

typedef struct env_list {
  char *set[MAX_SET]; /* "NAME=value", ours */
  int n;
  bool failed;
} env_list;

static void add(env_list *l, const char *fmt, ...) AC_PRINTF(2, 3);
static void add(env_list *l, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  if (!AC_HOLDS(l->n < MAX_SET)) l->failed = true;
  else if (vasprintf(&l->set[l->n], fmt, ap) < 0) l->failed = true;
  else l->n++;
  va_end(ap);
}

static bool replaced(const env_list *l, const char *entry) {
  size_t name = strcspn(entry, "=");
  for (int i = 0; i < l->n; i++)
    if (strncmp(l->set[i], entry, name + 1) == 0) return true;
  /* of an enclosing torchrun. Ranks have the key of the job, and programs that a script starts need
   * no secret */
  static const char *const dropped[] = {
      "TORCHELASTIC_USE_AGENT_STORE=", "ACCEL_JOB_SECRET=", "ACCEL_JOB_SECRET_FILE="};
  for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
    if (strncmp(entry, dropped[i], strlen(dropped[i])) == 0) return true;
  return false;
}

/* The first rank of a script opens the prompt itself. */
static bool fronts_of(const aci_job *j, int r) { return r == 0 && j->o->front_argv == NULL; }

/* torchrun's variables, and ours. */
static void fill(const aci_job *j, int r, env_list *l) {
  const ac_launch_options *o = j->o;
  aci_strbuf fds = {0};
  add(l, "RANK=%d", j->first + r);
  add(l, "LOCAL_RANK=%d", r);
  add(l, "WORLD_SIZE=%d", j->world);
  add(l, "LOCAL_WORLD_SIZE=%d", j->n);
  add(l, "GROUP_RANK=%d", j->machine);
  add(l, "GROUP_WORLD_SIZE=%d", j->machines);
  add(l, "ROLE_RANK=%d", j->first + r);
  add(l, "ROLE_WORLD_SIZE=%d", j->world);
  const char *role = getenv("ROLE_NAME"); /* of accel-run launch --role */
  add(l, "ROLE_NAME=%s", role != NULL ? role : "default");
  add(l, "MASTER_ADDR=%s", j->address);
  add(l, "MASTER_PORT=%d", j->port);
  add(l, "TORCHELASTIC_RESTART_COUNT=%d", j->attempt);
  add(l, "TORCHELASTIC_MAX_RESTARTS=%d", o->max_restarts);
  add(l, "TORCHELASTIC_RUN_ID=%s", j->run_id);
  add(l, "ACCEL_RUN_ID=%s", j->run);
  /* of this run only */
  if (j->ranks[r].joins) add(l, "ACCEL_RESUME="); /* the others give it their state */
  else if (j->attempt > 0 && getenv("ACCEL_RESUME") == NULL) add(l, "ACCEL_RESUME=restart");
  if (j->threads > 0) add(l, "OMP_NUM_THREADS=%d", j->threads);
  /* an error that names the limit is better than the system's choice of a victim */
  if (j->n > 1 && getenv("ACCEL_MEM_LIMIT") == NULL)
    add(l, "ACCEL_MEM_LIMIT=%d%%", j->n < 90 ? 90 / j->n : 1);
  if (o->log_dir != NULL && getenv("ACCEL_RECORD_FILE") == NULL)
    add(l, "ACCEL_RECORD_FILE=%s/rank_%%r_records.jsonl", o->log_dir);
  aci_strbuf_printf(&fds, "segment=%d,heaps=", j->segment.fd);
  for (int i = 0; i < j->n; i++) aci_strbuf_printf(&fds, i == 0 ? "%d" : ":%d", j->heaps[i]);
  if (j->console != NULL) {
    aci_strbuf_printf(&fds, ",console=%d", j->console[r]);
    for (int i = 0; i < j->n && fronts_of(j, r); i++)
      aci_strbuf_printf(&fds, i == 0 ? ",front=%d" : ":%d", j->front[i]);
  }
  if (fds.failed) l->failed = true;
  else add(l, "ACCEL_WORLD=%s", fds.s);
  aci_strbuf_fini(&fds);
}

/* One block of pointers, NULL last. The strings belong to l and environ. */
static char **block_of(const env_list *l) {
  int n = 0, k = 0;
  while (environ[n] != NULL) n++;
  char **block = calloc((size_t)(n + l->n + 1), sizeof *block);
  if (block == NULL || l->failed) {
    free(block);
    return NULL;
  }
  for (int i = 0; i < n; i++)
    if (!replaced(l, environ[i])) block[k++] = environ[i];
  for (int i = 0; i < l->n; i++) block[k++] = l->set[i];
  return block;
}

/* One pipe: *w is the rank's end. */
static ac_status open_stream(aci_job *j, aci_stream *s, int rank, aci_sink *show, int log, int *w,
                             ac_err *e) {
  int fd[2];
  s->show = show;
  s->log = log;
  s->rank = rank;
  if (rank != 0 || j->ranks[rank].joins) snprintf(s->prefix, sizeof s->prefix, "[rank %d] ", rank);
  s->line = malloc(ACI_LINE_MAX + 1);
  if (s->line == NULL) return AC_FAIL(e, OOM, "no memory for the output of %d ranks", j->n);
  if (pipe2(fd, O_CLOEXEC) != 0)
    return AC_FAIL(e, IO, "rank %d: cannot create a pipe for its output: %s", rank,
                   strerror(errno));
  s->fd = fd[0];
  *w = fd[1];
  fcntl(s->fd, F_SETFL, O_NONBLOCK);
  return AC_OK;
}

/* The destination of the rank's output. Rank 0 without a log has our own descriptors, so that it
 * sees a terminal when there is one. */
static ac_status open_output(aci_job *j, int r, int w[2], ac_err *e) {
  const ac_launch_options *o = j->o;
  const int rank = j->first + r;
  aci_sink *out = &j->out, *err = j->one_sink ? &j->out : &j->err;
  int log = -1;
  if (o->log_dir != NULL) {
    char path[4096];
    snprintf(path, sizeof path, "%s/rank_%d.log", o->log_dir, rank);
    log = open(path,
               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
                   (j->attempt == 0 && !j->ranks[r].joins ? O_TRUNC : 0),
               0666);
    if (log < 0) return AC_FAIL(e, IO, "cannot write %s: %s", path, strerror(errno));
    j->ranks[r].log = log;
    if (j->ranks[r].joins) dprintf(log, "---- a new rank %d ----\n", rank);
    else if (j->attempt > 0) dprintf(log, "---- restart %d ----\n", j->attempt);
    if (rank != 0 && !o->tee) out = NULL;
  } else if (rank == 0 && !j->ranks[r].joins) {
    return AC_OK;
  }
  AC_TRY(open_stream(j, &j->ranks[r].out, rank, out, log, &w[0], e));
  return open_stream(j, &j->ranks[r].err, rank, err, log, &w[1], e);
}

typedef struct child_plan {
  char *const *env;
  cpu_set_t *cpus; /* NULL: not bound */
  size_t cpus_bytes;
  int out, err;
  pid_t launcher;
  char script[40]; /* path of standard input. "" to leave it */
} child_plan;

static void fail_in_child(const char *what, const char *path) {
  const char *why = strerror(errno); /* of a known number: no allocation */
  const char *parts[] = {"accel-run: cannot ", what, path, ": ", why, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    ssize_t k = write(2, parts[i], strlen(parts[i]));
    (void)k;
  }
  _exit(127);
}

static void child(const aci_job *j, int r, const child_plan *p) __attribute__((noreturn));
static void child(const aci_job *j, int r, const child_plan *p) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != p->launcher) _exit(1);
  if (p->cpus != NULL) sched_setaffinity(0, p->cpus_bytes, p->cpus); /* a wish */
  if (p->script[0] != 0) {
    int fd = open(p->script, O_RDONLY);
    if (fd < 0) fail_in_child("open ", p->script);
    dup2(fd, 0);
    close(fd);
  } else if (j->first + r != 0 || j->o->front_argv != NULL || j->ranks[r].joins) {
    dup2(j->null_fd, 0);
  }
  /* 1 and 2 are open in the launcher, so these are others or already in place */
  if (p->out != 1) dup2(p->out, 1);
  if (p->err != 2) dup2(p->err, 2);
  fcntl(j->segment.fd, F_SETFD, 0);
  for (int i = 0; i < j->n; i++) fcntl(j->heaps[i], F_SETFD, 0);
  if (j->console != NULL) fcntl(j->console[r], F_SETFD, 0);
  for (int i = 0; i < j->n && j->console != NULL && fronts_of(j, r); i++)
    fcntl(j->front[i], F_SETFD, 0);
  sigaction(SIGPIPE, &j->pipe_action, NULL);
  sigaction(SIGXFSZ, &j->size_action, NULL);
  sigprocmask(SIG_SETMASK, &j->mask, NULL);
  execve(j->program, j->o->argv, p->env);
  fail_in_child("start ", j->program);
  _exit(127);
}

static ac_status bind_to(const aci_job *j, int r, child_plan *p, ac_err *e) {
  int first, n = aci_cpus_part(&j->cpus, r, j->n, &first), most = 0;
  for (int i = 0; i < n; i++)
    if (j->cpus.cpu[first + i] > most) most = j->cpus.cpu[first + i];
  if (n == 0) return AC_OK;
  p->cpus = CPU_ALLOC(most + 1);
  p->cpus_bytes = CPU_ALLOC_SIZE(most + 1);
  if (p->cpus == NULL) return AC_FAIL(e, OOM, "no memory for a set of CPUs");
  CPU_ZERO_S(p->cpus_bytes, p->cpus);
  for (int i = 0; i < n; i++) CPU_SET_S(j->cpus.cpu[first + i], p->cpus_bytes, p->cpus);
  return AC_OK;
}

ac_status aci_rank_start(aci_job *j, int r, ac_err *e) {
  env_list l = {.n = 0};
  child_plan p = {.launcher = getpid()};
  int w[2] = {-1, -1};
  ac_status st;
  /* l owns our strings, env only the array. The child has copies of both after exec */
  fill(j, r, &l);
  char **env = block_of(&l);
  p.env = env;
  if (env == NULL) {
    st = AC_FAIL(e, OOM, "no memory for the environment of rank %d", j->first + r);
    goto done;
  }
  AC_GOTO(done, st, open_output(j, r, w, e));
  if (j->pin) AC_GOTO(done, st, bind_to(j, r, &p, e));
  p.out = w[0] >= 0 ? w[0] : j->o->fd_out;
  p.err = w[1] >= 0 ? w[1] : j->o->fd_err;
  if (j->script_fd >= 0) snprintf(p.script, sizeof p.script, "/proc/self/fd/%d", j->script_fd);
  pid_t pid = fork();
  if (pid == 0) child(j, r, &p);
  if (pid < 0) {
    st = AC_FAIL(e, IO, "rank %d cannot be started: %s", j->first + r, strerror(errno));
    goto done;
  }
  j->ranks[r].pid = pid;
  j->ranks[r].ended = false;
  j->alive++;
done:
  /* the rank's ends of the pipes are its own: ours would keep them from ending */
  for (int i = 0; i < 2; i++)
    if (w[i] >= 0) close(w[i]);
  if (p.cpus != NULL) CPU_FREE(p.cpus);
  for (int i = 0; i < l.n; i++) free(l.set[i]);
  free(env);
  return st;
}

void aci_rank_free(aci_rank *r) {
  aci_stream_close(&r->out);
  aci_stream_close(&r->err);
  if (r->log >= 0) close(r->log);
  r->log = -1;
}
