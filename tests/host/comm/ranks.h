/* Ranks of one machine for tests: a segment, heaps and n processes that join a world over them, as
 * accel-run's would. Included by the tests of the shared-memory backend. */
#ifndef ACCEL_TESTS_HOST_COMM_RANKS_H
#define ACCEL_TESTS_HOST_COMM_RANKS_H
#include "support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm_impl.h"

typedef struct ranks {
  int n;
  const char *timeout; /* ACCEL_TIMEOUT; NULL: 60 */
  const char *backend; /* NULL: shm */
  aci_segment_map segment;
  int fd_heap[ACI_MAX_LOCAL];
  pid_t pid[ACI_MAX_LOCAL];
  int status[ACI_MAX_LOCAL]; /* as waitpid tells it */
} ranks;

/* In a rank. */
typedef struct rank {
  ac_ctx *ctx;
  ac_world *w;
  int me, n;
  const void *arg;
} rank;
typedef void (*rank_fn)(rank *r);

#define CHECK(x)                                                                              \
  do {                                                                                        \
    if (!(x)) {                                                                               \
      fprintf(stderr, "rank %d of %d: %s:%d: %s\n", self.me, self.n, __FILE__, __LINE__, #x); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)
/* The call succeeds; else its story is printed. */
#define CHECK_OK(call)                                                                                  \
  do {                                                                                                  \
    ac_err check_e_;                                                                                    \
    check_e_.msg[0] = 0;                                                                                \
    if ((call) != AC_OK) {                                                                              \
      fprintf(stderr, "rank %d of %d: %s:%d: %s\n", self.me, self.n, __FILE__, __LINE__, check_e_.msg); \
      exit(1);                                                                                          \
    }                                                                                                   \
  } while (0)
#define E_ &check_e_

static rank self; /* of this process, once it is a rank */

static void env_int(const char *name, int v) {
  char text[16];
  snprintf(text, sizeof text, "%d", v);
  setenv(name, text, 1);
}

static void ranks_env(const ranks *k, int me) {
  char text[32 + 12 * ACI_MAX_LOCAL];
  int at = snprintf(text, sizeof text, "segment=%d,heaps=", k->segment.fd);
  for (int i = 0; i < k->n; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", i > 0 ? ":" : "", k->fd_heap[i]);
  setenv("ACCEL_WORLD", text, 1);
  env_int("RANK", me);
  env_int("LOCAL_RANK", me);
  env_int("WORLD_SIZE", k->n);
  env_int("LOCAL_WORLD_SIZE", k->n);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("ACCEL_NUM_THREADS", "1", 1);
  setenv("ACCEL_TIMEOUT", k->timeout != NULL ? k->timeout : "60", 1);
}

static void ranks_make(ranks *k, int n) {
  ac_err e;
  memset(k, 0, sizeof *k);
  k->n = n;
  assert_ok(aci_segment_make(n, &k->segment, &e), e);
  for (int i = 0; i < n; i++) assert_ok(aci_heap_make(&k->fd_heap[i], &e), e);
}

/* fn runs in each rank between joining and leaving; a rank that fails exits with 1. site: where it says it
 * left. */
static void ranks_start(ranks *k, rank_fn fn, const void *arg) {
  fflush(NULL);
  for (int i = 0; i < k->n; i++) {
    k->pid[i] = fork();
    assert_true(k->pid[i] >= 0);
    if (k->pid[i] != 0) continue;
    alarm(100);
    self = (rank){.me = i, .n = k->n, .arg = arg};
    ranks_env(k, i);
    CHECK_OK(ac_ctx_new(NULL, &self.ctx, E_));
    ac_world_options o = AC_WORLD_OPTIONS_INIT;
    o.backend = k->backend;
    CHECK_OK(ac_world_open(self.ctx, &o, &self.w, E_));
    fn(&self);
    ac_world_close(self.w, "end.lua:99");
    ac_ctx_free(self.ctx);
    exit(0);
  }
}

/* Waits for all of them. */
static void ranks_wait(ranks *k) {
  for (int i = 0; i < k->n; i++)
    while (waitpid(k->pid[i], &k->status[i], 0) < 0 && errno == EINTR) {
    }
}

static void ranks_free(ranks *k) {
  for (int i = 0; i < k->n; i++) close(k->fd_heap[i]);
  aci_segment_close(&k->segment);
}

static bool ended_well(const ranks *k, int i) {
  return WIFEXITED(k->status[i]) && WEXITSTATUS(k->status[i]) == 0;
}

/* All of it: n ranks run fn and end well. */
static void __attribute__((unused)) ranks_run(int n, rank_fn fn, const void *arg) {
  ranks k;
  ranks_make(&k, n);
  ranks_start(&k, fn, arg);
  ranks_wait(&k);
  for (int i = 0; i < n; i++) assert_true(ended_well(&k, i));
  ranks_free(&k);
}

static void __attribute__((unused)) sleep_ms(int ms) {
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&t, NULL);
}

#endif
