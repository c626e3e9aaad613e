/* The shared-memory backend: every collective over numbers of ranks, lengths around what fits a slot and a
 * piece, dtypes and places of buffers (private memory, the heap, some of each). Every rank knows what all
 * others send and computes the answer itself. tier: sampled */
#include "host/comm/ranks.h"

#include "comm/reduce.h"

enum { PRIVATE, HEAP, MIXED, N_PLACES };

typedef struct memory {
  unsigned char *p;
  ac_block *block;
  bool heap;
} memory;

static memory get(rank *r, size_t bytes, int place, int salt) {
  memory m = {.heap = place == HEAP || (place == MIXED && (r->me + salt) % 2 == 0)};
  if (m.heap) {
    ac_device *dev;
    CHECK_OK(ac_ctx_device(r->ctx, "cpu", &dev, E_));
    CHECK_OK(ac_block_alloc(dev, bytes + 64, AC_MEM_PARAMETER, NULL, &m.block, E_));
    m.p = ac_block_ptr(m.block);
    uint64_t at;
    CHECK(aci_heap_offset(r->w, m.p, bytes, &at));
    CHECK(aci_heap_base(r->w, r->me) + at == m.p);
  } else {
    m.p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    CHECK(m.p != NULL);
  }
  memset(m.p, 0xA5, bytes + 64);
  return m;
}

static void put(memory *m) {
  if (m->heap) ac_block_free(m->block);
  else free(m->p);
}

/* What rank r sends: any bytes for moves, small numbers with exact sums for reductions. */
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
      case AC_U16:
      case AC_I16: ((int16_t *)(void *)p)[i] = (int16_t)v; break;
      case AC_BOOL: p[i] = v > 0; break;
      default: p[i] = (unsigned char)v; break;
    }
  }
}

static bool untouched(const unsigned char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i] != 0xA5) return false;
  return true;
}

typedef struct job {
  ac_group *g;
  int place;
  ac_dtype dt;
  int64_t count;
  uint64_t salt;
  bool uneven, in_place;
} job;

static int64_t uneven_part(int64_t count, int r) { return r % 3 == 1 ? 0 : count + r * 5; }

/* ---- reductions ---- */
static void reductions(rank *r, const job *j, ac_coll_kind kind, ac_reduce_op op) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g), root = (int)(j->salt % (uint64_t)n);
  const size_t size = ac_dtype_bytes(j->dt);
  int64_t counts[ACI_MAX_LOCAL];
  ac_coll c = {.kind = kind, .dtype = j->dt, .op = op, .root = root, .count = j->count, .site = "shm.lua:1"};
  for (int i = 0; i < n; i++) counts[i] = uneven_part(j->count, i);
  const bool scatter = kind == AC_COLL_REDUCE_SCATTER;
  if (scatter && j->uneven) c.counts = counts;
  const int64_t total = scatter ? aci_total(j->g, &c) : j->count;
  const int64_t mine = scatter ? aci_part(&c, me) : j->count, at = scatter ? aci_part_at(&c, me) : 0;
  memory send = get(r, (size_t)total * size, j->place, 0), recv = get(r, (size_t)mine * size, j->place, 1);
  fill(j->dt, send.p, total, me, j->salt);
  c.send = send.p;
  c.recv = j->in_place ? send.p + (size_t)at * size : recv.p;
  CHECK_OK(ac_collective(j->g, &c, E_));
  if (kind != AC_COLL_REDUCE || me == root) {
    unsigned char *all = malloc((size_t)n * (size_t)total * size + 1),
                  *want = malloc((size_t)mine * size + 1);
    const void *src[ACI_MAX_LOCAL];
    for (int i = 0; i < n; i++) {
      unsigned char *p = all + (size_t)i * (size_t)total * size;
      fill(j->dt, p, total, i, j->salt);
      src[i] = p + (size_t)at * size;
    }
    void *dst = want;
    aci_reduce(j->dt, op, n, src, 1, &dst, mine, false);
    CHECK(mine == 0 || memcmp(c.recv, want, (size_t)mine * size) == 0);
    free(all);
    free(want);
  } else {
    CHECK(j->in_place || untouched(recv.p, (size_t)mine * size));
  }
  CHECK(untouched(recv.p + (size_t)mine * size, 64));
  put(&send);
  put(&recv);
}

