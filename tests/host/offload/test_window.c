/* Storages in host memory and in files: what is written is read again, whatever has to leave; the budget holds; after one pass the next
 * uses are there before they are asked for, and a part of a model that does not fit stays; a device that runs out of memory gets
 * back what is not in use; parts of files at any offset; transfers between a home and memory.
 * tier: every change, memory */
#include "host/offload/offload_case.h"

#include <unistd.h>

enum { N = 12 };

static aci_store *new_file(const char *name, uint64_t limit) {
  ac_err e;
  aci_store *s;
  char *path = ac_test_tmp_path(name);
  assert_ok(aci_store_create(path, limit, false, &s, &e), e);
  assert_int_equal(access(path, F_OK), -1); /* it has no name */
  free(path);
  return s;
}

static size_t size_of(int i) { return i % 3 == 0 ? 300 + (size_t)i : ((size_t)200 << 10) + 1000 * (size_t)i + 4; }

static void tier(aci_store *store) {
  ac_err e;
  aci_window *w;
  ac_storage *s[N];
  assert_ok(aci_window_new(queue, cpu, (size_t)1300 << 10, (size_t)300 << 10, &w, &e), e);
  for (int i = 0; i < N; i++) {
    assert_ok(aci_tiered_new(w, store, size_of(i), &s[i], &e), e);
    assert_ptr_equal(aci_tiered_of(s[i])->window, w);
    assert_ok(case_fill(s[i], i, &e), e);
  }
  assert_ok(aci_window_empty(w, true, &e), e);
  aci_window_stats a, b;
  for (int pass = 0; pass < 3; pass++) {
    aci_window_pass(w, false);
    aci_window_stats_get(w, &a);
    for (int i = 0; i < N; i++) assert_ok(case_check(s[i], i, &e), e);
    aci_window_stats_get(w, &b);
    if (pass > 0) assert_int_equal(b.misses, a.misses);
    assert_true(b.peak_bytes <= (size_t)1300 << 10);
  }
  /* six of eight large ones fit: most stay from pass to pass, where none would if the one used longest ago left first */
  assert_true(b.prefetched - a.prefetched <= 5);
  for (int i = N - 1; i >= 0; i--) assert_ok(case_fill(s[i], i + 50, &e), e); /* another order than the one known */
  assert_ok(aci_window_empty(w, false, &e), e);
  aci_window_stats_get(w, &a);
  assert_int_equal(a.resident_bytes, 0);
  for (int i = 0; i < N; i++) assert_ok(case_check(s[i], i + 50, &e), e);
  const uint64_t used = aci_store_used(store);
  assert_true(used > 0);
  for (int i = 0; i < N; i++) ac_storage_release(s[i]);
  assert_int_equal(aci_store_used(store), 0);
  aci_window_release(w);
}

static void in_host(void **state) {
  (void)state;
  ac_err e;
  aci_store *s;
  assert_ok(aci_store_host(0, &s, &e), e);
  tier(s);
  aci_store_release(s);
}

static void in_file(void **state) {
  (void)state;
  aci_store *s = new_file("tier", 0);
  tier(s);
  aci_store_release(s);
}

/* Homes come and go: the file does not grow beyond what was in use at once. */
static void flat(void **state) {
  (void)state;
  ac_err e;
  aci_store *store = new_file("flat", 0);
  aci_window *w;
  ac_storage *s[N] = {0};
  uint64_t random = 7, most = 0;
  assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
  for (int round = 0; round < 2000; round++) {
    const int i = (int)(ac_test_random(&random) % N);
    if (s[i] != NULL) {
      if (round % 50 == 0) assert_ok(case_check(s[i], i, &e), e);
      ac_storage_release(s[i]);
    }
    assert_ok(aci_tiered_new(w, store, size_of(i), &s[i], &e), e);
    if (round % 5 == 0) assert_ok(case_fill(s[i], i, &e), e);
    else assert_ok(aci_window_empty(w, false, &e), e);
    if (round % 50 == 49) assert_ok(case_fill(s[i], i, &e), e);
    if (round == 200) most = store->end;
  }
  assert_true(store->end <= most + most / 2);
  for (int i = 0; i < N; i++) ac_storage_release(s[i]);
  assert_int_equal(aci_store_used(store), 0);
  assert_true(store->n_holes == 1 && store->hole[0].at == 0 && store->hole[0].bytes == store->end);
  aci_window_release(w);
  aci_store_release(store);
}

