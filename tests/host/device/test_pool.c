/* The pool against a shadow model: overlap, contents, accounting, limit, trim, poison, threads; CPU and meta
 * alike. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device_impl.h"
#include "device/pool.h"

static uint32_t seed = 1;
static uint32_t rnd(uint32_t n) {
  seed = seed * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)seed * n >> 32);
}

static ac_device *open_device(bool meta, size_t limit) {
  ac_device *d;
  ac_err e;
  assert_int_equal(
      ac_device_open(meta ? ac_device_meta_vtable() : ac_device_cpu_vtable(), 0, limit, NULL, &d, &e), AC_OK);
  return d;
}

static ac_mem_stats stats(const ac_device *d) {
  ac_mem_stats s;
  ac_mem_stats_get(d, &s);
  return s;
}

static ac_block *take(ac_device *d, size_t bytes) {
  ac_block *b;
  ac_err e;
  assert_int_equal(ac_block_alloc(d, bytes, AC_MEM_ACTIVATION, NULL, &b, &e), AC_OK);
  return b;
}

/* Sizes as training meets them: many small, some large, all kinds of odd. */
static size_t any_size(void) {
  switch (rnd(8)) {
    case 0: return rnd(3);
    case 1: return rnd(70000);
    case 2: return 65530 + rnd(12);
    case 3: return (size_t)64 << rnd(11);
    case 4: return 1 + rnd(3 << 20);
    default: return 1 + rnd(2048);
  }
}

typedef struct held {
  ac_block *b;
  size_t asked;
  unsigned char tag;
} held;

static int by_address(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)(*(const held *const *)a)->b->ptr,
            y = (uintptr_t)(*(const held *const *)b)->b->ptr;
  return x < y ? -1 : x > y;
}

static void random_against_a_model(void **state) {
  bool meta = *(bool *)*state;
  enum { N = 400, STEPS = 30000 };
  static held h[N];
  static held *order[N];
  memset(h, 0, sizeof h);
  ac_device *d = open_device(meta, 0);
  size_t live = 0, blocks = 0, peak = 0, born = 0;
  uint64_t allocs = 0;
  for (int step = 0; step < STEPS; step++) {
    held *x = &h[rnd(N)];
    if (x->b != NULL) {
      live -= ac_block_bytes(x->b);
      blocks--;
      if (x->b->ptr != NULL) { /* nobody else wrote into it */
        const unsigned char *p = x->b->ptr;
        assert_int_equal(p[0], x->tag);
        assert_int_equal(p[x->asked / 2], x->tag);
        assert_int_equal(p[ac_block_bytes(x->b) - 1], x->tag);
      }
      ac_block_free(x->b);
      x->b = NULL;
    } else {
      x->asked = any_size();
      x->b = take(d, x->asked);
      size_t rounded = (x->asked + 63) / 64 * 64;
      assert_int_equal(ac_block_bytes(x->b), rounded);
      assert_int_equal((uintptr_t)ac_block_ptr(x->b) % 64, 0);
      assert_true((ac_block_ptr(x->b) == NULL) == (meta || x->asked == 0));
      x->tag = (unsigned char)step;
      if (x->b->ptr != NULL) memset(x->b->ptr, x->tag, rounded);
      live += rounded;
      born += rounded;
      blocks++;
      allocs++;
      if (live > peak) peak = live;
    }
    if (step % 97 == 0) {
      ac_mem_stats s = stats(d);
      assert_int_equal(s.live_bytes, live);
      assert_int_equal(s.live_blocks, blocks);
      assert_int_equal(s.peak_bytes, peak);
      assert_int_equal(s.born_bytes, born);
      assert_int_equal(s.n_allocs, allocs);
      assert_true(s.reserved_bytes >= live);
    }
    if (step % 997 == 0 && !meta) { /* no two blocks overlap */
      int n = 0;
      for (int i = 0; i < N; i++)
        if (h[i].b != NULL && h[i].b->ptr != NULL) order[n++] = &h[i];
      qsort(order, (size_t)n, sizeof order[0], by_address);
      for (int i = 1; i < n; i++)
        assert_true((unsigned char *)order[i - 1]->b->ptr + order[i - 1]->b->bytes <=
                    (unsigned char *)order[i]->b->ptr);
    }
    if (step % 5003 == 0) ac_pool_trim(d);
  }
  for (int i = 0; i < N; i++) ac_block_free(h[i].b);
  assert_int_equal(stats(d).live_bytes, 0);
  assert_int_equal(stats(d).live_blocks, 0);
  ac_mem_peak_reset(d);
  assert_int_equal(stats(d).peak_bytes, 0);
  ac_pool_trim(d);
  assert_int_equal(stats(d).reserved_bytes, 0); /* all joined again: every segment was one free piece */
  ac_device_release(d);
}

