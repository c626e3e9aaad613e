/* A library is a guest of the program it is in: around everything a host does, signals, locale, folder, environment, floating-point
 * modes, errno, standard streams, descriptors and threads of the program are what they were. */
#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/accel.h"

extern char **environ;

enum { N_SIGNALS = 64, MOST_ENV = 65536 };

typedef struct state_of_process {
  struct sigaction actions[N_SIGNALS + 1];
  sigset_t mask;
  char locale[256], folder[4096], environment[MOST_ENV];
  int rounding, exceptions;
  mode_t umask;
  int n_fds, n_threads;
} state_of_process;

static int count_entries(const char *path) {
  int n = 0;
  DIR *d = opendir(path);
  assert_non_null(d);
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

static void take(state_of_process *s) {
  memset(s, 0, sizeof *s);
  for (int i = 1; i <= N_SIGNALS; i++) sigaction(i, NULL, &s->actions[i]);
  sigprocmask(SIG_SETMASK, NULL, &s->mask);
  snprintf(s->locale, sizeof s->locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(s->folder, sizeof s->folder));
  size_t at = 0;
  for (char **v = environ; *v != NULL && at + strlen(*v) + 2 < MOST_ENV; v++)
    at += (size_t)snprintf(s->environment + at, MOST_ENV - at, "%s\n", *v);
  s->rounding = fegetround();
  s->umask = umask(022);
  umask(s->umask);
  s->n_fds = count_entries("/proc/self/fd");
  s->n_threads = count_entries("/proc/self/task");
}

static void assert_same(const state_of_process *a, const state_of_process *b, bool closed) {
  for (int i = 1; i <= N_SIGNALS; i++) {
    assert_ptr_equal(a->actions[i].sa_handler, b->actions[i].sa_handler);
    assert_int_equal(a->actions[i].sa_flags, b->actions[i].sa_flags);
  }
  assert_memory_equal(&a->mask, &b->mask, sizeof a->mask);
  assert_string_equal(a->locale, b->locale);
  assert_string_equal(a->folder, b->folder);
  assert_string_equal(a->environment, b->environment);
  assert_int_equal(a->rounding, b->rounding);
  assert_int_equal(a->umask, b->umask);
  if (!closed) return;
  assert_int_equal(a->n_fds, b->n_fds);
  assert_int_equal(a->n_threads, b->n_threads);
}

static volatile sig_atomic_t seen;
static void on_signal(int sig) { seen = sig; }

/* A kernel may not flush subnormal numbers of the program around it. */
static bool subnormals_work(void) {
  volatile double tiny = 4.9406564584124654e-324, half = 0.5;
  return tiny != 0 && 2.2250738585072014e-308 * half != 0;
}

static const char script[] =
    "local accel = require 'accel'\n"
    "local nn, optim = accel.nn, accel.optim\n"
    "accel.manual_seed(1)\n"
    "local model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))\n"
    "local opt = optim.AdamW(model:parameters(), { lr = 1e-2 })\n"
    "local x, y = accel.randn(64, 8), accel.randint(0, 4, { 64 })\n"
    "for _ = 1, 5 do\n"
    "  local loss = nn.functional.cross_entropy(model(x), y)\n"
    "  loss:backward() opt:step() opt:zero_grad()\n"
    "end\n"
    "assert(accel.randn(300, 300):matmul(accel.randn(300, 300)):isfinite():all():item())\n"
    "local path = ...\n"
    "assert(accel.save(path, model:state_dict())) assert(accel.load(path)) os.remove(path)\n"
    "for batch in accel.data.DataLoader { dataset = accel.data.TensorDataset(x, y), batch_size = 16 }() do assert(#batch[1] == 16) end\n"
    "assert(tostring(x) and accel.json.decode('[1.5]')[1] == 1.5 and not pcall(accel.json.decode, 1))\n"
    "warn('@on') warn('heard by nobody')\n";

static void test_guest(void **unused) {
  (void)unused;
  static state_of_process before, during, after;
  ac_err e;
  ac_host *h = NULL;
  char *path = ac_test_tmp_path("manners.safetensors"), *out = ac_test_tmp_path("stdout.txt"), dir[4096];
  const char *argv[1] = {path}, *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  o.lua_dir = dir;
  o.n_threads = 2;

  /* a program with habits of its own */
  struct sigaction act;
  memset(&act, 0, sizeof act);
  act.sa_handler = on_signal;
  for (int i = 0; i < 3; i++) assert_int_equal(sigaction((int[]){SIGUSR1, SIGINT, SIGPIPE}[i], &act, NULL), 0);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigprocmask(SIG_BLOCK, &blocked, NULL);
  if (setlocale(LC_ALL, "de_DE.UTF-8") == NULL && setlocale(LC_ALL, "C.UTF-8") == NULL) setlocale(LC_ALL, "C");
  umask(027);
  assert_int_equal(setenv("OWN_VARIABLE", "kept", 1), 0);

  /* what is written to the standard streams lands in a file that stays empty */
  fflush(NULL);
  const int sink = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), old[2] = {dup(1), dup(2)};
  assert_true(sink >= 0 && dup2(sink, 1) == 1 && dup2(sink, 2) == 2);
  close(sink);

  take(&before);
  errno = 77;
  ac_status st = ac_host_open(&o, &h, &e);
  int e1 = errno;
  ac_status st2 = st == AC_OK ? ac_host_run_string(h, script, "manners", 1, argv, &e) : st;
  int e2 = errno;
  ac_status bad = ac_host_run_string(h, "error('no')", "manners", 0, NULL, NULL);
  ac_status missing = ac_host_run_file(h, "/nowhere.lua", 0, NULL, NULL);
  ac_status exited = ac_host_run_string(h, "os.exit(3)", "manners", 0, NULL, NULL);
  int e3 = errno;
  bool subnormal = subnormals_work();
  take(&during);
  kill(getpid(), SIGUSR1);
  errno = 77;
  ac_host_close(h);
  int e4 = errno;
  take(&after);
  fflush(NULL);
  dup2(old[0], 1), dup2(old[1], 2);
  close(old[0]), close(old[1]);

  assert_ok(st, e);
  assert_ok(st2, e);
  assert_true(bad == AC_CALLBACK && missing == AC_NOT_FOUND && exited == AC_OK);
  assert_int_equal(e1, 77);
  assert_int_equal(e2, 77);
  assert_int_equal(e3, 77);
  assert_int_equal(e4, 77);
  assert_true(subnormal);
  assert_int_equal(seen, SIGUSR1);
  assert_same(&before, &during, false);
  assert_same(&before, &after, true);
  struct stat file;
  assert_int_equal(stat(out, &file), 0);
  if (file.st_size != 0) {
    size_t n;
    char *text = ac_test_read(out, &n);
    fail_msg("the library wrote: %s", text);
  }
  assert_int_equal(ac_tensor_live(), 0);
  remove(out);
  free(path);
  free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_guest)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
