/* A host that opens, runs a script and closes while the n-th call of one kind fails, once or from then on: this program's own functions
 * stand before those of the C library. For one test program, which calls failing_each with what it runs. A kind is counted alone, so
 * that every call has a number.
 *
 * Each attempt ends with an error that names the cause, or as if nothing had happened. Nothing crashes, a host that was opened then
 * finishes the script, and after its close no tensor, no file and no block of memory is left over. */
#ifndef ACI_TEST_FAILING_CALLS_H
#define ACI_TEST_FAILING_CALLS_H
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "accel/accel.h"

enum failing { MEMORY, MAPS, THREADS, FILES, FAILING_KINDS };
static const struct {
  const char *name;
  int code; /* errno of the failure */
} failing_kinds[FAILING_KINDS] = {{"malloc", ENOMEM}, {"mmap", ENOMEM}, {"pthread_create", EAGAIN}, {"open", EMFILE}};

static atomic_int failing_kind = -1; /* -1: none is counted */
static atomic_long failing_calls, failing_at, failing_blocks;
static atomic_bool failing_always;

static bool fails(enum failing kind) {
  if (atomic_load(&failing_kind) != (int)kind) return false;
  const long n = atomic_fetch_add(&failing_calls, 1) + 1, at = atomic_load(&failing_at);
  if (at == 0 || n < at || (n > at && !atomic_load(&failing_always))) return false;
  errno = failing_kinds[kind].code;
  return true;
}

/* ---- memory ---- */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void *block(void *p) {
  if (p != NULL) atomic_fetch_add(&failing_blocks, 1);
  return p;
}
void *malloc(size_t n) { return fails(MEMORY) ? NULL : block(__libc_malloc(n)); }
void *calloc(size_t n, size_t size) { return fails(MEMORY) ? NULL : block(__libc_calloc(n, size)); }
void *realloc(void *p, size_t n) {
  if (fails(MEMORY)) return NULL;
  return p == NULL ? block(__libc_realloc(p, n)) : __libc_realloc(p, n);
}
void *aligned_alloc(size_t to, size_t n) { return fails(MEMORY) ? NULL : block(__libc_memalign(to, n)); }
int posix_memalign(void **p, size_t to, size_t n) {
  void *q = fails(MEMORY) ? NULL : block(__libc_memalign(to, n));
  if (q == NULL) return ENOMEM;
  *p = q;
  return 0;
}
void free(void *p) {
  if (p != NULL) atomic_fetch_sub(&failing_blocks, 1);
  __libc_free(p);
}

/* ---- maps, threads, files ---- */
/* found at the start: dlsym itself takes memory */
static struct {
  void *(*mmap)(void *, size_t, int, int, int, off_t);
  int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  int (*open)(const char *, int, ...), (*openat)(int, const char *, int, ...);
  FILE *(*fopen)(const char *, const char *);
} failing_real;

