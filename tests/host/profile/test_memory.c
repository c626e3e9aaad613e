/* The memory log against a plain model of it: blocks of all sizes made and freed at random on several threads, before, during and after the
 * recording; marks; the peak and every sum. And traces that several processes add to.
 * tier: every change, memory */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel/profile.h"

static ac_ctx *ctx;
static ac_device *cpu;

enum { BLOCKS = 600, TURNS = 20000 };

static void test_against_model(void **state) {
  ac_err e;
  uint64_t seed = 11;
  static ac_tensor *have[BLOCKS];
  static size_t bytes[BLOCKS];
  static ac_memory_category kind[BLOCKS];
  ac_profile *p;
  ac_profile_options o = AC_PROFILE_OPTIONS_INIT;
  o.memory = true;
  assert_ok(ac_profile_new(ctx, &o, &p, &e), e);
  for (int turn = 0; turn < TURNS; turn++) {
    if (turn == 2000) {
      ac_mem_peak_reset(cpu);
      assert_ok(ac_profile_start(p, NULL, &e), e);
    }
    const int i = (int)(ac_test_random(&seed) % BLOCKS);
    if (have[i] == NULL) {
      const int64_t n = (int64_t)(ac_test_random(&seed) % (turn % 50 == 0 ? 400000 : 3000)) + 1;
      assert_ok(ac_tensor_new(cpu, AC_U8, 1, &n, &have[i], &e), e);
      bytes[i] = ((size_t)n + 63) / 64 * 64;
      kind[i] = turn < 2000 ? AC_MEMORY_OTHER : AC_MEMORY_TEMPORARY;
    } else if (ac_test_random(&seed) % 4 == 0) {
      const ac_memory_category c = (ac_memory_category)(ac_test_random(&seed) % 3);
      ac_profile_mark(p, have[i], c);
      if (ac_profile_running(p)) kind[i] = c;
    } else {
      ac_tensor_release(have[i]);
      have[i] = NULL;
    }
  }
  ac_mem_stats stats;
  ac_mem_stats_get(cpu, &stats);
  ac_profile_stop(p);
  uint64_t want[AC_MEMORY_CATEGORIES] = {0}, total = 0;
  for (int i = 0; i < BLOCKS; i++)
    if (have[i] != NULL) want[kind[i]] += bytes[i], total += bytes[i];
  ac_memory_point peak, *points = malloc((TURNS + 1) * sizeof *points);
  const int64_t n = ac_profile_memory(p, 0, points, TURNS + 1, &peak);
  assert_true(n > 5000 && n <= TURNS + 1);
  assert_int_equal(peak.total, stats.peak_bytes);
  assert_int_equal(points[n - 1].total, total);
  for (int c = 0; c < AC_MEMORY_CATEGORIES; c++) assert_int_equal(points[n - 1].bytes[c], want[c]);
  for (int64_t k = 0; k < n; k++) {
    uint64_t sum = 0;
    for (int c = 0; c < AC_MEMORY_CATEGORIES; c++) {
      assert_true(points[k].bytes[c] <= points[k].total);
      sum += points[k].bytes[c];
    }
    assert_int_equal(sum, points[k].total);
    assert_true(points[k].total <= peak.total);
  }
  /* a thinned one has the peak */
  ac_memory_point few[20];
  bool found = false;
  assert_int_equal(ac_profile_memory(p, 0, few, 20, NULL), n);
  for (int k = 0; k < 20; k++) found |= few[k].total == peak.total;
  assert_true(found);
  for (int i = 0; i < BLOCKS; i++) ac_tensor_release(have[i]);
  free(points);
  ac_profile_free(p);
}

static void *churn(void *arg) {
  ac_err e;
  uint64_t seed = (uint64_t)(uintptr_t)arg + 3;
  ac_tensor *t[16] = {0};
  for (int turn = 0; turn < 4000; turn++) {
    const int i = (int)(ac_test_random(&seed) % 16);
    ac_tensor_release(t[i]);
    const int64_t n = (int64_t)(ac_test_random(&seed) % 5000) + 1;
    assert_ok(ac_tensor_new(cpu, AC_U8, 1, &n, &t[i], &e), e);
  }
  for (int i = 0; i < 16; i++) ac_tensor_release(t[i]);
  return NULL;
}

static void test_threads(void **state) {
  ac_err e;
  ac_profile *p;
  ac_profile_options o = AC_PROFILE_OPTIONS_INIT;
  o.memory = true;
  assert_ok(ac_profile_new(ctx, &o, &p, &e), e);
  ac_mem_peak_reset(cpu);
  assert_ok(ac_profile_start(p, NULL, &e), e);
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, churn, (void *)(intptr_t)i), 0);
  churn((void *)(intptr_t)9);
  for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
  ac_mem_stats stats;
  ac_mem_stats_get(cpu, &stats);
  ac_profile_stop(p);
  ac_memory_point peak, last;
  ac_profile_memory(p, 0, &last, 1, &peak);
  assert_int_equal(peak.total, stats.peak_bytes);
  /* another one may follow, and the first cannot go on */
  ac_profile *q;
  assert_ok(ac_profile_new(ctx, &o, &q, &e), e);
  assert_ok(ac_profile_start(q, NULL, &e), e);
  assert_fails(ac_profile_start(p, NULL, &e), STATE, "started already", e);
  ac_profile_free(q);
  ac_profile_free(p);
}

static void test_trace_file(void **state) {
  ac_err e;
  char *path = ac_test_tmp_path("trace.json");
  for (int i = 0; i < 8; i++) {
    const pid_t pid = fork();
    if (pid == 0) {
      char text[64];
      ac_status st = AC_OK;
      for (int k = 0; k < 50 && st == AC_OK; k++) {
        const int n = snprintf(text, sizeof text, "{\"process\": %d, \"k\": %d}", i, k);
        st = ac_trace_add(path, "\"run\": 1", text, (size_t)n, &e);
      }
      _exit(st == AC_OK ? 0 : 1);
    }
  }
  for (int i = 0; i < 8; i++) {
    int status;
    assert_true(wait(&status) > 0 && status == 0);
  }
  size_t n;
  char *text = ac_test_read(path, &n);
  int objects = 0;
  for (const char *s = text; (s = strstr(s, "\"process\"")) != NULL; s++) objects++;
  assert_int_equal(objects, 400);
  assert_int_equal(memcmp(text, "{\"run\": 1, \"traceEvents\": [\n{", 29), 0);
  assert_int_equal(memcmp(text + n - 4, "\n]}\n", 4), 0);
  free(text);
  assert_ok(ac_trace_add(path, "\"run\": 2", "{}", 2, &e), e); /* another run's file is replaced */
  text = ac_test_read(path, &n);
  assert_string_equal(text, "{\"run\": 2, \"traceEvents\": [\n{}\n]}\n");
  free(text);
  free(path);
  assert_fails(ac_trace_add("/nonexistent/x.json", "", "{}", 2, &e), IO, "/nonexistent/x.json", e);
}

static int setup(void **state) {
  ac_err e;
  if (ac_ctx_new(NULL, &ctx, &e) != AC_OK) return 1;
  return ac_ctx_device(ctx, "cpu", &cpu, &e);
}

static int teardown(void **state) {
  ac_ctx_free(ctx);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_model), cmocka_unit_test(test_threads), cmocka_unit_test(test_trace_file)};
  return cmocka_run_group_tests(tests, setup, teardown);
}
