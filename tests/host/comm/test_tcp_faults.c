/* What ranks that meet over TCP are told when others do something else, leave, die, stop or do not come:
 * every rank within a second, by name and script line; and that ranks which are only slow are left
 * alone. */
#include "host/comm/tcp_ranks.h"

static float a[2000000], b[2000000];

static tcp_ranks run_all(int n, rank_fn fn, const void *arg) {
  tcp_ranks k = {0};
  memset(shared, 0, sizeof *shared);
  tcp_start(&k, n, fn, arg);
  tcp_wait(&k);
  return k;
}

static ac_coll all_reduce(int64_t count, const char *site) {
  return (ac_coll){
      .kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = count, .send = a, .recv = b, .site = site};
}

static void do_all_reduce(rank *r, int64_t count) {
  const ac_coll c = all_reduce(count, "same.lua:1");
  CHECK_OK(ac_collective(ac_world_group(r->w), &c, E_));
}

/* ---- different calls ---- */
#define CALL(k, n, s) .kind = AC_COLL_##k, .dtype = AC_F32, .count = (n), .send = a, .recv = b, .site = (s)
static const int64_t parts_a[3] = {1, 2, 3}, parts_b[3] = {3, 2, 1};
static const struct {
  const char *what;
  ac_coll x, y;
} differences[] = {
    {"operation", {.kind = AC_COLL_BARRIER, .site = "x.lua:1"}, {CALL(ALL_REDUCE, 3, "y.lua:2")}},
    {"operation", {CALL(REDUCE, 900000, "x.lua:1")}, {CALL(ALL_REDUCE, 900000, "y.lua:2")}},
    {"dtype", {CALL(ALL_REDUCE, 3, "x.lua:1"), .dtype = AC_I32}, {CALL(ALL_REDUCE, 3, "y.lua:2")}},
    {"count", {CALL(ALL_REDUCE, 3, "x.lua:1")}, {CALL(ALL_REDUCE, 900000, "y.lua:2")}},
    {"count", {CALL(ALL_REDUCE, 3, "x.lua:1")}, {CALL(ALL_REDUCE, 300, "y.lua:2")}},
    {"count",
     {CALL(ALL_GATHER, 0, "x.lua:1"), .counts = parts_a},
     {CALL(ALL_GATHER, 0, "y.lua:2"), .counts = parts_b}},
    {"reduction", {CALL(ALL_REDUCE, 3, "x.lua:1"), .op = AC_REDUCE_MAX}, {CALL(ALL_REDUCE, 3, "y.lua:2")}},
    {"root", {CALL(BROADCAST, 3, "x.lua:1"), .root = 1}, {CALL(BROADCAST, 3, "y.lua:2"), .root = 2}},
};
enum { N_DIFFERENCES = sizeof differences / sizeof differences[0] };

static void does_other(rank *r) {
  const int *which = r->arg;
  const ac_coll same = all_reduce(5, "same.lua:1");
  if (go_on(r, &same)) note(r, ac_world_group(r->w), r->me == 1 ? &differences[*which].x : &differences[*which].y);
  ac_err e;
  CHECK(ac_collective(ac_world_group(r->w), &same, &e) == AC_MISMATCH); /* and ever after */
}

