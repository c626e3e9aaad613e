/* What a prompt asks of a world: to meet there as a call of its own kind, and to begin anew after every way in which
 * collectives end while all ranks live, again and again: nothing of before is left in groups, staging or messages. */
#include "host/comm/ranks.h"

#include <sys/mman.h>

enum { ROUNDS = 12, LARGE = 200000 };

static struct shared {
  _Atomic int here, turn;
  _Atomic uint32_t next;
} *shared;

/* All ranks, by other means than the world's. */
static void together(const rank *r) {
  const int turn = atomic_load(&shared->turn);
  if (atomic_fetch_add(&shared->here, 1) + 1 == r->n) {
    atomic_store(&shared->here, 0);
    atomic_store(&shared->turn, turn + 1);
  }
  for (int ms = 0; atomic_load(&shared->turn) == turn; ms++) {
    CHECK(ms < 15000); /* another one has failed */
    sleep_ms(1);
  }
}

static void begin_anew(rank *r) {
  uint32_t mine = 0;
  CHECK_OK(aci_prompt_reset(r->w, &mine, E_));
  uint32_t most = atomic_load(&shared->next);
  while (most < mine && !atomic_compare_exchange_weak(&shared->next, &most, mine)) continue;
  together(r);
  if (r->me == 0) aci_abort_clear(r->w->segment.head);
  together(r);
  aci_prompt_resume(r->w, atomic_load(&shared->next));
}

static ac_coll sum_of(float *p, int64_t n) {
  return (ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .op = AC_REDUCE_SUM, .count = n, .send = p, .recv = p,
                   .site = "prompt.lua:1"};
}

static float *buffer(float value) {
  static float p[LARGE];
  for (int i = 0; i < LARGE; i++) p[i] = value;
  return p;
}

static void check_sums(rank *r, ac_group *g) {
  static const int64_t counts[] = {1, 900, LARGE};
  for (int i = 0; i < 3; i++) {
    float *p = buffer((float)(r->me + 1));
    const ac_coll c = sum_of(p, counts[i]);
    CHECK_OK(ac_collective(g, &c, E_));
    float want = 0;
    for (int k = 0; k < ac_group_size(g); k++) want += (float)(ac_group_global_rank(g, k) + 1);
    for (int64_t k = 0; k < counts[i]; k++) CHECK(p[k] == want);
  }
}

static void check_messages(rank *r) {
  ac_group *g = ac_world_group(r->w);
  for (int i = 0; i < 2; i++) {
    const int64_t n = i == 0 ? 5 : LARGE;
    const int root = r->me == 0 ? 1 : 0;
    float *p = buffer((float)(10 * r->me + i));
    ac_coll c = {.kind = r->me == 0 ? AC_COLL_SEND : AC_COLL_RECV, .dtype = AC_F32, .count = n, .root = root, .send = p,
                 .recv = p, .site = "prompt.lua:2"};
    if (r->me < 2) CHECK_OK(ac_collective(g, &c, E_));
    if (r->me == 1)
      for (int64_t k = 0; k < n; k++) CHECK(p[k] == (float)i);
  }
}

static volatile int64_t at_once = 1;