/* Byte limits of both tiers, in words. */
static void limits(void **state) {
  (void)state;
  ac_err e;
  aci_store *host, *file = new_file("limit", 64 << 10);
  aci_window *w;
  ac_storage *a, *b;
  assert_ok(aci_store_host(1 << 20, &host, &e), e);
  assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
  assert_ok(aci_tiered_new(w, file, 40 << 10, &a, &e), e);
  assert_fails(aci_tiered_new(w, file, 40 << 10, &b, &e), OOM, "of the file's limit of", e);
  assert_null(b);
  ac_storage_release(a);
  assert_ok(aci_tiered_new(w, file, 64 << 10, &a, &e), e);
  assert_fails(aci_tiered_new(w, host, 2 << 20, &b, &e), OOM, "out of memory", e);
  ac_storage_release(a);
  aci_window_release(w);
  aci_store_release(host);
  aci_store_release(file);
}

/* A pool with a limit: what is used comes although all of it is taken, by what is not in use; a window without a budget learns. */
static void short_of_memory(void **state) {
  (void)state;
  enum { LARGE = 4 << 20 };
  ac_err e;
  ac_device *small;
  aci_window *w;
  aci_store *store = new_file("short", 0);
  ac_storage *s[6];
  ac_block *other;
  assert_ok(ac_device_open(ac_device_cpu_vtable(), 0, (size_t)24 << 20, NULL, &small, &e), e);
  assert_ok(aci_window_new(queue, small, 0, 0, &w, &e), e);
  for (int i = 0; i < 6; i++) {
    assert_ok(aci_tiered_new(w, store, LARGE, &s[i], &e), e);
    assert_ok(case_fill(s[i], i, &e), e);
  }
  assert_int_equal(ac_block_alloc(small, (size_t)16 << 20, AC_MEM_ACTIVATION, NULL, &other, &e), AC_OOM);
  assert_true(aci_io_queue_reclaim(queue, small));
  ac_pool_trim(small);
  assert_ok(ac_block_alloc(small, (size_t)12 << 20, AC_MEM_ACTIVATION, NULL, &other, &e), e);
  for (int i = 0; i < 6; i++) assert_ok(case_check(s[i], i, &e), e);
  void *p[2];
  assert_ok(s[0]->provider->acquire(s[0], &p[0], &e), e);
  assert_ok(s[1]->provider->acquire(s[1], &p[1], &e), e);
  ac_status st = s[2]->provider->acquire(s[2], &(void *){NULL}, &e); /* all that is there is in use */
  assert_true(st == AC_OK || st == AC_OOM);
  if (st == AC_OK) s[2]->provider->release(s[2], false);
  s[0]->provider->release(s[0], false);
  s[1]->provider->release(s[1], false);
  assert_ok(case_check(s[2], 2, &e), e);
  for (int i = 0; i < 6; i++) ac_storage_release(s[i]);
  ac_block_free(other);
  aci_window_release(w);
  aci_store_release(store);
  ac_device_release(small);
}

/* Parts of a file of others, at offsets that no page, no cache line and no element begins at. */
static void parts_of_files(void **state) {
  (void)state;
  static const uint64_t at[] = {0, 8, 64, 1000, 4096, 5003, 70001};
  enum { BYTES = 300000 };
  ac_err e;
  aci_store *store;
  aci_window *w;
  unsigned char *bytes = malloc(BYTES);
  for (size_t i = 0; i < BYTES; i++) bytes[i] = byte_at(9, i);
  char *path = ac_test_tmp_path("checkpoint");
  ac_test_write(path, bytes, BYTES);
  assert_ok(aci_store_open(path, &store, &e), e);
  assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
  for (size_t k = 0; k < sizeof at / sizeof *at; k++)
    for (int whole = 0; whole < 2; whole++) {
      const size_t n = whole ? (size_t)(BYTES - at[k]) : 70000;
      ac_storage *s;
      void *p;
      assert_ok(aci_tiered_open(w, store, at[k], n, &s, &e), e);
      assert_ok(s->provider->acquire(s, &p, &e), e);
      assert_memory_equal(p, bytes + at[k], n);
      ((unsigned char *)p)[0] ^= 1; /* written: it stays in memory, since the file is not ours */
      s->provider->release(s, true);
      assert_ok(aci_window_empty(w, false, &e), e);
      assert_ok(s->provider->acquire(s, &p, &e), e);
      assert_int_equal(((unsigned char *)p)[0], bytes[at[k]] ^ 1);
      s->provider->release(s, false);
      ac_storage_release(s);
    }
  ac_storage *s;
  assert_fails(aci_tiered_open(w, store, BYTES - 10, 11, &s, &e), IO, "the file has 300000", e);
  assert_fails(aci_tiered_new(w, store, 10, &s, &e), INVALID, "read-only", e);
  aci_window_release(w);
  aci_store_release(store);
  free(path);
  free(bytes);
}

