/* Send and receive over shared memory: rings, exchanges, any order of tags, more messages than entries, every
 * size and place, memory that the system refuses. */
#include "host/comm/ranks.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/resource.h>

/* Memory of so many bytes is refused for the next so many times. */
static _Atomic int64_t refused_bytes;
static _Atomic int refuse, n_refused;
int fallocate(int fd, int mode, off_t at, off_t n) {
  if (n == atomic_load(&refused_bytes) && atomic_fetch_sub(&refuse, 1) > 0) {
    atomic_fetch_add(&n_refused, 1);
    errno = ENOSPC;
    return -1;
  }
  int (*real)(int, int, off_t, off_t);
  *(void **)&real = dlsym(RTLD_NEXT, "fallocate");
  return real(fd, mode, at, n);
}

static void fill(int32_t *p, int64_t n, int from, int to, int what) {
  for (int64_t i = 0; i < n; i++) p[i] = (int32_t)(i * 31 + from * 1000003 + to * 10007 + what * 101);
}

static bool is(const int32_t *p, int64_t n, int from, int to, int what) {
  for (int64_t i = 0; i < n; i++)
    if (p[i] != (int32_t)(i * 31 + from * 1000003 + to * 10007 + what * 101)) return false;
  return true;
}

static ac_coll send_of(int32_t *p, int64_t n, int to, int tag) {
  return (ac_coll){.kind = AC_COLL_SEND,
                   .dtype = AC_I32,
                   .count = n,
                   .root = to,
                   .tag = tag,
                   .send = p,
                   .site = "pass.lua:1"};
}

static ac_coll recv_of(int32_t *p, int64_t n, int from, int tag) {
  return (ac_coll){.kind = AC_COLL_RECV,
                   .dtype = AC_I32,
                   .count = n,
                   .root = from,
                   .tag = tag,
                   .recv = p,
                   .site = "pass.lua:2"};
}

static const int64_t lengths[] = {
    0, 1, 77, ACI_ENTRY_DATA / 4, ACI_ENTRY_DATA / 4 + 1, ACI_CHUNK / 4, ACI_CHUNK / 4 + 1, ACI_CHUNK / 4 * 2 + 1, 700001};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 700001 };

/* Around the ring, blocking: rank 0 sends first. Private memory and the heap by turns. */
static void ring(rank *r) {
  ac_group *g = ac_world_group(r->w);
  ac_device *dev;
  ac_block *block;
  CHECK_OK(ac_ctx_device(r->ctx, "cpu", &dev, E_));
  CHECK_OK(ac_block_alloc(dev, LONGEST * 4, AC_MEM_PARAMETER, NULL, &block, E_));
  int32_t *heap = ac_block_ptr(block), *own = malloc(LONGEST * 4);
  const int to = (r->me + 1) % r->n, from = (r->me + r->n - 1) % r->n;
  for (int round = 0; round < 2 * N_LENGTHS; round++) {
    const int64_t n = lengths[round / 2];
    int32_t *p = (round + r->me) % 2 != 0 ? heap : own;
    const ac_coll out = send_of(p, n, to, round), in = recv_of(p, n, from, round);
    for (int step = 0; step < 2; step++) {
      if ((step == 0) == (r->me == 0)) {
        fill(p, n, r->me, to, round);
        CHECK_OK(ac_collective(g, &out, E_));
      } else {
        CHECK_OK(ac_collective(g, &in, E_));
        CHECK(is(p, n, from, r->me, round));
      }
    }
  }
  ac_block_free(block);
  free(own);
}

/* Everyone sends to everyone, all at once, with collectives between. */
static void exchange(rank *r) {
  ac_group *g = ac_world_group(r->w);
  for (int round = 0; round < N_LENGTHS; round++) {
    const int64_t n = lengths[round];
    ac_work *k[16];
    int32_t *p[16];
    int m = 0;
    for (int i = 0; i < r->n; i++) {
      if (i == r->me) continue;
      p[m] = malloc((size_t)n * 4 + 4);
      const ac_coll in = recv_of(p[m], n, i, 5);
      CHECK_OK(ac_collective_start(g, &in, 0, NULL, &k[m], E_));
      m++;
      p[m] = malloc((size_t)n * 4 + 4);
      fill(p[m], n, r->me, i, round);
      const ac_coll out = send_of(p[m], n, i, 5);
      CHECK_OK(ac_collective_start(g, &out, 0, NULL, &k[m], E_));
      m++;
    }
    for (int i = 0; i < m; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
    }
    m = 0;
    for (int i = 0; i < r->n; i++) {
      if (i == r->me) continue;
      CHECK(is(p[m], n, i, r->me, round));
      free(p[m]);
      free(p[m + 1]);
      m += 2;
    }
    const ac_coll b = {.kind = AC_COLL_BARRIER};
    if (round % 2 != 0) CHECK_OK(ac_collective(g, &b, E_));
  }
}

