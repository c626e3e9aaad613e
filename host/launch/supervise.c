/* The loop of a running job: one thread, one poll over the signals, the ranks' pipes and the
 * console. Called by launch.c.
 *
 * Deaths that an elastic job survives go to elastic.c. Any other failure sets the abort reason
 * first, on which waiting ranks leave by themselves. Everything else (text, deadlines) comes after.
 * The remaining ranks get SIGTERM after half a second and SIGKILL five seconds later. An interrupted
 * job may finish. The second signal starts the five seconds, the third ends them. When the reader of
 * our output is gone (| head) all ranks get SIGPIPE. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/launch_impl.h"

#define MS ((int64_t)1000000)
enum { GRACE_MS = 500, KILL_MS = 5000 };

static void send_all(aci_job *j, int sig, bool to_end) {
  if (j->front_pid != 0) kill(j->front_pid, sig);
  for (int r = 0; r < j->n && j->ranks != NULL; r++) { /* NULL: between two attempts */
    aci_rank *p = &j->ranks[r];
    if (p->ended) continue;
    if (!to_end) {
      kill(p->pid, sig);
      if (p->stopped != 0 && sig != SIGINT) kill(p->pid, SIGCONT);
      continue;
    }
    p->ended_by = p->stopped != 0 ? SIGKILL : sig; /* a stopped one sees nothing else */
    /* queued: accel-run can distinguish it from signals that are passed on */
    sigqueue(p->pid, p->ended_by, (union sigval){0});
  }
}

static void stop_asked(aci_job *j, int sig) {
  if (j->signal == 0) j->signal = sig;
  j->n_signals++;
  j->term_at = 0;
  send_all(j, sig, false);
  if (j->n_signals == 2) j->kill_at = aci_now_ns() + KILL_MS * MS;
  if (j->n_signals > 2) send_all(j, SIGKILL, true);
}

static aci_page *page_of(const aci_job *j, int r) { return aci_page_of(j->segment.head, r); }

/* Its state is saved, and it left the world before it ended: no failure. */
static bool requeued(const aci_job *j, int r) {
  return j->ranks[r].sig == 0 && j->ranks[r].code == AC_EXIT_REQUEUE &&
         atomic_load(&page_of(j, r)->state) == ACI_LEFT;
}

/* The first failure among those that went at the same time. */
static int choose(const aci_job *j, const int *batch, int n) {
  const aci_abort_reason *v = &j->segment.head->abort_reason;
  int best = -1, best_score = -1;
  for (int i = 0; i < n; i++) {
    const aci_rank *p = &j->ranks[batch[i]];
    if ((p->sig == 0 && p->code == 0) || requeued(j, batch[i])) continue;
    int score = 0;
    if (atomic_load(&page_of(j, batch[i])->state) == ACI_FAILED) score = 1;
    if (p->sig != 0 && p->ended_by == 0) score = 2;
    if (atomic_load(&v->set) != 0 && v->rank == j->first + batch[i]) score = 3;
    if (score > best_score) {
      best = batch[i];
      best_score = score;
    }
  }
  return best;
}

/* It left the world and then ended by a signal that stops all ranks at one step: the others come to
 * that step by themselves. */
static bool stopped_in_order(const aci_job *j, int r) {
  const aci_rank *p = &j->ranks[r];
  return p->sig != 0 && p->ended_by == 0 && atomic_load(&page_of(j, r)->state) == ACI_LEFT &&
         atomic_load(&j->segment.head->stop_at) != 0;
}

/* Ends the job as a closed pipe ends a filter: by SIGPIPE, without a message. Exceptions: the
 * caller ignores SIGPIPE, or the job has failed already. */
static bool end_by_pipe(aci_job *j) {
  if (j->pipe_action.sa_handler == SIG_IGN || j->failed >= 0) return false;
  if (j->pipe_closed) return true;
  j->pipe_closed = true;
  j->term_at = 0;
  j->kill_at = aci_now_ns() + KILL_MS * MS;
  send_all(j, SIGPIPE, true);
  return true;
}