/* ---- moves ---- */
static void gathers(rank *r, const job *j, ac_coll_kind kind) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g), root = (int)(j->salt % (uint64_t)n);
  const size_t size = ac_dtype_bytes(j->dt);
  int64_t counts[ACI_MAX_LOCAL];
  for (int i = 0; i < n; i++) counts[i] = uneven_part(j->count, i);
  ac_coll c = {.kind = kind,
               .dtype = j->dt,
               .root = root,
               .count = j->count,
               .counts = j->uneven ? counts : NULL,
               .site = "shm.lua:2"};
  const int64_t total = aci_total(j->g, &c), mine = aci_part(&c, me), at = aci_part_at(&c, me);
  const bool scatter = kind == AC_COLL_SCATTER;
  memory part = get(r, (size_t)mine * size, j->place, 0), all = get(r, (size_t)total * size, j->place, 1);
  unsigned char *want = malloc((size_t)total * size + 1);
  for (int i = 0; i < n; i++)
    fill(j->dt, want + (size_t)aci_part_at(&c, i) * size, aci_part(&c, i), i, j->salt);
  if (scatter) {
    if (me == root) memcpy(all.p, want, (size_t)total * size);
    c.send = all.p;
    c.recv = j->in_place && me == root ? all.p + (size_t)at * size : part.p;
  } else {
    fill(j->dt, part.p, mine, me, j->salt);
    c.send = part.p;
    if (j->in_place) {
      memcpy(all.p + (size_t)at * size, part.p, (size_t)mine * size);
      c.send = all.p + (size_t)at * size;
    }
    c.recv = all.p;
  }
  CHECK_OK(ac_collective(j->g, &c, E_));
  if (scatter) CHECK(mine == 0 || memcmp(c.recv, want + (size_t)at * size, (size_t)mine * size) == 0);
  else if (kind == AC_COLL_ALL_GATHER || me == root)
    CHECK(total == 0 || memcmp(all.p, want, (size_t)total * size) == 0);
  else CHECK(j->in_place || untouched(all.p, (size_t)total * size));
  CHECK(untouched(part.p + (size_t)mine * size, 64) && untouched(all.p + (size_t)total * size, 64));
  free(want);
  put(&part);
  put(&all);
}

static void broadcast(rank *r, const job *j) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g), root = (int)(j->salt % (uint64_t)n);
  const size_t bytes = (size_t)j->count * ac_dtype_bytes(j->dt);
  memory m = get(r, bytes, j->place, 0);
  unsigned char *want = malloc(bytes + 1);
  fill(j->dt, want, j->count, root, j->salt);
  if (me == root) memcpy(m.p, want, bytes);
  const ac_coll c = {.kind = AC_COLL_BROADCAST,
                     .dtype = j->dt,
                     .root = root,
                     .count = j->count,
                     .recv = m.p,
                     .site = "shm.lua:3"};
  CHECK_OK(ac_collective(j->g, &c, E_));
  CHECK(memcmp(m.p, want, bytes) == 0 && untouched(m.p + bytes, 64));
  free(want);
  put(&m);
}

/* What rank s sends to rank t. */
static int64_t given(const job *j, int s, int t) {
  return !j->uneven ? j->count : (s + 2 * t) % 4 == 0 ? 0 : j->count + 3 * s + t;
}

