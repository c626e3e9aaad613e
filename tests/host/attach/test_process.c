/* The service and the process that it is in: signals that must come in time, forks, folders that others tidy up, a want of descriptors.
 * tier: memory */
#include "host/attach/client.h"

/* An interrupt that was asked for while the prompt could be interrupted has come when the rank has said that it no longer can. */
static _Atomic int signals, late_signals, evaluating;
static pthread_t rank_thread;
static void on_signal(int n) {
  (void)n;
  atomic_fetch_add(atomic_load(&evaluating) ? &signals : &late_signals, 1);
}
static void signal_rank(void *user) {
  (void)user;
  pthread_kill(rank_thread, SIGUSR1);
}
static void *ask_interrupts(void *arg) {
  const int *fd = arg;
  for (int i = 0; i < 3000; i++) assert_string_equal(ask(fd[0], "interrupt"), "ok");
  atomic_store(&interrupts, -1);
  return NULL;
}

static void test_interrupts_come_in_time(void **state) {
  ac_attach *a;
  ac_attach_options o = AC_ATTACH_OPTIONS_INIT;
  ac_err e;
  pthread_t asking;
  char text[40];
  uint32_t id = 0;
  int fd[2], got;
  (void)state;
  o.job = "job", o.rank = 2, o.ranks = 3, o.interrupt = signal_rank;
  rank_thread = pthread_self();
  signal(SIGUSR1, on_signal);
  assert_ok(ac_attach_open(&o, &a, &e), e);
  fd[0] = dial("rank2"), fd[1] = dial("rank2");
  id = admitted(fd[0]);
  admitted(fd[1]);
  snprintf(text, sizeof text, "prompt %u", id);
  assert_string_equal(ask(fd[1], text), "parked");
  assert_true(ac_attach_stand(a, &got));
  atomic_store(&interrupts, 0);
  pthread_create(&asking, NULL, ask_interrupts, fd);
  while (atomic_load(&interrupts) == 0) {
    atomic_store(&evaluating, 1);
    ac_attach_interruptible(a, true);
    for (volatile int i = 0; i < 200; i++) continue;
    ac_attach_interruptible(a, false);
    atomic_store(&evaluating, 0);
  }
  pthread_join(asking, NULL);
  assert_true(atomic_load(&signals) > 0);
  assert_int_equal(atomic_load(&late_signals), 0);
  ac_attach_go(a, false);
  close(got), close(fd[0]), close(fd[1]);
  ac_attach_close(a);
  signal(SIGUSR1, SIG_DFL);
}

/* ---- processes ---- */

/* A child that was forked without a thread of the service ends its copy: at once, and nothing of its parent's is gone. */
static void test_fork(void **state) {
  (void)state;
  const pid_t pid = fork();
  if (pid == 0) {
    int fd = -1;
    alarm(10);
    const bool stood = ac_attach_stand(service, &fd), came = ac_attach_wait(service, 0.01);
    ac_attach_close(service);
    _exit(stood || came);
  }
  int status;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const int fd = dial("rank0");
  admitted(fd);
  close(fd);
}

/* Who lists jobs removes the folder of one that was killed, and never that of one that begins anew in it. */
static void test_tidying(void **state) {
  char path[340], name[400];
  struct stat s;
  (void)state;
  assert_false(ac_attach_tidy(folder)); /* a rank has it */
  const pid_t pid = fork();
  if (pid == 0) {
    ac_attach *a;
    ac_err e;
    if (open_service("killed", 0, &a, &e) != AC_OK) _exit(1);
    FILE *f = fopen(ac_test_tmp_path("killed"), "w");
    fprintf(f, "%s", ac_attach_job(a));
    fclose(f);
    kill(getpid(), SIGKILL);
  }
  waitpid(pid, NULL, 0);
  char *told = ac_test_tmp_path("killed"), *job = ac_test_read(told, NULL);
  snprintf(path, sizeof path, "%s/accel/%s", runtime_dir, job);
  free(job);
  free(told);
  snprintf(name, sizeof name, "%s/token", path);
  assert_int_equal(stat(name, &s), 0);
  for (int turn = 0; turn < 200; turn++) { /* it begins anew while somebody lists jobs */
    const pid_t lister = fork();
    if (lister == 0) {
      for (int i = 0; i < 50; i++) ac_attach_tidy(path);
      _exit(0);
    }
    ac_attach *a, *b;
    ac_err e;
    assert_ok(open_service("killed", 0, &a, &e), e);
    char first[65] = "", second[65] = "";
    const int f = open(name, O_RDONLY);
    assert_int_equal(read(f, first, 64), 64);
    close(f);
    assert_ok(open_service("killed", 1, &b, &e), e);
    const int g = open(name, O_RDONLY);
    assert_int_equal(read(g, second, 64), 64);
    close(g);
    assert_string_equal(first, second);
    waitpid(lister, NULL, 0);
    assert_int_equal(stat(name, &s), 0);
    ac_attach_close(a);
    ac_attach_close(b);
    assert_int_equal(stat(path, &s), -1);
  }
}

static double used_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Without descriptors nobody is accepted: the thread does not spin for it, and serves who waits once there is one. */
static void test_no_descriptors(void **state) {
  struct rlimit was, low;
  int fd[64], n = 0;
  (void)state;
  const int waiting = dial("rank0"), last = dup(waiting);
  admitted(waiting);
  const int late = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(a.sun_path, sizeof a.sun_path, "%.100s/rank0", folder);
  getrlimit(RLIMIT_NOFILE, &was);
  low = was;
  low.rlim_cur = 64;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
  while (n < 64 && (fd[n] = dup(waiting)) >= 0) n++;
  const bool connected = connect(late, (struct sockaddr *)&a, sizeof a) == 0;
  const double before = used_seconds();
  usleep(500000);
  const double used = used_seconds() - before;
  assert_true(ask(waiting, "status")[0] != 0); /* others are served */
  for (int i = 0; i < n; i++) close(fd[i]);
  setrlimit(RLIMIT_NOFILE, &was);
  close(last);
  assert_true(connected);
  assert_true(used < 0.2);
  admitted(late);
  close(late), close(waiting);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_interrupts_come_in_time),
      cmocka_unit_test(test_fork),
      cmocka_unit_test(test_tidying),
      cmocka_unit_test(test_no_descriptors),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
