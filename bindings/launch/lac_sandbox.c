/* process.sandbox(code, name, input, {seconds =, memory =, output =}) -> the value that the chunk
 * returns, or, if that is a function, its result for input. Or nil, message, code. For untrusted
 * Lua: configurations and launch policies.
 *
 * The chunk runs in a process of its own. It is text only, in a Lua state with base functions,
 * string, table, math, utf8 and coroutine, without load, print, require, io, os, package, debug,
 * string.dump and collectgarbage. Memory is mapped beforehand, and every descriptor except one pipe
 * is closed. Under a filter the kernel ends a process that asks for anything but write and exit
 * (sandbox_filter.h). So nothing has to be watched inside: a process that runs too long is killed.
 * Only plain data comes back. If the filter or a limit cannot be set, the code does not run. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <lualib.h>

#include "bindings/core/lac.h"
#include "bindings/base/plain.h"
#include "sandbox_arena.h"
#include "sandbox_filter.h"

/* The run-time library of a sanitizer makes system calls of its own whenever an error is thrown:
 * such builds, which are for tests, go without the filter. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

typedef struct job {
  const char *code, *name, *input;
  size_t n_code, n_input, memory, output;
  double seconds;
} job;

/* ---- in the child ---- */

enum { MESSAGE_BYTES = 400 };

static void leave(void) {
  for (;;) syscall(SYS_exit, 0); /* runs nothing of the program at exit */
}

static void send_all(int fd, const char *s, size_t n) {
  while (n > 0) {
    const ssize_t k = write(fd, s, n);
    if (k <= 0) leave();
    s += k;
    n -= (size_t)k;
  }
}

static void send_failure(int fd, const char *text) {
  const size_t n = strnlen(text, MESSAGE_BYTES);
  send_all(fd, "E", 1);
  send_all(fd, text, n);
  leave();
}

static void open_libraries(lua_State *L) {
  static const luaL_Reg libs[] = {{"_G", luaopen_base},     {"string", luaopen_string},
                                  {"table", luaopen_table}, {"math", luaopen_math},
                                  {"utf8", luaopen_utf8},   {"coroutine", luaopen_coroutine}};
  static const char *const gone[] = {"collectgarbage", "dofile", "load",   "loadfile",
                                     "print",          "warn",   "require"};
  for (size_t i = 0; i < sizeof libs / sizeof libs[0]; i++) {
    luaL_requiref(L, libs[i].name, libs[i].func, 1);
    lua_pop(L, 1);
  }
  for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
    lua_pushnil(L), lua_setglobal(L, gone[i]);
  lua_getglobal(L, "string");
  lua_pushnil(L);
  lua_setfield(L, -2, "dump");
  lua_pop(L, 1);
  lua_pushliteral(L, "");
  lua_getmetatable(L, -1);
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable"); /* the metatable of strings is nobody's */
  lua_pop(L, 2);
}

/* Runs the chunk, and its result if that is a function. Leaves the value. Arguments: the job. */
static int body(lua_State *L) {
  const job *j = lua_touserdata(L, 1);
  lua_settop(L, 0);
  if (luaL_loadbufferx(L, j->code, j->n_code, j->name, "t") != LUA_OK) return lua_error(L);
  lua_call(L, 0, 1);
  if (lua_type(L, 1) != LUA_TFUNCTION) return 1;
  const char *s = j->input;
  if (!lac_plain_read(L, &s, j->input + j->n_input, 0))
    return luaL_error(L, "the input is not plain data");
  lua_call(L, 1, 1);
  return 1;
}

static int open_body(lua_State *L) {
  open_libraries(L);
  return 0;
}

/* The code must not run: an errno for the parent. */
static void send_unconfined(int fd, const char *what, int error) {
  const char text = (char)error;
  send_all(fd, "U", 1);
  send_all(fd, &text, 1);
  send_all(fd, what, strlen(what));
  leave();
}

static void limit(int fd, int what, rlim_t n) {
  const struct rlimit l = {n, n};
  if (setrlimit(what, &l) != 0) send_unconfined(fd, "setrlimit", errno);
}

/* No signal comes in: they are blocked since before the fork, so that no handler of the program
 * runs here. */
static void run_child(const job *j, int fd, pid_t parent, char *out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) leave();
  for (int i = 0; i < 3; i++)
    if (i != fd) close(i);
#ifdef SYS_close_range
  if (fd > 3) syscall(SYS_close_range, 3u, (unsigned)fd - 1, 0u);
  syscall(SYS_close_range, (unsigned)fd + 1, ~0u, 0u);
