/* Jobs of shell scripts: what ranks are given, how their ends are told, what survives. Each job runs in a process of its own,
 * since the launcher takes signals and children. */
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accel/launch.h"

static char *text; /* all that the last job showed; its messages behind "LOG " and "END " */
static bool ignores_int; /* the process of the next job, before and after it */

static void on_message(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  (void)user, (void)level, (void)subsystem;
  dprintf(2, "LOG %s\n", msg);
}

static void sleep_ms(int ms) {
  struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

/* Starts a job of n ranks that run `script` in a shell; its output goes to the file `shown`. */
static pid_t start(const ac_launch_options *change, int n, const char *script) {
  char *shown = ac_test_tmp_path("shown");
  int fd = open(shown, O_CREAT | O_TRUNC | O_APPEND | O_RDWR, 0666);
  assert_true(fd >= 0);
  free(shown);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid > 0) {
    close(fd);
    return pid;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (ignores_int) signal(SIGINT, SIG_IGN);
  char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
  ac_launch_options o = change != NULL ? *change : (ac_launch_options)AC_LAUNCH_OPTIONS_INIT;
  ac_launch_result result;
  ac_err e;
  dup2(fd, 1);
  dup2(fd, 2);
  o.num_processes = n;
  o.program = "/bin/sh";
  o.argv = argv;
  ac_log_set(on_message, NULL, AC_LOG_WARN);
  ac_status st = ac_launch(&o, &result, &e);
  if (st != AC_OK) dprintf(2, "END %s: %s\n", ac_status_name(st), e.msg);
  if (result.signal != 0) dprintf(2, "SIGNAL %d\n", result.signal);
  _exit(st == AC_OK || st == AC_PEER ? result.exit_status : 255);
}

static void read_shown(void) {
  char *shown = ac_test_tmp_path("shown");
  size_t n;
  free(text);
  text = ac_test_read(shown, &n);
  free(shown);
}

/* Waits for a job; returns its exit code, 1000 + N: it was ended by signal N. */
static int end(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  read_shown();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int job(const ac_launch_options *change, int n, const char *script) { return end(start(change, n, script)); }

static void has(const char *part) { ac_test_contains(text, part, __FILE__, __LINE__); }
static void has_not(const char *part) {
  if (strstr(text, part) != NULL) fail_msg("'%s' is in: %s", part, text);
}

static int count(const char *part) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, part)) != NULL; p++) n++;
  return n;
}

/* Until it was written n times. */
static void wait_for_all(const char *part, int n) {
  for (int i = 0; i < 6000; i++) {
    read_shown();
    if (count(part) >= n) return;
    sleep_ms(10);
  }
  fail_msg("'%s' did not come %d times: %s", part, n, text);
}
static void wait_for(const char *part) { wait_for_all(part, 1); }

/* The number behind `name` in the output. */
static pid_t pid_of(const char *name) {
  const char *p = strstr(text, name);
  assert_non_null(p);
  return (pid_t)atoi(p + strlen(name));
}

/* Runs, or is stopped; a zombie is gone. */
static bool lives(pid_t pid) {
  char path[40], state = 'X';
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *f = fopen(path, "re");
  if (f == NULL) return false;
  int n = fscanf(f, "%*d (%*[^)]) %c", &state);
  fclose(f);
  return n == 1 && state != 'Z' && state != 'X';
}

static bool alive(pid_t pid) {
  for (int i = 0; i < 3000 && lives(pid); i++) sleep_ms(10);
  return lives(pid);
}

/* In the scripts: a sign for another process of the job, and the wait for it. */
#define SIGN(name) ": > \"$ACCEL_TEST_TMP/sign_" name "\""
#define WAIT_FOR(name) "until [ -e \"$ACCEL_TEST_TMP/sign_" name "\" ]; do sleep 0.01; done"
static void forget_signs(void) {
  static const char *const all[] = {"sign_spoke", "sign_trap"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    char *path = ac_test_tmp_path(all[i]);
    unlink(path);
    free(path);
  }
}

