/* The process that runs Lua from others: under its filter every system call but write to one pipe and exit ends it, inside a container
 * (a process that has a filter already) as outside, and code does not run where the filter cannot be set. What such a process could
 * write after a fault of Lua itself is only bytes: mutated answers are read or refused. */
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#include "accel/accel.h"
#include "bindings/base/plain.h"
#include "bindings/launch/sandbox_filter.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* such builds go without the filter (lac_sandbox.c) */
#else
#define SANITIZED 0
#endif

enum { FD = 9, CALLS = 480 };

static int ends(pid_t pid) {
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

/* How a process ends that makes one call under the filter. */
static int after_call(long call, long a, long b, long c) {
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (lac_sandbox_confine(FD) != 0) _exit(99);
    syscall(call, a, b, c, 0L, 0L, 0L);
    for (;;) syscall(SYS_exit, 7);
  }
  return ends(pid);
}

/* On x86-64 the kernel itself exempts 335 and 336 (uretprobe, uprobe) from every filter. They serve its own trampolines and answer others
 * with an error or a signal. */
static bool let_through(long call) {
#ifdef __x86_64__
  if (call == 335 || call == 336) return true;
#endif
  return call == SYS_write || call == SYS_exit || call == SYS_exit_group || call == SYS_getppid || call == SYS_clock_gettime
#ifdef SYS_time
         || call == SYS_time
#endif
      ;
}

static void test_calls(void **state) {
  (void)state;
  if (SANITIZED) skip();
  assert_int_equal(dup2(STDERR_FILENO, FD), FD);
  for (long call = 0; call < CALLS; call++) {
    if (let_through(call)) continue;
    const int status = after_call(call, 0, 0, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS) fail_msg("call %ld ended with status %x", call, (unsigned)status);
  }
  const long odd[] = {-1, 0x40000000L | 1, 0x40000000L | 59, 0x7fffffff, 1000};
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
    assert_int_equal(WTERMSIG(after_call(odd[i], FD, (long)(intptr_t) "x", 0)), SIGSYS);
  for (int fd = 0; fd < 12; fd++) {
    const int status = after_call(SYS_write, fd, (long)(intptr_t) "", 0);
    assert_int_equal(fd == FD ? WEXITSTATUS(status) : WTERMSIG(status), fd == FD ? 7 : SIGSYS);
  }
  assert_int_equal(WEXITSTATUS(after_call(SYS_clock_gettime, CLOCK_REALTIME, 0, 0)), 7);
  close(FD);
}

#if defined(__x86_64__)
/* The table of 32-bit programs, in which other numbers mean other calls. */
static void test_other_table(void **state) {
  (void)state;
  if (SANITIZED) skip();
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    if (lac_sandbox_confine(FD) != 0) _exit(99);
    long answer = 1; /* exit there, write here */
    __asm__ volatile("int $0x80" : "+a"(answer) : "b"(0L) : "memory");
    for (;;) syscall(SYS_exit, 7);
  }
  const int status = ends(pid);
  assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV));
}
#endif

/* ---- whole jobs in processes that have a filter ---- */

static ac_err E;

static ac_host *open_host(void) {
  char dir[4096];
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  o.lua_dir = dir;
  ac_host *h = NULL;
  return ac_host_open(&o, &h, &E) == AC_OK ? h : NULL;
}

/* As a container's: allows all; or refuses further filters. */
static bool set_filter(bool refuses) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (!refuses) rules[4].k = SECCOMP_RET_ALLOW;
  const struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static pid_t run_in_container(bool refuses, const char *code) {
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid != 0) return pid;
  if (!set_filter(refuses)) _exit(3);
  ac_host *h = open_host();
  if (h == NULL || ac_host_run_string(h, code, "t", 0, NULL, &E) != AC_OK) {
    fprintf(stderr, "%s\n", E.msg);
    _exit(1);
  }
  ac_host_close(h);
  _exit(0);
}

