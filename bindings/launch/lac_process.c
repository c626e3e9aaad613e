/* System services for accel.launch, as the table accel.process: starting another program, the place
 * of accel-run, and blobs (lac_blob.c). For the library's own files. Scripts use accel.launch.
 *
 *   process.spawn(path, argv [, env [, keep [, input [, out]]]]) -> p
 *                                   keep: descriptors for a prompt, in addition to our terminal.
 *                                   input: the program's standard input, at most 4096 bytes.
 *                                   out: {descriptor of its standard output, of its standard error}
 *     p:wait(seconds)  p:signal(n)  p:interrupted()  p:pid()  p:close()
 *   process.blob([bytes]) -> b
 *     b:path()  b:read()  b:close()
 *   process.program()  process.cores()  process.raise(code, message [, rank])
 *
 * Nothing is left running: the program dies with the thread that spawned it, however that ends, and
 * with its handle. While it runs, the first Ctrl-C is only noted (p:interrupted() reports it), so
 * that it can be passed on and the program ends in its own way. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"
#include "bindings/embed/interrupt.h"
#include "launch/launch_impl.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4u
#endif

#define PROCESS "accel.process"
enum { FIRST_GRACE_MS = 2000, SECOND_GRACE_MS = 1000, POLL_MS = 5 };
extern char **environ;

typedef struct process {
  pid_t pid; /* 0: ended and collected, or never started */
  int fd;    /* of the process. -1: this kernel has none */
  bool flag_was, flag_set;
} process;

/* ---- starting ---- */

/* As the kernel takes it: the handler comes first, and all zero is the default action. */
typedef struct action {
  uintptr_t handler, rest[7];
} action;
enum { MASK_BYTES = 8 };

/* The child's code between vfork and exec, in our memory: only system calls. */
__attribute__((noinline)) static void become(const char *path, char *const *argv, char *const *env,
                                             int null, const int *keep, const int out[2],
                                             const sigset_t *mask, pid_t parent,
                                             volatile int *error) {
  static const action standard;
  action a;
  for (int n = 1; n < NSIG; n++) /* no handler of ours may run here once signals are let in */
    if (syscall(SYS_rt_sigaction, n, NULL, &a, MASK_BYTES) == 0 && a.handler != (uintptr_t)SIG_IGN)
      syscall(SYS_rt_sigaction, n, &standard, NULL, MASK_BYTES);
  if (keep == NULL) syscall(SYS_setpgid, 0, 0); /* signals of the terminal come through us */
  /* a prompt has the terminal's modes to put back */
  if (syscall(SYS_prctl, PR_SET_PDEATHSIG, keep == NULL ? SIGKILL : SIGTERM) == 0 &&
      syscall(SYS_getppid) == parent &&
      (null == 0 ? syscall(SYS_fcntl, 0, F_SETFD, 0) : syscall(SYS_dup3, null, 0, 0)) == 0 &&
      (out[0] < 0 || syscall(SYS_dup3, out[0], 1, 0) == 1) &&
      (out[1] < 0 || syscall(SYS_dup3, out[1], 2, 0) == 2)) {
#ifdef SYS_close_range /* without it, files of scripts stay open there */
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
#endif
    for (; keep != NULL && *keep >= 0; keep++) syscall(SYS_fcntl, *keep, F_SETFD, 0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, mask, NULL, MASK_BYTES);
    syscall(SYS_execve, path, argv, env);
  }
  *error = errno != 0 ? errno : ECHILD;
  syscall(SYS_exit_group, 127);
}

static pid_t start(const char *path, char *const *argv, char *const *env, int null, const int *keep,
                   const int out[2], int *error) {
  sigset_t all, mask;
  volatile int failed = 0;
  const pid_t parent = getpid();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  const pid_t pid = vfork();
  if (pid == 0) become(path, argv, env, null, keep, out, &mask, parent, &failed);
  *error = pid < 0 ? errno : failed;
  if (pid > 0 && failed != 0) waitpid(pid, NULL, 0);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  return *error != 0 ? 0 : pid;
}

