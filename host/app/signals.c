/* Ctrl-C, SIGTERM and SIGHUP, and SIGUSR1 if the script serves it. The first sets a flag that the
 * next accel.step() serves: a script gets a chance to save and end. Lua is stopped at its current
 * line in three cases: no step comes within the usual time of a step (at least a second), a second
 * signal arrives, or the script has made no step so far. If that does not end the process within
 * half a second (a long kernel, a pcall that swallowed the error), or at a third signal, the
 * signal's default action runs.
 *
 * After a first Ctrl-C inside os.execute the time counts from the command's end, so that a command
 * that ends in its own way is waited for. Other signals do not wait for it: who sends them sends
 * them to this process alone.
 *
 * As a rank: a signal of the terminal, or to the process group, comes twice, from there and from
 * the launcher. For each signal the greater of the two counts is the number of requests. A signal
 * that the launcher queues ends the script at once: the job is over. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "app/app.h"

enum { STOP_MS = 500 }; /* from stopping Lua to the signal's default action */

static ac_host *volatile host; /* NULL: closed */
static volatile sig_atomic_t first, n_signals, stopping, job_over;
static volatile sig_atomic_t direct[32], passed_on[32]; /* by signal */
static pid_t launcher;                                  /* 0: none */
static bool reports;
static volatile sig_atomic_t in_command;     /* the script waits for a command of os.execute */
static volatile sig_atomic_t alarm_deferred; /* the alarm of a first Ctrl-C came meanwhile */

void app_signals_die(int signal_number) {
  sigset_t set;
  signal(signal_number, SIG_DFL);
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  raise(signal_number);
  _exit(128 + signal_number); /* blocked in another way */
}

static void say(const char *text) {
  ssize_t n = write(2, text, strlen(text));
  (void)n;
}

static void alarm_in(int ms) {
  struct itimerval t = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  setitimer(ITIMER_REAL, &t, NULL);
}

static void stop_now(void) {
  stopping = 1;
  ac_host_interrupt_once(host);
  alarm_in(STOP_MS);
}

static void on_alarm(int n) {
  int was = errno; /* of the code that was interrupted */
  (void)n;
  if (in_command && first == SIGINT && n_signals == 1 && !job_over) alarm_deferred = 1;
  else if (stopping) app_signals_die(first);
  else if (host != NULL && ac_host_interrupt_grace(host) > 0) stop_now();
  errno = was;
}

static void serve(int n) {
  if (host == NULL || n_signals > 1) app_signals_die(n);
  if (n_signals++ == 0) {
    first = n;
    if (ac_host_interrupt(host, n)) {
      if (reports && isatty(2)) say("\n"); /* below the ^C and a progress line */
      if (reports) say("accel-run: stopping at the next step; press Ctrl-C again to stop now\n");
      alarm_in(ac_host_interrupt_grace(host));
      return;
    }
  }
  stop_now();
}

static void on_signal(int n, siginfo_t *info, void *context) {
  int was = errno;
  (void)context;
  if (n == SIGUSR1 && (host == NULL || !ac_host_requeues(host))) app_signals_die(n);
  /* the terminal's Ctrl-C is for the prompt, which asks the ranks to stop at a step */
  if (n == SIGINT && launcher != 0 && info->si_pid == 0 && host != NULL && ac_host_at_prompt(host))
    return;
  /* a debugger in this process stops the script. If it does not come to that, the next one counts */
  if (n == SIGINT && launcher == 0 && host != NULL && ac_host_breaks(host)) {
    errno = was;
    return;
  }
  const bool ours = launcher != 0 && info->si_pid == launcher &&
                    (info->si_code == SI_USER || info->si_code == SI_QUEUE);
  if (ours && info->si_code == SI_QUEUE) {
    job_over = 1;
    if (first == 0) first = n;
    if (host == NULL) app_signals_die(n);
    stop_now();
  } else {
    const int have = ours ? ++passed_on[n] : ++direct[n];
    if (have > (ours ? direct[n] : passed_on[n])) serve(n);
  }
  errno = was;
}

void app_signals_start(ac_host *h, pid_t launched_by, bool reporting) {
  static const int served[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  struct sigaction a, was;
  memset(&a, 0, sizeof a);
  host = h;
  launcher = launched_by;
  reports = reporting;
  sigemptyset(&a.sa_mask);
  for (size_t i = 0; i < sizeof served / sizeof served[0]; i++) sigaddset(&a.sa_mask, served[i]);
  sigaddset(&a.sa_mask, SIGALRM); /* no handler runs inside another */
  a.sa_flags = SA_RESTART;
  a.sa_handler = on_alarm;
  sigaction(SIGALRM, &a, NULL);
  a.sa_sigaction = on_signal;
  a.sa_flags |= SA_SIGINFO;
  for (size_t i = 0; i < sizeof served / sizeof served[0]; i++) {
    if (served[i] == SIGHUP && sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler == SIG_IGN)
      continue; /* nohup */
    sigaction(served[i], &a, NULL);
  }
}

void app_signals_stop(void) {
  host = NULL;
  alarm_in(0);
}

/* An alarm that comes after in_command is 0 is not deferred any more, so that none is lost. */
void app_signals_command(bool begins) {
  in_command = begins;
  if (begins || !alarm_deferred) return;
  alarm_deferred = 0;
  if (host != NULL) alarm_in(stopping ? STOP_MS : ac_host_interrupt_grace(host));
}

int app_signals_seen(void) { return first; }

bool app_signals_job_over(void) { return job_over != 0; }
