/* Two hosts of one process on the emulated device (ACCEL_CUDA_MODULE), each with flags of its own: neither changes what the other
 * computes, on which library, and when it is told of an error. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/accel.h"

static ac_host *open_host(void) {
  char dir[4096];
  ac_host *h = NULL;
  ac_err e;
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", getenv("ACCEL_TEST_BUILD"));
  o.lua_dir = dir;
  assert_ok(ac_host_open(&o, &h, &e), e);
  return h;
}

static void run(ac_host *h, const char *code) {
  ac_err e;
  assert_ok(ac_host_run_string(h, code, "flags", 0, NULL, &e), e);
}

static void plugin(const char *variable, const char *file) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("ACCEL_TEST_PLUGINS"), file);
  if (access(path, R_OK) != 0) {
    printf("skipped: %s was not built\n", file);
    exit(77);
  }
  setenv(variable, path, 1);
}

/* A product of numbers that TF32 rounds: exact is 1 + 2^-12, rounded is 1. */
static const char product[] = "local accel = require 'accel' "
                              "local x = accel.full({ 4, 4 }, 1 + 2.0 ^ -12, { device = 'cuda' }) "
                              "local got = x:matmul(accel.eye(4):to 'cuda'):to('cpu')[1][1]:item() ";
static void exact(ac_host *h) {
  char code[512];
  snprintf(code, sizeof code, "%s assert(got == 1 + 2.0 ^ -12, got)", product);
  run(h, code);
}
static void rounded(ac_host *h) {
  char code[512];
  snprintf(code, sizeof code, "%s assert(got == 1, got)", product);
  run(h, code);
}

static void numbers(void **state) {
  (void)state;
  ac_host *a = open_host();
  exact(a);
  setenv("ACCEL_CUDA_TF32", "1", 1);
  ac_host *b = open_host();
  unsetenv("ACCEL_CUDA_TF32");
  rounded(b);
  exact(a);
  rounded(b);
  run(a, "local was = require('accel').device_flags('cuda', { tf32 = true }) assert(was.tf32 == false and was.cudnn == true)");
  rounded(a);
  run(b, "require('accel').device_flags('cuda', { tf32 = false })");
  exact(b);
  rounded(a);
  ac_host_close(a);
  exact(b);
  ac_host_close(b);
}

static int n_calls(void) {
  int n = 0;
  FILE *f = fopen("cudnn.log", "r");
  for (int c; f != NULL && (c = fgetc(f)) != EOF;) n += c == '\n';
  if (f != NULL) fclose(f);
  return n;
}

static void libraries(void **state) {
  (void)state;
  static const char convolve[] = "local accel = require 'accel' "
                                 "accel.conv2d(accel.ones(1, 2, 5, 5):to 'cuda', accel.ones(3, 2, 3, 3):to 'cuda')";
  remove("cudnn.log");
  ac_host *a = open_host(), *b = open_host();
  run(b, "require('accel').device_flags('cuda:0', { cudnn = false })");
  run(a, convolve);
  assert_int_equal(n_calls(), 1);
  run(b, convolve);
  assert_int_equal(n_calls(), 1);
  run(a, convolve);
  assert_int_equal(n_calls(), 2);
  ac_host_close(b);
  ac_host_close(a);
}

/* With sync an op names its own fault; without, the next wait does. */
static void order(void **state) {
  (void)state;
  static const char fault[] = "local accel = require 'accel' "
                              "local w, i = accel.ones(3, 2):to 'cuda', accel.tensor({ 0, 7 }):to 'cuda' ";
  char code[512];
  ac_host *a = open_host();
  setenv("ACCEL_CUDA_SYNC", "1", 1);
  ac_host *b = open_host();
  unsetenv("ACCEL_CUDA_SYNC");
  run(b, "require('accel').ones(2, { device = 'cuda' })");
  for (int i = 0; i < 2; i++) {
    snprintf(code, sizeof code, "%s local y = accel.embedding(i, w) local ok, why = pcall(accel.synchronize, 'cuda') "
                                "assert(not ok and tostring(why):find('an op before this wait', 1, true), tostring(why))", fault);
    run(a, code);
    snprintf(code, sizeof code, "%s local ok, why = pcall(accel.embedding, i, w) "
                                "assert(not ok and tostring(why):find('embedding', 1, true), tostring(why))", fault);
    run(b, code);
  }
  ac_host_close(a);
  ac_host_close(b);
}

static void names(void **state) {
  (void)state;
  ac_host *a = open_host();
  run(a, "local accel = require 'accel' "
         "local function raises(text, ...) local ok, why = pcall(accel.device_flags, ...) "
         "assert(not ok and tostring(why):find(text, 1, true), tostring(why)) end "
         "raises('tf32', 'cuda', { tf23 = true }) raises('boolean', 'cuda', { tf32 = 1 }) "
         "raises(\"'cuda'\", 'cudda') raises('device_flags', 3.5, {}) "
         "assert(next(accel.device_flags 'cpu') == nil) "
         "local f = accel.device_flags 'cuda' assert(f.sync == false and f.tf32 == false and f.cudnn == true)");
  ac_host_close(a);
}

int main(void) {
  plugin("ACCEL_CUDA_MODULE", "accel_cuda_twin.so");
  plugin("CUDA_TWIN_CUBLASLT", "cublaslt_twin.so");
  plugin("CUDA_TWIN_CUDNN", "cudnn_twin.so");
  setenv("CUDA_TWIN_CUBLASLT_ROUND", "1", 1);
  setenv("CUDA_TWIN_CUDNN_LOG", "cudnn.log", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(libraries), cmocka_unit_test(order),
                                     cmocka_unit_test(names)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
