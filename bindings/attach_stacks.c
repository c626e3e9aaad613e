/* The stack of a script that runs, asked for by another thread of its process, wherever the script is: in a loop, in a wait for other ranks, in a
 * read that does not return.
 *
 * SIGURG goes to the script's thread. Its handler sets a hook, as handlers may, and the hook writes the frames at the next instruction of Lua.
 * Where no such instruction comes, the thread is in C code: asleep in a system call, or at work for longer than a moment. A second signal then
 * writes the frames from within the handler: the thread that could change them is the one that runs it, and it reads only (lua_getstack and
 * lua_getinfo allocate nothing for what is asked here). */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"

#define MS ((int64_t)1000000)

/* What the next signal or hook is to do. The writer takes the request from the one who waits before it writes. */
enum { IDLE, BY_HOOK, AT_ONCE, WRITING, DONE };

static struct {
  lac_state *_Atomic state; /* whose script is looked at; NULL: none */
  int thread;
  pthread_mutex_t asking; /* one at a time */
  _Atomic uint32_t request;
  char *buf;
  size_t n, at;
  struct { /* hooks that ours stands in for */
    lua_State *L;
    lua_Hook hook;
    int mask, count;
  } was[2];
} one = {.asking = PTHREAD_MUTEX_INITIALIZER};

static void put(const char *text) {
  const size_t k = strlen(text), room = one.n - one.at;
  if (k >= room) return;
  memcpy(one.buf + one.at, text, k);
  one.at += k;
}

/* Frames of a thread of Lua. Text is put together without formatted output, since a handler may run it. */
static void write_frames(lua_State *L) {
  enum { MOST = 200 };
  lua_Debug ar;
  for (int level = 0; level < MOST && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sln", &ar);
    if (strncmp(ar.source, "=lua/", 5) == 0) continue; /* the prompt's own */
    char line[16];
    if (ar.what[0] == 'C' && ar.name == NULL) continue;
    put("  ");
    put(ar.short_src);
    if (ar.currentline > 0) {
      int k = sizeof line - 1, v = ar.currentline;
      line[k] = 0;
      do line[--k] = (char)('0' + v % 10);
      while ((v /= 10) > 0);
      put(":"), put(line + k);
    }
    if (strcmp(ar.what, "main") == 0) put(": in main chunk");
    else if (ar.name != NULL) put(": in "), put(ar.namewhat[0] != 0 ? ar.namewhat : "function"), put(" '"), put(ar.name), put("'");
    else put(": in a function");
    put("\n");
  }
}

static void take(lua_State *L, const lac_state *S) {
  write_frames(L);
  if (L != S->main) put("  (a coroutine, resumed by)\n"), write_frames(S->main);
}

static void restore(void) {
  for (int i = 0; i < 2; i++)
    if (one.was[i].L != NULL) lua_sethook(one.was[i].L, one.was[i].hook, one.was[i].mask, one.was[i].count), one.was[i].L = NULL;
}

static bool claim(uint32_t request) { return atomic_compare_exchange_strong(&one.request, &request, WRITING); }

static void finish(void) {
  atomic_store(&one.request, DONE);
  aci_futex_wake(&one.request);
}

static void hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lac_state *S = atomic_load(&one.state);
  restore();
  if (S == NULL || (!claim(BY_HOOK) && !claim(AT_ONCE))) return;
  take(L, S);
  finish();
}

static void set_hook(int i, lua_State *L) {
  if (lua_gethook(L) == hook) return;
  one.was[i].hook = lua_gethook(L);
  one.was[i].mask = lua_gethookmask(L);
  one.was[i].count = lua_gethookcount(L);
  one.was[i].L = L;
  lua_sethook(L, hook, LUA_MASKCOUNT, 1);
}

static void on_urgent(int n) {
  const int error = errno;
  lac_state *S = atomic_load(&one.state);
  (void)n;
  if (S != NULL && syscall(SYS_gettid) == one.thread) {
    if (claim(AT_ONCE)) {
      restore();
      take(lac_thread(S), S);
      finish();
    } else if (atomic_load(&one.request) == BY_HOOK) {
      set_hook(0, S->main);
      if (S->now != NULL && S->now != S->main) set_hook(1, S->now);
    } else {
      restore(); /* nobody asks any more */
    }
  }
  errno = error;
}

bool lac_stacks_open(lac_state *S, int thread, ac_err *e) {
  lac_state *none = NULL;
  if (!atomic_compare_exchange_strong(&one.state, &none, S)) {
    AC_FAIL(e, STATE, "attach: another host of this process listens already");
    return false;
  }
  one.thread = thread;
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = on_urgent;
  sigemptyset(&a.sa_mask);
  a.sa_flags = SA_RESTART;
  sigaction(SIGURG, &a, NULL);
  return true;
}

void lac_stacks_close(lac_state *S) {
  if (atomic_load(&one.state) != S) return;
  signal(SIGURG, SIG_DFL); /* which ignores it */
  restore();
  atomic_store(&one.state, NULL);
}

/* The state letter of the script's thread; 0: not known. */
static char thread_state(void) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", one.thread);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char *p = strrchr(text, ')');
  return p != NULL && p[1] == ' ' ? p[2] : 0;
}

static bool ask(uint32_t request, int64_t ns) {
  atomic_store(&one.request, request);
  syscall(SYS_tgkill, getpid(), one.thread, SIGURG);
  for (const int64_t end = aci_now_ns() + ns; atomic_load(&one.request) != DONE;) {
    const int64_t left = end - aci_now_ns();
    if (left <= 0) return false;
    aci_futex_wait(&one.request, atomic_load(&one.request) == WRITING ? WRITING : request, left);
  }
  return true;
}

size_t lac_stacks_take(lac_state *S, char *buf, size_t n) {
  enum { TURN_MS = 50, TURNS = 12, ASLEEP_AFTER = 2 };
  pthread_mutex_lock(&one.asking);
  one.buf = buf;
  one.n = n;
  one.at = 0;
  bool done = atomic_load(&one.state) == S && ask(BY_HOOK, TURN_MS * MS);
  /* no Lua instruction so far: asleep, it is in a system call; still at work after half a second, in a long kernel */
  for (int i = 1; !done && i < TURNS; i++) {
    const char s = thread_state();
    if (i >= ASLEEP_AFTER && (s == 'S' || s == 'D')) break;
    struct timespec t = {0, TURN_MS * MS};
    nanosleep(&t, NULL);
    done = atomic_load(&one.request) == DONE;
  }
  uint32_t by_hook = BY_HOOK;
  if (!done && atomic_compare_exchange_strong(&one.request, &by_hook, AT_ONCE)) done = ask(AT_ONCE, 200 * MS);
  /* taken back, unless it is being written right now */
  for (uint32_t asked = AT_ONCE; !done && !atomic_compare_exchange_strong(&one.request, &asked, IDLE);) {
    done = asked == DONE;
    if (asked == IDLE) break;
    asked = AT_ONCE;
  }
  const size_t at = done ? one.at : 0;
  atomic_store(&one.request, IDLE);
  pthread_mutex_unlock(&one.asking);
  return at;
}
