/* The tcp backend and the algorithms of link/: every collective over numbers of ranks, lengths around
 * what is sent early, eagerly and in pieces, dtypes and forms. Every rank knows what all others send and
 * computes the answer itself. */
#include "host/comm/tcp_ranks.h"

#include "comm/reduce.h"

enum { GUARD = 64 };

typedef struct job {
  ac_group *g;
  ac_dtype dt;
  int64_t count;
  uint64_t salt;
  bool uneven, in_place;
} job;

static unsigned char *get(size_t bytes) {
  unsigned char *p = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
  CHECK(p != NULL);
  memset(p, 0xA5, bytes + GUARD);
  return p;
}

static bool untouched(const unsigned char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != 0xA5) return false;
  return true;
}

/* Numbers of every dtype that rank r gives; floats whose sums depend on the order. */
static void fill(ac_dtype dt, unsigned char *p, int64_t count, int r, uint64_t salt) {
  uint64_t s = salt * 1000003 + (uint64_t)r * 7919 + 1;
  for (int64_t i = 0; i < count; i++) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    const int v = (int)(s >> 60) - 8;
    switch (dt) {
      case AC_F64: ((double *)(void *)p)[i] = v * 1.1; break;
      case AC_F32: ((float *)(void *)p)[i] = (float)v * 1.1f; break;
      case AC_F16: ((uint16_t *)(void *)p)[i] = (uint16_t)(0x3c00 + (v + 8) * 37); break;
      case AC_BF16: ((uint16_t *)(void *)p)[i] = (uint16_t)(0x3f80 + (v + 8) * 11); break;
      case AC_I64: ((int64_t *)(void *)p)[i] = v; break;
      case AC_I32: ((int32_t *)(void *)p)[i] = v; break;
      case AC_I16: ((int16_t *)(void *)p)[i] = (int16_t)v; break;
      case AC_BOOL: p[i] = v > 0; break;
      default: p[i] = (unsigned char)v; break;
    }
  }
}

static int root_of(const job *j) { return (int)(j->salt % (uint64_t)ac_group_size(j->g)); }
static int64_t uneven_part(int64_t count, int r) { return r % 3 == 1 ? 0 : count + r * 5; }

static void reduction(const job *j, ac_coll_kind kind, ac_reduce_op op) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g);
  const size_t size = ac_dtype_bytes(j->dt);
  const bool scatter = kind == AC_COLL_REDUCE_SCATTER;
  int64_t counts[MOST];
  const void *src[MOST];
  for (int i = 0; i < n; i++) counts[i] = uneven_part(j->count, i);
  ac_coll c = {
      .kind = kind, .dtype = j->dt, .op = op, .root = root_of(j), .count = j->count, .site = "t.lua:1"};
  if (scatter && j->uneven) c.counts = counts;
  const int64_t total = scatter ? aci_total(j->g, &c) : j->count,
                mine = scatter ? aci_part(&c, me) : j->count;
  const int64_t at = scatter ? aci_part_at(&c, me) : 0;
  unsigned char *all[MOST], *recv = get((size_t)mine * size), *want = get((size_t)mine * size);
  for (int i = 0; i < n; i++) {
    fill(j->dt, all[i] = get((size_t)total * size), total, i, j->salt);
    src[i] = all[i] + (size_t)at * size;
  }
  void *dst = want;
  if (mine > 0) aci_reduce(j->dt, op, n, src, 1, &dst, mine, false);
  c.send = all[me];
  c.recv = j->in_place ? all[me] + (size_t)at * size : recv;
  CHECK_OK(ac_collective(j->g, &c, E_));
  if (kind == AC_COLL_REDUCE && me != root_of(j)) CHECK(untouched(recv, (size_t)mine * size + GUARD));
  else CHECK(memcmp(c.recv, want, (size_t)mine * size) == 0);
  CHECK(untouched(recv + (size_t)mine * size, GUARD));
  for (int i = 0; i < n; i++) free(all[i]);
  free(recv);
  free(want);
}