/* Pushes an array of the strings of the list at idx, NULL last. */
static char **read_argv(lua_State *L, lac_state *S, int idx) {
  if (!lua_istable(L, idx))
    lac_argerror(L, S, AC_INVALID, "spawn", idx, "argv", "expected list of strings");
  const lua_Integer n = (lua_Integer)lua_rawlen(L, idx);
  char **argv = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *argv, 0);
  for (lua_Integer i = 0; i < n; i++) {
    size_t len = 0;
    const char *s = lua_rawgeti(L, idx, i + 1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : NULL;
    if (s == NULL || strlen(s) != len)
      lac_argerror(L, S, AC_INVALID, "spawn", idx, "argv",
                   "entry %lld: expected string without zeros", (long long)i + 1);
    argv[i] = (char *)(uintptr_t)s; /* anchored by the list */
    lua_pop(L, 1);
  }
  argv[n] = NULL;
  return argv;
}

/* Pushes our environment changed by the table at idx: strings by name, false to remove one. A list
 * of the new entries is pushed as well. */
static char **read_env(lua_State *L, lac_state *S, int idx) {
  size_t n = 0, more = 0, len;
  if (!lua_istable(L, idx)) lua_newtable(L), lua_replace(L, idx);
  while (environ != NULL && environ[n] != NULL) n++;
  lua_newtable(L);
  const int kept = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &len) : "";
    if (name[0] == 0 || strchr(name, '=') != NULL || strlen(name) != len)
      lac_error(L, S, AC_INVALID, "env: a name is a string without '=' and zeros, not %s",
                luaL_tolstring(L, -2, NULL));
    if (lua_isboolean(L, -1) && !lua_toboolean(L, -1)) continue;
    if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tolstring(L, -1, &len)) != len)
      lac_error(L, S, AC_INVALID,
                "env: %s: expected string without zeros, or false to take it out, got %s", name,
                luaL_typename(L, -1));
    lua_pushfstring(L, "%s=%s", name, lua_tostring(L, -1));
    lua_rawseti(L, kept, (lua_Integer)++more);
  }
  char **env = lua_newuserdatauv(L, (n + more + 1) * sizeof *env, 0);
  size_t k = 0;
  for (size_t i = 0; i < n; i++) {
    const char *equals = strchr(environ[i], '=');
    if (equals == NULL) continue;
    lua_pushlstring(L, environ[i], (size_t)(equals - environ[i]));
    if (lua_rawget(L, idx) == LUA_TNIL) env[k++] = environ[i];
    lua_pop(L, 1);
  }
  for (size_t i = 1; i <= more; i++) {
    lua_rawgeti(L, kept, (lua_Integer)i);
    env[k++] = (char *)(uintptr_t)lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  env[k] = NULL;
  return env;
}

/* Pushes the descriptors of the list at idx, -1 last. NULL for nil. */
static int *read_keep(lua_State *L, lac_state *S, int idx) {
  if (lua_isnil(L, idx)) return NULL;
  if (!lua_istable(L, idx))
    lac_argerror(L, S, AC_INVALID, "spawn", idx, "keep", "expected list of descriptors");
  const lua_Integer n = (lua_Integer)lua_rawlen(L, idx);
  int *keep = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *keep, 0);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, idx, i + 1);
    keep[i] = (int)lac_check_int(L, S, -1, "keep");
    lua_pop(L, 1);
  }
  keep[n] = -1;
  return keep;
}

/* A pipe that holds these bytes and then ends. On failure sets errno. */
static int pipe_of(const char *p, size_t n) {
  int fd[2];
  if (n > PIPE_BUF) errno = EMSGSIZE;
  if (n > PIPE_BUF || pipe2(fd, O_CLOEXEC) != 0) return -1;
  const bool ok = write(fd[1], p, n) == (ssize_t)n; /* an empty pipe takes so many at once */
  const int why = errno;
  close(fd[1]);
  if (ok) return fd[0];
  close(fd[0]);
  errno = why;
  return -1;
}

