/* What ranks are told when others do something else, leave, die, stop or do not come: every rank within a
 * second, by name and script line; and that ranks which are only slow are left alone. */
#include "host/comm/ranks.h"

#include <sys/mman.h>

enum { MOST = 8 };

/* Written by the ranks, read by the test. */
typedef struct report {
  ac_status code[MOST];
  char text[MOST][600];
  double seconds[MOST];
  _Atomic int began, told, warned;
  char warning[300];
} report;

static report *shared;

static double seconds(void) { return (double)aci_now_ns() / 1e9; }

static int setup(void **state) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return shared == MAP_FAILED;
}

static int teardown(void **state) { return munmap(shared, sizeof *shared); }

/* Runs a call and notes what came of it. */
static void note(rank *r, ac_group *g, const ac_coll *c) {
  ac_err e;
  e.msg[0] = 0;
  const double t = seconds();
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

static ranks run_all(int n, rank_fn fn, const void *arg) {
  ranks k;
  memset(shared, 0, sizeof *shared);
  ranks_make(&k, n);
  ranks_start(&k, fn, arg);
  ranks_wait(&k);
  ranks_free(&k);
  return k;
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

/* ---- different calls ---- */
static float a[70000], b[70000]; /* more than an eager buffer takes */

static ac_coll all_reduce(int64_t count, const char *site) {
  return (ac_coll){
      .kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = count, .send = a, .recv = b, .site = site};
}

static const int64_t parts_a[3] = {1, 2, 3}, parts_b[3] = {3, 2, 1};
static const struct {
  const char *what;
  ac_coll x, y;
} differences[] = {
    {"operation",
     {.kind = AC_COLL_BARRIER, .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 3, .send = a, .recv = b, .site = "y.lua:2"}},
    {"operation",
     {.kind = AC_COLL_REDUCE, .dtype = AC_F32, .count = 9000, .send = a, .recv = b, .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 9000, .send = a, .recv = b, .site = "y.lua:2"}},
    {"dtype",
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_I32, .count = 3, .send = a, .recv = b, .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 3, .send = a, .recv = b, .site = "y.lua:2"}},
    {"count",
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 3, .send = a, .recv = b, .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 9000, .send = a, .recv = b, .site = "y.lua:2"}},
    {"count",
     {.kind = AC_COLL_ALL_GATHER,
      .dtype = AC_F32,
      .counts = parts_a,
      .send = a,
      .recv = b,
      .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_GATHER,
      .dtype = AC_F32,
      .counts = parts_b,
      .send = a,
      .recv = b,
      .site = "y.lua:2"}},
    {"reduction",
     {.kind = AC_COLL_ALL_REDUCE,
      .dtype = AC_F32,
      .op = AC_REDUCE_MAX,
      .count = 3,
      .send = a,
      .recv = b,
      .site = "x.lua:1"},
     {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 3, .send = a, .recv = b, .site = "y.lua:2"}},
    {"root",
     {.kind = AC_COLL_BROADCAST, .dtype = AC_F32, .count = 3, .root = 1, .recv = b, .site = "x.lua:1"},
     {.kind = AC_COLL_BROADCAST, .dtype = AC_F32, .count = 3, .root = 2, .recv = b, .site = "y.lua:2"}},
};
enum { N_DIFFERENCES = sizeof differences / sizeof differences[0] };

static void does_other(rank *r) {
  const int *which = r->arg;
  const ac_coll before = all_reduce(5, "same.lua:1");
  if (go_on(r, &before)) note(r, ac_world_group(r->w), r->me == 1 ? &differences[*which].x : &differences[*which].y);
  ac_err e;
  CHECK(ac_collective(ac_world_group(r->w), &before, &e) == AC_MISMATCH); /* and ever after */
}

