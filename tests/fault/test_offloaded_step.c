/* A whole step of training with parameters, gradients and moments in files (forward, backward, clipping by the norm, AdamW), of which every call
 * to the system fails once, and from then on always: with EIO, ENOSPC, EINTR, by moving fewer bytes. The step says what and where in one
 * line, and the next one works; interrupted calls and those that move less change no bit.
 * tier: sampled, memory (one of several calls in a run of every change) */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"
#include "host/offload/fault_calls.h"

static ac_host *open_host(void) {
  ac_err e;
  char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  ac_host *h = NULL;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  o.n_threads = 1;
  setenv("ACCEL_IO_URING", "0", 1); /* so that all bytes go through calls that can be made to fail */
  assert_ok(ac_host_open(&o, &h, &e), e);
  char *script = ac_test_source_path("tests/fault/offloaded_step_case.lua");
  assert_ok(ac_host_run_file(h, script, 0, NULL, &e), e);
  free(script);
  return h;
}

static double number(ac_host *h, const char *function) {
  ac_err e;
  ac_host_value v;
  int n;
  assert_ok(ac_host_call(h, function, 0, NULL, 1, &v, &n, &e), e);
  assert_int_equal(v.type, AC_HOST_NUMBER);
  return v.n;
}

static ac_status step(ac_host *h, double *loss, ac_err *e) {
  ac_host_value v;
  int n;
  AC_TRY(ac_host_call(h, "step", 0, NULL, 1, &v, &n, e));
  *loss = v.n;
  return AC_OK;
}

/* What the user sees: the first line, before where it was. */
static void one_line(const ac_err *e) {
  const char *end = strstr(e->msg, "\nstack traceback");
  const size_t n = end != NULL ? (size_t)(end - e->msg) : strlen(e->msg);
  if (n < 20 || memchr(e->msg, '\n', n) != NULL || strstr(e->msg, "/accel-") == NULL) fail_msg("'%s' is not a line that helps", e->msg);
}

static void every_call(void **state) {
  (void)state;
  ac_host *h = open_host();
  ac_err e;
  double loss = 0;
  number(h, "setup");
  assert_ok(step(h, &loss, &e), e);
  const double want = loss, sum = number(h, "sum");
  for (int k = WITH_EIO; k < KINDS; k++)
    for (int always = 0; always < 2; always++) {
      int total = 1, failed = 0;
      for (int at = 0; at <= total; at++) { /* 0: none fails, calls are counted */
        if (at > 1 && !ac_test_sampled(12)) continue;
        number(h, "setup");
        arm(at, (enum kind)k, always);
        const ac_status st = step(h, &loss, &e);
        const int made = disarm();
        if (at == 0) total = made;
        if (st == AC_OK) {
          if (loss != want || number(h, "sum") != sum) fail_msg("kind %d, call %d of %d: another result", k, at, total);
        } else {
          failed++;
          one_line(&e);
        }
        ac_err again;
        if (step(h, &loss, &again) != AC_OK) fail_msg("kind %d, call %d of %d: the next step: %s", k, at, total, again.msg);
        if (!(loss == loss && loss < 1e3)) fail_msg("kind %d, call %d: the next loss is %g", k, at, loss);
      }
      if (total < 40) fail_msg("a step makes %d calls", total);
      if (k == WITH_EINTR || k == SHORT) assert_int_equal(failed, 0);
      else assert_true(failed > 0);
    }
  ac_host_close(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_call)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