static void meta_counts_like_the_cpu(void **state) {
  (void)state;
  ac_device *d[2] = {open_device(false, 0), open_device(true, 0)};
  ac_mem_stats s[2];
  for (int k = 0; k < 2; k++) {
    enum { N = 200 };
    ac_block *b[N] = {0};
    seed = 77;
    for (int step = 0; step < 5000; step++) {
      uint32_t i = rnd(N);
      if (b[i] != NULL) {
        ac_block_free(b[i]);
        b[i] = NULL;
      } else {
        b[i] = take(d[k], any_size() * (rnd(20) == 0 ? 9 : 1));
      }
    }
    s[k] = stats(d[k]);
    for (int i = 0; i < N; i++) ac_block_free(b[i]);
    ac_device_release(d[k]);
  }
  assert_memory_equal(&s[0], &s[1], sizeof s[0]); /* reserved bytes and maps included */
  assert_true(s[0].n_maps > 0);
}

/* A training loop's pattern: after the first round nothing is mapped any more and nothing creeps. */
static void a_repeating_pattern_settles(void **state) {
  (void)state;
  ac_device *d = open_device(true, 0);
  enum { LAYERS = 24, PER = 6 };
  ac_block *params[LAYERS], *grads[LAYERS], *acts[LAYERS][PER];
  for (int l = 0; l < LAYERS; l++) params[l] = take(d, (1000u + (unsigned)l * 37) * 1000);
  size_t reserved = 0, peak = 0;
  uint64_t maps = 0;
  for (int step = 0; step < 50; step++) {
    for (int l = 0; l < LAYERS; l++)
      for (int k = 0; k < PER; k++) acts[l][k] = take(d, (size_t)(k + 1) * 700000 + (size_t)l * 64);
    for (int l = LAYERS - 1; l >= 0; l--) {
      ac_block *scratch = take(d, 3000000);
      grads[l] = take(d, (1000u + (unsigned)l * 37) * 1000);
      for (int k = 0; k < PER; k++) ac_block_free(acts[l][k]);
      ac_block_free(scratch);
    }
    for (int l = 0; l < LAYERS; l++) ac_block_free(grads[l]);
    ac_mem_stats s = stats(d);
    if (step == 1) {
      reserved = s.reserved_bytes;
      maps = s.n_maps;
      peak = s.peak_bytes;
    } else if (step > 1) {
      assert_int_equal(s.reserved_bytes, reserved);
      assert_int_equal(s.n_maps, maps);
    }
  }
  assert_true((double)reserved < 1.25 * (double)peak);
  for (int l = 0; l < LAYERS; l++) ac_block_free(params[l]);
  ac_device_release(d);
}

static void the_limit_holds(void **state) {
  bool meta = *(bool *)*state;
  ac_device *d = open_device(meta, (size_t)64 << 20);
  ac_err e;
  ac_block *b, *all[100];
  assert_int_equal(ac_block_alloc(d, (size_t)100 << 20, AC_MEM_PARAMETER, NULL, &b, &e), AC_OOM);
  assert_null(b);
  assert_int_equal(e.code, AC_OOM);
  assert_string_equal(e.device, meta ? "meta" : "cpu");
  assert_non_null(strstr(e.msg, "100 MiB"));
  assert_non_null(strstr(e.msg, "limit 64 MiB"));
  assert_int_equal(ac_block_alloc(d, SIZE_MAX - 5, AC_MEM_PARAMETER, NULL, &b, &e), AC_OOM);
  int n = 0;
  while (n < 100 && ac_block_alloc(d, (size_t)1 << 20, AC_MEM_ACTIVATION, NULL, &all[n], &e) == AC_OK) n++;
  assert_int_equal(n, 64); /* all of it can be used */
  ac_mem_stats s = stats(d);
  assert_int_equal(s.reserved_bytes, (size_t)64 << 20);
  assert_int_equal(s.limit_bytes, (size_t)64 << 20);
  assert_int_equal(s.live_bytes, (size_t)64 << 20);
  assert_non_null(strstr(e.msg, "64 MiB live in 64 blocks"));
  for (int i = 0; i < n; i++) ac_block_free(all[i]);
  /* what other classes left free is taken back before an allocation fails */
  b = NULL;
  assert_int_equal(ac_block_alloc(d, (size_t)60 << 20, AC_MEM_PARAMETER, NULL, &b, &e), AC_OK);
  ac_block_free(b);
  /* small blocks are under the limit too */
  size_t got = 0;
  ac_block *chain[3000];
  int m = 0;
  while (m < 3000 && ac_block_alloc(d, 60000, AC_MEM_ACTIVATION, NULL, &chain[m], &e) == AC_OK)
    got += 60032, m++;
  assert_true(m < 3000 && got <= (size_t)64 << 20 && got > (size_t)48 << 20);
  while (m > 0) ac_block_free(chain[--m]);
  ac_device_release(d);
}

