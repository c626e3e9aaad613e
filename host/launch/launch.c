/* ac_launch: from options to a plan, from the plan to attempts. Called by accel-run (app/launch.c)
 * and by C programs. */
#include "accel/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base_impl.h"
#include "base/strbuf.h"
#include "base/struct_size.h"
#include "comm/comm_impl.h"
#include "launch/launch_impl.h"

static bool set(const char *name) {
  const char *v = getenv(name);
  return v != NULL && v[0] != 0;
}

/* ---- the plan ---- */

/* Kept bound, not listened to: rank 0 may bind it too (both allow reuse), nobody else is given
 * it. */
static void reserve_port(aci_job *j) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_addr.s_addr =
                              htonl(j->o->rendezvous != NULL ? INADDR_ANY : INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int one = 1;
  j->port = 29500; /* without a loopback nobody will use it */
  j->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (j->port_fd < 0) return;
  setsockopt(j->port_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(j->port_fd, (struct sockaddr *)&a, sizeof a) == 0 &&
      getsockname(j->port_fd, (struct sockaddr *)&a, &n) == 0)
    j->port = ntohs(a.sin_port);
}

/* "0-3,8" for the CPUs we may use. */
static void cpus_text(const aci_cpus *c, char *buf, size_t n) {
  int most = 0;
  size_t k = 0;
  buf[0] = 0;
  for (int i = 0; i < c->n; i++)
    if (c->cpu[i] > most) most = c->cpu[i];
  bool *has = calloc((size_t)most + 2, 1);
  if (has == NULL) return;
  for (int i = 0; i < c->n; i++) has[c->cpu[i]] = true;
  for (int a = 0, b; a <= most && k + 16 < n; a = b + 1) {
    for (b = a; has[b]; b++) continue;
    if (b > a)
      k += (size_t)snprintf(buf + k, n - k, b - 1 > a ? "%s%d-%d" : "%s%d", k > 0 ? "," : "", a,
                            b - 1);
  }
  free(has);
}

static void plan_cpus(aci_job *j, int cores) {
  const ac_launch_options *o = j->o;
  const int cpus = aci_host_cpus();
  static const char *const own[] = {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND",
                                    "OMP_PLACES"};
  const int share = cores / j->n > 1 ? cores / j->n : 1;
  j->pin = o->cpu_affinity && j->n > 1 && j->cpus.n >= j->n;
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
    if (set(own[i])) j->pin = false;
  if (set("OMP_NUM_THREADS")) j->threads = 0;
  else if (o->num_threads > 0) j->threads = o->num_threads;
  else if (j->n > 1 && !set("ACCEL_NUM_THREADS")) j->threads = share;
  if (j->n > cpus)
    ac_log_write(AC_LOG_WARN, "launch", "%d ranks share %d CPU%s", j->n, cpus,
                 cpus == 1 ? "" : "s");
  char list[200], threads[40] = "threads as set";
  cpus_text(&j->cpus, list, sizeof list);
  if (j->threads > 0)
    snprintf(threads, sizeof threads, "%d thread%s each", j->threads, j->threads == 1 ? "" : "s");
  ac_log_write(AC_LOG_INFO, "launch", "%d rank%s, %s, CPUs %s%s", j->n, j->n == 1 ? "" : "s",
               threads, list, j->pin ? ", each its own" : "");
}

/* A job inside a rank of another launcher's job would be started by each of its ranks. */
static ac_status check_outside(ac_err *e) {
  aci_place p;
  ac_err ignored;
  if (aci_discover(&p, &ignored) != AC_OK || p.size < 2 || strcmp(p.source, "accel-run") == 0)
    return AC_OK;
  return AC_FAIL(
      e, INVALID,
      "this is already rank %d of %d, started by %s: leave num_processes out (or set ACCEL_WORLD=none)",
      p.rank, p.size, p.source);
}

/* ---- folders for the ranks ---- */

