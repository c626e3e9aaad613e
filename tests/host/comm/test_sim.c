/* The sim backend: contents as if all ranks held this rank's data, bytes by the formulas of the usual algorithms,
 * buffers that are not there. */
#include "support/test.h"

#include <string.h>

#include "accel/comm.h"
#include "base/vmath.h"

static ac_ctx *ctx;

static ac_world *world(int rank, int size) {
  ac_err e;
  ac_world *w = NULL;
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.backend = "sim";
  o.sim_rank = rank;
  o.sim_size = size;
  assert_ok(ac_world_open(ctx, &o, &w, &e), e);
  return w;
}

/* Runs c and returns the bytes it counted. */
static uint64_t bytes_of(ac_group *g, ac_world *w, const ac_coll *c) {
  ac_err e;
  const uint64_t before = ac_world_bytes_sent(w);
  assert_ok(ac_collective(g, c, &e), e);
  return ac_world_bytes_sent(w) - before;
}

static void run(ac_world *w, ac_coll c) { bytes_of(ac_world_group(w), w, &c); }

static void test_place(void **state) {
  ac_err e;
  ac_world *w = world(5, 1024);
  assert_int_equal(ac_world_rank(w), 5);
  assert_int_equal(ac_world_size(w), 1024);
  assert_string_equal(ac_world_backend(w), "sim");
  run(w, (ac_coll){.kind = AC_COLL_BARRIER});
  assert_int_equal(ac_world_bytes_sent(w), 0);
  ac_world_close(w, NULL);
  ac_world_options o = AC_WORLD_OPTIONS_INIT;
  o.backend = "sim";
  o.sim_size = 4;
  o.sim_rank = 4;
  assert_fails(ac_world_open(ctx, &o, &w, &e), INVALID, "rank 4 of 4", e);
  o.sim_rank = -1;
  assert_fails(ac_world_open(ctx, &o, &w, &e), INVALID, "rank -1 of 4", e);
}

static void test_reductions(void **state) {
  ac_world *w = world(1, 6);
  const float x[3] = {1.5f, -2, 0.1f};
  float y[3];
  ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 3, .send = x, .recv = y};
  run(w, c);
  assert_true(y[0] == 9 && y[1] == -12 && y[2] == (float)(6 * (double)0.1f));
  for (c.op = AC_REDUCE_MEAN; c.op <= AC_REDUCE_MAX; c.op++) {
    memset(y, 0, sizeof y);
    run(w, c);
    assert_memory_equal(x, y, sizeof x);
  }
  c.op = AC_REDUCE_PROD;
  run(w, c);
  assert_true(y[0] == 11.390625f && y[1] == 64);
  memcpy(y, x, sizeof x); /* in place */
  c.op = AC_REDUCE_SUM;
  c.send = y;
  run(w, c);
  assert_true(y[0] == 9 && y[1] == -12);

  c.kind = AC_COLL_REDUCE;
  c.send = x;
  c.root = 1;
  run(w, c);
  assert_true(y[0] == 9);
  y[0] = 7;
  c.root = 0;
  run(w, c);
  assert_true(y[0] == 7);

  uint16_t h[2] = {aci_f32_to_f16(0.25f), aci_f32_to_f16(20000)};
  run(w, (ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F16, .count = 2, .send = h, .recv = h});
  assert_int_equal(h[0], aci_f32_to_f16(1.5f));
  assert_int_equal(h[1], 0x7c00); /* 120000 is infinite */
  uint16_t b = aci_f32_to_bf16(-3);
  run(w, (ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_BF16, .count = 1, .send = &b, .recv = &b});
  assert_int_equal(b, aci_f32_to_bf16(-18));
  int8_t i8 = -50;
  run(w, (ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_I8, .count = 1, .send = &i8, .recv = &i8});
  assert_int_equal(i8, (int8_t)(-300 & 0xff));
  bool both[2] = {true, false};
  for (c.op = AC_REDUCE_SUM; c.op <= AC_REDUCE_PROD; c.op++) { /* or and and, not a count */
    if (c.op == AC_REDUCE_MEAN) continue;
    run(w, (ac_coll){.kind = AC_COLL_ALL_REDUCE, .op = c.op, .dtype = AC_BOOL, .count = 2, .send = both, .recv = both});
    assert_true(both[0] == true && both[1] == false);
  }
  int64_t i64 = -3;
  const ac_coll prod = {.kind = AC_COLL_ALL_REDUCE, .op = AC_REDUCE_PROD, .count = 1};
  c = prod;
  c.dtype = AC_I64;
  c.send = c.recv = &i64;
  run(w, c);
  assert_int_equal(i64, 729);
  int32_t i32 = -7;
  run(w, (ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_I32, .count = 1, .send = &i32, .recv = &i32});
  assert_int_equal(i32, -42);
  double d = 0.5;
  c = prod;
  c.dtype = AC_F64;
  c.send = c.recv = &d;
  run(w, c);
  assert_true(d == 0.015625);
  ac_world_close(w, NULL);
}