static void alloc_fail_fails_the_nth(void **state) {
  (void)state;
  ac_device *d = open_device(false, 0);
  ac_err e;
  ac_block *b;
  aci_pool_debug_set(d, false, 3);
  for (int i = 1; i <= 5; i++) {
    ac_status st = ac_block_alloc(d, (size_t)i * 50000, AC_MEM_ACTIVATION, NULL, &b, &e);
    assert_int_equal(st, i == 3 ? AC_OOM : AC_OK);
    ac_block_free(b);
  }
  aci_pool_debug_set(d, false, -2);
  for (int i = 1; i <= 5; i++) {
    ac_status st = ac_block_alloc(d, 100, AC_MEM_ACTIVATION, NULL, &b, &e);
    assert_int_equal(st, i >= 2 ? AC_OOM : AC_OK);
    ac_block_free(b);
  }
  assert_non_null(strstr(e.msg, "ACCEL_ALLOC_FAIL"));
  aci_pool_debug_set(d, false, 0);
  assert_int_equal(stats(d).live_blocks, 0);
  ac_block_free(take(d, 100));
  ac_device_release(d);
}

static void poison_fills_fresh_and_freed(void **state) {
  (void)state;
  ac_device *d = open_device(false, 0);
  aci_pool_debug_set(d, true, 0);
  static const size_t sizes[] = {64, 5000, 300000};
  for (int i = 0; i < 3; i++) {
    ac_block *b = take(d, sizes[i]);
    const unsigned char *p = ac_block_ptr(b);
    for (size_t k = 0; k < ac_block_bytes(b); k++) assert_int_equal(p[k], ACI_POISON_FRESH);
    float f;
    memcpy(&f, p, sizeof f);
    assert_true(f != f);
    ac_block_free(b);
#if !defined(__SANITIZE_ADDRESS__) /* there the read itself would be caught */
    assert_int_equal(p[sizes[i] / 2], ACI_POISON_FREED);
#endif
  }
  ac_device_release(d);
}

/* ---- threads: blocks are made here and freed there ---- */
enum { QUEUE = 256, PER_THREAD = 20000 };
typedef struct shared {
  ac_device *d;
  _Atomic(ac_block *) queue[QUEUE];
  _Atomic int bad;
} shared;

static void *trade(void *arg) {
  shared *s = arg;
  uint32_t r = (uint32_t)(uintptr_t)&r;
  for (int i = 0; i < PER_THREAD; i++) {
    r = r * 1664525u + 1013904223u;
    size_t bytes = r >> 20 == 0 ? 1 << 20 : (r >> 16) % 4000 + 8;
    ac_block *b;
    if (ac_block_alloc(s->d, bytes, (ac_mem_class)(r >> 8 & 1), NULL, &b, NULL) != AC_OK) {
      atomic_fetch_add(&s->bad, 1);
      continue;
    }
    memcpy(b->ptr, &b, sizeof b);
    ac_block *other = atomic_exchange(&s->queue[(r >> 10) % QUEUE], b);
    if (other != NULL) {
      if (memcmp(other->ptr, &other, sizeof other) != 0) atomic_fetch_add(&s->bad, 1);
      ac_block_free(other);
    }
    if (i % 4001 == 0) ac_pool_trim(s->d);
  }
  return NULL;
}