static void mismatches(void **state) {
  for (int i = 0; i < N_DIFFERENCES; i++) {
    ranks k = run_all(3, does_other, &i);
    for (int r = 0; r < 3; r++) {
      EXPECT(r, MISMATCH, 1, "x.lua:1", "y.lua:2", "rank 1", differences[i].what);
      if (strstr(shared->text[r], "ranks 0, 2") == NULL) ac_test_late(shared->text[r], 0); /* one of them was */
      assert_true(ended_well(&k, r));
    }
  }
}

static void one_is_missing(rank *r) {
  if (r->me == 2) wait_until_told(2);
  const ac_coll x = all_reduce(3, "x.lua:1"), y = all_reduce(4, "y.lua:2");
  note(r, ac_world_group(r->w), r->me == 1 ? &x : &y);
}

static void mismatch_while_one_is_missing(void **state) {
  run_all(3, one_is_missing, NULL);
  EXPECT(0, MISMATCH, 1, "x.lua:1", "y.lua:2");
  EXPECT(1, MISMATCH, 1, "x.lua:1", "y.lua:2");
  EXPECT(2, MISMATCH, 1, "stopped: ", "x.lua:1", "y.lua:2");
}

static void wrong_counts(rank *r) {
  const int64_t gives[2] = {1, r->me == 0 ? 5 : 1}, takes[2] = {1, r->me == 0 ? 1 : 4};
  const int64_t takes_of_1[2] = {4, 1};
  const ac_coll c = {.kind = AC_COLL_ALL_TO_ALL,
                     .dtype = AC_F32,
                     .counts = gives,
                     .recv_counts = r->me == 0 ? takes : takes_of_1,
                     .send = a,
                     .recv = b,
                     .site = r->me == 0 ? "x.lua:1" : "y.lua:2"};
  note(r, ac_world_group(r->w), &c);
}

static void all_to_all_counts(void **state) {
  run_all(2, wrong_counts, NULL);
  for (int r = 0; r < 2; r++)
    EXPECT(r, MISMATCH, 1, "rank 0 gives 5 elements to rank 1 at x.lua:1, which takes 4 at y.lua:2");
}

/* ---- ranks that end ---- */
static void leaves(rank *r) {
  const ac_coll c = all_reduce(9000, "train.lua:7");
  if (!go_on(r, &c) || r->me == 1) return;
  note(r, ac_world_group(r->w), &c);
}

static void left_early(void **state) {
  ranks k = run_all(3, leaves, NULL);
  for (int r = 0; r < 3; r += 2)
    EXPECT(r, PEER, 1, "rank 1 left at end.lua:99", "all_reduce f32 (9000) sum at train.lua:7");
  for (int r = 0; r < 3; r++) assert_true(ended_well(&k, r));
}

static void fails(rank *r) {
  const ac_coll c = all_reduce(9000, "train.lua:7");
  if (!go_on(r, &c)) return;
  if (r->me == 1) {
    sleep_ms(100);
    ac_world_fail(r->w, "train.lua:8", "attempt to index a nil value");
    return;
  }
  note(r, ac_world_group(r->w), &c);
}

static void failed(void **state) {
  run_all(3, fails, NULL);
  for (int r = 0; r < 3; r += 2)
    EXPECT(r, PEER, 1, "stopped: rank 1 failed at train.lua:8: attempt to index a nil value");
}

static void dies(rank *r) {
  const ac_coll c = all_reduce(9000, "train.lua:7");
  ac_world_at(r->w, "train.lua:6", 1);
  for (int i = 0; i < 50; i++)
    if (!go_on(r, &c)) return;
  if (r->me == 1) {
    shared->began = 1;
    raise(SIGKILL);
  }
  note(r, ac_world_group(r->w), &c);
}

static void killed(void **state) {
  ranks k = run_all(3, dies, NULL);
  assert_true(WIFSIGNALED(k.status[1]));
  for (int r = 0; r < 3; r += 2) EXPECT(r, PEER, 1, "rank 1 (", "train.lua:", "all_reduce f32 (9000)");
}