static void test_parts(void **state) {
  ac_world *w = world(1, 3);
  const int32_t own[2] = {4, 5}, all[6] = {1, 2, 3, 4, 5, 6};
  int32_t got[9];
  run(w, (ac_coll){.kind = AC_COLL_ALL_GATHER, .dtype = AC_I32, .count = 2, .send = own, .recv = got});
  assert_memory_equal(got, ((int32_t[]){4, 5, 4, 5, 4, 5}), 24);
  const int64_t uneven[3] = {1, 2, 5};
  run(w, (ac_coll){.kind = AC_COLL_ALL_GATHER, .dtype = AC_I32, .counts = uneven, .send = own, .recv = got});
  assert_memory_equal(got, ((int32_t[]){4, 4, 5, 4, 5, 4, 5, 4}), 32);
  int32_t place[8] = {0, 8, 9}; /* the own part is where it belongs */
  run(w, (ac_coll){.kind = AC_COLL_ALL_GATHER, .dtype = AC_I32, .counts = uneven, .send = place + 1, .recv = place});
  assert_memory_equal(place, ((int32_t[]){8, 8, 9, 8, 9, 8, 9, 8}), 32);
  const int64_t none_here[3] = {2, 0, 1};
  run(w, (ac_coll){.kind = AC_COLL_ALL_GATHER, .dtype = AC_I32, .counts = none_here, .send = own, .recv = got});
  assert_memory_equal(got, ((int32_t[]){0, 0, 0}), 12);

  got[0] = 77;
  run(w, (ac_coll){.kind = AC_COLL_GATHER, .dtype = AC_I32, .count = 2, .root = 0, .send = own, .recv = got});
  assert_int_equal(got[0], 77);
  run(w, (ac_coll){.kind = AC_COLL_GATHER, .dtype = AC_I32, .count = 2, .root = 1, .send = own, .recv = got});
  assert_memory_equal(got, ((int32_t[]){4, 5, 4, 5, 4, 5}), 24);
  run(w, (ac_coll){.kind = AC_COLL_SCATTER, .dtype = AC_I32, .count = 2, .root = 1, .send = all, .recv = got});
  assert_memory_equal(got, all + 2, 8);
  run(w, (ac_coll){.kind = AC_COLL_SCATTER, .dtype = AC_I32, .count = 2, .root = 2, .recv = got});
  assert_memory_equal(got, ((int32_t[]){0, 0}), 8);
  run(w, (ac_coll){.kind = AC_COLL_REDUCE_SCATTER, .dtype = AC_I32, .count = 2, .send = all, .recv = got});
  assert_memory_equal(got, ((int32_t[]){9, 12}), 8);
  run(w, (ac_coll){.kind = AC_COLL_ALL_TO_ALL, .dtype = AC_I32, .count = 2, .send = all, .recv = got});
  assert_memory_equal(got, ((int32_t[]){3, 4, 3, 4, 3, 4}), 24);
  const int64_t to[3] = {3, 2, 1}, from[3] = {1, 2, 4};
  run(w, (ac_coll){.kind = AC_COLL_ALL_TO_ALL,
                   .dtype = AC_I32,
                   .counts = to,
                   .recv_counts = from,
                   .send = all,
                   .recv = got});
  assert_memory_equal(got, ((int32_t[]){4, 4, 5, 4, 5, 4, 5}), 28);
  got[0] = 3;
  run(w, (ac_coll){.kind = AC_COLL_BROADCAST, .dtype = AC_I32, .count = 1, .root = 0, .recv = got});
  assert_int_equal(got[0], 3);
  run(w, (ac_coll){.kind = AC_COLL_SEND, .dtype = AC_I32, .count = 2, .root = 0, .send = own});
  run(w, (ac_coll){.kind = AC_COLL_RECV, .dtype = AC_I32, .count = 2, .root = 2, .recv = got});
  assert_memory_equal(got, ((int32_t[]){0, 0}), 8);
  ac_world_close(w, NULL);
}