static void test_environment(void **state) {
  (void)state;
  unsetenv("OMP_NUM_THREADS");
  assert_int_equal(job(NULL, 3,
                       "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK "
                       "$ROLE_WORLD_SIZE $ROLE_NAME $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS; "
                       "echo port=$MASTER_PORT id=$TORCHELASTIC_RUN_ID threads=$OMP_NUM_THREADS world=$ACCEL_WORLD"),
                   0);
  has("0 0 3 3 0 1 0 3 default 127.0.0.1 0 0\n");
  has("[rank 2] 2 2 3 3 0 1 2 3 default 127.0.0.1 0 0\n");
  has("world=segment=");
  has(",heaps=");
  has_not("threads= ");
  assert_true(pid_of("port=") > 1023);
  /* what the variables say is there: the segment and a heap per rank */
  assert_int_equal(job(NULL, 2,
                       "for f in $(echo $ACCEL_WORLD | tr -c '0-9' ' '); do readlink /proc/self/fd/$f; done"),
                   0);
  assert_int_equal(count("memfd:"), 6);
  assert_int_equal(job(NULL, 2, "readlink /proc/self/fd/* | grep -c -e signalfd -e socket -e memfd"), 0);
  has("[rank 1] 4\n"); /* nothing of the launcher but those, and a socket to a prompt */
  setenv("OMP_NUM_THREADS", "7", 1);
  assert_int_equal(job(NULL, 2, "echo threads=$OMP_NUM_THREADS"), 0);
  assert_int_equal(count("threads=7"), 2);
  unsetenv("OMP_NUM_THREADS");
}

static void test_machines(void **state) {
  (void)state;
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  o.num_machines = 2;
  o.machine_rank = 1;
  o.main_ip = "10.0.0.1";
  o.main_port = 4321;
  assert_int_equal(job(&o, 4, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT "
                              "$TORCHELASTIC_RUN_ID"),
                   0);
  has("[rank 2] 2 0 4 2 1 10.0.0.1:4321 10.0.0.1:4321\n");
  has("[rank 3] 3 1 4 2 1 ");
}

/* A prompt beside the ranks: the job is as long as it, with its status; ranks come and go. */
static void test_prompt(void **state) {
  (void)state;
  char *argv[] = {(char *)"sh", (char *)"-c", NULL, (char *)"front", NULL};
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  o.front_argv = argv;
  forget_signs();
  argv[2] = (char *)"echo prompt world=$ACCEL_WORLD $1; " WAIT_FOR("spoke") "; sleep 0.3; echo bye; exit 5";
  assert_int_equal(job(&o, 2,
                       "[ $RANK = 0 ] || kill -9 $$; echo stdin=$(readlink /proc/self/fd/0); " SIGN("spoke")
                       "; exec sleep 30"),
                   5);
  has("prompt world=none segment=");
  has(",front=");
  has("stdin=/dev/null\n");
  has("bye\n");
  has_not("END ");
  /* Ctrl-C is its affair, SIGTERM is everybody's */
  argv[2] = (char *)"trap 'echo interrupted' INT; echo ready; sleep 0.5; echo went on";
  pid_t pid = start(&o, 1, "exec sleep 30");
  wait_for("ready");
  kill(pid, SIGINT);
  assert_int_equal(end(pid), 0);
  has("went on\n");
  has_not("interrupted");
  argv[2] = (char *)"echo pid=$$; exec sleep 30";
  pid = start(&o, 1, "exec sleep 30");
  wait_for("pid=");
  kill(pid, SIGTERM);
  end(pid);
  has("SIGNAL 15\n");
  assert_false(alive(pid_of("pid=")));
  o.max_restarts = 1;
  assert_int_equal(job(&o, 2, "true"), 255);
  has("without restarts");
}