static void blocks_cross_threads(void **state) {
  (void)state;
  static shared s;
  memset(&s, 0, sizeof s);
  s.d = open_device(false, 0);
  pthread_t t[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, trade, &s), 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  assert_int_equal(s.bad, 0);
  assert_int_equal(stats(s.d).n_allocs, 3 * PER_THREAD);
  for (int i = 0; i < QUEUE; i++) ac_block_free(s.queue[i]);
  assert_int_equal(stats(s.d).live_bytes, 0);
  ac_pool_trim(s.d);
  assert_int_equal(stats(s.d).reserved_bytes, 0);
  ac_device_release(s.d);
}

static void *free_one(void *arg) {
  ac_block_free(arg);
  return NULL;
}

static void blocks_outlive_the_device(void **state) {
  (void)state;
  ac_device *d = open_device(false, 0);
  ac_block *a = take(d, 100), *b = take(d, 1 << 20), *zero = take(d, 0);
  ac_device_retain(d);
  ac_device_release(d);
  assert_string_equal(ac_device_name(d), "cpu");
  ac_device_release(d);
  memset(ac_block_ptr(a), 1, 100);
  memset(ac_block_ptr(b), 2, 1 << 20);
  ac_block_free(zero);
  ac_block_free(a);
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, free_one, b),
                   0); /* the last one takes the pool along: a leak shows here */
  pthread_join(t, NULL);
}

/* Enough is free, but in pieces: their pages go back, and serve a block that none of them holds. What stays keeps its contents. */
static void free_pieces_serve_a_large_block(void **state) {
  bool meta = *(bool *)*state;
  enum { N = 60, MIB = 1 << 20 };
  ac_device *d = open_device(meta, (size_t)N * MIB);
  ac_block *all[N], *b;
  ac_err e;
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < N; i++) {
      all[i] = take(d, MIB);
      if (!meta) memset(all[i]->ptr, i, MIB);
    }
    for (int i = 0; i < N; i++)
      if (i % 3 != round % 3) ac_block_free(all[i]); /* two of three: 40 MiB, none of its pieces larger than 2 */
    ac_block *large = take(d, 38 * MIB);
    if (!meta) memset(large->ptr, 0xAB, large->bytes);
    assert_true(stats(d).reserved_bytes <= (size_t)N * MIB);
    assert_int_equal(ac_block_alloc(d, 4 * MIB, AC_MEM_ACTIVATION, NULL, &b, &e), AC_OOM); /* the limit is one */
    ac_block *small[2] = {take(d, MIB), take(d, MIB)};
    if (!meta)
      for (int i = 0; i < 2; i++) memset(small[i]->ptr, 0xCD, MIB);
    for (int i = 0; i < N && !meta; i++)
      if (i % 3 == round % 3) {
        const unsigned char *p = all[i]->ptr;
        for (int k = 0; k < MIB; k += 509) assert_int_equal(p[k], i);
      }
    ac_block_free(large);
    for (int i = 0; i < 2; i++) ac_block_free(small[i]);
    for (int i = 0; i < N; i++)
      if (i % 3 == round % 3) ac_block_free(all[i]);
  }
  ac_pool_trim(d);
  assert_int_equal(stats(d).reserved_bytes, 0);
  ac_device_release(d);
}

/* A page that the program locked in memory does not go back, and stops nobody. */
static void locked_pages_stay(void **state) {
  (void)state;
  enum { N = 60, MIB = 1 << 20 };
  ac_device *d = open_device(false, (size_t)N * MIB);
  ac_block *all[N];
  for (int i = 0; i < N; i++) all[i] = take(d, MIB);
  int locked = 0;
  for (int i = 0; i < N; i++) {
    if (i % 3 == 0) continue;
    locked += mlock((char *)all[i]->ptr + MIB / 2, 1) == 0;
    ac_block_free(all[i]);
  }
  if (locked == 0) print_message("mlock is not allowed here\n");
  ac_block *large = take(d, 38 * MIB);
  memset(large->ptr, 1, large->bytes);
  ac_block_free(large);
  for (int i = 0; i < N; i += 3) ac_block_free(all[i]);
  ac_device_release(d);
}

