/* Ranks that meet over TCP for tests: n processes with the variables of torchrun, backend tcp, on a free
 * port of the loopback. Included by the tests of the tcp backend. */
#ifndef ACCEL_TESTS_HOST_COMM_TCP_RANKS_H
#define ACCEL_TESTS_HOST_COMM_TCP_RANKS_H
#pragma GCC diagnostic ignored "-Wunused-function"
#include "host/comm/ranks.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { MOST = 8 };

/* Written by the ranks, read by the test. */
typedef struct report {
  ac_status code[MOST];
  char text[MOST][600];
  double seconds[MOST];
  _Atomic int began, told;
} report;
static report *shared;

typedef struct tcp_ranks {
  int n, port, machines;
  const char *address, *timeout;
  pid_t pid[MOST];
  int status[MOST];
} tcp_ranks;

static double seconds(void) { return (double)aci_now_ns() / 1e9; }

static int setup(void **state) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED;
}
static int teardown(void **state) { return munmap(shared, sizeof *shared); }

/* A port that nobody uses, bound by nobody when this returns. */
static int free_port(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0);
  assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
  close(fd);
  return ntohs(a.sin_port);
}

static void tcp_env(const tcp_ranks *k, int me) {
  const int machines = k->machines > 0 ? k->machines : 1, local = k->n / machines;
  unsetenv("ACCEL_WORLD");
  env_int("RANK", me);
  env_int("WORLD_SIZE", k->n);
  env_int("LOCAL_RANK", me % local);
  env_int("LOCAL_WORLD_SIZE", local);
  env_int("GROUP_RANK", me / local);
  env_int("GROUP_WORLD_SIZE", machines);
  setenv("MASTER_ADDR", k->address != NULL ? k->address : "127.0.0.1", 1);
  env_int("MASTER_PORT", k->port);
  setenv("ACCEL_NUM_THREADS", "1", 1);
  setenv("ACCEL_JOB_SECRET", "the secret of the tests", 1);
  setenv("ACCEL_TIMEOUT", k->timeout != NULL ? k->timeout : "60", 1);
}

static ac_world_options tcp_options(void) {
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.backend = "tcp";
  return o;
}

/* fn runs in rank i between joining and leaving. */
static void tcp_start_one(tcp_ranks *k, int i, rank_fn fn, const void *arg) {
  fflush(NULL);
  k->pid[i] = fork();
  assert_true(k->pid[i] >= 0);
  if (k->pid[i] != 0) return;
  alarm(100);
  self = (rank){.me = i, .n = k->n, .arg = arg};
  tcp_env(k, i);
  const ac_world_options o = tcp_options();
  CHECK_OK(ac_ctx_new(NULL, &self.ctx, E_));
  CHECK_OK(ac_world_open(self.ctx, &o, &self.w, E_));
  fn(&self);
  ac_world_close(self.w, "end.lua:99");
  ac_ctx_free(self.ctx);
  exit(0);
}

static void tcp_start(tcp_ranks *k, int n, rank_fn fn, const void *arg) {
  k->n = n;
  k->port = free_port();
  for (int i = 0; i < n; i++) tcp_start_one(k, i, fn, arg);
}

static void tcp_wait(tcp_ranks *k) {
  for (int i = 0; i < k->n; i++)
    while (waitpid(k->pid[i], &k->status[i], 0) < 0 && errno == EINTR) {
    }
}

static bool tcp_ended_well(const tcp_ranks *k, int i) {
  return WIFEXITED(k->status[i]) && WEXITSTATUS(k->status[i]) == 0;
}

static void tcp_run(int n, rank_fn fn, const void *arg) {
  tcp_ranks k = {0};
  tcp_start(&k, n, fn, arg);
  tcp_wait(&k);
  for (int i = 0; i < n; i++) assert_true(tcp_ended_well(&k, i));
}

/* Runs a call and notes what came of it. */
static void note(rank *r, ac_group *g, const ac_coll *c) {
  ac_err e;
  e.msg[0] = 0;
  const double t = seconds();
  atomic_fetch_add(&shared->began, 1);
  shared->code[r->me] = ac_collective(g, c, &e);
  shared->seconds[r->me] = seconds() - t;
  memcpy(shared->text[r->me], e.msg, sizeof e.msg);
  atomic_fetch_add(&shared->told, 1);
}

/* A call that is right; false: an abort came, which the others may have over their next call while this rank is still
 * in it. */
static bool go_on(rank *r, const ac_coll *c) {
  note(r, ac_world_group(r->w), c);
  if (shared->code[r->me] != AC_OK) return false;
  atomic_fetch_sub(&shared->told, 1);
  return true;
}

/* Until so many ranks have noted what came of their calls. */
static void wait_until_told(int n) {
  while (atomic_load(&shared->told) < n) sleep_ms(1);
}

static void expect(int r, ac_status code, double within, const char *const *parts) {
  if (shared->code[r] != code)
    fail_msg("rank %d: %s (not %s) after %.2f s: %s", r, ac_status_name(shared->code[r]),
             ac_status_name(code), shared->seconds[r], shared->text[r]);
  for (; *parts != NULL; parts++) ac_test_contains(shared->text[r], *parts, __FILE__, __LINE__);
  if (shared->seconds[r] > within) ac_test_late(shared->text[r], shared->seconds[r]);
}
#define EXPECT(r, code, within, ...) \
  expect((r), AC_##code, (within), (const char *const[]){__VA_ARGS__, NULL})

#endif