/* Many more messages than entries, received last first; those of one tag keep their order. */
static void backwards(rank *r) {
  enum { N = 200, SIZE = 2000 };
  ac_group *g = ac_world_group(r->w);
  int32_t *p = malloc(sizeof *p * N * SIZE);
  if (r->me == 0) {
    ac_work *k[N];
    for (int i = 0; i < N; i++) {
      const int64_t n = i % 3 == 0 ? SIZE : 10;
      fill(p + i * SIZE, n, 0, 1, i);
      const ac_coll c = send_of(p + i * SIZE, n, 1, i / 2);
      CHECK_OK(ac_collective_start(g, &c, 0, NULL, &k[i], E_));
    }
    for (int i = 0; i < N; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
    }
  } else {
    for (int tag = N / 2 - 1; tag >= 0; tag--) {
      for (int i = tag * 2; i < tag * 2 + 2; i++) {
        const int64_t n = i % 3 == 0 ? SIZE : 10;
        const ac_coll c = recv_of(p, n, 0, tag);
        CHECK_OK(ac_collective(g, &c, E_));
        CHECK(is(p, n, 0, 1, i));
      }
    }
  }
  free(p);
}

/* The sender may be gone before its message is read; groups keep their messages apart. */
static void left_behind(rank *r) {
  const int both[2] = {1, 0};
  ac_group *g;
  CHECK_OK(ac_group_new(r->w, 2, both, NULL, &g, E_));
  int32_t p[10], q[10];
  if (r->me == 0) {
    fill(p, 10, 0, 1, 1);
    fill(q, 10, 0, 1, 2);
    const ac_coll a = send_of(p, 10, 1, 0), b = send_of(q, 10, 0, 0); /* rank 1 is rank 0 of g */
    CHECK_OK(ac_collective(ac_world_group(r->w), &a, E_));
    CHECK_OK(ac_collective(g, &b, E_));
  } else {
    sleep_ms(300);
    const ac_coll b = recv_of(q, 10, 1, 0), a = recv_of(p, 10, 0, 0);
    CHECK_OK(ac_collective(g, &b, E_));
    CHECK_OK(ac_collective(ac_world_group(r->w), &a, E_));
    CHECK(is(p, 10, 0, 1, 1) && is(q, 10, 0, 1, 2));
  }
}

/* Two messages come while the receiver goes through the entries: it has passed the first one's, still empty, and finds the
 * second's. It must not take that for the first. Rank 0 puts the mailbox into the state that the receiver would see. */
static void meanwhile(rank *r) {
  ac_group *g = ac_world_group(r->w);
  const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = "pass.lua:3"};
  enum { AT = ACI_EAGER_ENTRIES }; /* the first entry of small messages */
  aci_mailbox *m = aci_mailbox_of(r->w->segment.head, 0, 1);
  int32_t p[10], q[7];
  if (r->me == 0) {
    fill(p, 10, 0, 1, 1);
    fill(q, 7, 0, 1, 2);
    const ac_coll a = send_of(p, 10, 1, 0), b = send_of(q, 7, 1, 0);
    CHECK_OK(ac_collective(g, &a, E_));
    CHECK_OK(ac_collective(g, &b, E_));
    CHECK(m->entry[AT].order == 1 && m->entry[AT + 1].order == 2 && atomic_load(&m->offers) == 2);
    atomic_store(&m->entry[AT].state, ACI_ENTRY_FREE);
    atomic_store(&m->offers, 0);
    CHECK_OK(ac_collective(g, &barrier, E_));
    sleep_ms(50);
    atomic_store(&m->entry[AT].state, ACI_ENTRY_OFFERED);
    atomic_store(&m->offers, 2);
  } else {
    CHECK_OK(ac_collective(g, &barrier, E_));
    const ac_coll a = recv_of(p, 10, 0, 0), b = recv_of(q, 7, 0, 0);
    CHECK_OK(ac_collective(g, &a, E_));
    CHECK_OK(ac_collective(g, &b, E_));
    CHECK(is(p, 10, 0, 1, 1) && is(q, 7, 0, 1, 2));
  }
}