/* At any moment of a mix of calls: small, staged, in the heap, sent. */
static void busy(rank *r) {
  static float big[300000];
  ac_device *dev;
  ac_block *block;
  CHECK_OK(ac_ctx_device(r->ctx, "cpu", &dev, E_));
  CHECK_OK(ac_block_alloc(dev, sizeof big, AC_MEM_PARAMETER, NULL, &block, E_));
  shared->began++;
  for (;;) {
    ac_coll c = all_reduce(10, "train.lua:1");
    for (int i = 0; i < 3; i++) {
      note(r, ac_world_group(r->w), &c);
      if (shared->code[r->me] != AC_OK) break;
      c.count = 300000;
      c.send = c.recv = i == 0 ? (void *)big : ac_block_ptr(block);
    }
    if (shared->code[r->me] != AC_OK) break;
    c = (ac_coll){.kind = AC_COLL_BROADCAST,
                  .dtype = AC_F32,
                  .count = 300000,
                  .recv = big,
                  .root = 1,
                  .site = "train.lua:2"};
    note(r, ac_world_group(r->w), &c);
    if (shared->code[r->me] != AC_OK) break;
    c = (ac_coll){.kind = AC_COLL_SEND, .dtype = AC_F32, .count = 300000, .send = big, .site = "train.lua:3"};
    c.recv = big;
    c.root = (r->me + 1) % r->n;
    if (r->me != 0) {
      c.kind = AC_COLL_RECV;
      c.root = r->me - 1;
    }
    if (r->me < 2) note(r, ac_world_group(r->w), &c);
    if (shared->code[r->me] != AC_OK) break;
  }
  ac_block_free(block);
}

static void killed_anywhere(void **state) {
  uint64_t seed = 11;
  for (int i = 0; i < 12; i++) {
    ranks k;
    memset(shared, 0, sizeof *shared);
    ranks_make(&k, 3);
    ranks_start(&k, busy, NULL);
    while (shared->began < 3) sleep_ms(1);
    const struct timespec t = {0, (long)(ac_test_random(&seed) % 20000000)};
    nanosleep(&t, NULL);
    kill(k.pid[i % 3], SIGKILL);
    ranks_wait(&k);
    ranks_free(&k);
    for (int r = 0; r < 3; r++) {
      if (r == i % 3) continue;
      assert_true(ended_well(&k, r));
      EXPECT(r, PEER, 1, "rank ", " died at ");
    }
  }
}

/* With a launcher that reports the death. */
static void killed_under_a_launcher(void **state) {
  ranks k;
  memset(shared, 0, sizeof *shared);
  ranks_make(&k, 3);
  ranks_start(&k, dies, NULL);
  assert_int_equal(waitpid(k.pid[1], &k.status[1], 0), k.pid[1]);
  aci_page *p = aci_page_of(k.segment.head, 1);
  p->signal = SIGKILL;
  atomic_store(&p->state, ACI_DEAD);
  assert_true(aci_abort_segment(k.segment.head, AC_PEER, 1, "rank 1 was killed by SIGKILL at train.lua:6"));
  for (int r = 0; r < 3; r += 2) waitpid(k.pid[r], &k.status[r], 0);
  ranks_free(&k);
  for (int r = 0; r < 3; r += 2) {
    EXPECT(r, PEER, 0.5, "stopped: rank 1 was killed by SIGKILL at train.lua:6");
    assert_true(ended_well(&k, r));
  }
}

/* ---- ranks that do not come ---- */
static void comes_too_late(rank *r) {
  ac_world_set_timeout(r->w, 0.3); /* for these calls; there was time to join */
  if (r->me == 1) {
    ac_world_at(r->w, "slow.lua:5", 1);
    shared->began = 1;
    wait_until_told(2);
  } else {
    while (shared->began == 0) sleep_ms(1);
  }
  const ac_coll c = all_reduce(3, "train.lua:7");
  note(r, ac_world_group(r->w), &c);
}

static void sleeps(rank *r) {
  if (r->me == 1) sleep_ms(900);
  const ac_coll c = all_reduce(3, "train.lua:7");
  note(r, ac_world_group(r->w), &c);
}