/* Memory of one stream is not handed to another: its users may still be at work. */
static void streams_keep_their_memory(void **state) {
  (void)state;
  ac_device *d = open_device(false, 0);
  ac_stream *s1 = (ac_stream *)&seed;
  ac_err e;
  static const size_t sizes[] = {256, 200000};
  for (int i = 0; i < 2; i++) {
    ac_block *a, *b, *c;
    assert_int_equal(ac_block_alloc(d, sizes[i], AC_MEM_ACTIVATION, s1, &a, &e), AC_OK);
    void *p = a->ptr;
    ac_block_free(a);
    b = take(d, sizes[i]);
    assert_ptr_not_equal(b->ptr, p);
    assert_int_equal(ac_block_alloc(d, sizes[i], AC_MEM_ACTIVATION, s1, &c, &e), AC_OK);
    assert_ptr_equal(c->ptr, p);
    ac_block_free(b);
    ac_block_free(c);
  }
  ac_device_release(d);
}

/* ---- segments that others know of ---- */
typedef struct heard {
  int calls;
  const void *base;
  size_t bytes;
} heard;
static void hear(void *user, void *base, size_t bytes) { *(heard *)user = (heard){((heard *)user)->calls + 1, base, bytes}; }

/* A segment holds the blocks in it, is told of once before it goes, and nothing is told of after the hook was taken away. */
static void segments_are_told_of_before_they_go(void **state) {
  (void)state;
  ac_device *d = open_device(false, 0);
  heard first = {0}, second = {0};
  aci_unmap_hook a = {.fn = hear, .user = &first}, b = {.fn = hear, .user = &second};
  void *base, *other;
  size_t bytes, size;
  char outside;
  assert_false(aci_pool_segment(d, &outside, &base, &bytes));
  aci_pool_add_unmap_hook(d, &a);
  aci_pool_add_unmap_hook(d, &b);
  ac_block *large = take(d, 48 << 20), *small = take(d, 100);
  assert_true(aci_pool_segment(d, large->ptr, &base, &bytes));
  assert_true((char *)large->ptr >= (char *)base && (char *)large->ptr + large->bytes <= (char *)base + bytes);
  assert_true(aci_pool_segment(d, (char *)large->ptr + large->bytes - 1, &other, &size));
  assert_ptr_equal(other, base);
  assert_true(aci_pool_segment(d, small->ptr, &other, &size));
  assert_ptr_not_equal(other, base); /* small blocks have segments of their own */
  ac_block_free(large);
  assert_int_equal(first.calls, 0); /* kept for reuse */
  ac_pool_trim(d);
  assert_int_equal(first.calls, 1);
  assert_ptr_equal(first.base, base);
  assert_int_equal(first.bytes, bytes);
  assert_int_equal(second.calls, 1);
  assert_false(aci_pool_segment(d, base, &other, &size));
  aci_pool_remove_unmap_hook(d, &a);
  aci_pool_remove_unmap_hook(d, &a); /* once more is no harm */
  ac_block_free(small);
  ac_pool_trim(d);
  assert_int_equal(first.calls, 1);
  assert_int_equal(second.calls, 2);
  aci_pool_remove_unmap_hook(d, &b);
  ac_device_release(d);
}

int main(void) {
  static bool cpu = false, meta = true;
  const struct CMUnitTest tests[] = {
      {"random_against_a_model_cpu", random_against_a_model, NULL, NULL, &cpu},
      {"random_against_a_model_meta", random_against_a_model, NULL, NULL, &meta},
      cmocka_unit_test(meta_counts_like_the_cpu),
      cmocka_unit_test(a_repeating_pattern_settles),
      {"the_limit_holds_cpu", the_limit_holds, NULL, NULL, &cpu},
      {"the_limit_holds_meta", the_limit_holds, NULL, NULL, &meta},
      {"free_pieces_serve_a_large_block_cpu", free_pieces_serve_a_large_block, NULL, NULL, &cpu},
      {"free_pieces_serve_a_large_block_meta", free_pieces_serve_a_large_block, NULL, NULL, &meta},
      cmocka_unit_test(locked_pages_stay),
      cmocka_unit_test(alloc_fail_fails_the_nth),
      cmocka_unit_test(poison_fills_fresh_and_freed),
      cmocka_unit_test(segments_are_told_of_before_they_go),
      cmocka_unit_test(blocks_cross_threads),
      cmocka_unit_test(blocks_outlive_the_device),
      cmocka_unit_test(streams_keep_their_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