static ac_status make_dir(const char *path, ac_err *e) {
  char part[PATH_MAX];
  const size_t n = strlen(path);
  if (n == 0 || n >= sizeof part)
    return AC_FAIL(e, INVALID, "log_dir: '%.40s...' is not a folder's name", path);
  for (size_t i = 1; i <= n; i++) {
    if (path[i] != '/' && path[i] != 0) continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
      return AC_FAIL(e, IO, "log_dir: cannot make %s: %s", part, strerror(errno));
  }
  struct stat s;
  if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode))
    return AC_FAIL(e, IO, "log_dir: %s is not a folder", path);
  return AC_OK;
}

static ac_status copy_stdin(aci_job *j, ac_err *e) {
  char buf[4096];
  j->script_fd = memfd_create("stdin", MFD_CLOEXEC);
  if (j->script_fd < 0)
    return AC_FAIL(e, IO, "no memory file for standard input: %s", strerror(errno));
  for (;;) {
    const ssize_t n = read(0, buf, sizeof buf);
    if (n < 0 && errno == EINTR) continue;
    for (ssize_t at = 0, k; at < n; at += k)
      if ((k = write(j->script_fd, buf + at, (size_t)(n - at))) <= 0)
        return AC_FAIL(e, IO, "standard input: %s", strerror(errno));
    if (n < 0) return AC_FAIL(e, IO, "standard input: %s", strerror(errno));
    if (n == 0) return AC_OK;
  }
}

/* Machines share a secret. One machine makes a key of its own and hands it over in memory. */
static ac_status prepare_key(aci_job *j, const ac_params *p, ac_err *e) {
  if (j->machines == 1 && ac_params_int(p, "INSECURE") == 0) return aci_job_key_make(&j->key, e);
  AC_TRY(aci_job_key_find(p, j->run_id, j->machines == 1, &j->key, e));
  if (j->machines > 1) aci_job_key_warn(&j->key);
  return AC_OK;
}

static void hand_over_key(aci_job *j) {
  aci_head *h = j->segment.head;
  h->has_key = j->key.insecure ? ACI_INSECURE : ACI_HAS_KEY;
  if (!j->key.insecure) memcpy(h->job_key, j->key.key, sizeof h->job_key);
  snprintf(h->key_origin, sizeof h->key_origin, "%.119s", j->key.origin);
}

static bool same_file(int a, int b) {
  struct stat x, y;
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino &&
         x.st_rdev == y.st_rdev;
}