static void failing_find(void) {
  *(void **)&failing_real.mmap = dlsym(RTLD_NEXT, "mmap");
  *(void **)&failing_real.pthread_create = dlsym(RTLD_NEXT, "pthread_create");
  *(void **)&failing_real.open = dlsym(RTLD_NEXT, "open");
  *(void **)&failing_real.openat = dlsym(RTLD_NEXT, "openat");
  *(void **)&failing_real.fopen = dlsym(RTLD_NEXT, "fopen");
}
__attribute__((constructor)) static void failing_start(void) { failing_find(); }
#define FAILING_REAL(name) (failing_real.name == NULL ? failing_find() : (void)0, failing_real.name)

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from) {
  return fails(MAPS) ? MAP_FAILED : FAILING_REAL(mmap)(at, n, prot, flags, fd, from);
}
int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*f)(void *), void *p) {
  return fails(THREADS) ? EAGAIN : FAILING_REAL(pthread_create)(t, attr, f, p);
}
static int mode_of(int flags, va_list args) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0; }
int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = mode_of(flags, args);
  va_end(args);
  return fails(FILES) ? -1 : FAILING_REAL(open)(path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const int mode = mode_of(flags, args);
  va_end(args);
  return fails(FILES) ? -1 : FAILING_REAL(openat)(at, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) { return fails(FILES) ? NULL : FAILING_REAL(fopen)(path, mode); }

/* ---- attempts ---- */
static ac_host_options failing_options;

/* A host that tests open: lua_dir of the build, n threads. */
static void failing_set_up(int n_threads) {
  static char dir[4096];
  const char *build = getenv("ACCEL_TEST_BUILD");
  failing_options = (ac_host_options)AC_HOST_OPTIONS_INIT;
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  failing_options.lua_dir = dir;
  failing_options.n_threads = n_threads;
  ac_log_set(NULL, NULL, AC_LOG_OFF);
}

static int failing_entries(const char *folder) {
  int n = 0;
  DIR *d = opendir(folder);
  while (d != NULL && readdir(d) != NULL) n++;
  if (d != NULL) closedir(d);
  return n;
}

/* Whether the error of a failed call names its cause. Lua's search for modules takes any file that it cannot open for a missing one. */
static bool failing_named(enum failing kind, ac_status st, const char *msg) {
  if (strstr(msg, "no file '") != NULL) return true;
  if (kind == MEMORY || kind == MAPS) return st == AC_OOM || strstr(msg, "memory") != NULL;
  return strstr(msg, strerror(failing_kinds[kind].code)) != NULL;
}

/* One attempt, in a thread of its own: what the library keeps for a thread ends with it. */
struct failing_attempt {
  ac_status (*run)(ac_host *, ac_err *);
  enum failing kind;
  long at, calls;   /* the call that fails, 0: none; calls that were made */
  bool always;      /* and all after it */
  char wrong[1200]; /* what must not be, or "" */
};

/* Opens a host, runs the script, in which calls fail, and runs it again without. */
static void *failing_live(void *p) {
  struct failing_attempt *a = p;
  ac_err e;
  ac_host *h = NULL;
  e.msg[0] = 0;
  atomic_store(&failing_calls, 0);
  atomic_store(&failing_at, a->at);
  atomic_store(&failing_always, a->always);
  atomic_store(&failing_kind, (int)a->kind);
  ac_status st = ac_host_open(&failing_options, &h, &e);
  if (st == AC_OK) st = a->run(h, &e);
  atomic_store(&failing_kind, -1);
  a->calls = atomic_load(&failing_calls);
  if (st != AC_OK && (a->at == 0 || !failing_named(a->kind, st, e.msg)))
    snprintf(a->wrong, sizeof a->wrong, "%s: %.900s", ac_status_name(st), e.msg);
  else if (st == AC_OK && h == NULL)
    snprintf(a->wrong, sizeof a->wrong, "no host and no error");
  else if (a->at != 0 && h != NULL && (st = a->run(h, &e)) != AC_OK)
    snprintf(a->wrong, sizeof a->wrong, "the host does not recover: %s: %.900s", ac_status_name(st), e.msg);
  ac_host_close(h);
  return NULL;
}

static long failing_try(ac_status (*run)(ac_host *, ac_err *), enum failing kind, long at, bool always) {
  struct failing_attempt a = {.run = run, .kind = kind, .at = at, .always = always};
  pthread_t t;
  assert_int_equal(failing_real.pthread_create(&t, NULL, failing_live, &a), 0);
  pthread_join(t, NULL);
  if (a.wrong[0] != 0) fail_msg("%s %ld%s: %s", failing_kinds[kind].name, at, always ? " and all after it" : "", a.wrong);
  return a.calls;
}

/* Fails each call of a kind, once and from then on; in a sampled run one of `one_of`. */
static void failing_each(ac_status (*run)(ac_host *, ac_err *), enum failing kind, int one_of) {
  failing_try(run, kind, 0, false); /* what is made once per process */
  const long n = failing_try(run, kind, 0, false);
  const int64_t live = ac_tensor_live();
  const int files = failing_entries("/proc/self/fd"), threads = failing_entries("/proc/self/task");
  const long blocks = atomic_load(&failing_blocks);
  long tried = 0;
  for (int always = 0; always < 2; always++)
    for (long at = 1; at <= n; at++) {
      if (!ac_test_sampled(one_of)) continue;
      failing_try(run, kind, at, always != 0);
      tried++;
      const long kept = atomic_load(&failing_blocks) - blocks;
      if (ac_tensor_live() != live || failing_entries("/proc/self/fd") != files || failing_entries("/proc/self/task") != threads || kept > 0)
        fail_msg("%s %ld%s: %lld tensors, %d files, %d threads, %ld blocks of memory are left over", failing_kinds[kind].name, at,
                 always ? " and all after it" : "", (long long)(ac_tensor_live() - live), failing_entries("/proc/self/fd") - files,
                 failing_entries("/proc/self/task") - threads, kept);
    }
  print_message("%ld calls of %s, %ld failures\n", n, failing_kinds[kind].name, tried);
}
#endif