static void test_values_in_a_container(void **state) {
  (void)state;
  assert_int_equal(ends(run_in_container(false,
                                         "local run = require('accel').process.sandbox\n"
                                         "math.randomseed(1)\n"
                                         "assert(run('return 1 + 1', '@x', nil) == 2)\n"
                                         "assert(run('math.randomseed() return 3', '@x', nil) == 3)\n")),
                   0);
}

static long field(pid_t pid, const char *name) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *f = fopen(path, "r");
  long value = -1;
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':') value = strtol(line + strlen(name) + 1, NULL, 10);
  if (f != NULL) fclose(f);
  return value;
}

/* What the kernel says of the process in which the code runs: one filter more than its parent, few limits left. */
static void test_in_force_in_a_container(void **state) {
  (void)state;
  if (SANITIZED) skip();
  const pid_t pid = run_in_container(false, "require('accel').process.sandbox('while true do end', '@x', nil, { seconds = 3 })");
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  const struct timespec pause = {0, 5000000};
  int child = 0;
  bool confined = false;
  for (int i = 0; i < 2000 && !confined && field(pid, "State") != -1; i++) {
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%d", &child) == 1) confined = field(child, "Seccomp_filters") == 2 && field(child, "NoNewPrivs") == 1;
    if (f != NULL) fclose(f);
    nanosleep(&pause, NULL);
  }
  kill(pid, SIGKILL);
  ends(pid);
  assert_true(confined);
}

static void test_refused_without_the_filter(void **state) {
  (void)state;
  if (SANITIZED) skip();
  assert_int_equal(
      ends(run_in_container(true,
                            "local value, why, code = require('accel').process.sandbox('return 1', '@x', nil)\n"
                            "assert(value == nil and code == 'callback', tostring(value))\n"
                            "assert(why:find('@x does not run: this system cannot confine Lua from a file', 1, true), why)\n"
                            "assert(why:find('a seccomp filter: Operation not permitted); write the file as YAML', 1, true), why)\n")),
      0);
}

/* ---- bytes that a process with a broken Lua could send ---- */

static int read_answer(lua_State *L) {
  size_t n;
  const char *s = lua_tolstring(L, 1, &n), *at = s;
  lua_pushboolean(L, lac_plain_read(L, &at, s + n, 0));
  return 1;
}

static void test_mutated_answers(void **state) {
  (void)state;
  uint64_t seed = 20241129;
  printf("seed %llu\n", (unsigned long long)seed);
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  static const char code[] = "return { a = 1, b = { 2.5, 'x', true, { { {} } } }, [3] = 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', [1.5] = false }";
  char bytes[1024], copy[1024];
  lac_plain p = {.s = bytes, .cap = sizeof bytes};
  assert_int_equal(luaL_dostring(L, code), LUA_OK);
  assert_true(lac_plain_write(L, -1, &p));
  for (int i = 0; i < 30000; i++) {
    memcpy(copy, bytes, p.len);
    size_t n = p.len;
    for (uint64_t k = 1 + ac_test_random(&seed) % 4; k > 0; k--) {
      const size_t at = (size_t)(ac_test_random(&seed) % p.len);
      const uint64_t how = ac_test_random(&seed);
      if (how % 8 == 0) n = at;
      else copy[at] = how % 3 == 0 ? "NTFIDS{}"[(how >> 8) % 8] : (char)(how >> 16);
    }
    lua_settop(L, 0);
    lua_pushcfunction(L, read_answer);
    lua_pushlstring(L, copy, n);
    lua_pcall(L, 1, 1, 0);
  }
  assert_true(lua_gc(L, LUA_GCCOUNT) < 4096);
  lua_close(L);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_calls),
#if defined(__x86_64__)
      cmocka_unit_test(test_other_table),
#endif
      cmocka_unit_test(test_values_in_a_container),
      cmocka_unit_test(test_in_force_in_a_container),
      cmocka_unit_test(test_refused_without_the_filter),
      cmocka_unit_test(test_mutated_answers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