static void gathering(const job *j, ac_coll_kind kind) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g), root = root_of(j);
  const size_t size = ac_dtype_bytes(j->dt);
  int64_t counts[MOST];
  for (int i = 0; i < n; i++) counts[i] = uneven_part(j->count, i);
  ac_coll c = {.kind = kind,
               .dtype = j->dt,
               .root = root,
               .count = j->count,
               .counts = j->uneven ? counts : NULL,
               .site = "t.lua:2"};
  const size_t total = (size_t)aci_total(j->g, &c) * size, mine = (size_t)aci_part(&c, me) * size,
               at = (size_t)aci_part_at(&c, me) * size;
  unsigned char *part = get(mine), *all = get(total), *want = get(total);
  for (int i = 0; i < n; i++)
    fill(j->dt, want + (size_t)aci_part_at(&c, i) * size, aci_part(&c, i), i, j->salt);
  const bool scatter = kind == AC_COLL_SCATTER, gets = kind == AC_COLL_ALL_GATHER || (!scatter && me == root);
  if (scatter && me == root) memcpy(all, want, total);
  if (!scatter) memcpy(part, want + at, mine);
  if (!scatter && j->in_place) memcpy(all + at, want + at, mine);
  c.send = scatter ? all : j->in_place ? all + at : part;
  c.recv = !scatter ? all : j->in_place && me == root ? all + at : part;
  CHECK_OK(ac_collective(j->g, &c, E_));
  if (scatter) CHECK(memcmp(c.recv, want + at, mine) == 0);
  else CHECK(gets ? memcmp(all, want, total) == 0 : j->in_place || untouched(all, total));
  CHECK(untouched(part + mine, GUARD) && untouched(all + total, GUARD));
  free(part);
  free(all);
  free(want);
}

static void broadcast(const job *j) {
  const size_t bytes = (size_t)j->count * ac_dtype_bytes(j->dt);
  unsigned char *p = get(bytes), *want = get(bytes);
  fill(j->dt, want, j->count, root_of(j), j->salt);
  if (ac_group_rank(j->g) == root_of(j)) memcpy(p, want, bytes);
  const ac_coll c = {.kind = AC_COLL_BROADCAST,
                     .dtype = j->dt,
                     .root = root_of(j),
                     .count = j->count,
                     .recv = p,
                     .site = "t.lua:3"};
  CHECK_OK(ac_collective(j->g, &c, E_));
  CHECK(memcmp(p, want, bytes) == 0 && untouched(p + bytes, GUARD));
  free(p);
  free(want);
}

static int64_t given(const job *j, int s, int t) {
  return !j->uneven ? j->count : (s + 2 * t) % 4 == 0 ? 0 : j->count + 3 * s + t;
}

static void all_to_all(const job *j) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g);
  const size_t size = ac_dtype_bytes(j->dt);
  int64_t counts[MOST], recv_counts[MOST], gives = 0, takes = 0;
  for (int i = 0; i < n; i++) {
    gives += counts[i] = given(j, me, i);
    takes += recv_counts[i] = given(j, i, me);
  }
  unsigned char *send = get((size_t)gives * size), *recv = get((size_t)takes * size),
                *want = get((size_t)takes * size);
  int64_t at = 0, from = 0;
  for (int i = 0; i < n; at += counts[i], from += recv_counts[i], i++) {
    fill(j->dt, send + (size_t)at * size, counts[i], me * 100 + i, j->salt);
    fill(j->dt, want + (size_t)from * size, recv_counts[i], i * 100 + me, j->salt);
  }
  ac_coll c = {.kind = AC_COLL_ALL_TO_ALL,
               .dtype = j->dt,
               .count = j->count,
               .send = send,
               .recv = recv,
               .site = "t.lua:4"};
  if (j->uneven) c.counts = counts;
  if (j->uneven) c.recv_counts = recv_counts;
  else if (j->in_place) c.recv = send;
  CHECK_OK(ac_collective(j->g, &c, E_));
  CHECK(memcmp(c.recv, want, (size_t)takes * size) == 0 && untouched(recv + (size_t)takes * size, GUARD));
  free(send);
  free(recv);
  free(want);
}

static void barrier(ac_group *g) {
  const ac_coll c = {.kind = AC_COLL_BARRIER, .site = "t.lua:5"};
  CHECK_OK(ac_collective(g, &c, E_));
}