/* Did a rank that writes to our descriptors itself end since their reader is gone? */
static bool ended_by_pipe(const aci_job *j, int r) {
  const aci_rank *p = &j->ranks[r];
  return p->sig == SIGPIPE && p->ended_by == 0 &&
         (aci_reader_gone(j->o->fd_out) || aci_reader_gone(j->o->fd_err));
}

void aci_job_fail(aci_job *j, int r) {
  char text[512];
  if (j->failed < 0) j->failed = r;
  aci_cause_of(j, r, text, sizeof text);
  aci_abort_segment(j->segment.head, AC_PEER, j->first + r, text);
  aci_agent_failed(j, j->first + r, text);
  if (j->o->front_argv != NULL) return; /* the prompt reports who died. The others continue */
  if (j->signal == 0 && j->term_at == 0 && j->kill_at == 0)
    j->term_at = aci_now_ns() + GRACE_MS * MS;
}

/* The consequences of the end of these ranks for the others. */
static void on_ends(aci_job *j, const int *ended, int n_ended) {
  int batch[ACI_MAX_LOCAL];
  const int n = aci_elastic_take(j, ended, n_ended, batch);
  const int worst = choose(j, batch, n);
  /* before their pages tell the others of their end, who would speak of it */
  for (int i = 0; i < n; i++)
    if (ended_by_pipe(j, batch[i]) && end_by_pipe(j)) break;
  for (int i = 0; i < n; i++) {
    const aci_rank *p = &j->ranks[batch[i]];
    aci_page *page = page_of(j, batch[i]);
    const uint32_t state = atomic_load(&page->state);
    page->exit_code = p->code;
    page->signal = p->sig;
    if (state == ACI_LEFT || state == ACI_FAILED) continue;
    atomic_store(&page->state, p->sig != 0 || p->code != 0 ? ACI_DEAD : ACI_LEFT);
    aci_futex_wake(&page->state);
  }
  if (worst < 0) return;
  if (stopped_in_order(j, worst) || j->pipe_closed) {
    if (j->failed < 0) j->failed = worst;
    return;
  }
  aci_job_fail(j, aci_elastic_cause(j, worst));
}

/* Ranks that stand at a prompt get Ctrl-C from the terminal, and its meaning from the prompt. */
static bool at_prompt(const aci_job *j) {
  return j->o->front_argv != NULL ||
         (j->segment.head != NULL && atomic_load(&j->segment.head->console) != 0);
}

/* The prompt has ended: ranks that wait for it end by themselves, those that wait for each other by
 * the abort reason. */
static void front_ended(aci_job *j, const siginfo_t *si) {
  j->front_pid = 0;
  j->front_code = si->si_code == CLD_EXITED ? si->si_status : 0;
  j->front_sig = si->si_code == CLD_EXITED ? 0 : si->si_status;
  aci_abort_segment(j->segment.head, AC_INTERRUPTED, -1, "the session has ended");
  if (j->signal == 0 && j->term_at == 0 && j->kill_at == 0)
    j->term_at = aci_now_ns() + GRACE_MS * MS;
}

static int rank_of(const aci_job *j, pid_t pid) {
  for (int r = 0; r < j->n; r++)
    if (j->ranks[r].pid == pid && !j->ranks[r].ended) return r;
  return -1;
}

