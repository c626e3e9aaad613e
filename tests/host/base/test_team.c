/* The thread team: every element exactly once, the same cut for every team, nesting, sharing, hooks, fork. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/base.h"
#include "base/base_impl.h"

enum { MOST = 5000 };

typedef struct cut {
  _Atomic int seen[MOST];
  _Atomic int pieces, wrong;
  int64_t n, grain;
} cut;

static void mark(void *arg, int64_t begin, int64_t end) {
  cut *c = arg;
  bool last = end == c->n;
  if (begin % c->grain != 0 || end <= begin || end > c->n || (!last && end - begin != c->grain) ||
      end - begin > c->grain)
    atomic_fetch_add(&c->wrong, 1);
  atomic_fetch_add(&c->pieces, 1);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&c->seen[i], 1);
}

static ac_team *team_new(int n) {
  ac_team *t;
  ac_err e;
  assert_int_equal(ac_team_new(n, &t, &e), AC_OK);
  return t;
}

static void covers_everything_once(void **state) {
  (void)state;
  static const int sizes[] = {1, 2, 4, 7};
  static const int64_t ns[] = {0, 1, 2, 7, 64, 1000, 4999}, grains[] = {1, 3, 64, 1000, 5000};
  cut *c = malloc(sizeof *c);
  for (int s = 0; s < 4; s++) {
    ac_team *t = team_new(sizes[s]);
    assert_int_equal(ac_team_size(t), sizes[s]);
    for (size_t i = 0; i < sizeof ns / sizeof ns[0]; i++) {
      for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
        memset(c, 0, sizeof *c);
        c->n = ns[i];
        c->grain = grains[g];
        ac_parallel_for(t, c->n, c->grain, mark, c);
        assert_int_equal(c->wrong, 0);
        assert_int_equal(c->pieces, (ns[i] + grains[g] - 1) / grains[g]);
        for (int64_t k = 0; k < MOST; k++) assert_int_equal(c->seen[k], k < ns[i]);
      }
    }
    ac_team_free(t);
  }
  free(c);
}

/* Partial sums of floats by piece, added in order of the pieces: rounding shows any other cut. */
typedef struct sums {
  const float *x;
  float part[MOST];
  int64_t grain;
} sums;

static void add_up(void *arg, int64_t begin, int64_t end) {
  sums *s = arg;
  float v = 0;
  for (int64_t i = begin; i < end; i++) v += s->x[i];
  s->part[begin / s->grain] = v;
}

static void same_bits_for_every_team(void **state) {
  (void)state;
  enum { N = 40000, GRAIN = 37 };
  float *x = malloc(N * sizeof *x), first = 0;
  sums *s = malloc(sizeof *s);
  uint32_t r = 1;
  for (int i = 0; i < N; i++) x[i] = (float)((r = r * 1664525u + 1013904223u) >> 9) * 1e-3f - 3000.f;
  static const int sizes[] = {1, 2, 4, 7};
  for (int k = 0; k < 4; k++) {
    ac_team *t = team_new(sizes[k]);
    for (int run = 0; run < 50; run++) {
      memset(s, 0, sizeof *s);
      s->x = x;
      s->grain = GRAIN;
      ac_parallel_for(t, N, GRAIN, add_up, s);
      float total = 0;
      for (int i = 0; i * GRAIN < N; i++) total += s->part[i];
      if (k == 0 && run == 0) first = total;
      assert_memory_equal(&total, &first, sizeof total);
    }
    ac_team_free(t);
  }
  free(x);
  free(s);
}