static ac_status prepare(aci_job *j, const ac_params *p, ac_err *e) {
  const ac_launch_options *o = j->o;
  for (int fd = 0; fd < 3; fd++) /* a pipe that got such a number would be lost to dup2 */
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
      return AC_FAIL(e, IO, "/dev/null: %s", strerror(errno));
  j->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (j->null_fd < 0) return AC_FAIL(e, IO, "/dev/null: %s", strerror(errno));
  if (o->program != NULL) {
    if (strlen(o->program) >= sizeof j->program)
      return AC_FAIL(e, INVALID, "program: the path is too long");
    snprintf(j->program, sizeof j->program, "%s", o->program);
  } else { /* by its name, which ps shows. A program that was replaced meanwhile: by its inode */
    ssize_t n = readlink("/proc/self/exe", j->program, sizeof j->program - 1);
    j->program[n > 0 ? n : 0] = 0;
    if (n <= 0 || n == (ssize_t)sizeof j->program - 1 || access(j->program, X_OK) != 0)
      snprintf(j->program, sizeof j->program, "/proc/self/exe");
  }
  if (gethostname(j->host, sizeof j->host - 1) != 0) j->host[0] = 0;
  uint64_t id[3] = {(uint64_t)getpid(), (uint64_t)aci_now_ns(),
                    (uint64_t)getpid() ^ (uint64_t)aci_now_ns()};
  const ssize_t n_random = getrandom(id, sizeof id, GRND_NONBLOCK);
  (void)n_random;
  /* of this start alone, for the case that addresses are reused */
  snprintf(j->run, sizeof j->run, "%016llx", (unsigned long long)id[2]);
  char first[256] = ""; /* of the addresses where the machines meet */
  if (o->rendezvous != NULL)
    snprintf(first, sizeof first, "%.*s", (int)strcspn(o->rendezvous, ","), o->rendezvous);
  if (o->run_id != NULL || j->machines > 1) /* the same on all of them */
    AC_TRY(aci_run_id_of(o->run_id != NULL ? o->run_id : first, o->main_ip, o->main_port, j->run_id,
                         e));
  else
    snprintf(j->run_id, sizeof j->run_id, "%016llx%016llx", (unsigned long long)id[0],
             (unsigned long long)id[1]);
  j->address = o->main_ip != NULL ? o->main_ip : "127.0.0.1";
  if (o->main_port != 0) j->port = o->main_port;
  else reserve_port(j);
  AC_TRY(prepare_key(j, p, e)); /* before the rest of standard input is copied */
  if (o->log_dir != NULL) AC_TRY(make_dir(o->log_dir, e));
  if (o->share_stdin) AC_TRY(copy_stdin(j, e));
  j->out.fd = o->fd_out;
  j->err.fd = o->fd_err;
  j->one_sink = same_file(o->fd_out, o->fd_err);
  return AC_OK;
}

/* ---- attempts ---- */

static ac_status attempt(aci_job *j, int *root, ac_launch_result *result, ac_err *e) {
  ac_status st;
  j->alive = 0;
  j->failed = *root = -1;
  j->heaps = calloc((size_t)j->n, sizeof *j->heaps);
  j->ranks = calloc((size_t)j->n, sizeof *j->ranks);
  if (j->heaps == NULL || j->ranks == NULL) {
    st = AC_FAIL(e, OOM, "no memory for %d ranks", j->n);
    goto done;
  }
  /* so that the code at done may free ranks that were not started */
  for (int r = 0; r < j->n; r++) {
    j->heaps[r] = j->ranks[r].out.fd = j->ranks[r].err.fd = j->ranks[r].log = -1;
    j->ranks[r].ended = true;
  }
  AC_GOTO(done, st, aci_segment_make(j->n, &j->segment, e));
  hand_over_key(j);
  aci_elastic_begin(j);
  /* nobody else will need it */
  if (j->attempt >= j->o->max_restarts) aci_forget(j->key.key, sizeof j->key.key);
  for (int r = 0; r < j->n; r++) AC_GOTO(done, st, aci_heap_make(&j->heaps[r], e));
  AC_GOTO(done, st, aci_consoles_make(j, e));
  for (int r = 0; r < j->n && st == AC_OK; r++) st = aci_rank_start(j, r, e);
  if (st == AC_OK && j->o->front_argv != NULL) st = aci_front_start(j, e);
  aci_consoles_close(j); /* an end of file is how either side sees that the other is gone */
  /* ranks that were started already are ended and collected before their memory goes */
  if (st != AC_OK) {
    for (int r = 0; r < j->n; r++)
      if (!j->ranks[r].ended) kill(j->ranks[r].pid, SIGKILL);
    aci_supervise(j);
    aci_job_sweep(j);
    goto done;
  }
  aci_supervise(j);
  *root = aci_root_cause(j);
  *result = (ac_launch_result){0, 0};
  if (j->pipe_closed) {
    *result = (ac_launch_result){.exit_status = 128 + SIGPIPE, .signal = SIGPIPE};
    *root = -1; /* no attempt more */
    aci_job_sweep(j);
  } else if (j->o->front_argv != NULL) {
    const aci_rank *p = *root >= 0 && j->ranks[*root].ended_by == 0 ? &j->ranks[*root] : NULL;
    result->exit_status = j->front_sig != 0 ? 128 + j->front_sig : j->front_code;
    if (result->exit_status == 1 && p != NULL)
      result->exit_status = p->sig != 0 ? 128 + p->sig : p->code;
    result->signal = j->signal;
    *root = -1; /* no attempt more */
    aci_job_sweep(j);
  } else if (*root >= 0) {
    const aci_rank *p = &j->ranks[*root];
    char text[600];
    aci_root_cause_text(j, *root, text, sizeof text);
    j->refused = aci_root_refused(j, *root);
    AC_FAIL(e, PEER, "%s", text);
    result->exit_status = p->sig != 0 ? 128 + p->sig : p->code;
    /* after a signal to us the ranks end by it, or by an exit of their own. A crash is still a
     * failure */
    if (j->signal != 0 && (p->sig == j->signal || p->ended_by != 0)) result->signal = j->signal;
    else if (p->sig != 0 || j->signal == 0) st = AC_PEER;
    aci_job_sweep(j);
  } else {
    for (int r = 0; r < j->n; r++)
      if (j->ranks[r].code == AC_EXIT_REQUEUE) result->exit_status = AC_EXIT_REQUEUE;
  }
  st = aci_agent_finish(j, result, st, e);
done:
  aci_consoles_close(j);
  for (int r = 0; r < j->n && j->ranks != NULL; r++) aci_rank_free(&j->ranks[r]);
  for (int r = 0; r < j->n && j->heaps != NULL; r++)
    if (j->heaps[r] >= 0) close(j->heaps[r]);
  if (j->segment.head != NULL) aci_segment_close(&j->segment);
  j->segment = (aci_segment_map){-1, NULL};
  free(j->heaps);
  free(j->ranks);
  j->heaps = NULL;
  j->ranks = NULL;
  return st;
}

