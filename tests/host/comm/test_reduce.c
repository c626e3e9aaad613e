/* aci_reduce against a scalar tree: bits of every dtype and operation, numbers of sources and targets,
 * lengths around blocks, results in place, streamed stores, every instruction set. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/vmath.h"
#include "comm/reduce.h"

static const ac_dtype dtypes[] = {AC_F64, AC_F32, AC_F16, AC_BF16, AC_I64,
                                  AC_I32, AC_I16, AC_I8,  AC_U8,   AC_BOOL};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* A value of the tree: f for floats (16-bit ones as f32), i for the rest. */
typedef struct value {
  double d;
  float f;
  int64_t i;
} value;

static value load(ac_dtype dt, const void *p, int64_t i) {
  value v = {0};
  switch (dt) {
    case AC_F64: v.d = ((const double *)p)[i]; break;
    case AC_F32: v.f = ((const float *)p)[i]; break;
    case AC_F16: v.f = aci_f16_to_f32(((const uint16_t *)p)[i]); break;
    case AC_BF16: v.f = aci_bf16_to_f32(((const uint16_t *)p)[i]); break;
    case AC_I64: v.i = ((const int64_t *)p)[i]; break;
    case AC_I32: v.i = ((const int32_t *)p)[i]; break;
    case AC_I16: v.i = ((const int16_t *)p)[i]; break;
    case AC_I8: v.i = ((const int8_t *)p)[i]; break;
    default: v.i = ((const uint8_t *)p)[i]; break;
  }
  return v;
}

static void store(ac_dtype dt, void *p, int64_t i, value v) {
  switch (dt) {
    case AC_F64: ((double *)p)[i] = v.d; break;
    case AC_F32: ((float *)p)[i] = v.f; break;
    case AC_F16: ((uint16_t *)p)[i] = aci_f32_to_f16(v.f); break;
    case AC_BF16: ((uint16_t *)p)[i] = aci_f32_to_bf16(v.f); break;
    case AC_I64: ((int64_t *)p)[i] = v.i; break;
    case AC_I32: ((int32_t *)p)[i] = (int32_t)(uint32_t)v.i; break;
    case AC_I16: ((int16_t *)p)[i] = (int16_t)(uint16_t)v.i; break;
    case AC_I8: ((int8_t *)p)[i] = (int8_t)(uint8_t)v.i; break;
    default: ((uint8_t *)p)[i] = (uint8_t)v.i; break;
  }
}

#define JOIN(x, y)                                               \
  (op == AC_REDUCE_PROD  ? (x) * (y)                             \
   : op == AC_REDUCE_MIN ? ((x) < (y) || (x) != (x) ? (x) : (y)) \
   : op == AC_REDUCE_MAX ? ((x) > (y) || (x) != (x) ? (x) : (y)) \
                         : (x) + (y))

static value join(ac_dtype dt, ac_reduce_op op, value a, value b) {
  value v = {0};
  if (dt == AC_BOOL) v.i = op == AC_REDUCE_SUM || op == AC_REDUCE_MAX ? a.i | b.i : a.i & b.i;
  else if (dt == AC_F64) v.d = JOIN(a.d, b.d);
  else if (ac_dtype_is_float(dt)) v.f = JOIN(a.f, b.f);
  else if (op == AC_REDUCE_PROD) v.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i);
  else if (op == AC_REDUCE_MIN) v.i = a.i < b.i ? a.i : b.i;
  else if (op == AC_REDUCE_MAX) v.i = a.i > b.i ? a.i : b.i;
  else v.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
  return v;
}

/* Neighbours first, then neighbours of neighbours; one that is left over waits for the next round. */
static value expected(ac_dtype dt, ac_reduce_op op, int n, unsigned char **src, int64_t i) {
  value v[300];
  for (int r = 0; r < n; r++) v[r] = load(dt, src[r], i);
  for (int m = n; m > 1; m = (m + 1) / 2)
    for (int r = 0; r < (m + 1) / 2; r++)
      v[r] = 2 * r + 1 < m ? join(dt, op, v[2 * r], v[2 * r + 1]) : v[2 * r];
  if (op == AC_REDUCE_MEAN && n > 1) {
    v[0].d /= n;
    v[0].f /= (float)n;
  }
  return v[0];
}

static void fill(ac_dtype dt, unsigned char *p, int64_t count, uint64_t *seed) {
  for (int64_t i = 0; i < count; i++) {
    value v = {0};
    v.d = (ac_test_uniform(seed) - 0.5) * exp2((double)(ac_test_random(seed) % 9) - 4);
    v.f = (float)v.d;
    v.i = dt == AC_BOOL ? (int64_t)(ac_test_random(seed) % 2) : (int64_t)ac_test_random(seed);
    store(dt, p, i, v);
  }
}

static bool allowed(ac_dtype dt, ac_reduce_op op) {
  return op != AC_REDUCE_MEAN || ac_dtype_is_float(dt);
}