/* Layers are mostly used in the order in which they were made: the first pass is fetched ahead, too, where that is said. */
static void first_pass(void **state) {
  (void)state;
  ac_err e;
  aci_store *store = new_file("first", 0);
  for (int in_order = 0; in_order < 2; in_order++) {
    aci_window *w;
    ac_storage *s[N];
    aci_window_stats stats;
    assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
    for (int i = 0; i < N; i++) assert_ok(aci_tiered_new(w, store, size_of(i), &s[i], &e), e);
    aci_window_pass(w, in_order);
    for (int i = 0; i < N; i++) {
      void *p;
      assert_ok(s[i]->provider->acquire(s[i], &p, &e), e);
      s[i]->provider->release(s[i], false);
    }
    aci_window_stats_get(w, &stats);
    assert_int_equal(stats.misses, in_order ? 0 : N);
    for (int i = 0; i < N; i++) ac_storage_release(s[i]);
    aci_window_release(w);
  }
  aci_store_release(store);
}

/* Ranges of a home to and from memory, past the window; aligned and not. */
static void transfers(void **state) {
  (void)state;
  enum { BYTES = 3 << 20 };
  ac_err e;
  aci_store *store = new_file("moves", 0);
  aci_window *w;
  ac_storage *s;
  unsigned char *memory = aligned_alloc(4096, BYTES + 8192);
  uint64_t random = 3;
  assert_ok(aci_window_new(queue, cpu, 0, 0, &w, &e), e);
  assert_ok(aci_tiered_new(w, store, BYTES, &s, &e), e);
  assert_ok(case_fill(s, 1, &e), e); /* dirty in the window: goes home first */
  aci_tiered *t = aci_tiered_of(s);
  for (int round = 0; round < 40; round++) {
    aci_transfer x;
    size_t at = ac_test_random(&random) % BYTES, n = ac_test_random(&random) % (BYTES - at) + 1;
    unsigned char *p = memory + (round % 2 ? at % 4096 : ac_test_random(&random) % 4096); /* as the file lies, or not */
    if (round % 4 == 1) at = at / 4096 * 4096, p = memory;
    if (n > BYTES - at) n = BYTES - at;
    memset(memory, 0, BYTES + 8192);
    assert_ok(aci_tiered_move(t, false, at, n, p, &x, &e), e);
    pthread_mutex_lock(&queue->lock);
    aci_io_queue_wait(queue, &x);
    pthread_mutex_unlock(&queue->lock);
    assert_ok(x.st, x.err);
    for (size_t i = 0; i < n; i++)
      if (p[i] != byte_at(1, at + i)) fail_msg("byte %zu of %zu from %zu is wrong", i, n, at);
    for (size_t i = 0; p - i > memory && i < 64; i++) assert_int_equal(*(p - i - 1), 0); /* nothing else was touched */
    for (size_t i = 0; i < 64; i++) assert_int_equal(p[n + i], 0);
    assert_ok(aci_tiered_move(t, true, at, n, p, &x, &e), e);
    pthread_mutex_lock(&queue->lock);
    aci_io_queue_wait(queue, &x);
    pthread_mutex_unlock(&queue->lock);
    assert_ok(x.st, x.err);
    if (round % 8 == 0) assert_ok(case_check(s, 1, &e), e);
  }
  assert_ok(case_check(s, 1, &e), e);
  aci_transfer x;
  assert_fails(aci_tiered_move(t, false, BYTES - 1, 2, memory, &x, &e), INVALID, "bytes", e);
  void *p;
  assert_ok(s->provider->acquire(s, &p, &e), e);
  assert_fails(aci_tiered_move(t, false, 0, 2, memory, &x, &e), STATE, "in use", e);
  s->provider->release(s, false);
  ac_storage_release(s);
  free(memory);
  aci_window_release(w);
  aci_store_release(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_host),         cmocka_unit_test(in_file), cmocka_unit_test(flat),
                                     cmocka_unit_test(limits),          cmocka_unit_test(short_of_memory),
                                     cmocka_unit_test(parts_of_files), cmocka_unit_test(first_pass), cmocka_unit_test(transfers)};
  return cmocka_run_group_tests(tests, case_open, case_close);
}