/* One of the ways in which it ends. */
static void go_wrong(rank *r, int round, ac_group *g) {
  ac_err e;
  ac_group *all = ac_world_group(r->w), *none = NULL;
  float *p = buffer(1);
  const ac_coll odd = sum_of(p, r->me == 1 ? 7 : round % 2 == 0 ? 6 : LARGE);
  const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = "prompt.lua:3"};
  const ac_coll send = {.kind = AC_COLL_SEND, .dtype = AC_F32, .count = 3, .root = 0, .send = p, .site = "prompt.lua:4"};
  const int members[] = {0, 1};
  switch (round % 6) {
    case 0: CHECK(ac_collective(all, &odd, &e) == AC_MISMATCH); break;
    case 1: CHECK(r->me > 1 || ac_collective(g, &odd, &e) == AC_MISMATCH); break;
    case 2: /* interrupted in a wait, after a message that nobody reads */
      if (r->me != 1) break;
      CHECK_OK(ac_collective(all, &send, E_));
      ac_world_set_interrupt(r->w, &at_once);
      CHECK(ac_collective(all, &barrier, &e) == AC_INTERRUPTED);
      ac_world_set_interrupt(r->w, NULL);
      break;
    case 3: { /* works, the second of which never runs, or is not taken any more */
      ac_work *one, *two = NULL;
      CHECK_OK(ac_collective_start(all, &odd, 0, NULL, &one, E_));
      ac_status st = ac_collective_start(all, &barrier, 0, NULL, &two, &e);
      if (st == AC_OK) st = ac_work_wait(two, &e);
      CHECK(st == AC_MISMATCH && ac_work_wait(one, &e) == AC_MISMATCH);
      ac_work_release(one);
      ac_work_release(two);
      break;
    }
    case 4: CHECK(ac_group_new(r->w, r->me == 1 ? 1 : 2, members, "prompt.lua:5", &none, &e) == AC_MISMATCH); break;
    default: { /* a receive that waits */
      const ac_coll recv = {.kind = AC_COLL_RECV, .dtype = AC_F32, .count = 3, .root = 1, .recv = p, .site = "prompt.lua:6"};
      if (r->me != 0) break;
      ac_world_set_interrupt(r->w, &at_once);
      CHECK(ac_collective(all, &recv, &e) == AC_INTERRUPTED);
      ac_world_set_interrupt(r->w, NULL);
    }
  }
}

static void rounds(rank *r) {
  const int members[] = {0, 1};
  ac_group *g, *later = NULL;
  CHECK_OK(ac_group_new(r->w, 2, members, "prompt.lua:7", &g, E_));
  for (int round = 0; round < ROUNDS; round++) {
    check_sums(r, ac_world_group(r->w));
    if (r->me < 2) check_sums(r, g);
    if (later != NULL && r->me < 2) check_sums(r, later);
    check_messages(r);
    together(r);
    go_wrong(r, round, g);
    together(r);
    ac_err e;
    const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = "prompt.lua:8"};
    CHECK(ac_collective(ac_world_group(r->w), &barrier, &e) != AC_OK);
    together(r);
    begin_anew(r);
    if (later != NULL) ac_group_free(later);
    CHECK_OK(ac_group_new(r->w, 2, members, "prompt.lua:9", &later, E_));
  }
  check_sums(r, ac_world_group(r->w));
}

static void again_and_again(void **state) {
  for (int n = 2; n <= 3; n++) {
    memset(shared, 0, sizeof *shared);
    ranks_run(n, rounds, NULL);
  }
}

/* The same over sockets, where what was sent before is still on its way. */
static void over_tcp(void **state) {
  for (int n = 2; n <= 3; n++) {
    ranks k;
    memset(shared, 0, sizeof *shared);
    ranks_make(&k, n);
    k.backend = "tcp";
    env_int("MASTER_PORT", 20000 + (int)((unsigned)getpid() * 7 + (unsigned)n) % 9000);
    ranks_start(&k, rounds, NULL);
    ranks_wait(&k);
    for (int i = 0; i < n; i++) assert_true(ended_well(&k, i));
    ranks_free(&k);
  }
}

/* A barrier of the others is not the prompt's, and works that were queued before come first. */
static void meets(rank *r) {
  ac_err e;
  ac_work *work;
  const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = "prompt.lua:12"};
  CHECK_OK(ac_collective_start(ac_world_group(r->w), &barrier, 0, NULL, &work, E_));
  CHECK_OK(aci_prompt_meet(r->w, "prompt.lua:10", E_));
  CHECK(ac_work_done(work));
  ac_work_release(work);
  const ac_status st = r->me == 0 ? aci_prompt_meet(r->w, "prompt.lua:11", &e)
                                  : ac_collective(ac_world_group(r->w), &barrier, &e);
  CHECK(st == AC_MISMATCH);
  CHECK(strstr(e.msg, "rank 0 in accel.repl() at prompt.lua:11") != NULL);
  CHECK(strstr(e.msg, "in barrier at prompt.lua:12") != NULL);
}

static void of_its_own_kind(void **state) { ranks_run(3, meets, NULL); }

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(again_and_again), cmocka_unit_test(over_tcp), cmocka_unit_test(of_its_own_kind)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