static void one(ac_dtype dt, ac_reduce_op op, int n, int64_t count, int n_dst, bool in_place, bool streamed,
                int shift, uint64_t *seed) {
  const size_t size = ac_dtype_bytes(dt), bytes = (size_t)count * size;
  unsigned char *src[300], *out[300], *before[300], *keep[600];
  int n_keep = 0;
  for (int r = 0; r < n; r++) {
    keep[n_keep++] = src[r] = malloc(bytes + 128);
    src[r] += (size_t)shift * size;
    fill(dt, src[r], count, seed);
    before[r] = src[r];
  }
  for (int r = 0; r < n_dst; r++) {
    if (in_place) {
      out[r] = src[r];
      keep[n_keep++] = before[r] = malloc(bytes + 1);
      if (bytes > 0) memcpy(before[r], src[r], bytes);
    } else {
      keep[n_keep++] = out[r] = malloc(bytes + 128);
      memset(out[r], 0xA5, bytes + 128);
    }
  }
  aci_reduce(dt, op, n, (const void *const *)src, n_dst, (void *const *)out, count, streamed);
  unsigned char want[8] = {0};
  for (int64_t i = 0; i < count; i++) {
    store(dt, want, 0, expected(dt, op, n, before, i));
    for (int r = 0; r < n_dst; r++) {
      if (memcmp(out[r] + (size_t)i * size, want, size) != 0)
        fail_msg("%s %s of %d sources, %lld elements, target %d: element %lld differs", ac_dtype_name(dt),
                 ac_reduce_op_name(op), n, (long long)count, r, (long long)i);
    }
  }
  for (int r = 0; r < n_dst && !in_place; r++)
    assert_int_equal(out[r][bytes], 0xA5); /* not one byte further */
  for (int i = 0; i < n_keep; i++) free(keep[i]);
}

static void bits(void **state) {
  static const int ns[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17};
  static const int64_t counts[] = {0, 1, 3, 17, 64, 1023, 1024, 1025, 2049, 8193};
  uint64_t seed = 7;
  for (size_t t = 0; t < N_DTYPES; t++)
    for (int op = 0; op < AC_REDUCE_OPS; op++)
      for (size_t k = 0; k < sizeof ns / sizeof ns[0]; k++) {
        if (!allowed(dtypes[t], (ac_reduce_op)op)) continue;
        const int64_t count = counts[ac_test_random(&seed) % (sizeof counts / sizeof counts[0])];
        const int n_dst = 1 + (int)(ac_test_random(&seed) % (uint64_t)ns[k]);
        const bool in_place = ac_test_random(&seed) % 2 != 0, streamed = ac_test_random(&seed) % 3 == 0;
        one(dtypes[t], (ac_reduce_op)op, ns[k], count, n_dst, in_place, streamed,
            (int)(ac_test_random(&seed) % 5), &seed);
        one(dtypes[t], (ac_reduce_op)op, ns[k], 37, 1, !in_place, false, 1, &seed);
      }
}

static void many(void **state) {
  uint64_t seed = 3;
  one(AC_F32, AC_REDUCE_SUM, 255, 2100, 2, false, false, 0, &seed);
  one(AC_F32, AC_REDUCE_MEAN, 256, 300, 1, true, false, 1, &seed);
  one(AC_BF16, AC_REDUCE_MEAN, 129, 2050, 129, true, false, 0, &seed);
  one(AC_F64, AC_REDUCE_MAX, 257, 1030, 3, false, true, 3, &seed);
}

/* A NaN is not lost, whichever side it is on; 16-bit sums are rounded once; integers wrap. */
static void corners(void **state) {
  float a[2] = {NAN, 1}, b[2] = {1, NAN}, out[2];
  const void *src[2] = {a, b};
  void *dst[1] = {out};
  for (int op = AC_REDUCE_MIN; op <= AC_REDUCE_MAX; op++) {
    aci_reduce(AC_F32, (ac_reduce_op)op, 2, src, 1, dst, 2, false);
    assert_true(isnan(out[0]) && isnan(out[1]));
  }
  uint16_t h[4][1] = {{aci_f32_to_bf16(256)},
                      {aci_f32_to_bf16(1)},
                      {aci_f32_to_bf16(1)},
                      {aci_f32_to_bf16(0)}},
           sum[1];
  const void *hs[4] = {h[0], h[1], h[2], h[3]};
  void *hd[1] = {sum};
  aci_reduce(AC_BF16, AC_REDUCE_SUM, 4, hs, 1, hd, 1, false);
  assert_float_equal(aci_bf16_to_f32(sum[0]), 258, 0); /* 256 + 1 in bf16 would have been 256 */
  int8_t x[1] = {127}, y[1] = {1}, z[1];
  const void *is[2] = {x, y};
  void *id[1] = {z};
  aci_reduce(AC_I8, AC_REDUCE_SUM, 2, is, 1, id, 1, false);
  assert_int_equal(z[0], -128);
}

/* The choice is made once per process: others run as children. */
static void other_isas(void **state) {
#if defined(__aarch64__)
  static const char *const isas[] = {"base", "neon"};
#else
  static const char *const isas[] = {"base", "avx2"};
#endif
  for (int i = 0; i < 2; i++) {
    fflush(NULL);
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("ACCEL_CPU_ISA", isas[i], 1);
      execl(path, path, "bits", (char *)NULL);
      _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest only[] = {cmocka_unit_test(bits)};
  const struct CMUnitTest tests[] = {cmocka_unit_test(bits), cmocka_unit_test(many),
                                     cmocka_unit_test(corners), cmocka_unit_test(other_isas)};
  if (argc > 1 && strcmp(argv[1], "bits") == 0) return cmocka_run_group_tests(only, NULL, NULL);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