static void timeouts(void **state) {
  run_all(3, comes_too_late, NULL);
  int own = 0;
  for (int r = 0; r < 3; r += 2) {
    EXPECT(r, TIMEOUT, 1, "waited ", "rank 1", "slow.lua:5", "--timeout");
    const double waited = strtod(strstr(shared->text[r], "waited ") + strlen("waited "), NULL);
    assert_true(waited >= 0.3);
    if (waited > 0.35) ac_test_late(shared->text[r], waited);
    own += strncmp(shared->text[r], "stopped: ", 9) != 0;
  }
  assert_true(own >= 1);
  EXPECT(1, TIMEOUT, 0.1, "stopped: rank ");
}

static void slow_is_fine(void **state) {
  run_all(3, sleeps, NULL);
  for (int r = 0; r < 3; r++) assert_int_equal(shared->code[r], AC_OK);
}

static void on_log(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  if (level != AC_LOG_WARN || atomic_fetch_add(&shared->warned, 1) != 0) return;
  snprintf(shared->warning, sizeof shared->warning, "%s", msg);
}

static void stops(rank *r) {
  if (r->me == 0) ac_log_set(on_log, NULL, AC_LOG_WARN);
  const ac_coll c = all_reduce(3, "train.lua:7");
  CHECK_OK(ac_collective(ac_world_group(r->w), &c, E_));
  if (r->me == 1) {
    shared->began = 1;
    raise(SIGSTOP);
  }
  note(r, ac_world_group(r->w), &c);
}

static void stopped(void **state) {
  ranks k;
  memset(shared, 0, sizeof *shared);
  ranks_make(&k, 2);
  ranks_start(&k, stops, NULL);
  for (int i = 0; i < 6000 && shared->warned == 0; i++) sleep_ms(10);
  sleep_ms(250); /* it is said once */
  kill(k.pid[1], SIGCONT);
  ranks_wait(&k);
  ranks_free(&k);
  for (int r = 0; r < 2; r++) assert_int_equal(shared->code[r], AC_OK);
  assert_int_equal(shared->warned, 1);
  ac_test_contains(shared->warning, "rank 1 (", __FILE__, __LINE__);
  ac_test_contains(shared->warning, "is stopped (SIGSTOP), not dead; rank 0 continues to wait", __FILE__,
                   __LINE__);
  ac_test_contains(shared->warning, "train.lua:7", __FILE__, __LINE__);
}

/* A rank in a loop is named while the others wait, by one of them, and the wait goes on. */
static void loops(rank *r) {
  ac_log_set(on_log, NULL, AC_LOG_WARN);
  r->w->watch.late_ns = 100000000;
  const ac_coll first = all_reduce(3, "train.lua:7"), second = all_reduce(3, "train.lua:9");
  CHECK_OK(ac_collective(ac_world_group(r->w), &first, E_));
  if (r->me == 1)
    while (atomic_load(&shared->warned) == 0) continue;
  note(r, ac_world_group(r->w), &second);
}

static void in_a_loop(void **state) {
  run_all(3, loops, NULL);
  for (int r = 0; r < 3; r++) assert_int_equal(shared->code[r], AC_OK);
  assert_int_equal(shared->warned, 1);
  ac_test_contains(shared->warning, "rank 0 has waited 0.", __FILE__, __LINE__);
  ac_test_contains(shared->warning, "s for rank 1 in all_reduce", __FILE__, __LINE__);
  ac_test_contains(shared->warning, "train.lua:9", __FILE__, __LINE__);
  ac_test_contains(shared->warning, ": rank 1 made its last call at train.lua:7; to see the script lines of all ranks: accel-run stacks", __FILE__,
                   __LINE__);
}

/* ---- ranks that wait for each other ---- */
static void deadlocked(rank *r) {
  const int both[2] = {0, 1};
  ac_group *g;
  CHECK_OK(ac_group_new(r->w, 2, both, "groups.lua:1", &g, E_));
  const ac_coll x = all_reduce(3, "x.lua:1"), y = {.kind = AC_COLL_BARRIER, .site = "y.lua:2"};
  if (r->me == 0) note(r, g, &x);
  if (r->me == 1) note(r, ac_world_group(r->w), &y);
  if (r->me == 2) note(r, ac_world_group(r->w), &y);
}