/* Around the ring, at the same time both ways. */
static void ring(const job *j) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g), next = (me + 1) % n, last = (me + n - 1) % n;
  const size_t bytes = (size_t)j->count * ac_dtype_bytes(j->dt);
  unsigned char *send = get(bytes), *recv[2] = {get(bytes), get(bytes)}, *want = get(bytes);
  fill(j->dt, send, j->count, me, j->salt);
  ac_coll s = {
      .kind = AC_COLL_SEND, .dtype = j->dt, .root = next, .count = j->count, .send = send, .site = "t.lua:6"};
  ac_coll r = {.kind = AC_COLL_RECV, .dtype = j->dt, .root = last, .count = j->count, .site = "t.lua:7"};
  ac_work *k[4];
  for (int i = 0; i < 2; i++) { /* twice with one tag: they pair up in order */
    s.tag = r.tag = (int)(j->salt % 3);
    r.recv = recv[i];
    CHECK_OK(ac_collective_start(j->g, &r, 0, NULL, &k[2 * i], E_));
    CHECK_OK(ac_collective_start(j->g, &s, 0, NULL, &k[2 * i + 1], E_));
  }
  for (int i = 0; i < 4; i++) {
    CHECK_OK(ac_work_wait(k[i], E_));
    ac_work_release(k[i]);
  }
  fill(j->dt, want, j->count, last, j->salt);
  for (int i = 0; i < 2; i++) CHECK(memcmp(recv[i], want, bytes) == 0 && untouched(recv[i] + bytes, GUARD));
  free(send);
  free(recv[0]);
  free(recv[1]);
  free(want);
}

static void every_kind(const job *j) {
  static const ac_reduce_op float_ops[] = {AC_REDUCE_SUM, AC_REDUCE_MEAN, AC_REDUCE_MIN, AC_REDUCE_PROD};
  static const ac_reduce_op int_ops[] = {AC_REDUCE_SUM, AC_REDUCE_MAX, AC_REDUCE_PROD, AC_REDUCE_MIN};
  static const ac_reduce_op bool_ops[] = {AC_REDUCE_MAX, AC_REDUCE_MIN, AC_REDUCE_SUM, AC_REDUCE_PROD};
  const ac_reduce_op *ops = j->dt == AC_BOOL ? bool_ops : ac_dtype_is_float(j->dt) ? float_ops : int_ops;
  reduction(j, AC_COLL_ALL_REDUCE, ops[j->salt % 4]);
  reduction(j, AC_COLL_REDUCE, ops[j->salt / 2 % 4]);
  reduction(j, AC_COLL_REDUCE_SCATTER, ops[j->salt / 3 % 4]);
  gathering(j, AC_COLL_ALL_GATHER);
  gathering(j, AC_COLL_GATHER);
  gathering(j, AC_COLL_SCATTER);
  broadcast(j);
  all_to_all(j);
  barrier(j->g);
  if (ac_group_size(j->g) > 1) ring(j);
}

static void matrix(rank *r) {
  static const ac_dtype dtypes[] = {AC_F32, AC_BF16, AC_F64, AC_U8, AC_F16,
                                    AC_I64, AC_I32,  AC_I16, AC_I8, AC_BOOL};
  static const int64_t bytes[] = {0, 1, 24, 1000, 16384, 16385, 65536, 65537, 262144 + 9, (1 << 20) + 40};
  enum { N_BYTES = sizeof bytes / sizeof bytes[0], N_DTYPES = sizeof dtypes / sizeof dtypes[0] };
  job j = {.g = ac_world_group(r->w)};
  for (int b = 0; b < N_BYTES; b++)
    for (int t = 0; t < N_DTYPES; t++) {
      if (bytes[b] > 2000 && (t + b) % (r->n > 3 ? 5 : 3) != 0) continue;
      j.dt = dtypes[t];
      j.count = (bytes[b] + (int64_t)ac_dtype_bytes(j.dt) - 1) / (int64_t)ac_dtype_bytes(j.dt);
      j.salt++;
      j.uneven = j.salt / 3 % 2 != 0;
      j.in_place = j.salt / 5 % 2 != 0;
      every_kind(&j);
    }
}

/* More than fits all windows and pieces under way. */
static void megabytes(rank *r) {
  for (int i = 0; i < 2; i++) {
    const job j = {.g = ac_world_group(r->w),
                   .dt = AC_F32,
                   .count = (9 << 18) + 13,
                   .salt = (uint64_t)i + 1,
                   .uneven = i != 0,
                   .in_place = i == 0};
    every_kind(&j);
  }
}

/* Groups within the world, overlapping and in another order. */
static void groups(rank *r) {
  job j = {.dt = AC_I32};
  for (int round = 0; round < 40; round++) {
    int list[MOST], n = 0;
    for (int i = r->n - 1; i >= 0; i--)
      if ((round + i) % 3 != 0 || i == round % r->n) list[n++] = i;
    ac_group *g;
    CHECK_OK(ac_group_new(r->w, n, list, "group.lua:1", &g, E_));
    if (ac_group_rank(g) >= 0) {
      j.g = g;
      j.salt = (uint64_t)round;
      j.count = round % 7 == 0 ? 40000 : round % 50;
      every_kind(&j);
    }
    ac_group_free(g);
  }
}

