/* The stack of a script that runs, asked for by another thread of its process, wherever the script
 * is: in a loop, in a wait for other ranks, in a read that does not return.
 *
 * SIGURG goes to the script's thread. Its handler sets a hook, as handlers may, and the hook writes
 * the frames at the next instruction of Lua. If no such instruction comes, the thread is in C code:
 * asleep in a system call, or in a long computation. A second signal then writes the frames from
 * within the handler. The thread that could change them is the one that runs it, and it only reads
 * (lua_getstack and lua_getinfo allocate nothing for these fields). The signal may interrupt Lua
 * itself, for example while a stack is being moved. An access to unmapped memory is caught and ends
 * the text, and the script continues unaffected. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"

#define MS ((int64_t)1000000)

/* The task of the next signal or hook. The writer takes the request from the waiting thread before
 * it writes. */
enum { IDLE, BY_HOOK, AT_ONCE, WRITING, DONE };

static struct {
  lac_state *_Atomic state; /* state of the observed script. NULL: none */
  int thread;
  pthread_mutex_t asking; /* one at a time */
  _Atomic uint32_t request;
  bool all; /* functions of the library as well */
  char *buf;
  size_t n, at;
  struct { /* hooks that ours stands in for */
    lua_State *L;
    lua_Hook hook;
    int mask, count;
  } was[3];
  /* of a text that a handler writes */
  sigjmp_buf out;
  volatile sig_atomic_t reading;
  struct sigaction fault[2]; /* that ours stands in for: SIGSEGV, SIGBUS */
} one = {.asking = PTHREAD_MUTEX_INITIALIZER};

static void put(const char *text) {
  const size_t k = strlen(text), room = one.n - one.at;
  if (k >= room) return;
  memcpy(one.buf + one.at, text, k);
  one.at += k;
}

/* A function of the library, or of the host's own files. */
static bool is_library(const lac_state *S, const char *source) {
  const size_t n = strlen(S->lib_dir);
  return strncmp(source, "=lua/", 5) == 0 || (n > 0 && strncmp(source, S->lib_dir, n) == 0);
}

/* Whether the function at this level was called by the script itself, through C functions at
 * most. */
static bool is_called_by_script(lua_State *L, const lac_state *S, int level) {
  lua_Debug ar;
  while (lua_getstack(L, ++level, &ar)) {
    lua_getinfo(L, "S", &ar);
    if (ar.what[0] != 'C') return !is_library(S, ar.source);
  }
  return true;
}

static void put_number(int v) {
  char text[16];
  int k = sizeof text - 1;
  text[k] = 0;
  do text[--k] = (char)('0' + v % 10);
  while ((v /= 10) > 0);
  put(text + k);
}

static void put_frame(const lua_Debug *ar) {
  put("  ");
  put(ar->short_src);
  if (ar->currentline > 0) put(":"), put_number(ar->currentline);
  if (strcmp(ar->what, "main") == 0) put(": in main chunk");
  else if (ar->name != NULL)
    put(": in "), put(ar->namewhat[0] != 0 ? ar->namewhat : "function"), put(" '"), put(ar->name),
        put("'");
  else put(": in a function");
  put("\n");
}

static void put_repeated(int times) {
  if (times > 0) put("  ("), put_number(times), put(" more like it)\n");
}

/* Frames of a thread of Lua. Text is put together without formatted output, since a handler may run
 * it. */
static void write_frames(lua_State *L, const lac_state *S) {
  enum { MOST = 200 }; /* lines. Of a recursion the first, and their number */
  lua_Debug ar, before = {.currentline = -2};
  int lines = 0, repeated = 0;
  for (int level = 0; lines < MOST && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sln", &ar);
    const bool c = ar.what[0] == 'C';
    if (c && (ar.name == NULL || (!one.all && !is_called_by_script(L, S, level)))) continue;
    if (!c && (one.all ? strncmp(ar.source, "=lua/", 5) == 0 : is_library(S, ar.source))) continue;
    if (ar.currentline > 0 && ar.currentline == before.currentline && ar.name == before.name &&
        strcmp(ar.short_src, before.short_src) == 0) {
      repeated++;
      continue;
    }
    put_repeated(repeated);
    put_frame(&ar);
    before = ar;
    repeated = 0;
    lines++;
  }
  put_repeated(repeated);
}

/* The thread that runs, and by whom it was resumed. L: NULL, not known. */
static void take(lua_State *L, const lac_state *S) {
  const lac_running *r = S->attach->running;
  lua_State *first = L != NULL ? L : r != NULL ? r->L : lac_thread(S);
  write_frames(first, S);
  /* L is of another kind than ours: resumed by C code */
  while (r != NULL && r->L != first) r = r->below;
  for (r = r != NULL ? r->below : S->attach->running; r != NULL && first != S->main; r = r->below)
    put("  (a coroutine, resumed by)\n"), write_frames(r->L, S);
  if (first != S->main) put("  (a coroutine, resumed by)\n"), write_frames(S->main, S);
}

