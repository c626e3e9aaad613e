/* The heap: seen by peers at the same offsets as it grows, pages given back and taken again, blocks that
 * outlive the world, descriptors that are none. */
#include "host/comm/ranks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int64_t resident(const ranks *k, int i) {
  struct stat s;
  return fstat(k->fd_heap[i], &s) == 0 ? (int64_t)s.st_blocks * 512 : -1;
}

static ac_block *take(rank *r, size_t bytes) {
  ac_device *dev;
  ac_block *b;
  CHECK_OK(ac_ctx_device(r->ctx, "cpu", &dev, E_));
  CHECK_OK(ac_block_alloc(dev, bytes, AC_MEM_PARAMETER, NULL, &b, E_));
  return b;
}

static void barrier(rank *r) {
  const ac_coll c = {.kind = AC_COLL_BARRIER};
  CHECK_OK(ac_collective(ac_world_group(r->w), &c, E_));
}

/* Blocks come and go at random; after each round the peer reads what this rank wrote, by offset. */
static void grows(rank *r) {
  enum { N = 12 };
  const ranks *k = r->arg;
  ac_block *b[N] = {0};
  uint64_t seed = (uint64_t)r->me + 5;
  ac_device *dev;
  CHECK_OK(ac_ctx_device(r->ctx, "cpu", &dev, E_));
  CHECK(ac_world_heap_bytes(r->w) == 0);
  for (int round = 0; round < 60; round++) {
    const int i = (int)(ac_test_random(&seed) % N);
    const size_t bytes = (size_t)1 << (6 + ac_test_random(&seed) % 19);
    ac_block_free(b[i]);
    if (round % 7 == 0) ac_pool_trim(dev);
    b[i] = take(r, bytes);
    uint64_t mine[2] = {0, bytes}, all[2 * 4];
    memset(ac_block_ptr(b[i]), round + r->me * 64, bytes);
    CHECK(aci_heap_offset(r->w, ac_block_ptr(b[i]), bytes, &mine[0]));
    const ac_coll c = {.kind = AC_COLL_ALL_GATHER, .dtype = AC_I64, .count = 2, .send = mine, .recv = all};
    CHECK_OK(ac_collective(ac_world_group(r->w), &c, E_));
    for (int p = 0; p < r->n; p++) {
      const unsigned char *at = aci_heap_base(r->w, p) + all[2 * p];
      for (uint64_t x = 0; x < all[2 * p + 1]; x += 63) CHECK(at[x] == (unsigned char)(round + p * 64));
    }
    barrier(r);
  }
  CHECK(ac_world_heap_bytes(r->w) > 0 && (int64_t)ac_world_heap_bytes(r->w) <= resident(k, r->me));
  for (int i = 0; i < N; i++) ac_block_free(b[i]);
  ac_pool_trim(dev);
  CHECK(ac_world_heap_bytes(r->w) == 0 && resident(k, r->me) == 0);
  int on_stack;
  uint64_t at;
  CHECK(!aci_heap_offset(r->w, &on_stack, sizeof on_stack, &at));
  CHECK(!aci_heap_offset(r->w, aci_heap_base(r->w, 1 - r->me), 1, &at));
  CHECK(aci_heap_base(r->w, r->n) == NULL);
}

static void growth(void **state) {
  ranks k;
  ranks_make(&k, 2);
  ranks_start(&k, grows, &k);
  ranks_wait(&k);
  for (int i = 0; i < 2; i++) assert_true(ended_well(&k, i));
  ranks_free(&k);
}

static void alone(rank *r) {
  ac_block *b = take(r, 1 << 20), *small = take(r, 100);
  unsigned char *p = ac_block_ptr(b);
  uint64_t at;
  CHECK(aci_heap_offset(r->w, p, 1 << 20, &at));
  ac_world_close(r->w, NULL);
  memset(p, 7, 1 << 20); /* the mapping is still there */
  memset(ac_block_ptr(small), 7, 100);
  ac_block *after = take(r, 64 << 20);
  memset(ac_block_ptr(after), 1, 64 << 20);
  ac_ctx_free(r->ctx);
  memset(p, 8, 1 << 20);
  ac_block_free(after);
  ac_block_free(small);
  ac_block_free(b);
  exit(0);
}

static void outlives_the_world(void **state) { ranks_run(1, alone, NULL); }

/* Few addresses: smaller spans, and private memory when they are used up. */
static void narrow(rank *r) {
  const size_t span = aci_heap_span(r->w);
  CHECK(span >= (size_t)64 << 20 && span <= (size_t)2 << 30);
  ac_block *b[8];
  int in = 0, n = 0;
  for (; n < 8; n++) {
    uint64_t at;
    b[n] = take(r, span / 6);
    in += aci_heap_offset(r->w, ac_block_ptr(b[n]), span / 6, &at);
  }
  CHECK(in >= 3 && in < 8);
  for (int i = 0; i < n; i++) ac_block_free(b[i]);
}

static void few_addresses(void **state) {
  if (getenv("ACCEL_TEST_SANITIZE") != NULL && getenv("ACCEL_TEST_SANITIZE")[0] != 0)
    skip(); /* they want all addresses */
  const pid_t pid = fork();
  if (pid == 0) {
    ranks k;
    ranks_make(&k, 2);
    const struct rlimit limit = {(rlim_t)4 << 30, (rlim_t)4 << 30};
    setrlimit(RLIMIT_AS, &limit);
    ranks_start(&k, narrow, NULL);
    ranks_wait(&k);
    _exit(ended_well(&k, 0) && ended_well(&k, 1) ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void no_heap(void **state) {
  ranks k;
  ranks_make(&k, 2);
  const int keep = k.fd_heap[1];
  int p[2];
  assert_int_equal(pipe(p), 0);
  k.fd_heap[1] = p[0];
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    ranks_env(&k, 0);
    ac_ctx *ctx;
    ac_world *w;
    ac_err e;
    if (ac_ctx_new(NULL, &ctx, &e) != AC_OK) _exit(1);
    const ac_status st = ac_world_open(ctx, NULL, &w, &e);
    const bool told = strstr(e.msg, "is not a heap of accel-run") != NULL;
    ac_ctx_free(ctx);
    _exit(st == AC_INVALID && told ? 0 : 2);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  k.fd_heap[1] = keep;
  close(p[0]);
  close(p[1]);
  ranks_free(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(growth), cmocka_unit_test(outlives_the_world),
                                     cmocka_unit_test(few_addresses), cmocka_unit_test(no_heap)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