/* Summed over all ranks, every algorithm moves a number of bytes that does not depend on how it cuts. */
static void test_bytes(void **state) {
  static const int sizes[] = {1, 2, 3, 4, 7, 1024};
  enum { N = 840 }; /* elements of a part */
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const int p = sizes[s];
    const uint64_t part = N * 4, all = part * (uint64_t)p, others = (uint64_t)p - 1;
    const uint64_t once = part * others, each = all * others;
    const uint64_t want[AC_COLL_KINDS] = {[AC_COLL_ALL_REDUCE] = 2 * once, [AC_COLL_REDUCE] = once,
                                          [AC_COLL_BROADCAST] = once,      [AC_COLL_ALL_GATHER] = each,
                                          [AC_COLL_GATHER] = once,         [AC_COLL_SCATTER] = once,
                                          [AC_COLL_REDUCE_SCATTER] = each, [AC_COLL_ALL_TO_ALL] = each};
    uint64_t sum[AC_COLL_KINDS] = {0};
    for (int r = 0; r < p; r++) {
      ac_world *w = world(r, p);
      for (int k = 0; k <= AC_COLL_ALL_TO_ALL; k++) {
        ac_coll c = {.kind = (ac_coll_kind)k, .dtype = AC_F32, .count = N, .root = p / 2};
        sum[k] += bytes_of(ac_world_group(w), w, &c);
      }
      ac_world_close(w, NULL);
    }
    for (int k = 0; k <= AC_COLL_ALL_TO_ALL; k++) {
      /* one byte a rank may be lost where P does not divide the buffer */
      const uint64_t slack = k == AC_COLL_ALL_REDUCE ? 2 * (uint64_t)p : 0;
      if (sum[k] <= want[k] && sum[k] + slack >= want[k]) continue;
      print_error("%s of %d ranks: %llu bytes, expected %llu\n", ac_coll_name((ac_coll_kind)k), p,
                  (unsigned long long)sum[k], (unsigned long long)want[k]);
      fail();
    }
  }
  ac_world *w = world(2, 4);
  ac_group *g = ac_world_group(w);
  const int64_t uneven[4] = {1, 2, 3, 10};
  assert_int_equal(bytes_of(g, w, &(ac_coll){.kind = AC_COLL_ALL_REDUCE, .dtype = AC_BF16, .count = 100}), 300);
  assert_int_equal(bytes_of(g, w, &(ac_coll){.kind = AC_COLL_ALL_GATHER, .dtype = AC_U8, .counts = uneven}), 6);
  assert_int_equal(bytes_of(g, w, &(ac_coll){.kind = AC_COLL_REDUCE_SCATTER, .dtype = AC_U8, .counts = uneven}), 13);
  assert_int_equal(bytes_of(g, w, &(ac_coll){.kind = AC_COLL_SEND, .dtype = AC_F64, .count = 3}), 24);
  assert_int_equal(bytes_of(g, w, &(ac_coll){.kind = AC_COLL_RECV, .dtype = AC_F64, .count = 3}), 0);
  ac_world_close(w, NULL);
}

/* Dry runs: 1,024 ranks, terabytes, no memory. */
static void test_no_buffers(void **state) {
  ac_world *w = world(1023, 1024);
  const int64_t n = (int64_t)1 << 40;
  const ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = n};
  const uint64_t one = bytes_of(ac_world_group(w), w, &c);
  assert_int_equal(one, (uint64_t)n * 8 / 1024 * 1023);
  for (int k = 0; k <= AC_COLL_RECV; k++)
    run(w, (ac_coll){.kind = (ac_coll_kind)k, .dtype = AC_F32, .count = n, .root = 3});
  ac_comm_record last;
  assert_int_equal(ac_world_records(w, &last, 1), 1);
  assert_int_equal(last.kind, AC_COLL_RECV);
  assert_int_equal(last.bytes, 0);
  ac_world_close(w, NULL);
}

static void test_groups_and_works(void **state) {
  ac_err e;
  ac_world *w = world(2, 8);
  const int even[4] = {6, 4, 2, 0}, odd[4] = {1, 3, 5, 7};
  ac_group *a = NULL, *b = NULL;
  assert_ok(ac_group_new(w, 4, even, NULL, &a, &e), e);
  assert_ok(ac_group_new(w, 4, odd, NULL, &b, &e), e);
  assert_int_equal(ac_group_rank(a), 2);
  assert_int_equal(ac_group_rank(b), -1);
  float x = 1.5f;
  const ac_coll c = {.kind = AC_COLL_ALL_REDUCE, .dtype = AC_F32, .count = 1, .send = &x, .recv = &x};
  ac_work *k;
  assert_ok(ac_collective_start(a, &c, 0, NULL, &k, &e), e);
  assert_ok(ac_work_wait(k, &e), e);
  ac_work_release(k);
  assert_true(x == 6);
  assert_fails(ac_collective(b, &c, &e), INVALID, "not in this group", e);
  ac_group_free(a);
  ac_group_free(b);
  ac_world_close(w, NULL);
}

static int setup(void **state) {
  ac_err e;
  return ac_ctx_new(NULL, &ctx, &e);
}

static int teardown(void **state) {
  ac_ctx_free(ctx);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_place),      cmocka_unit_test(test_reductions),
                                     cmocka_unit_test(test_parts),      cmocka_unit_test(test_bytes),
                                     cmocka_unit_test(test_no_buffers), cmocka_unit_test(test_groups_and_works)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