static void deadlocked_groups(void **state) {
  run_all(3, deadlocked, NULL);
  for (int r = 0; r < 3; r++)
    EXPECT(r, MISMATCH, 1, "rank 0 waits for rank 1 in all_reduce f32 (3) sum at x.lua:1 (group 1)",
           "rank 1 waits for rank 0 in barrier at y.lua:2");
}

static void both_receive(rank *r) {
  const ac_coll c = {.kind = AC_COLL_RECV,
                     .dtype = AC_F32,
                     .count = 3,
                     .root = 1 - r->me,
                     .recv = b,
                     .site = r->me == 0 ? "x.lua:1" : "y.lua:2"};
  note(r, ac_world_group(r->w), &c);
}

static void ring_of_receives(rank *r) {
  const ac_coll c = {.kind = AC_COLL_RECV,
                     .dtype = AC_F32,
                     .count = 3,
                     .root = (r->me + 1) % r->n,
                     .recv = b,
                     .site = "x.lua:1"};
  note(r, ac_world_group(r->w), &c);
}

static void other_tag(rank *r) {
  const ac_coll c = {.kind = r->me == 0 ? AC_COLL_SEND : AC_COLL_RECV,
                     .dtype = AC_F32,
                     .count = 70000,
                     .root = 1 - r->me,
                     .tag = r->me,
                     .send = a,
                     .recv = b,
                     .site = "x.lua:1"};
  note(r, ac_world_group(r->w), &c);
}

static void receive_or_barrier(rank *r) {
  const ac_coll x = {
      .kind = AC_COLL_RECV, .dtype = AC_F32, .count = 3, .root = 1, .recv = b, .site = "x.lua:1"};
  const ac_coll y = {.kind = AC_COLL_BARRIER, .site = "y.lua:2"};
  note(r, ac_world_group(r->w), r->me == 0 ? &x : &y);
}

static void wrong_message(rank *r) {
  const ac_coll c = {.kind = r->me == 0 ? AC_COLL_SEND : AC_COLL_RECV,
                     .dtype = AC_F32,
                     .count = r->me == 0 ? 5 : 6,
                     .root = 1 - r->me,
                     .send = a,
                     .recv = b,
                     .site = r->me == 0 ? "x.lua:1" : "y.lua:2"};
  note(r, ac_world_group(r->w), &c);
}

static void pairs(void **state) {
  run_all(2, both_receive, NULL);
  for (int r = 0; r < 2; r++)
    EXPECT(r, MISMATCH, 1, "rank 0 waits for rank 1 in recv f32 (3)", "x.lua:1", "rank 1 waits for rank 0",
           "y.lua:2");
  run_all(5, ring_of_receives, NULL);
  for (int r = 0; r < 5; r++) EXPECT(r, MISMATCH, 1, "recv", "over 5 ranks");
  run_all(2, other_tag, NULL);
  for (int r = 0; r < 2; r++) EXPECT(r, MISMATCH, 1, "send f32 (70000)", "recv f32 (70000) from 0 tag 1");
  run_all(2, receive_or_barrier, NULL);
  for (int r = 0; r < 2; r++) EXPECT(r, MISMATCH, 1, "recv", "x.lua:1", "barrier", "y.lua:2");
  run_all(2, wrong_message, NULL);
  EXPECT(1, MISMATCH, 1, "send f32 (5)", "recv f32 (6)", "x.lua:1", "y.lua:2");
}