static void all_to_all(rank *r, const job *j) {
  const int n = ac_group_size(j->g), me = ac_group_rank(j->g);
  const size_t size = ac_dtype_bytes(j->dt);
  int64_t counts[ACI_MAX_LOCAL], recv_counts[ACI_MAX_LOCAL], gives = 0, takes = 0;
  for (int i = 0; i < n; i++) {
    gives += counts[i] = given(j, me, i);
    takes += recv_counts[i] = given(j, i, me);
  }
  memory send = get(r, (size_t)gives * size, j->place, 0), recv = get(r, (size_t)takes * size, j->place, 1);
  unsigned char *want = malloc((size_t)takes * size + 1);
  int64_t at = 0, from = 0;
  for (int i = 0; i < n; i++) {
    fill(j->dt, send.p + (size_t)at * size, counts[i], me * 100 + i, j->salt);
    fill(j->dt, want + (size_t)from * size, recv_counts[i], i * 100 + me, j->salt);
    at += counts[i];
    from += recv_counts[i];
  }
  ac_coll c = {.kind = AC_COLL_ALL_TO_ALL,
               .dtype = j->dt,
               .count = j->count,
               .send = send.p,
               .recv = recv.p,
               .site = "shm.lua:4"};
  if (j->uneven) {
    c.counts = counts;
    c.recv_counts = recv_counts;
  }
  CHECK_OK(ac_collective(j->g, &c, E_));
  CHECK(takes == 0 || memcmp(recv.p, want, (size_t)takes * size) == 0);
  CHECK(untouched(recv.p + (size_t)takes * size, 64));
  free(want);
  put(&send);
  put(&recv);
}

static void barrier(ac_group *g) {
  const ac_coll c = {.kind = AC_COLL_BARRIER, .site = "shm.lua:5"};
  CHECK_OK(ac_collective(g, &c, E_));
}

static void every_kind(rank *r, job *j) {
  static const ac_reduce_op float_ops[] = {AC_REDUCE_SUM, AC_REDUCE_MEAN, AC_REDUCE_MIN, AC_REDUCE_PROD};
  static const ac_reduce_op int_ops[] = {AC_REDUCE_SUM, AC_REDUCE_MAX, AC_REDUCE_PROD, AC_REDUCE_MIN};
  static const ac_reduce_op bool_ops[] = {AC_REDUCE_MAX, AC_REDUCE_MIN, AC_REDUCE_SUM, AC_REDUCE_PROD};
  const ac_reduce_op *ops = j->dt == AC_BOOL ? bool_ops : ac_dtype_is_float(j->dt) ? float_ops : int_ops;
  if (j->dt <= AC_BOOL) {
    reductions(r, j, AC_COLL_ALL_REDUCE, ops[j->salt % 4]);
    reductions(r, j, AC_COLL_REDUCE, ops[j->salt / 2 % 4]);
    reductions(r, j, AC_COLL_REDUCE_SCATTER, ops[j->salt / 3 % 4]);
  }
  gathers(r, j, AC_COLL_ALL_GATHER);
  gathers(r, j, AC_COLL_GATHER);
  gathers(r, j, AC_COLL_SCATTER);
  broadcast(r, j);
  all_to_all(r, j);
  barrier(j->g);
}

/* Lengths in bytes around every limit: nothing, one element, odd, the slot, a share of a piece, a piece,
 * several. */
static void matrix(rank *r) {
  static const ac_dtype dtypes[] = {AC_F32, AC_BF16, AC_F64, AC_U8,   AC_F16, AC_I64,
                                    AC_I32, AC_I16,  AC_I8,  AC_BOOL, AC_U16};
  const int n = r->n;
  const int64_t slice = ACI_CHUNK / n / 64 * 64;
  const int64_t bytes[] = {0,
                           1,
                           24,
                           1000,
                           ACI_INLINE,
                           ACI_INLINE + 1,
                           ACI_INLINE / n,
                           ACI_INLINE / n + 1,
                           slice - 1,
                           slice,
                           slice + 8,
                           ACI_CHUNK - 8,
                           ACI_CHUNK,
                           ACI_CHUNK + 8,
                           3 * slice + 88,
                           2 * ACI_CHUNK + 424};
  const int every = ac_test_every(3);
  enum { N_BYTES = sizeof bytes / sizeof bytes[0], N_DTYPES = sizeof dtypes / sizeof dtypes[0] };
  job j = {.g = ac_world_group(r->w)};
  for (int b = 0; b < N_BYTES; b++)
    for (int t = b % every; t < N_DTYPES; t += every) {
      if (bytes[b] > 2000 && (t + b) % (n > 4 ? 7 : 2) != 0) continue;
      if (!ac_test_sampled(3)) continue;
      j.dt = dtypes[t];
      j.count = (bytes[b] + (int64_t)ac_dtype_bytes(j.dt) - 1) / (int64_t)ac_dtype_bytes(j.dt);
      j.salt++;
      j.place = (int)(j.salt % N_PLACES);
      j.uneven = j.salt / 3 % 2 != 0;
      j.in_place = j.salt / 5 % 2 != 0;
      every_kind(r, &j);
    }
  /* all places and forms where they matter most */
  for (int i = 0; i < 2 * 2 * N_PLACES; i += n > 4 ? 3 : 1) {
    j.salt++;
    j.dt = i % 2 != 0 ? AC_F32 : AC_BF16;
    j.place = i % N_PLACES;
    j.uneven = i / N_PLACES % 2 != 0;
    j.in_place = i / N_PLACES / 2 != 0;
    j.count = ACI_CHUNK / 2 + 77;
    every_kind(r, &j);
  }
}