static void restore(void) {
  for (size_t i = 0; i < sizeof one.was / sizeof one.was[0]; i++)
    if (one.was[i].L != NULL)
      lua_sethook(one.was[i].L, one.was[i].hook, one.was[i].mask, one.was[i].count),
          one.was[i].L = NULL;
}

static bool claim(uint32_t request) {
  return atomic_compare_exchange_strong(&one.request, &request, WRITING);
}

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

/* Catches faults of a reader of frames. Any other fault is passed on. */
static void on_fault(int n) {
  if (one.reading && syscall(SYS_gettid) == one.thread) siglongjmp(one.out, 1);
  /* it then happens again, and goes to its own handler */
  sigaction(n, &one.fault[n == SIGBUS], NULL);
}

/* Within a handler of the script's thread. */
static void take_guarded(const lac_state *S) {
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_handler = on_fault;
  sigemptyset(&a.sa_mask);
  a.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &a, &one.fault[0]);
  sigaction(SIGBUS, &a, &one.fault[1]);
  if (sigsetjmp(one.out, 1) == 0) {
    one.reading = 1;
    take(NULL, S);
  } else {
    put("  (the rest of the stack is being changed)\n");
  }
  one.reading = 0;
  sigaction(SIGSEGV, &one.fault[0], NULL);
  sigaction(SIGBUS, &one.fault[1], NULL);
}

static void on_urgent(int n) {
  const int error = errno;
  lac_state *S = atomic_load(&one.state);
  (void)n;
  if (S != NULL && syscall(SYS_gettid) == one.thread) {
    if (claim(AT_ONCE)) {
      restore();
      take_guarded(S);
      finish();
    } else if (atomic_load(&one.request) == BY_HOOK) {
      set_hook(0, S->main);
      if (S->now != NULL && S->now != S->main) set_hook(1, S->now);
      if (S->attach->running != NULL) set_hook(2, S->attach->running->L);
    } else {
      restore(); /* nobody asks any more */
    }
  }
  errno = error;
}

bool lac_stacks_open(lac_state *S, int thread, ac_err *e) {
  lac_state *none = NULL;
  if (!atomic_compare_exchange_strong(&one.state, &none, S)) {
    AC_FAIL(e, STATE, "attach: another host of this process is already listening");
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

static ssize_t read_own(const char *what, char *text, size_t n) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/%s", one.thread, what);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t k = fd >= 0 ? read(fd, text, n - 1) : -1;
  if (fd >= 0) close(fd);
  text[k > 0 ? k : 0] = 0;
  return k;
}

/* Whether the script's thread sleeps, and has slept since the last check. *ran: its run time at
 * that check. A short wait, for example for a lock of the allocator, does not count. A wait for
 * other ranks wakes up now and then, but its page shows that it waits. */
static bool is_asleep(const lac_state *S, unsigned long long *ran) {
  char text[512];
  if (read_own("stat", text, sizeof text) <= 0) return false;
  const char *p = strrchr(text, ')');
  const char s = p != NULL && p[1] == ' ' ? p[2] : 0;
  const aci_page *page = lac_attach_page(S);
  if (page != NULL && atomic_load(&page->waiting) != 0) return s == 'S' || s == 'D';
  const unsigned long long before = *ran;
  if (read_own("schedstat", text, sizeof text) <= 0 || sscanf(text, "%llu", ran) != 1)
    return s == 'S' || s == 'D';
  return (s == 'S' || s == 'D') && *ran == before;
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

size_t lac_stacks_take(lac_state *S, bool all, char *buf, size_t n) {
  enum { TURN_MS = 50, TURNS = 6, ASLEEP_AFTER = 2 };
  unsigned long long ran = 0;
  pthread_mutex_lock(&one.asking);
  one.buf = buf;
  one.n = n;
  one.at = 0;
  one.all = all;
  bool done = atomic_load(&one.state) == S && ask(BY_HOOK, TURN_MS * MS);
  /* no Lua instruction so far. If asleep, it is in a system call. If still running after a third of
   * a second, it is in a long kernel */
  for (int i = 1; !done && i < TURNS; i++) {
    if (is_asleep(S, &ran) && i >= ASLEEP_AFTER) break;
    struct timespec t = {0, TURN_MS * MS};
    nanosleep(&t, NULL);
    done = atomic_load(&one.request) == DONE;
  }
  uint32_t by_hook = BY_HOOK;
  if (!done && atomic_compare_exchange_strong(&one.request, &by_hook, AT_ONCE))
    done = ask(AT_ONCE, 200 * MS);
  /* taken back, unless it is being written right now */
  for (uint32_t asked = AT_ONCE;
       !done && !atomic_compare_exchange_strong(&one.request, &asked, IDLE);) {
    done = asked == DONE;
    if (asked == IDLE) break;
    asked = AT_ONCE;
  }
  const size_t at = done ? one.at : 0;
  atomic_store(&one.request, IDLE);
  pthread_mutex_unlock(&one.asking);
  return at;
}