/* Receives under way on the communication thread are no deadlock: the script may still send. */
static void slow_exchange(rank *r) {
  ac_group *g = ac_world_group(r->w);
  const ac_coll in = {
      .kind = AC_COLL_RECV, .dtype = AC_F32, .count = 3, .root = 1 - r->me, .recv = b, .site = "x.lua:1"};
  const ac_coll out = {
      .kind = AC_COLL_SEND, .dtype = AC_F32, .count = 3, .root = 1 - r->me, .send = a, .site = "x.lua:2"};
  ac_work *k;
  CHECK_OK(ac_collective_start(g, &in, 0, NULL, &k, E_));
  sleep_ms(700);
  note(r, g, &out);
  CHECK_OK(ac_work_wait(k, E_));
  ac_work_release(k);
}

static void receive_first(void **state) {
  ranks k = run_all(2, slow_exchange, NULL);
  for (int r = 0; r < 2; r++) assert_true(ended_well(&k, r));
}

/* ---- joining ---- */
static void nothing(rank *r) {}

static void other_script(void **state) {
  ac_test_write("a.lua", "print(1)", 8);
  ac_test_write("b.lua", "print(2)", 8);
  ranks k;
  memset(shared, 0, sizeof *shared);
  ranks_make(&k, 2);
  fflush(NULL);
  for (int i = 0; i < 2; i++) {
    if ((k.pid[i] = fork()) != 0) continue;
    ranks_env(&k, i);
    ac_ctx *ctx;
    ac_world *w;
    ac_err e;
    ac_world_options o = AC_WORLD_OPTIONS_INIT;
    o.script = i == 0 ? "a.lua" : "b.lua";
    if (ac_ctx_new(NULL, &ctx, &e) != AC_OK) exit(1);
    shared->code[i] = ac_world_open(ctx, &o, &w, &e);
    memcpy(shared->text[i], e.msg, sizeof e.msg);
    ac_ctx_free(ctx);
    exit(0);
  }
  ranks_wait(&k);
  ranks_free(&k);
  for (int r = 0; r < 2; r++) EXPECT(r, MISMATCH, 1, "different scripts", "a.lua", "b.lua");
}

static void one_does_not_join(void **state) {
  ranks k;
  memset(shared, 0, sizeof *shared);
  ranks_make(&k, 2);
  fflush(NULL);
  if ((k.pid[0] = fork()) == 0) {
    k.timeout = "0.2";
    ranks_env(&k, 0);
    ac_ctx *ctx;
    ac_world *w;
    ac_err e;
    if (ac_ctx_new(NULL, &ctx, &e) != AC_OK) exit(1);
    shared->code[0] = ac_world_open(ctx, NULL, &w, &e);
    memcpy(shared->text[0], e.msg, sizeof e.msg);
    ac_ctx_free(ctx);
    exit(0);
  }
  waitpid(k.pid[0], &k.status[0], 0);
  ranks_free(&k);
  EXPECT(0, TIMEOUT, 1, "rank 1 has not joined within 0.2 s");
}

static void joins_and_leaves(void **state) {
  for (int i = 0; i < 10; i++) {
    ranks k;
    memset(shared, 0, sizeof *shared);
    ranks_make(&k, 2);
    ranks_start(&k, nothing, NULL);
    ranks_wait(&k);
    for (int r = 0; r < 2; r++) assert_true(ended_well(&k, r));
    ranks_free(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      AC_TEST_TIMED(mismatches),
      AC_TEST_TIMED(mismatch_while_one_is_missing),
      AC_TEST_TIMED(all_to_all_counts),
      AC_TEST_TIMED(left_early),
      AC_TEST_TIMED(failed),
      AC_TEST_TIMED(killed),
      AC_TEST_TIMED(killed_under_a_launcher),
      AC_TEST_TIMED(timeouts),
      cmocka_unit_test(slow_is_fine),
      cmocka_unit_test(stopped),
      cmocka_unit_test(in_a_loop),
      AC_TEST_TIMED(deadlocked_groups),
      AC_TEST_TIMED(pairs),
      cmocka_unit_test(receive_first),
      AC_TEST_TIMED(other_script),
      AC_TEST_TIMED(one_does_not_join),
      cmocka_unit_test(joins_and_leaves),
      AC_TEST_TIMED(killed_anywhere),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