static void a_few_megabytes(rank *r) {
  for (int place = 0; place < N_PLACES; place++)
    for (int i = 0; i < 2; i++) {
      job j = {.g = ac_world_group(r->w),
               .place = place,
               .dt = AC_F32,
               .count = (3 << 18) + 13,
               .salt = (uint64_t)(place * 2 + i),
               .uneven = i != 0};
      every_kind(r, &j);
    }
}

/* Groups within the world, overlapping and in another order; slots are used again when groups were freed. */
static void groups(rank *r) {
  job j = {.dt = AC_I32, .salt = 1};
  for (int round = 0; round < 300; round++) {
    int list[8], n = 0;
    for (int i = r->n - 1; i >= 0; i--)
      if ((round + i) % 3 != 0 || i == round % r->n) list[n++] = i;
    ac_group *g;
    CHECK_OK(ac_group_new(r->w, n, list, "group.lua:1", &g, E_));
    if (ac_group_rank(g) >= 0) {
      CHECK(ac_group_global_rank(g, ac_group_rank(g)) == r->me);
      j.g = g;
      j.salt = (uint64_t)round;
      j.count = round % 7 == 0 ? 40000 : round % 50;
      j.place = round % N_PLACES;
      reductions(r, &j, AC_COLL_ALL_REDUCE, AC_REDUCE_SUM);
      if (round % 5 == 0) every_kind(r, &j);
    }
    ac_group_free(g);
    if (round % 20 == 0) barrier(ac_world_group(r->w));
  }
}

/* Works on the communication thread, several under way, with calls of the script's thread in between. */
static void works(rank *r) {
  enum { N = 8, COUNT = 30000 };
  static float buf[N][COUNT];
  for (int round = 0; round < 20; round++) {
    ac_work *k[N];
    for (int i = 0; i < N; i++) {
      for (int e = 0; e < COUNT; e++) buf[i][e] = (float)(r->me + i + e % 5);
      const ac_coll c = {.kind = AC_COLL_ALL_REDUCE,
                         .dtype = AC_F32,
                         .count = i % 2 != 0 ? COUNT : 100,
                         .send = buf[i],
                         .recv = buf[i],
                         .site = "works.lua:7"};
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

static void ranks_1(void **state) { ranks_run(1, matrix, NULL); }
static void ranks_2(void **state) { ranks_run(2, matrix, NULL); }
static void ranks_3(void **state) { ranks_run(3, matrix, NULL); }
static void ranks_4(void **state) { ranks_run(4, matrix, NULL); }
static void ranks_7(void **state) { ranks_run(7, matrix, NULL); }
static void ranks_8(void **state) { ranks_run(8, matrix, NULL); }
static void megabytes(void **state) {
  ranks_run(2, a_few_megabytes, NULL);
  ranks_run(3, a_few_megabytes, NULL);
}
static void groups_4(void **state) { ranks_run(4, groups, NULL); }
static void works_3(void **state) { ranks_run(3, works, NULL); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_1),   cmocka_unit_test(ranks_2),  cmocka_unit_test(ranks_3),
      cmocka_unit_test(ranks_4),   cmocka_unit_test(ranks_7),  cmocka_unit_test(ranks_8),
      cmocka_unit_test(megabytes), cmocka_unit_test(groups_4), cmocka_unit_test(works_3),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