static void reap(aci_job *j) {
  int batch[ACI_MAX_LOCAL], n = 0;
  for (;;) {
    siginfo_t si;
    memset(&si, 0, sizeof si);
    if (waitid(P_ALL, 0, &si, WEXITED | WSTOPPED | WCONTINUED | WNOHANG) != 0 || si.si_pid == 0)
      break;
    /* waitid has collected it: its number may be another process's from here on */
    const int r = rank_of(j, si.si_pid);
    if (si.si_pid == j->front_pid && si.si_code != CLD_STOPPED && si.si_code != CLD_TRAPPED &&
        si.si_code != CLD_CONTINUED)
      front_ended(j, &si);
    if (r < 0) continue; /* an orphan of a rank, which is ours since then */
    aci_rank *p = &j->ranks[r];
    char name[24];
    switch (si.si_code) {
      case CLD_STOPPED:
      case CLD_TRAPPED:
        p->stopped = si.si_status;
        p->stopped_at = si.si_code == CLD_STOPPED ? aci_now_ns() : 0;
        atomic_store(&page_of(j, r)->stopped, 1);
        ac_log_write(AC_LOG_WARN, "launch",
                     "rank %d (pid %d) is stopped (%s), not dead; 'kill -CONT %d' continues it",
                     j->first + r, (int)p->pid, aci_signal_name(si.si_status, name, sizeof name),
                     (int)p->pid);
        break;
      case CLD_CONTINUED:
        atomic_store(&page_of(j, r)->stopped, 0);
        if (p->stopped != 0)
          ac_log_write(AC_LOG_WARN, "launch", "rank %d (pid %d) continues", j->first + r,
                       (int)p->pid);
        p->stopped = 0;
        p->stopped_at = 0;
        break;
      default:
        p->ended = true;
        p->code = si.si_code == CLD_EXITED ? si.si_status : 0;
        p->sig = si.si_code == CLD_EXITED ? 0 : si.si_status;
        p->core = si.si_code == CLD_DUMPED;
        j->alive--;
        batch[n++] = r;
    }
  }
  /* collect all that ended together first: the whole batch shows which of them is the cause */
  on_ends(j, batch, n);
  /* its last output. Programs that it started may hold the pipe open for longer */
  for (int i = 0; i < n; i++) {
    aci_rank *p = &j->ranks[batch[i]];
    while (aci_stream_read(&p->out)) continue;
    while (aci_stream_read(&p->err)) continue;
    aci_stream_close(&p->out);
    aci_stream_close(&p->err);
  }
}

static void read_signals(aci_job *j) {
  struct signalfd_siginfo si;
  bool children = false;
  while (read(j->signal_fd, &si, sizeof si) == (ssize_t)sizeof si) {
    if (si.ssi_signo == SIGCHLD) children = true;
    else if (si.ssi_signo == SIGINT && at_prompt(j)) continue;
    else stop_asked(j, (int)si.ssi_signo);
  }
  if (children) reap(j);
}

static aci_stream *stream_of(const aci_job *j, int i) {
  return i % 2 == 0 ? &j->ranks[i / 2].out : &j->ranks[i / 2].err;
}
static int n_streams(const aci_job *j) { return j->ranks != NULL ? 2 * j->n : 0; }

static void serve_deadlines(aci_job *j) {
  const int64_t now = aci_now_ns();
  for (int i = 0; i < n_streams(j); i++) {
    aci_stream *s = stream_of(j, i);
    if (s->partial_at != 0 && now >= s->partial_at) aci_stream_flush_partial(s);
  }
  if (j->term_at != 0 && now >= j->term_at) {
    j->term_at = 0;
    j->kill_at = now + KILL_MS * MS;
    send_all(j, SIGTERM, true);
  }
  if (j->kill_at != 0 && now >= j->kill_at) {
    j->kill_at = 0;
    send_all(j, SIGKILL, true);
  }
  aci_elastic_turn(j);
}

/* Milliseconds to the next deadline, -1: none. */
static int next_deadline(const aci_job *j) {
  int64_t at = j->term_at != 0 ? j->term_at : j->kill_at;
  const int64_t look = aci_elastic_deadline(j);
  if (look != 0 && (at == 0 || look < at)) at = look;
  for (int i = 0; i < n_streams(j); i++) {
    const int64_t partial_at = stream_of(j, i)->partial_at;
    if (partial_at != 0 && (at == 0 || partial_at < at)) at = partial_at;
  }
  if (at == 0) return -1;
  int64_t ms = (at - aci_now_ns() + MS - 1) / MS;
  return ms < 0 ? 0 : (int)ms;
}