/* Messages that eager buffers take: a sender is through with as many as there are buffers before anyone receives, also with a blocking
 * call, and with more of them when the receiver has come; received last first. */
static void ahead(rank *r) {
  enum { N = 3 * ACI_EAGER_ENTRIES, SIZE = ACI_CHUNK / 4 };
  ac_group *g = ac_world_group(r->w);
  const ac_coll barrier = {.kind = AC_COLL_BARRIER, .site = "pass.lua:3"};
  int32_t *p = malloc(sizeof *p * N * SIZE);
  if (r->me == 0) {
    ac_work *k[N];
    for (int i = 0; i < N; i++) {
      const int64_t n = SIZE - i;
      fill(p + i * SIZE, n, 0, 1, i);
      const ac_coll c = send_of(p + i * SIZE, n, 1, i);
      if (i == 0) {
        CHECK_OK(ac_collective(g, &c, E_));
        continue;
      }
      CHECK_OK(ac_collective_start(g, &c, 0, NULL, &k[i], E_));
      if (i < ACI_EAGER_ENTRIES) CHECK(ac_work_done(k[i])); /* on its caller */
      else CHECK(!ac_work_done(k[i]));
    }
    for (int i = 1; i < ACI_EAGER_ENTRIES; i++) memset(p + i * SIZE, 0, SIZE * 4); /* they are the script's again */
    CHECK_OK(ac_collective_start(g, &barrier, 0, NULL, &k[0], E_));
    for (int i = 0; i < N; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
    }
  } else {
    sleep_ms(30);
    for (int i = N - 1; i >= 0; i--) {
      const int64_t n = SIZE - i;
      const ac_coll c = recv_of(p, n, 0, i);
      ac_work *k;
      CHECK_OK(ac_collective_start(g, &c, 0, NULL, &k, E_));
      CHECK_OK(ac_work_wait(k, E_));
      ac_work_release(k);
      CHECK(is(p, n, 0, 1, i));
    }
    CHECK_OK(ac_collective(g, &barrier, E_));
  }
  free(p);
}

/* A rank that waits for a message sleeps: it takes no turns of the core that another may need. */
static void asleep(rank *r) {
  ac_group *g = ac_world_group(r->w);
  int32_t p[10];
  r->w->spins = r->w->thread_spins = 0; /* as where ranks outnumber cores */
  for (int round = 0; round < 2; round++) {
    const ac_coll out = send_of(p, 10, 1, 0), in = recv_of(p, 10, 0, 0);
    if (r->me == 0) {
      sleep_ms(400);
      fill(p, 10, 0, 1, round);
      CHECK_OK(ac_collective(g, &out, E_));
      continue;
    }
    struct rusage was, now;
    getrusage(RUSAGE_SELF, &was);
    if (round == 0) {
      CHECK_OK(ac_collective(g, &in, E_));
    } else {
      ac_work *k;
      CHECK_OK(ac_collective_start(g, &in, 0, NULL, &k, E_));
      CHECK_OK(ac_work_wait(k, E_));
      ac_work_release(k);
    }
    getrusage(RUSAGE_SELF, &now);
    CHECK(is(p, 10, 0, 1, round));
    CHECK(now.ru_nvcsw - was.ru_nvcsw < 300); /* naps of 4 ms make 100; polling made some 1500 */
  }
}

/* Works that the communication thread takes on while it sleeps in another's wait: a receive that nobody serves so far makes no other
 * wait. */
static void beside(rank *r) {
  enum { N = 40, LARGE = ACI_CHUNK };
  ac_group *g = ac_world_group(r->w);
  int32_t late[4], *p = malloc(sizeof *p * LARGE), *q = malloc(sizeof *q * LARGE);
  const int other = 1 - r->me;
  const ac_coll never = recv_of(late, 4, other, 99), last = send_of(late, 4, other, 99);
  int32_t text[4];
  fill(text, 4, r->me, other, 99);
  ac_work *k, *in, *out;
  CHECK_OK(ac_collective_start(g, &never, 0, NULL, &k, E_));
  for (int i = 0; i < N; i++) {
    const int64_t n = i % 2 == 0 ? 100 : LARGE;
    fill(p, n, r->me, other, i);
    const ac_coll a = recv_of(q, n, other, i), b = send_of(p, n, other, i);
    CHECK_OK(ac_collective_start(g, &b, 0, NULL, &out, E_));
    CHECK_OK(ac_collective_start(g, &a, 0, NULL, &in, E_));
    CHECK_OK(ac_work_wait(in, E_));
    CHECK_OK(ac_work_wait(out, E_));
    CHECK(is(q, n, other, r->me, i));
    ac_work_release(in);
    ac_work_release(out);
  }
  ac_coll mine = last;
  mine.send = text;
  CHECK_OK(ac_collective_start(g, &mine, 0, NULL, &out, E_));
  CHECK_OK(ac_work_wait(k, E_));
  CHECK_OK(ac_work_wait(out, E_));
  CHECK(is(late, 4, other, r->me, 99));
  ac_work_release(k);
  ac_work_release(out);
  free(p);
  free(q);
}