static int spawn(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  lua_settop(L, 6);
  size_t n_input = 0;
  int out[2] = {-1, -1};
  for (int i = 0; i < 2 && lua_istable(L, 6); i++) {
    lua_rawgeti(L, 6, i + 1);
    out[i] = (int)lac_check_int(L, S, -1, "out");
    lua_pop(L, 1);
  }
  const char *input = lua_isnil(L, 5) ? NULL : lac_check_string(L, S, 5, "input", &n_input);
  char **argv = read_argv(L, S, 2), **env = read_env(L, S, 3);
  const int *keep = read_keep(L, S, 4);
  process *p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = (process){.fd = -1};
  luaL_setmetatable(L, PROCESS);
  int error, null = keep != NULL    ? 0
                    : input != NULL ? pipe_of(input, n_input)
                                    : open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0)
    return lac_error(L, S, AC_IO, "cannot open standard input for %s: %s", path, strerror(errno));
  p->flag_was = S->interrupt->as_flag;
  p->pid = start(path, argv, env, null, keep, out, &error);
  if (keep == NULL) close(null);
  if (p->pid == 0) return lac_error(L, S, AC_IO, "cannot run %s: %s", path, strerror(error));
  p->flag_set = keep == NULL;
  if (p->flag_set) S->interrupt->as_flag = true;
#ifdef SYS_pidfd_open
  p->fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
#endif
  return 1;
}

/* ---- ending ---- */