static int add_sink(struct pollfd *p, const aci_sink *s) {
  if (aci_sink_waiting(s) == 0) return 0;
  *p = (struct pollfd){.fd = s->fd, .events = POLLOUT};
  return 1;
}

/* One turn: waits for something to do, and does it. */
static void poll_once(aci_job *j, int timeout_ms) {
  struct pollfd p[3 + 2 * ACI_MAX_LOCAL + ACI_AGENT_POLLS];
  aci_stream *streams[2 * ACI_MAX_LOCAL];
  int n = 0, n_read = 0;
  p[n++] = (struct pollfd){.fd = j->signal_fd, .events = POLLIN};
  n += add_sink(&p[n], &j->out);
  n += add_sink(&p[n], &j->err);
  const int first = n;
  for (int i = 0; i < n_streams(j); i++) {
    aci_stream *s = stream_of(j, i);
    if (s->fd < 0 || (s->show != NULL && aci_sink_waiting(s->show) > ACI_SINK_FULL)) continue;
    p[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    streams[n_read++] = s;
  }
  n += aci_agent_polls(j, p + n);
  if (poll(p, (nfds_t)n, timeout_ms) < 0 && errno != EINTR) return;
  if (p[0].revents != 0) read_signals(j);
  for (int i = 0; i < n_read; i++)
    if (p[first + i].revents != 0) aci_stream_read(streams[i]); /* closed meanwhile: false */
  aci_agent_serve(j);
  serve_deadlines(j);
  aci_sink_flush(&j->out);
  aci_sink_flush(&j->err);
  if (j->out.closed || j->err.closed) end_by_pipe(j);
}

void aci_supervise(aci_job *j) {
  while (j->alive > 0 || j->front_pid != 0) poll_once(j, next_deadline(j));
  j->term_at = j->kill_at = 0;
  const int n_signals = j->n_signals; /* a console that takes nothing must not keep us */
  while (aci_sink_waiting(&j->out) + aci_sink_waiting(&j->err) > 0 && j->n_signals == n_signals)
    poll_once(j, -1);
}

bool aci_job_sleep(aci_job *j, double seconds) {
  const int64_t end = aci_now_ns() + (int64_t)(seconds * 1e9);
  while (j->signal == 0) {
    int64_t left = end - aci_now_ns();
    if (left <= 0) return true;
    poll_once(j, left < 1000000 * MS ? (int)((left + MS - 1) / MS) : 1000000);
  }
  return false;
}

/* ---- processes that ranks left running ---- */

static bool has_run_id(pid_t pid, const char *run_id) {
  char path[40], entry[96], *text = NULL;
  size_t cap = 0;
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  snprintf(entry, sizeof entry, "TORCHELASTIC_RUN_ID=%s", run_id);
  FILE *f = fopen(path, "re");
  if (f == NULL) return false;
  while (!found && getdelim(&text, &cap, 0, f) > 0) found = strcmp(text, entry) == 0;
  free(text);
  fclose(f);
  return found;
}

void aci_job_sweep(const aci_job *j) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)syscall(SYS_gettid));
  for (int round = 0; round < 100; round++) { /* children of those that we end become ours */
    FILE *f = fopen(path, "re");
    if (f == NULL) return;
    int pid, n = 0;
    while (fscanf(f, "%d", &pid) == 1) {
      siginfo_t si;
      if (!has_run_id(pid, j->run_id)) continue; /* others' children, and zombies */
      kill(pid, SIGKILL);
      waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG);
      n++;
    }
    fclose(f);
    if (n == 0) return;
    poll(NULL, 0, 1);
  }
}