/* ---- many short jobs: announcing, parking and leaving race here if anywhere ---- */
static void count_piece(void *arg, int64_t begin, int64_t end) {
  atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

static void many_short_jobs(void **state) {
  (void)state;
  static const int sizes[] = {2, 5};
  for (int k = 0; k < 2; k++) {
    ac_team *t = team_new(sizes[k]);
    _Atomic int64_t total = 0;
    int64_t expected = 0;
    for (int i = 0; i < 4000; i++) {
      int64_t n = i % 13 + 2;
      ac_parallel_for(t, n, 1, count_piece, &total);
      assert_int_equal(total, expected += n); /* all of it is done on return */
      if (i % 500 == 0) usleep(300);          /* long enough to park */
    }
    ac_team_free(t);
  }
}

/* ---- nesting ---- */
typedef struct nest {
  ac_team *t, *other;
  _Atomic int64_t total;
  _Atomic int inside, moved;
} nest;

typedef struct inner {
  nest *n;
  pthread_t outer;
} inner;

static void inner_piece(void *arg, int64_t begin, int64_t end) {
  inner *i = arg;
  if (!pthread_equal(i->outer, pthread_self())) atomic_fetch_add(&i->n->moved, 1);
  atomic_fetch_add(&i->n->total, end - begin);
}

static void outer_piece(void *arg, int64_t begin, int64_t end) {
  nest *n = arg;
  (void)end;
  if (aci_team_inside()) atomic_fetch_add(&n->inside, 1);
  inner i = {n, pthread_self()};
  ac_parallel_for(begin % 2 == 0 ? n->t : n->other, 10, 3, inner_piece, &i);
}

static void nested_calls_run_inline(void **state) {
  (void)state;
  nest n = {.t = team_new(3), .other = team_new(3)};
  ac_parallel_for(n.t, 20, 1, outer_piece, &n);
  assert_int_equal(n.total, 200);
  assert_int_equal(n.inside, 20);
  assert_int_equal(n.moved, 0);
  assert_false(aci_team_inside());
  ac_team_free(n.t);
  ac_team_free(n.other);
}

static void no_team_is_one_thread(void **state) {
  (void)state;
  _Atomic int64_t total = 0;
  ac_parallel_for(NULL, 10, 3, count_piece, &total);
  assert_int_equal(total, 10);
  assert_int_equal(ac_team_size(NULL), 1);
}

/* ---- several callers share one team ---- */
typedef struct caller {
  ac_team *t;
  int64_t done;
} caller;

static void *call_often(void *arg) {
  caller *c = arg;
  for (int i = 0; i < 500; i++) {
    _Atomic int64_t total = 0;
    ac_parallel_for(c->t, 17, 2, count_piece, &total);
    c->done += total;
  }
  return NULL;
}

static void callers_share_a_team(void **state) {
  (void)state;
  ac_team *t = team_new(3);
  caller c[3];
  pthread_t th[3];
  for (int i = 0; i < 3; i++) {
    c[i] = (caller){.t = t};
    assert_int_equal(pthread_create(&th[i], NULL, call_often, &c[i]), 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(th[i], NULL);
    assert_int_equal(c[i].done, 500 * 17);
  }
  ac_team_free(t);
}

/* ---- hooks and signals on workers: pieces wait for each other, so every thread takes exactly one ---- */
static _Atomic int hook_runs;
static _Thread_local int hook_here;
static void hook(void) {
  atomic_fetch_add(&hook_runs, 1);
  hook_here++;
}

typedef struct meeting {
  _Atomic int arrived;
  int expected;
  pthread_t caller;
  _Atomic int bad_hook, bad_signals;
} meeting;

static void meet(void *arg, int64_t begin, int64_t end) {
  meeting *m = arg;
  (void)begin, (void)end;
  bool worker = !pthread_equal(m->caller, pthread_self());
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, NULL, &set);
  if (worker && (!sigismember(&set, SIGINT) || !sigismember(&set, SIGTERM) || !sigismember(&set, SIGCHLD)))
    atomic_fetch_add(&m->bad_signals, 1);
  if (worker && sigismember(&set, SIGSEGV)) atomic_fetch_add(&m->bad_signals, 1);
  if (hook_here != (worker ? 1 : 0)) atomic_fetch_add(&m->bad_hook, 1);
  atomic_fetch_add(&m->arrived, 1);
  while (atomic_load(&m->arrived) < m->expected) usleep(50);
}

static void hooks_run_once_on_every_worker(void **state) {
  (void)state;
  ac_team *t = team_new(3);
  _Atomic int64_t total = 0;
  ac_parallel_for(t, 8, 1, count_piece, &total); /* workers exist before the hook does */
  aci_team_on_start(hook);
  aci_team_on_start(hook);
  for (int i = 0; i < 3; i++) {
    meeting m = {.expected = 3, .caller = pthread_self()};
    ac_parallel_for(t, 3, 1, meet, &m);
    assert_int_equal(m.arrived, 3);
    assert_int_equal(m.bad_hook, 0);
    assert_int_equal(m.bad_signals, 0);
  }
  assert_int_equal(hook_runs, 2);
  ac_team_free(t);
}

static int n_threads_now(void) {
  char path[64], line[256];
  int n = -1;
  snprintf(path, sizeof path, "/proc/%d/status", (int)getpid());
  FILE *f = fopen(path, "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (sscanf(line, "Threads: %d", &n) == 1) break;
  if (f != NULL) fclose(f);
  return n;
}

static void threads_start_with_the_first_use(void **state) {
  (void)state;
  int before = n_threads_now();
  ac_team *t = team_new(4);
  _Atomic int64_t total = 0;
  ac_parallel_for(t, 5, 5, count_piece, &total); /* one piece needs nobody */
  assert_int_equal(n_threads_now(), before);
  ac_parallel_for(t, 5, 1, count_piece, &total);
  assert_int_equal(n_threads_now(), before + 3);
  ac_team_free(t);
  assert_int_equal(total, 10);
}

static void a_forked_child_works_alone(void **state) {
  (void)state;
#if !defined(__SANITIZE_THREAD__) /* it does not follow a threaded program into its children */
  ac_team *t = team_new(3);
  _Atomic int64_t total = 0;
  ac_parallel_for(t, 9, 1, count_piece, &total);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    alarm(20);
    _Atomic int64_t mine = 0;
    for (int i = 0; i < 100; i++) ac_parallel_for(t, 9, 1, count_piece, &mine);
    ac_team_free(t);
    _exit(mine == 900 ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  ac_team_free(t);
#endif
}

static void bad_sizes_are_refused(void **state) {
  (void)state;
  ac_err e;
  ac_team *t = (ac_team *)1;
  assert_int_equal(ac_team_new(-1, &t, &e), AC_INVALID);
  assert_null(t);
  assert_int_equal(ac_team_new(5000, &t, &e), AC_INVALID);
  assert_non_null(strstr(e.msg, "5000"));
  t = team_new(0);
  assert_int_equal(ac_team_size(t), aci_host_cpus());
  ac_team_free(t);
  ac_team_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(covers_everything_once),
      cmocka_unit_test(same_bits_for_every_team),
      cmocka_unit_test(many_short_jobs),
      cmocka_unit_test(nested_calls_run_inline),
      cmocka_unit_test(no_team_is_one_thread),
      cmocka_unit_test(callers_share_a_team),
      cmocka_unit_test(hooks_run_once_on_every_worker),
      cmocka_unit_test(threads_start_with_the_first_use),
      cmocka_unit_test(a_forked_child_works_alone),
      cmocka_unit_test(bad_sizes_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