static void forget(lac_state *S, process *p) {
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  p->pid = 0;
  if (p->flag_set) S->interrupt->as_flag = p->flag_was;
  p->flag_set = false;
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits up to ms, or (once) until a signal arrives. True: it has ended, *status has its status. -1:
 * collected elsewhere. */
static bool wait_for(process *p, int ms, bool once, int *status) {
  const int64_t until = now_ms() + ms;
  for (;;) {
    const pid_t got = waitpid(p->pid, status, WNOHANG);
    if (got < 0 && errno != EINTR) *status = -1;
    if (got == p->pid || (got < 0 && errno != EINTR)) return true;
    const int64_t left = until - now_ms();
    if (left <= 0) return false;
    struct pollfd f = {.fd = p->fd, .events = POLLIN};
    if (poll(p->fd >= 0 ? &f : NULL, p->fd >= 0,
             (int)(p->fd >= 0 || left < POLL_MS ? left : POLL_MS)) < 0 &&
        once)
      return waitpid(p->pid, status, WNOHANG) == p->pid;
  }
}

static void send_signal(const process *p, int n) {
  if (kill(-p->pid, n) != 0) kill(p->pid, n);
}

static int process_close(lua_State *L) {
  lac_state *S = lua_touserdata(L, LAC_STATE);
  process *p = luaL_checkudata(L, 1, PROCESS);
  int status;
  if (p->pid == 0) return 0;
  send_signal(p, SIGTERM); /* stop at the next step ... */
  if (!wait_for(p, FIRST_GRACE_MS, false, &status)) {
    send_signal(p, SIGTERM); /* ... or now */
    if (!wait_for(p, SECOND_GRACE_MS, false, &status)) {
      send_signal(p, SIGKILL);
      waitpid(p->pid, &status, 0);
    }
  }
  forget(S, p);
  return 0;
}

static process *check_process(lua_State *L, lac_state *S) {
  process *p = luaL_checkudata(L, 1, PROCESS);
  if (p->pid == 0) lac_error(L, S, AC_STATE, "the process has ended");
  return p;
}

/* p:wait(seconds) -> nil while it runs (also when a signal arrived), "exit", status, "signal",
 * number, or "lost" */
static int process_wait(lua_State *L) {
  lac_state *S = lac_get(L);
  process *p = check_process(L, S);
  const double seconds = lac_check_number(L, S, 2, "seconds");
  int status;
  if (!wait_for(p, seconds > 0 ? (int)(seconds < 1e6 ? seconds * 1e3 : 1e9) : 0, true, &status))
    return 0;
  forget(S, p);
  if (status == -1) {
    lua_pushliteral(L, "lost");
    return 1;
  }
  lua_pushstring(L, WIFSIGNALED(status) ? "signal" : "exit");
  lua_pushinteger(L, WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 2;
}

static int process_pid(lua_State *L) {
  lua_pushinteger(L, check_process(L, lac_get(L))->pid);
  return 1;
}

static int process_signal(lua_State *L) {
  lac_state *S = lac_get(L);
  const process *p = check_process(L, S);
  send_signal(p, (int)lac_check_int(L, S, 2, "signal"));
  return 0;
}

/* p:interrupted() -> the signal that asks this program to stop, or nil. Works also after p has
 * ended. The second result: whether this call serves it. It does not if the script uses
 * accel.interrupted(). */
static int process_interrupted(lua_State *L) {
  lac_state *S = lac_get(L);
  const process *p = luaL_checkudata(L, 1, PROCESS);
  const int n = atomic_load(&S->interrupt->signal);
  if (n == 0) return 0;
  atomic_store(&S->interrupt->noticed, true);
  if (!p->flag_was && p->pid == 0) atomic_store(&S->interrupt->signal, 0);
  lua_pushinteger(L, n < 0 ? SIGINT : n);
  lua_pushboolean(L, !p->flag_was);
  return 2;
}

/* ---- the rest ---- */

/* process.program() -> path of accel-run: this program, or the one of the library's prefix. Or nil,
 * the expected place */
static int program(lua_State *L) {
  char path[PATH_MAX + 64], dir[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  path[n > 0 ? n : 0] = 0;
  const char *slash = strrchr(path, '/');
  if (slash != NULL && strcmp(slash, "/accel-run") == 0) {
    lua_pushstring(L, path);
    return 1;
  }
  const bool found = lac_lua_dir(dir, sizeof dir);
  if (found) snprintf(path, sizeof path, "%s/../../../bin/accel-run", dir);
  char *plain = found ? realpath(path, NULL) : NULL;
  if (plain != NULL && access(plain, X_OK) == 0) {
    snprintf(path, sizeof path, "%s", plain);
    free(plain);
    lua_pushstring(L, path);
    return 1;
  }
  free(plain);
  lua_pushnil(L);
  lua_pushstring(L, found ? path : "bin/accel-run next to the library");
  return 2;
}

/* process.cores() -> how many ranks `auto` means here */
static int cores(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_cpus c;
  ac_err e;
  if (aci_cpus_read("/sys", &c, &e) != AC_OK) return lac_raise(L, S, &e);
  const int n = c.n_cores;
  aci_cpus_free(&c);
  lua_pushinteger(L, n);
  return 1;
}

/* process.variables(prefix): the names of the environment's variables that begin with it, in the
 * environment's order */
static int variables(lua_State *L) {
  size_t n;
  const char *prefix = lac_check_string(L, lac_get(L), 1, "prefix", &n);
  lua_newtable(L);
  lua_Integer count = 0;
  for (char **v = environ; v != NULL && *v != NULL; v++) {
    const char *equals = strchr(*v, '=');
    if (equals == NULL || (size_t)(equals - *v) < n || memcmp(*v, prefix, n) != 0) continue;
    lua_pushlstring(L, *v, (size_t)(equals - *v));
    lua_rawseti(L, -2, ++count);
  }
  return 1;
}

/* process.raise(code, message [, rank]): an error like the core's */
static int raise_error(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_settop(L, 3);
  const char *code = lac_check_string(L, S, 1, "code", NULL);
  ac_err e = {.code = AC_CALLBACK, .rank = -1};
  snprintf(e.msg, sizeof e.msg, "%s", lac_check_string(L, S, 2, "message", NULL));
  static const ac_status all[] = {
#define AC_X(name, number, text, rec) AC_##name,
      AC_STATUS_LIST(AC_X)
#undef AC_X
  };
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (strcmp(code, ac_status_name(all[i])) == 0) e.code = all[i];
  lac_push_error(L, S, &e, true);
  lua_pushvalue(L, 3);
  lua_setfield(L, -2, "rank");
  return lua_error(L);
}

/* process.function_of(bytes, name) -> the function that string.dump made in a process of this program
 * and user, for accel.launch. Lua does not check such bytes: load refuses them. */
static int function_of(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *bytes = lac_check_string(L, S, 1, "bytes", &n),
             *name = lac_check_string(L, S, 2, "name", NULL);
  if (luaL_loadbufferx(L, bytes, n, name, "b") == LUA_OK) return 1;
  return lac_error(L, S, AC_INVALID, "function_of: %s", lua_tostring(L, -1));
}

LAC_OPEN("accel.process", process) {
  static const luaL_Reg funcs[] = {{"spawn", spawn},
                                   {"program", program},
                                   {"cores", cores},
                                   {"raise", raise_error},
                                   {"variables", variables},
                                   {"function_of", function_of},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"pid", process_pid},       {"wait", process_wait},
      {"signal", process_signal}, {"interrupted", process_interrupted},
      {"close", process_close},   {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", process_close}, {"__close", process_close}, {NULL, NULL}};
  lac_new_class(L, S, PROCESS, metas, methods);
  lac_setfuncs(L, S, funcs);
}