static ac_status attempts(aci_job *j, ac_launch_result *result, ac_err *e) {
  for (;; j->attempt++) {
    int root;
    ac_status st = attempt(j, &root, result, e);
    if (root < 0 || j->signal != 0 || j->attempt >= j->o->max_restarts) return st;
    if (result->exit_status == AC_EXIT_USAGE || j->refused) {
      ac_log_write(AC_LOG_WARN, "launch", "not restarted: %s, which a restart cannot fix",
                   j->refused ? AC_REFUSED_TEXT : "wrong usage");
      return st;
    }
    ac_log_write(AC_LOG_WARN, "launch", "%s; restart %d of %d", e->msg, j->attempt + 1,
                 j->o->max_restarts);
    if (!aci_job_sleep(j, j->o->monitor_interval)) {
      result->signal = j->signal;
      result->exit_status = 128 + j->signal;
      return AC_OK;
    }
  }
}

/* The signals of the job go to a descriptor while it runs. */
static ac_status run(aci_job *j, ac_launch_result *result, ac_err *e) {
  sigset_t ours;
  struct sigaction was, action;
  memset(&action, 0, sizeof action);
  sigemptyset(&action.sa_mask);
  sigemptyset(&ours);
  sigaddset(&ours, SIGCHLD);
  sigaddset(&ours, SIGINT);
  sigaddset(&ours, SIGTERM);
  sigaddset(&ours, SIGUSR1);
  /* else: nohup */
  if (sigaction(SIGHUP, NULL, &was) != 0 || was.sa_handler != SIG_IGN) sigaddset(&ours, SIGHUP);
  int subreaper = 0;
  sigprocmask(SIG_BLOCK, &ours, &j->mask);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &j->pipe_action);
  /* a file-size limit is an error of the write, not a death */
  sigaction(SIGXFSZ, &action, &j->size_action);
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, &was); /* ignored, children would vanish unseen */
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  j->signal_fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  ac_status st = j->signal_fd >= 0 ? AC_OK : AC_FAIL(e, IO, "no signalfd: %s", strerror(errno));
  if (st == AC_OK && j->o->rendezvous != NULL) st = aci_agent_join(j, e);
  if (j->signal != 0) *result = (ac_launch_result){128 + j->signal, j->signal};
  else if (st == AC_OK) st = attempts(j, result, e);
  aci_agent_free(j);
  if (j->signal_fd >= 0) close(j->signal_fd);
  prctl(PR_SET_CHILD_SUBREAPER, subreaper);
  sigaction(SIGCHLD, &was, NULL);
  sigaction(SIGPIPE, &j->pipe_action, NULL);
  sigaction(SIGXFSZ, &j->size_action, NULL);
  sigprocmask(SIG_SETMASK, &j->mask, NULL);
  return st;
}