static void mismatches(void **state) {
  for (int i = 0; i < N_DIFFERENCES; i++) {
    tcp_ranks k = run_all(3, does_other, &i);
    for (int r = 0; r < 3; r++) {
      EXPECT(r, MISMATCH, 1, "x.lua:1", "y.lua:2", "rank 1", differences[i].what);
      assert_true(tcp_ended_well(&k, r));
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
  for (int r = 0; r < 3; r++) EXPECT(r, MISMATCH, 1, "x.lua:1", "y.lua:2");
}

static void uneven_exchange(rank *r) {
  int64_t counts[2] = {2, 2}, recv_counts[2] = {2, 2};
  if (r->me == 1) counts[0] = 3;
  const ac_coll c = {.kind = AC_COLL_ALL_TO_ALL,
                     .dtype = AC_F32,
                     .counts = counts,
                     .recv_counts = recv_counts,
                     .send = a,
                     .recv = b,
                     .site = "x.lua:3"};
  note(r, ac_world_group(r->w), &c);
}

static void all_to_all_counts(void **state) {
  run_all(2, uneven_exchange, NULL);
  for (int r = 0; r < 2; r++)
    EXPECT(r, MISMATCH, 1, "rank 1 sends 3 elements to rank 0, which expects 2", "x.lua:3");
}

typedef struct pass_case {
  ac_coll send, recv;
  const char *what;
} pass_case;

static void sends_other(rank *r) {
  const pass_case *k = r->arg;
  note(r, ac_world_group(r->w), r->me == 0 ? &k->send : &k->recv);
}

static void pass_mismatches(void **state) {
  const pass_case cases[] = {
      {{CALL(SEND, 3, "x.lua:1"), .root = 1}, {CALL(RECV, 4, "y.lua:2"), .root = 0}, "count"},
      {{CALL(SEND, 900000, "x.lua:1"), .root = 1}, {CALL(RECV, 4, "y.lua:2"), .root = 0}, "count"},
      {{CALL(SEND, 0, "x.lua:1"), .root = 1}, {CALL(RECV, 900000, "y.lua:2"), .root = 0}, "count"},
      {{CALL(SEND, 3, "x.lua:1"), .root = 1},
       {CALL(RECV, 3, "y.lua:2"), .root = 0, .dtype = AC_I32},
       "dtype"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    run_all(2, sends_other, &cases[i]);
    EXPECT(1, MISMATCH, 1, "x.lua:1", "y.lua:2", cases[i].what);
  }
}

/* ---- leaving, failing, dying ---- */
static void leaves_early(rank *r) {
  const ac_coll large = all_reduce(900000, "same.lua:1");
  const bool well = go_on(r, &large);
  if (r->me == 1) {
    ac_world_close(r->w, "early.lua:30");
    ac_ctx_free(r->ctx);
    exit(0);
  }
  const ac_coll c = all_reduce(3, "x.lua:12");
  if (well) note(r, ac_world_group(r->w), &c);
}

static void early_leave(void **state) {
  run_all(3, leaves_early, NULL);
  EXPECT(0, PEER, 1, "rank 1 left at early.lua:30", "x.lua:12");
  EXPECT(2, PEER, 1, "rank 1 left at early.lua:30", "x.lua:12");
}

/* A receive from a rank that left, after what it had sent. */
static void leaves_receiver(rank *r) {
  const ac_coll s = {CALL(SEND, 3, "x.lua:1"), .root = 1}, v = {CALL(RECV, 3, "y.lua:2"), .root = 0};
  if (r->me == 0) {
    CHECK_OK(ac_collective(ac_world_group(r->w), &s, E_));
    return;
  }
  sleep_ms(200);
  CHECK_OK(ac_collective(ac_world_group(r->w), &v, E_));
  note(r, ac_world_group(r->w), &v);
}

static void leave_before_send(void **state) {
  tcp_ranks k = run_all(2, leaves_receiver, NULL);
  assert_true(tcp_ended_well(&k, 0));
  EXPECT(1, PEER, 1, "rank 0 left at end.lua:99", "y.lua:2");
}

static void fails(rank *r) {
  const ac_coll same = all_reduce(5, "same.lua:1");
  if (!go_on(r, &same)) return;
  if (r->me == 2) {
    sleep_ms(100);
    ac_world_fail(r->w, "bad.lua:7", "attempt to index a nil value\nstack traceback");
    sleep_ms(100);
    exit(3);
  }
  const ac_coll c = all_reduce(3, "x.lua:12");
  note(r, ac_world_group(r->w), &c);
}

static void script_failed(void **state) {
  run_all(4, fails, NULL);
  for (int r = 0; r < 4; r++)
    if (r != 2) EXPECT(r, PEER, 1, "rank 2 failed at bad.lua:7: attempt to index a nil value");
}

static void works_until_killed(rank *r) {
  const int *count = r->arg;
  const ac_coll c = all_reduce(*count, "loop.lua:4");
  ac_err e = {0};
  for (;;) {
    shared->code[r->me] = ac_collective(ac_world_group(r->w), &c, &e);
    shared->seconds[r->me] = seconds();
    if (shared->code[r->me] != AC_OK) break;
    atomic_fetch_add(&shared->began, 1);
  }
  memcpy(shared->text[r->me], e.msg, sizeof e.msg);
}

static void killed(void **state) {
  static const int counts[] = {1, 3000, 700000};
  for (int i = 0; i < 6; i++) {
    const int victim = i % 3;
    tcp_ranks k = {0};
    memset(shared, 0, sizeof *shared);
    tcp_start(&k, 3, works_until_killed, &counts[i / 2]);
    while (atomic_load(&shared->began) < 30) sleep_ms(1);
    sleep_ms(3 + 7 * i);
    const double t = seconds();
    kill(k.pid[victim], SIGKILL);
    tcp_wait(&k);
    char name[40];
    snprintf(name, sizeof name, "rank %d (", victim);
    for (int r = 0; r < 3; r++) {
      if (r == victim) continue;
      shared->seconds[r] -= t;
      EXPECT(r, PEER, 1, name, "died");
      assert_true(tcp_ended_well(&k, r));
    }
  }
}

/* A stopped rank is not dead, also when others have more to send than its sockets take. */
static void stops(rank *r) {
  do_all_reduce(r, 5);
  if (r->me == 1) {
    atomic_store(&shared->began, getpid());
    raise(SIGSTOP);
  }
  do_all_reduce(r, 2000000);
  do_all_reduce(r, 5);
}

static void stopped(void **state) {
  tcp_ranks k = {0};
  memset(shared, 0, sizeof *shared);
  tcp_start(&k, 2, stops, NULL);
  while (atomic_load(&shared->began) == 0) sleep_ms(1);
  sleep_ms(1000);
  kill(k.pid[1], SIGCONT);
  /* once more amid a large transfer, for longer than the kernel would probe a dead one */
  sleep_ms(1);
  kill(k.pid[1], SIGSTOP);
  sleep_ms(4000);
  kill(k.pid[1], SIGCONT);
  tcp_wait(&k);
  for (int r = 0; r < 2; r++) assert_true(tcp_ended_well(&k, r));
}

/* ---- waiting for each other ---- */
static void crosses(rank *r) {
  const int *length = r->arg; /* of the circle */
  ac_group *g[3] = {NULL};
  for (int i = 0; i < *length; i++) {
    const int pair[2] = {i, (i + 1) % r->n};
    CHECK_OK(ac_group_new(r->w, 2, *length == 2 ? (const int[]){0, 1} : pair, "g.lua:1", &g[i], E_));
  }
  static const char *const sites[] = {"a.lua:1", "b.lua:2", "c.lua:3"};
  const ac_coll c = {.kind = AC_COLL_BARRIER, .site = sites[r->me]};
  note(r, g[r->me], &c);
}

static void deadlocked_groups(void **state) {
  int length = 2;
  run_all(2, crosses, &length);
  for (int r = 0; r < 2; r++)
    EXPECT(r, MISMATCH, 1, "a.lua:1", "b.lua:2", "rank 0", "rank 1", "group 1", "group 2");
  length = 3;
  run_all(3, crosses, &length);
  for (int r = 0; r < 3; r++)
    EXPECT(r, MISMATCH, 1, "a.lua:1", "b.lua:2", "c.lua:3", "rank 0", "rank 1", "rank 2");
}

static void receives_instead(rank *r) {
  const ac_coll v = {CALL(RECV, 3, "r.lua:1"), .root = 1}, c = all_reduce(3, "x.lua:2");
  note(r, ac_world_group(r->w), r->me == 0 ? &v : &c);
}

static void recv_against_all_reduce(void **state) {
  run_all(2, receives_instead, NULL);
  for (int r = 0; r < 2; r++) EXPECT(r, MISMATCH, 1, "r.lua:1", "x.lua:2");
}

static void does_not_come(rank *r) {
  const ac_coll same = all_reduce(5, "same.lua:1");
  if (!go_on(r, &same)) return;
  if (r->me == 1) {
    wait_until_told(2);
    return;
  }
  ac_world_set_timeout(r->w, 0.4); /* there was time to join */
  const ac_coll c = all_reduce(3, "x.lua:12");
  note(r, ac_world_group(r->w), &c);
}

static void out_of_time(void **state) {
  run_all(3, does_not_come, NULL);
  for (int r = 0; r < 3; r += 2)
    EXPECT(r, TIMEOUT, 1, "waited", "rank 1", "x.lua:12", "same.lua:1", "--timeout");
}

/* Slow ranks: late by more than every grace. */
static void is_slow(rank *r) {
  for (int i = 0; i < 3; i++) {
    if (r->me == i) sleep_ms(700);
    do_all_reduce(r, i == 1 ? 100000 : 7);
  }
}

static void slow_ranks(void **state) {
  tcp_ranks k = run_all(3, is_slow, NULL);
  for (int r = 0; r < 3; r++) assert_true(tcp_ended_well(&k, r));
}

/* The last rank to leave sends much and goes: nobody loses it. */
static void goes_at_once(rank *r) {
  if (r->me == 0) memset(b, 0x11, sizeof b);
  const ac_coll c = {
      .kind = AC_COLL_BROADCAST, .dtype = AC_U8, .root = 0, .count = sizeof b, .recv = b, .site = "x.lua:1"};
  CHECK_OK(ac_collective(ac_world_group(r->w), &c, E_));
  for (size_t i = 0; i < sizeof b; i += 997) CHECK(((unsigned char *)b)[i] == 0x11);
}

static void leave_at_once(void **state) {
  for (int i = 0; i < 5; i++) {
    tcp_ranks k = run_all(3, goes_at_once, NULL);
    for (int r = 0; r < 3; r++) assert_true(tcp_ended_well(&k, r));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      AC_TEST_TIMED(mismatches),
      AC_TEST_TIMED(mismatch_while_one_is_missing),
      AC_TEST_TIMED(all_to_all_counts),
      AC_TEST_TIMED(pass_mismatches),
      AC_TEST_TIMED(early_leave),
      AC_TEST_TIMED(leave_before_send),
      AC_TEST_TIMED(script_failed),
      AC_TEST_TIMED(killed),
      cmocka_unit_test(stopped),
      AC_TEST_TIMED(deadlocked_groups),
      AC_TEST_TIMED(recv_against_all_reduce),
      AC_TEST_TIMED(out_of_time),
      cmocka_unit_test(slow_ranks),
      cmocka_unit_test(leave_at_once),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