/* Works on the communication thread, several under way, with calls of the script's thread in between. */
static void works(rank *r) {
  enum { N = 8, COUNT = 30000 };
  static float buf[N][COUNT];
  for (int round = 0; round < 10; round++) {
    ac_work *k[N];
    for (int i = 0; i < N; i++) {
      for (int e = 0; e < COUNT; e++) buf[i][e] = (float)(r->me + i + e % 5);
      const ac_coll c = {.kind = AC_COLL_ALL_REDUCE,
                         .dtype = AC_F32,
                         .count = i % 2 != 0 ? COUNT : 100,
                         .send = buf[i],
                         .recv = buf[i],
                         .site = "w.lua:7"};
      CHECK_OK(ac_collective_start(ac_world_group(r->w), &c, 0, NULL, &k[i], E_));
      if (i == N / 2) barrier(ac_world_group(r->w));
    }
    for (int i = 0; i < N; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
      for (int e = 0; e < (i % 2 != 0 ? COUNT : 100); e++)
        CHECK(buf[i][e] == (float)(r->n * (i + e % 5) + r->n * (r->n - 1) / 2));
    }
  }
}

/* A large message whose receiver is late waits at the sender; small ones and collectives of others pass
 * meanwhile. */
static void late_receiver(rank *r) {
  enum { LARGE = 3 << 20 };
  ac_group *g = ac_world_group(r->w);
  unsigned char *p = get(LARGE), *want = get(LARGE), small = 7;
  fill(AC_U8, want, LARGE, 0, 1);
  if (r->me == 0) {
    ac_work *k[2];
    const ac_coll large = {.kind = AC_COLL_SEND,
                           .dtype = AC_U8,
                           .root = 1,
                           .tag = 5,
                           .count = LARGE,
                           .send = want,
                           .site = "l.lua:1"};
    const ac_coll little = {.kind = AC_COLL_SEND,
                            .dtype = AC_U8,
                            .root = 1,
                            .tag = 6,
                            .count = 1,
                            .send = &small,
                            .site = "l.lua:2"};
    CHECK_OK(ac_collective_start(g, &large, 0, NULL, &k[0], E_));
    CHECK_OK(ac_collective_start(g, &little, 0, NULL, &k[1], E_));
    for (int i = 0; i < 2; i++) {
      CHECK_OK(ac_work_wait(k[i], E_));
      ac_work_release(k[i]);
    }
  } else if (r->me == 1) {
    unsigned char got = 0;
    const ac_coll little = {.kind = AC_COLL_RECV,
                            .dtype = AC_U8,
                            .root = 0,
                            .tag = 6,
                            .count = 1,
                            .recv = &got,
                            .site = "l.lua:3"};
    const ac_coll large = {.kind = AC_COLL_RECV,
                           .dtype = AC_U8,
                           .root = 0,
                           .tag = 5,
                           .count = LARGE,
                           .recv = p,
                           .site = "l.lua:4"};
    CHECK_OK(ac_collective(g, &little, E_));
    CHECK(got == 7);
    sleep_ms(3500); /* longer than a dead machine would be waited for */
    CHECK_OK(ac_collective(g, &large, E_));
    CHECK(memcmp(p, want, LARGE) == 0);
  }
  barrier(g);
  free(p);
  free(want);
}

static void ranks_1(void **state) { tcp_run(1, matrix, NULL); }
static void ranks_2(void **state) { tcp_run(2, matrix, NULL); }
static void ranks_3(void **state) { tcp_run(3, matrix, NULL); }
static void ranks_4(void **state) { tcp_run(4, matrix, NULL); }
static void ranks_7(void **state) { tcp_run(7, matrix, NULL); }
static void megabytes_2_3(void **state) {
  tcp_run(2, megabytes, NULL);
  tcp_run(3, megabytes, NULL);
}
static void groups_4(void **state) { tcp_run(4, groups, NULL); }
static void works_3(void **state) { tcp_run(3, works, NULL); }
static void late_3(void **state) { tcp_run(3, late_receiver, NULL); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_1),  cmocka_unit_test(ranks_2), cmocka_unit_test(ranks_3),
      cmocka_unit_test(ranks_4),  cmocka_unit_test(ranks_7), cmocka_unit_test(megabytes_2_3),
      cmocka_unit_test(groups_4), cmocka_unit_test(works_3), cmocka_unit_test(late_3),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