ac_status ac_launch(const ac_launch_options *o, ac_launch_result *result, ac_err *e) {
  ac_err local;
  if (e == NULL) e = &local;
  *result = (ac_launch_result){0, 0};
  ac_launch_options taken = AC_LAUNCH_OPTIONS_INIT;
  AC_TRY(aci_struct_take(&taken, sizeof taken, o, "ac_launch_options", e));
  o = &taken; /* which lasts as long as the job */
  if (o->argv == NULL || o->argv[0] == NULL)
    return AC_FAIL(e, INVALID, "argv: there is no command line for the ranks");
  if (o->front_argv != NULL && (o->num_machines > 1 || o->max_restarts > 0))
    return AC_FAIL(e, INVALID, "a prompt is for the ranks of one machine, without restarts");
  if (o->run_id != NULL && o->run_id[0] == 0)
    return AC_FAIL(e, INVALID, "run_id: expected 1 to %d characters", ACI_RUN_ID - 1);
  if (!(o->monitor_interval >= 0) || o->max_restarts < 0)
    return AC_FAIL(e, INVALID, "max_restarts and monitor_interval cannot be negative");
  aci_job *j = calloc(1, sizeof *j);
  if (j == NULL) return AC_FAIL(e, OOM, "no memory for a job");
  /* the job owns its CPUs, sinks and descriptors. The state of one attempt ends with it */
  j->o = o;
  j->null_fd = j->script_fd = j->port_fd = j->signal_fd = j->segment.fd = -1;
  j->out.fd = j->err.fd = -1;
  ac_status st;
  ac_params *params = NULL; /* faults of the environment are reported once, not by every rank */
  AC_GOTO(done, st, ac_params_new(&params, e));
  AC_GOTO(done, st, aci_plan_check(o, params, e));
  /* a new rank has no links to the others, but their memory */
  j->resizes = o->min_machines > 0 && o->num_machines <= 1 &&
               strcmp(ac_params_str(params, "BACKEND"), "tcp") != 0;
  j->replaces = o->replace && j->resizes;
  const double timeout = ac_params_float(params, "TIMEOUT");
  j->timeout = timeout > 1e9 ? 0 : (int64_t)(timeout * 1e9);
  AC_GOTO(done, st, check_outside(e));
  AC_GOTO(done, st, aci_cpus_read("/sys", &j->cpus, e));
  const int cpus = aci_host_cpus(), cores = j->cpus.n_cores < cpus ? j->cpus.n_cores : cpus;
  AC_GOTO(done, st, aci_plan_ranks(j, cores, e));
  AC_GOTO(done, st, prepare(j, params, e));
  plan_cpus(j, cores);
  j->oom_kills = aci_oom_kills();
  st = run(j, result, e);
done:
  ac_params_free(params);
  aci_cpus_free(&j->cpus);
  aci_sink_free(&j->out);
  aci_sink_free(&j->err);
  if (j->null_fd >= 0) close(j->null_fd);
  if (j->script_fd >= 0) close(j->script_fd);
  if (j->port_fd >= 0) close(j->port_fd);
  aci_forget(&j->key, sizeof j->key);
  free(j);
  return st;
}
