/* System services for the REPL, as the table accel.console. For lua/repl. Scripts use accel.repl.
 *
 *   console.session() -> s          Ctrl-C is the session's until s:close() puts the handler back
 *                                   that was there
 *     s:begin()  s:finish() -> n    between them Ctrl-C stops the running code. n: the number of
 *                presses
 *     s:running(thread) -> before   the coroutine that runs, nil: none
 *   console.channel(fd) -> c        messages to and from another process, over a socket
 *                                   (lac_channel.c)
 *     c:send(bytes)  c:receive()  c:close()
 *   console.poll(channels, seconds, input, deaf) -> "ready", i | "break" | "time" | "input" (only
 *   if requested). deaf: no "break", Ctrl-C
 *                                   is for the next wait
 *   console.connect, listen, pair, private_folder, uid, read_input: see lac_channel.c.
 *   console.attach: lac_attach.c
 *   console.append(path, text)      at the end of a file of ours: folders 0700, file 0600. true, or
 *                                   false
 *   console.editor(complete)        see lac_line.c. console.keys(): lac_keys.c. console.place(),
 *                                   console.pages(fd): lac_ranks.c
 *
 * The library installs no signal handlers. A session is the exception, requested by the code that
 * opens a prompt. It belongs to the process, as the terminal does, so there is one at a time.
 * Inside it, others of the same Lua state count as itself.
 *
 * The first Ctrl-C stops a loop that makes steps at its next one (with all ranks), if that comes
 * within a second. Otherwise it stops at the next instruction of Lua, or in its wait for other
 * ranks. The second stops at once, and again and again, until all pcalls are left. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "console.h"
#include "bindings/comm/dist.h"
#include "bindings/embed/interrupt.h"
#include "ops/core/ctx_impl.h"

#define SESSION "accel.console.session"
enum { EVERY = 1000 };

/* ---- Ctrl-C ---- */

/* The process's: its handler may run at any instruction, on any thread. */
static struct {
  lac_state *_Atomic state; /* whose session. NULL: none */
  int depth, event;
  struct sigaction was, was_continue;
  volatile sig_atomic_t continued; /* after Ctrl-Z: the terminal shows other output */
  /* that evaluates, and its running coroutine. NULL: none */
  lua_State *volatile thread, *volatile running;
  volatile sig_atomic_t presses;
  uint64_t step;          /* when the evaluation began */
  volatile int64_t limit; /* ns: stop the code from then on. 0: no request */
} one = {.event = -1};

int64_t lac_console_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t limit(void) { return __atomic_load_n(&one.limit, __ATOMIC_RELAXED); }
static void set_limit(int64_t at) { __atomic_store_n(&one.limit, at, __ATOMIC_RELAXED); }

/* Raises in the typed code and the functions it called. The prompt's own functions around it are
 * left alone. */
static void stop_hook(lua_State *L, lua_Debug *ar) {
  const int64_t at = limit();
  lac_state *S = atomic_load(&one.state);
  if (at == 0 || S == NULL || one.thread == NULL) {
    lac_host_rehook(L);
    return;
  }
  if (lac_console_now() < at) return;
  lua_getinfo(L, "S", ar);
  if (ar->what[0] == 'C' || strncmp(ar->source, "=lua/", 5) == 0) return;
  if (one.presses < 2) { /* once: cleanup code may run */
    set_limit(0);
    lac_host_rehook(L);
    if (atomic_load(&S->interrupt->noticed)) return; /* it stops in its own way */
  }
  ac_err e = {.code = AC_INTERRUPTED, .rank = -1, .msg = "interrupted"};
  lac_raise(L, S, &e);
}

static void hook(lua_State *L, bool at_once) {
  if (L == NULL) return;
  if (at_once) lua_sethook(L, stop_hook, LUA_MASKCOUNT, 1);
  else lua_sethook(L, stop_hook, LUA_MASKCALL | LUA_MASKCOUNT, EVERY);
}

static void on_interrupt(int n) {
  const int was = errno;
  const uint64_t add = 1;
  lac_state *S = atomic_load(&one.state);
  (void)n;
  if (S != NULL && one.thread == NULL) {
    const ssize_t k = write(one.event, &add, sizeof add);
    (void)k;
  } else if (S != NULL) {
    const bool steps = ++one.presses == 1 && S->ctx->step != one.step && S->ctx->step > 0;
    int64_t at = lac_console_now();
    if (steps) {
      const int64_t grace = atomic_load(&S->interrupt->step_long) * 2;
      at += grace > 1000000000 ? grace : 1000000000;
      atomic_store(&S->interrupt->noticed, false);
      atomic_store(&S->interrupt->signal, SIGINT);
    }
    set_limit(at);
    hook(one.thread, !steps);
    if (S->now != one.thread) hook(S->now, !steps);
    if (one.running != S->now) hook(one.running, !steps);
  }
  errno = was;
}

/* Ends a wait, so that the line is shown again. */
static void on_continue(int n) {
  (void)n;
  one.continued = 1;
}

