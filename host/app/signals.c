/* Ctrl-C and SIGTERM. The first sets a flag that the next accel.step() serves: a script gets a chance to save
 * and end. The second, or the first in a script that has made no step, stops Lua where it is; if that did not end
 * the process within half a second (a long kernel, a pcall that swallowed the error), or at a third, the
 * signal's default action does. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "app/app.h"

static ac_host *volatile host;
static volatile sig_atomic_t first, presses;

void app_signals_die(int signal_number) {
  sigset_t set;
  signal(signal_number, SIG_DFL);
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
  raise(signal_number);
  _exit(128 + signal_number); /* blocked in another way */
}

static void on_alarm(int n) {
  (void)n;
  app_signals_die(first);
}

static void say(const char *text) {
  ssize_t n = write(2, text, strlen(text));
  (void)n;
}

static void on_signal(int n) {
  if (presses++ == 0) {
    first = n;
    if (ac_host_interrupt(host, n)) {
      if (isatty(2)) say("\naccel-run: stopping at the next step; Ctrl-C again to stop now\n");
      return;
    }
  }
  if (presses > 2) app_signals_die(n);
  struct itimerval t = {{0, 0}, {0, 500000}};
  ac_host_interrupt_now(host);
  setitimer(ITIMER_REAL, &t, NULL);
}

void app_signals_start(ac_host *h) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  host = h;
  sigemptyset(&a.sa_mask);
  a.sa_flags = SA_RESTART;
  a.sa_handler = on_alarm;
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit is an error of the write, not a death */
  sigaction(SIGALRM, &a, NULL);
  a.sa_handler = on_signal;
  sigaction(SIGINT, &a, NULL);
  sigaction(SIGTERM, &a, NULL);
}

int app_signals_seen(void) { return first; }
