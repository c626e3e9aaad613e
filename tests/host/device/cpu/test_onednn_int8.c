/* Products of int8 by oneDNN with every instruction set that DNNL_MAX_CPU_ISA allows, each in a process of its own: sums hold every bit, and
 * where instructions cannot hold them (before VNNI) the product is not taken. The lines printed say what ran. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cpu/isa.h"
#include "device/cpu/onednn.h"

static uint32_t seed = 7;
static int below(int n) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (uint32_t)n);
}

typedef enum fill { RANDOM, EXTREMES, MOST } fill; /* any; of -128 and 127; 127 and -127, whose sums are the largest */

static int8_t value(fill f, bool negative) {
  if (f == RANDOM) return (int8_t)(below(256) - 128);
  if (f == EXTREMES) return below(2) ? 127 : -128;
  return negative ? -127 : 127;
}

/* y (m, n) = a (m, k) b^T, b's rows k apart as weights lie or its columns (rows = false); pads beside all rows stay as they are. */
static void one(fill f, int64_t m, int64_t n, int64_t k, bool rows) {
  const int64_t lda = k + below(3) * 7, ldb = rows ? k + below(2) * 5 : n + below(2) * 3, ldc = n + below(2) * 9;
  const size_t a_bytes = (size_t)(m * lda), b_bytes = (size_t)(ldb * (rows ? n : k)), c_bytes = (size_t)(m * ldc) * 4;
  int8_t *a = malloc(a_bytes + 1), *b = malloc(b_bytes + 1);
  int32_t *c = malloc(c_bytes + 1);
  for (size_t i = 0; i < a_bytes; i++) a[i] = value(f, false);
  for (size_t i = 0; i < b_bytes; i++) b[i] = value(f, true);
  for (int64_t i = 0; i < m * ldc; i++) c[i] = 77;
  const void *pa = a, *pb = b;
  void *pc = c;
  const aci_gemm g = {.in_type = ACI_GEMM_I8, .out_type = ACI_GEMM_I32, .m = m, .n = n, .k = k, .a_rs = lda, .a_cs = 1,
                      .b_rs = rows ? 1 : ldb, .b_cs = rows ? ldb : 1, .c_rs = ldc, .n_batch = 1, .a = &pa, .b = &pb, .c = &pc, .alpha = 1};
  if (!aci_onednn_wants(&g) || !aci_onednn_gemm(NULL, &g)) fail_msg("%lld x %lld x %lld is not taken", (long long)m, (long long)n, (long long)k);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      int64_t want = 0;
      for (int64_t p = 0; p < k; p++) want += a[i * lda + p] * b[rows ? j * ldb + p : p * ldb + j];
      if (c[i * ldc + j] != want)
        fail_msg("%lld x %lld x %lld at %lld, %lld: %d, not %lld", (long long)m, (long long)n, (long long)k, (long long)i, (long long)j,
                 c[i * ldc + j], (long long)want);
    }
    for (int64_t j = n; j < ldc; j++) assert_int_equal(c[i * ldc + j], 77);
  }
  free(a), free(b), free(c);
}

static void shapes(void) {
  static const int64_t k[] = {1, 3, 63, 64, 65, 255, 1024, 4099};
  for (int i = 0; i < 40; i++) one((fill)(i % 3), 1 + below(70), 1 + below(140), k[i % 8], i % 4 != 0);
  one(EXTREMES, 300, 600, 96, true); /* tiles and their rest in both directions */
  one(MOST, 5, 9, 131071, true);     /* the sums end just below 2^31 */
}

static aci_gemm plain(int64_t m, int64_t n, int64_t k) {
  static const void *operand;
  static void *result;
  return (aci_gemm){.in_type = ACI_GEMM_I8, .out_type = ACI_GEMM_I32, .m = m, .n = n, .k = k, .a_rs = k, .a_cs = 1, .b_rs = 1,
                    .b_cs = k, .c_rs = n, .n_batch = 1, .a = &operand, .b = &operand, .c = &result, .alpha = 1};
}

enum { PASSED = 0, NO_MODULE = 10, NO_SUCH_CPU = 11 };

static int child(const char *isa, bool exact) {
  if (isa != NULL) setenv("DNNL_MAX_CPU_ISA", isa, 1);
  const aci_onednn_api *api = aci_onednn_api_get();
  if (api == NULL) return NO_MODULE;
  aci_onednn_force(true);
  const aci_gemm g = plain(64, 64, 64);
  if (!api->exact_int8) {
    assert_false(aci_onednn_wants(&g));
    return isa != NULL && exact ? NO_SUCH_CPU : PASSED;
  }
  assert_true(exact);
  if (isa != NULL && strcmp(isa, "AVX512_CORE_AMX") == 0 && !aci_onednn_amx()) return NO_SUCH_CPU;
  shapes();
  return PASSED;
}

static void every_instruction_set(void **state) {
  (void)state;
  static const struct {
    const char *isa;
    bool exact;
  } sets[] = {{"AVX2", false}, {"AVX512_CORE", false}, {"AVX2_VNNI", true}, {"AVX512_CORE_VNNI", true}, {"AVX512_CORE_BF16", true},
              {"AVX512_CORE_AMX", true}, {NULL, true}};
  for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
    const char *name = sets[i].isa == NULL ? "this CPU's" : sets[i].isa;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(sets[i].isa, sets[i].exact));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status)) fail_msg("%s: ended by signal %d", name, WTERMSIG(status));
    switch (WEXITSTATUS(status)) {
      case PASSED: print_message("%s: %s\n", name, sets[i].exact ? "exact" : "not taken"); break;
      case NO_MODULE: skip();
      case NO_SUCH_CPU: print_message("%s: skipped, this CPU or this oneDNN has no such instructions\n", name); break;
      default: fail_msg("%s: status %d", name, WEXITSTATUS(status));
    }
  }
}

/* One place decides: rows enough, plain sums alone, and no more values than an i32 can sum. */
static void which_are_taken(void **state) {
  (void)state;
  const aci_onednn_api *api = aci_onednn_api_get();
  if (api == NULL || !api->exact_int8 || aci_cpu_isa() == ACI_ISA_BASE) skip();
  aci_gemm g = plain(128, 64, 64);
  assert_true(aci_onednn_wants(&g));
  g.m = 8; /* our own loop reads the weights once for all of these */
  assert_false(aci_onednn_wants(&g));
  aci_onednn_force(true);
  assert_true(aci_onednn_wants(&g));
  g = plain(128, 64, 131072);
  assert_false(aci_onednn_wants(&g));
  g = plain(128, 64, 64);
  g.beta = 1;
  assert_false(aci_onednn_wants(&g));
  g.beta = 0;
  g.alpha = 2;
  assert_false(aci_onednn_wants(&g));
  g.alpha = 1;
  g.out_type = ACI_GEMM_I8; /* a product of integers that wraps: gemm_simple.c */
  assert_false(aci_onednn_wants(&g));
  aci_onednn_force(false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_instruction_set), cmocka_unit_test(which_are_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
