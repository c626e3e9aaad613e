/* The prompt of a REPL over the ranks, and the sockets between the two: a pair for each local rank,
 * made before any process starts, inherited by number, without names. Called by launch.c.
 *
 * With front_argv the prompt is a process of ours. A script has the sockets as well: its first rank
 * starts the prompt when the ranks call accel.repl(). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "launch/launch_impl.h"

extern char **environ;

/* more would take too many of the launcher's descriptors for a feature that few scripts use */
enum { SCRIPT_RANKS = 64 };

static void close_all(int **fds, int n) {
  for (int i = 0; *fds != NULL && i < n; i++)
    if ((*fds)[i] >= 0) close((*fds)[i]);
  free(*fds);
  *fds = NULL;
}

void aci_consoles_close(aci_job *j) {
  close_all(&j->console, j->n);
  close_all(&j->front, j->n);
}

ac_status aci_consoles_make(aci_job *j, ac_err *e) {
  const bool needed = j->o->front_argv != NULL;
  if (!needed && (j->machines > 1 || j->n > SCRIPT_RANKS)) return AC_OK;
  j->console = malloc((size_t)j->n * sizeof *j->console);
  j->front = malloc((size_t)j->n * sizeof *j->front);
  int error = j->console != NULL && j->front != NULL ? 0 : ENOMEM;
  for (int r = 0; r < j->n && j->console != NULL; r++) j->console[r] = -1;
  for (int r = 0; r < j->n && j->front != NULL; r++) j->front[r] = -1;
  for (int r = 0; r < j->n && error == 0; r++) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) {
      error = errno;
      break;
    }
    j->console[r] = fd[0];
    j->front[r] = fd[1];
  }
  if (error == 0) return AC_OK;
  aci_consoles_close(j);
  return needed ? AC_FAIL(e, IO, "cannot create sockets between the prompt and %d ranks: %s", j->n,
                          strerror(error))
                : AC_OK;
}

/* Between fork and exec: only async-signal-safe calls. */
static void child(const aci_job *j, char *const *argv, char *const *env, pid_t launcher)
    __attribute__((noreturn));
static void child(const aci_job *j, char *const *argv, char *const *env, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* and not SIGKILL: it has the terminal's modes to put back */
  if (getppid() != launcher) _exit(1);
  if (j->o->fd_out != 1) dup2(j->o->fd_out, 1);
  if (j->o->fd_err != 2) dup2(j->o->fd_err, 2);
  fcntl(j->segment.fd, F_SETFD, 0);
  for (int i = 0; i < j->n; i++) fcntl(j->front[i], F_SETFD, 0);
  sigaction(SIGPIPE, &j->pipe_action, NULL);
  sigaction(SIGXFSZ, &j->size_action, NULL);
  sigprocmask(SIG_SETMASK, &j->mask, NULL);
  execve(j->program, argv, env);
  _exit(127);
}

ac_status aci_front_start(aci_job *j, ac_err *e) {
  aci_strbuf fds = {0};
  char none[] = "ACCEL_WORLD=none";
  int n_args = 0, n_env = 0, k = 0;
  ac_status st = AC_OK;
  while (j->o->front_argv[n_args] != NULL) n_args++;
  while (environ[n_env] != NULL) n_env++;
  char **argv = calloc((size_t)n_args + 2, sizeof *argv),
       **env = calloc((size_t)n_env + 2, sizeof *env);
  aci_strbuf_printf(&fds, "segment=%d,front=", j->segment.fd);
  for (int i = 0; i < j->n; i++) aci_strbuf_printf(&fds, i == 0 ? "%d" : ":%d", j->front[i]);
  if (argv == NULL || env == NULL || fds.failed) {
    st = AC_FAIL(e, OOM, "no memory for the prompt");
    goto done;
  }
  for (int i = 0; i < n_args; i++) argv[i] = j->o->front_argv[i];
  argv[n_args] = fds.s;
  for (int i = 0; i < n_env; i++)
    /* the secret of the job is for nobody but the launcher, as in spawn.c */
    if (strncmp(environ[i], "ACCEL_WORLD=", 12) != 0 &&
        strncmp(environ[i], "ACCEL_JOB_SECRET", 16) != 0)
      env[k++] = environ[i];
  env[k] = none;
  const pid_t launcher = getpid(), pid = fork();
  if (pid == 0) child(j, argv, env, launcher);
  if (pid < 0) st = AC_FAIL(e, IO, "the prompt cannot be started: %s", strerror(errno));
  else j->front_pid = pid;
done:
  aci_strbuf_fini(&fds);
  free(argv);
  free(env);
  return st;
}