/* The system refuses memory for eager buffers, once or always: such messages take the other way. The entries are full before, so that steps of
 * one message place others. */
static void refused(rank *r) {
  enum { SMALL = ACI_MAILBOX_ENTRIES, N = 3 * SMALL, SIZE = ACI_CHUNK / 4 };
  ac_group *g = ac_world_group(r->w);
  int32_t *p = malloc(sizeof *p * N * SIZE);
  if (r->me == 0) {
    ac_work *k[N];
    atomic_store(&refused_bytes, sizeof((aci_mailbox *)0)->eager[0]);
    atomic_store(&refuse, *(const int *)r->arg);
    for (int i = 0; i < N; i++) {
      const int64_t n = i < SMALL ? 10 : SIZE - i;
      fill(p + i * SIZE, n, 0, 1, i);
      const ac_coll c = send_of(p + i * SIZE, n, 1, i);
      CHECK_OK(ac_collective_start(g, &c, 0, NULL, &k[i], E_));
    }
    for (int i = 0; i < N; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
    }
    CHECK(atomic_load(&n_refused) > 0);
  } else {
    for (int i = 0; i < N; i++) {
      const int64_t n = i < SMALL ? 10 : SIZE - i;
      const ac_coll c = recv_of(p, n, 0, i);
      CHECK_OK(ac_collective(g, &c, E_));
      CHECK(is(p, n, 0, 1, i));
    }
  }
  free(p);
}

/* No memory for the mailbox's pieces, for which the receiver waits: both are told. */
static void no_pieces(rank *r) {
  ac_group *g = ac_world_group(r->w);
  int32_t text[10], *p = calloc(LONGEST, sizeof *p);
  const ac_coll first[2] = {send_of(text, 10, 1, 0), recv_of(text, 10, 0, 0)};
  const ac_coll second[2] = {send_of(p, LONGEST, 1, 1), recv_of(p, LONGEST, 0, 1)};
  ac_err e;
  fill(text, 10, 0, 1, 0);
  CHECK_OK(ac_collective(g, &first[r->me], E_));
  atomic_store(&refused_bytes, sizeof((aci_mailbox *)0)->piece);
  atomic_store(&refuse, 1);
  const ac_status st = ac_collective(g, &second[r->me], &e);
  CHECK(st == AC_OOM && strstr(e.msg, "rank 0 cannot send: no memory for") != NULL);
  free(p);
}

static void rings(void **state) {
  ranks_run(2, ring, NULL);
  ranks_run(3, ring, NULL);
  ranks_run(7, ring, NULL);
}
static void exchanges(void **state) {
  ranks_run(2, exchange, NULL);
  ranks_run(4, exchange, NULL);
}
static void order(void **state) { ranks_run(2, backwards, NULL); }
static void after_leaving(void **state) { ranks_run(2, left_behind, NULL); }
static void offered_meanwhile(void **state) { ranks_run(2, meanwhile, NULL); }
static void eager(void **state) { ranks_run(2, ahead, NULL); }
static void sleeps(void **state) { ranks_run(2, asleep, NULL); }
static void no_eager_buffer(void **state) {
  for (int n = 1; n <= 1000; n += 999) ranks_run(2, refused, &n);
}
static void no_memory(void **state) { ranks_run(2, no_pieces, NULL); }
static void side_by_side(void **state) { ranks_run(2, beside, NULL); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rings), cmocka_unit_test(exchanges),
                                     cmocka_unit_test(order), cmocka_unit_test(after_leaving),
                                     cmocka_unit_test(offered_meanwhile), cmocka_unit_test(eager),
                                     cmocka_unit_test(sleeps), cmocka_unit_test(side_by_side),
                                     cmocka_unit_test(no_eager_buffer), cmocka_unit_test(no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