bool lac_console_continued(void) {
  const bool was = one.continued != 0;
  one.continued = 0;
  return was;
}

/* A session inside another one's evaluation. The outer one continues when it is closed. */
typedef struct outer {
  bool open;
  lua_State *thread, *running;
} outer;

static int session(lua_State *L) {
  lac_state *S = lac_get(L), *none = NULL;
  if (atomic_load(&one.state) != S) {
    if (!atomic_compare_exchange_strong(&one.state, &none, S))
      return lac_error(L, S, AC_STATE, "accel.repl: another prompt has the terminal");
    one.depth = 0;
    one.thread = one.running = NULL;
    one.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = on_interrupt;
    sigemptyset(&a.sa_mask);
    a.sa_flags = SA_RESTART;
    if (one.event < 0 || sigaction(SIGINT, &a, &one.was) != 0) {
      const int error = errno;
      if (one.event >= 0) close(one.event);
      atomic_store(&one.state, NULL);
      return lac_error(L, S, AC_IO, "accel.repl: no handler for Ctrl-C: %s", strerror(error));
    }
    a.sa_handler = on_continue;
    a.sa_flags = 0;
    sigaction(SIGCONT, &a, &one.was_continue);
  }
  one.depth++;
  outer *o = lua_newuserdatauv(L, sizeof *o, 0);
  *o = (outer){true, one.thread, one.running};
  luaL_setmetatable(L, SESSION);
  one.thread = one.running = NULL;
  return 1;
}

static int session_close(lua_State *L) {
  outer *o = luaL_checkudata(L, 1, SESSION);
  const lac_state *S = lua_touserdata(L, LAC_STATE);
  if (!o->open || atomic_load(&one.state) != S) return 0;
  o->open = false;
  one.thread = o->thread;
  one.running = o->running;
  if (--one.depth > 0) return 0;
  sigaction(SIGINT, &one.was, NULL);
  sigaction(SIGCONT, &one.was_continue, NULL);
  one.thread = one.running = NULL;
  set_limit(0);
  atomic_store(&one.state, NULL);
  close(one.event);
  one.event = -1;
  return 0;
}

/* A world that exists now. The waits of a world made later are stopped from the next evaluation
 * on. */
static void watch_world(lac_state *S, bool on) {
  if (S->ranks->world != NULL) ac_world_set_interrupt(S->ranks->world, on ? &one.limit : NULL);
}

static int session_begin(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checkudata(L, 1, SESSION);
  set_limit(0);
  one.presses = 0;
  one.running = NULL;
  one.step = S->ctx->step;
  S->interrupt->raised = false;
  S->interrupt->agreed = 0;
  watch_world(S, true);
  one.thread = L;
  return 0;
}

static int session_finish(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checkudata(L, 1, SESSION);
  one.thread = one.running = NULL;
  set_limit(0);
  lac_host_rehook(L);
  if (one.presses > 0) {
    atomic_store(&S->interrupt->signal, 0);
    S->interrupt->agreed = 0;
  }
  watch_world(S, false);
  lua_pushinteger(L, one.presses);
  return 1;
}

/* s:running(thread or nil) -> the one before. Kept alive by who resumed it. */
static int session_running(lua_State *L) {
  luaL_checkudata(L, 1, SESSION);
  lua_State *before = one.running;
  one.running = lua_isnoneornil(L, 2) ? NULL : lua_tothread(L, 2);
  if (before == NULL) lua_pushnil(L);
  else {
    lua_pushthread(before);
    if (before != L) lua_xmove(before, L, 1);
  }
  return 1;
}

/* ---- files ---- */

static int append(lua_State *L) {
  lac_state *S = lac_get(L);
  char part[PATH_MAX];
  size_t n_text, n = 0;
  const char *path = lac_check_path(L, S, 1, "path", &n),
             *text = lac_check_string(L, S, 2, "text", &n_text);
  bool done = false;
  if (n > 0 && n < sizeof part) {
    memcpy(part, path, n + 1);
    for (size_t i = 1; i < n; i++) {
      if (part[i] != '/') continue;
      part[i] = 0;
      mkdir(part, 0700);
      part[i] = '/';
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    done = fd >= 0 && write(fd, text, n_text) == (ssize_t)n_text;
    if (fd >= 0) close(fd);
  }
  lua_pushboolean(L, done);
  return 1;
}

int lac_console_breaks(const lac_state *S) { return atomic_load(&one.state) == S ? one.event : -1; }

LAC_OPEN("accel.console", console) {
  static const luaL_Reg funcs[] = {{"session", session}, {"append", append}, {NULL, NULL}};
  static const luaL_Reg of_session[] = {{"begin", session_begin},
                                        {"finish", session_finish},
                                        {"running", session_running},
                                        {"close", session_close},
                                        {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", session_close}, {"__close", session_close}, {NULL, NULL}};
  lac_new_class(L, S, SESSION, metas, of_session);
  lac_setfuncs(L, S, funcs);
}