#endif
  limit(fd, RLIMIT_NPROC, 0);
  limit(fd, RLIMIT_NOFILE, 0);
  limit(fd, RLIMIT_FSIZE, 0);
  limit(fd, RLIMIT_CORE, 0);
  limit(fd, RLIMIT_CPU, (rlim_t)j->seconds + 2);
  lac_arena arena = {.size = j->memory};
  arena.base = mmap(NULL, j->memory, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  lua_State *L = arena.base == MAP_FAILED ? NULL : lua_newstate(lac_arena_alloc, &arena);
  if (L == NULL) send_failure(fd, "not enough memory");
  lua_pushcfunction(L, open_body);
  if (lua_pcall(L, 0, 0, 0) != LUA_OK) send_failure(fd, "not enough memory for the libraries");
  lua_pushcfunction(L, body);
  lua_pushlightuserdata(L, (void *)(uintptr_t)j);
#ifndef SANITIZED
  const int error = lac_sandbox_confine(fd);
  if (error != 0) send_unconfined(fd, "a seccomp filter", error);
#endif
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
    const char *text =
        lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "raised something that is not text";
    send_failure(fd, text);
  }
  lac_plain data = {.s = out, .cap = j->output};
  if (!lac_plain_write(L, -1, &data)) {
    char text[96];
    memcpy(text, "what it returns ", 16);
    strncpy(text + 16, data.why, sizeof text - 17);
    text[sizeof text - 1] = 0;
    send_failure(fd, text);
  }
  send_all(fd, "V", 1);
  send_all(fd, out, data.len);
  leave();
}

/* ---- in the parent ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The child's output until it ends: bytes in out (room for cap). False if time or room ran out:
 * *why. */
static bool collect(int fd, double seconds, char *out, size_t cap, size_t *n, const char **why) {
  const double ends = now() + seconds;
  for (;;) {
    struct pollfd p = {fd, POLLIN, 0};
    const double left = ends - now();
    *why = "ran longer than its time";
    if (left <= 0) return false;
    const int k = poll(&p, 1, (int)(left * 1000) + 1);
    if (k < 0 && errno != EINTR) return false;
    if (k <= 0) continue;
    *why = "returned more data than allowed";
    if (*n == cap) return false;
    const ssize_t got = read(fd, out + *n, cap - *n);
    if (got == 0) return true;
    if (got > 0) *n += (size_t)got;
  }
}

static int refuse(lua_State *L, const char *name, const char *why, size_t n) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s", name);
  lua_pushliteral(L, " ");
  lua_pushlstring(L, why, n);
  lua_concat(L, 3);
  lua_pushliteral(L, "callback");
  return 3;
}

static int sandbox(lua_State *L) {
  static const char *const names[] = {"seconds", "memory", "output", NULL};
  lac_state *S = lac_get(L);
  job j = {0};
  j.code = lac_check_string(L, S, 1, "code", &j.n_code);
  j.name = lac_check_string(L, S, 2, "name", NULL);
  lac_opts o = lac_opts_open(L, S, 4, names);
  j.seconds = lac_opt_number(&o, "seconds", 1);
  j.memory = (size_t)lac_opt_int(&o, "memory", 64 << 20);
  j.output = (size_t)lac_opt_int(&o, "output", 1 << 20);
  lac_plain in = {.cap = 1 << 20};
  in.s = lua_newuserdatauv(L, in.cap, 0);
  if (!lac_plain_write(L, 3, &in)) lac_error(L, S, AC_INVALID, "sandbox: the input %s", in.why);
  j.input = in.s;
  j.n_input = in.len;
  char *out = lua_newuserdatauv(L, j.output + 1, 0);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    lac_error(L, S, AC_IO, "sandbox: cannot create a pipe: %s", strerror(errno));
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) run_child(&j, ends[1], parent, out);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    lac_error(L, S, AC_IO, "sandbox: cannot start a process: %s", strerror(errno));
  }
  size_t n = 0;
  const char *why;
  const bool whole = collect(ends[0], j.seconds, out, j.output + 1, &n, &why);
  close(ends[0]);
  if (!whole) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!whole) return refuse(L, j.name, why, strlen(why));
  if (n == 0) {
    const char *ended = WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS
                            ? "was ended by the system: it made a system call"
                        : WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU
                            ? "ran longer than its time"
                            : "crashed the Lua interpreter of its process";
    return refuse(L, j.name, ended, strlen(ended));
  }
  if (out[0] == 'U' && n > 2) {
    lua_pushfstring(
        L,
        "does not run: this system cannot confine Lua from a file (%s: %s); write the file as YAML or JSON, or run on a system "
        "that allows seccomp filters (for a container, see its seccomp profile)",
        lua_pushlstring(L, out + 2, n - 2), strerror((unsigned char)out[1]));
    size_t length;
    const char *text = lua_tolstring(L, -1, &length);
    return refuse(L, j.name, text, length);
  }
  if (out[0] == 'E') return refuse(L, j.name, out + 1, n - 1);
  const char *s = out + 1;
  const int top = lua_gettop(L);
  if (out[0] == 'V' && lac_plain_read(L, &s, out + n, 0)) return 1;
  lua_settop(L, top);
  return refuse(L, j.name, "returned data that cannot be read", 28);
}

LAC_OPEN("accel.process", sandbox) {
  static const luaL_Reg funcs[] = {{"sandbox", sandbox}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