static void test_wrong(void **state) {
  (void)state;
  static const struct {
    int n, machines, machine, port;
    const char *ip, *say;
  } cases[] = {{0, 1, -1, 0, NULL, "0 is not a number of ranks"},
               {-3, 1, -1, 0, NULL, "-3 is not a number of ranks"},
               {257, 1, -1, 0, NULL, "257 ranks on one machine; there is room for 256"},
               {2, 3, 0, 1, "x", "3 machines are too many for 2 ranks"},
               {3, 2, 0, 1, "x", "3 cannot be split evenly over 2 machines"},
               {2, 2, 2, 1, "x", "machine_rank: 2 must be below num_machines, which is 2"},
               {2, 1, 1, 0, NULL, "machine_rank: 1 must be below num_machines, which is 1"},
               {2, 2, -1, 1, "x", "2 machines need machine_rank"},
               {2, 2, 0, 1, NULL, "2 machines need main_process_ip"},
               {2, 2, 0, 0, "x", "2 machines need main_process_port"},
               {2, 1, -1, 70000, "x", "70000 is not a port"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
    o.num_machines = cases[i].machines;
    o.machine_rank = cases[i].machine;
    o.main_port = cases[i].port;
    o.main_ip = cases[i].ip;
    assert_int_equal(job(&o, cases[i].n, "echo started $RANK"), 255);
    has("END invalid_argument: ");
    has(cases[i].say);
    has_not("started ");
  }
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  o.log_dir = "/proc/nowhere/logs";
  assert_int_equal(job(&o, 2, "echo started $RANK"), 255);
  has("log_dir: cannot make /proc/nowhere");
  setenv("OMPI_COMM_WORLD_RANK", "1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  assert_int_equal(job(NULL, 2, "echo started $RANK"), 255);
  has("this is already rank 1 of 4, started by Open MPI");
  setenv("ACCEL_WORLD", "none", 1);
  assert_int_equal(job(NULL, 2, "echo started $RANK"), 0);
  unsetenv("ACCEL_WORLD");
  unsetenv("OMPI_COMM_WORLD_RANK");
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void test_output(void **state) {
  (void)state;
  assert_int_equal(job(NULL, 2, "echo out; echo err >&2; printf 'no end'"), 0);
  has("[rank 1] out\n");
  has("[rank 1] err\n");
  has("[rank 1] no end\n");
  assert_int_equal(count("no end"), 2);
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  char *dir = ac_test_tmp_path("logs/deep"), *path = ac_test_tmp_path("logs/deep/rank_1.log");
  o.log_dir = dir;
  for (int tee = 0; tee < 2; tee++) {
    o.tee = tee != 0;
    assert_int_equal(job(&o, 2, "echo out $RANK; sleep 0.05; echo err $RANK >&2"), 0);
    has("out 0\n");
    has("err 0\n");
    has("[rank 1] err 1\n");
    assert_int_equal(count("[rank 1] out 1"), tee);
    size_t n;
    char *log = ac_test_read(path, &n);
    assert_true(strcmp(log, "out 1\nerr 1\n") == 0 || strcmp(log, "err 1\nout 1\n") == 0); /* two pipes */
    free(log);
  }
  free(dir);
  free(path);
}

static void test_ends(void **state) {
  (void)state;
  assert_int_equal(job(NULL, 3, "if [ $RANK = 1 ]; then exit 3; fi; exec sleep 20"), 3);
  has("END peer: rank 1 (pid ");
  has("exited with status 3\n");
  assert_int_equal(count("END"), 1);
  assert_int_equal(job(NULL, 3, "if [ $RANK = 2 ]; then kill -SEGV $$; fi; exec sleep 20"), 128 + SIGSEGV);
  has("END peer: rank 2 (pid ");
  has(") was killed by signal 11 (SIGSEGV)");
  /* at the same time: the one that a signal ended is the cause */
  assert_int_equal(job(NULL, 2, "if [ $RANK = 1 ]; then kill -9 $$; else exit 0; fi"), 137);
  assert_int_equal(job(NULL, 1, "exit 9"), 9);
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  o.share_stdin = true;
  assert_int_equal(job(&o, 2, "cat; exit 4"), 4);
}

/* One that ignores SIGTERM is killed; what ranks have started goes, too. */
static void test_stubborn(void **state) {
  (void)state;
  forget_signs();
  assert_int_equal(job(NULL, 2,
                       "if [ $RANK = 1 ]; then sleep 100 & sh -c 'setsid sleep 100 & echo inner=$!'; echo outer=$!; "
                       WAIT_FOR("trap") "; exit 3; fi; "
                       "trap '' TERM; echo zero=$$; " SIGN("trap") "; while :; do sleep 0.05; done"),
                   3);
  assert_false(alive(pid_of("inner=")));
  assert_false(alive(pid_of("outer=")));
  assert_false(alive(pid_of("zero=")));
}

static void test_restarts(void **state) {
  (void)state;
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  o.max_restarts = 2;
  o.monitor_interval = 0.02;
  const char *script = "echo try $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
                       "[ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 2 ]";
  assert_int_equal(job(&o, 2, script), 0);
  has("[rank 1] try 2 of 2");
  has("LOG rank 1 (pid ");
  has("exited with status 1; restart 1 of 2");
  has("restart 2 of 2");
  o.max_restarts = 1;
  assert_int_equal(job(&o, 2, script), 1);
  has("END peer: rank 1");
  o.monitor_interval = 30; /* not served: the signal is */
  pid_t pid = start(&o, 2, "exit 6");
  wait_for("restart 1 of 1");
  kill(pid, SIGTERM);
  assert_int_equal(end(pid), 128 + SIGTERM);
  has("SIGNAL 15");
}

static void test_signals(void **state) {
  (void)state;
  /* one that is served: the scripts end as they please */
  pid_t pid = start(NULL, 2, "trap 'echo saved; exit 5' INT TERM; echo ready; while :; do sleep 0.02; done");
  wait_for_all("ready", 2);
  kill(pid, SIGINT);
  assert_int_equal(end(pid), 5);
  assert_int_equal(count("saved"), 2);
  has_not("END");
  /* one that is not */
  pid = start(NULL, 2, "echo ready; exec sleep 20");
  wait_for_all("ready", 2);
  kill(pid, SIGTERM);
  assert_int_equal(end(pid), 128 + SIGTERM);
  has("SIGNAL 15");
  has_not("END");
  /* the third ends everything */
  ignores_int = true; /* one may come too late */
  pid = start(NULL, 2, "trap '' INT; echo ready; while :; do sleep 0.02; done");
  ignores_int = false;
  wait_for_all("ready", 2);
  siginfo_t ended = {0};
  for (int i = 0; i < 1000 && ended.si_pid == 0; i++) { /* two that come close together may count as one */
    kill(pid, SIGINT);
    sleep_ms(30);
    waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  assert_int_equal(end(pid), 128 + SIGKILL);
  has("SIGNAL 2");
}

static void test_stopped(void **state) {
  (void)state;
  pid_t pid = start(NULL, 2, "echo pid$RANK=$$; trap 'exit 0' USR1; while :; do sleep 0.02; done");
  wait_for("pid1=");
  wait_for("pid0=");
  pid_t one = pid_of("pid1="), zero = pid_of("pid0=");
  kill(one, SIGSTOP);
  wait_for("LOG rank 1 (pid ");
  has("is stopped (SIGSTOP), not dead");
  kill(one, SIGCONT);
  wait_for("continues");
  kill(one, SIGSTOP);
  sleep_ms(50);
  kill(zero, SIGKILL); /* the stopped one is ended all the same */
  assert_int_equal(end(pid), 137);
  has("END peer: rank 0 (pid ");
  assert_false(alive(one));
}

static void test_launcher_dies(void **state) {
  (void)state;
  pid_t pid = start(NULL, 3, "trap '' TERM; echo pid$RANK=$$; while :; do sleep 0.02; done");
  wait_for("pid0=");
  wait_for("pid1=");
  wait_for("pid2=");
  pid_t ranks[] = {pid_of("pid0="), pid_of("pid1="), pid_of("pid2=")};
  kill(ranks[1], SIGSTOP);
  kill(pid, SIGKILL);
  assert_int_equal(end(pid), 1000 + SIGKILL);
  for (int i = 0; i < 3; i++) assert_false(alive(ranks[i]));
}

/* The caller's own settings are as before. */
static void test_put_back(void **state) {
  (void)state;
  char *argv[] = {(char *)"true", NULL};
  ac_launch_options o = AC_LAUNCH_OPTIONS_INIT;
  ac_launch_result result;
  sigset_t before, after;
  struct sigaction action;
  int subreaper = 1;
  ac_err e;
  o.num_processes = 2;
  o.program = "/bin/true";
  o.argv = argv;
  signal(SIGCHLD, SIG_IGN);
  sigprocmask(SIG_SETMASK, NULL, &before);
  assert_ok(ac_launch(&o, &result, &e), e);
  assert_int_equal(result.exit_status, 0);
  sigprocmask(SIG_SETMASK, NULL, &after);
  for (int n = 1; n < 32; n++) assert_int_equal(sigismember(&before, n), sigismember(&after, n));
  sigaction(SIGCHLD, NULL, &action);
  assert_ptr_equal(action.sa_handler, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  sigaction(SIGPIPE, NULL, &action);
  assert_ptr_equal(action.sa_handler, SIG_DFL);
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  assert_int_equal(subreaper, 0);
  o.struct_size = 3;
  assert_fails(ac_launch(&o, &result, &e), INVALID, "ac_launch_options: struct_size is 3", e);
}

static int finish(void **state) {
  (void)state;
  free(text);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_environment), cmocka_unit_test(test_prompt), cmocka_unit_test(test_machines), cmocka_unit_test(test_wrong),
      cmocka_unit_test(test_output),      cmocka_unit_test(test_ends),     cmocka_unit_test(test_stubborn),
      cmocka_unit_test(test_restarts),    cmocka_unit_test(test_signals),  cmocka_unit_test(test_stopped),
      cmocka_unit_test(test_launcher_dies), cmocka_unit_test(test_put_back)};
  return cmocka_run_group_tests(tests, NULL, finish);
}
