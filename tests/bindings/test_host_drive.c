/* Scripts in steps: until a step boundary, a time budget or the end; errors, interruption and giving up; the host is free in between. */
#include "support/test.h"

#include "host_case.h"

#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t number(ac_host *h, const char *function) {
  ac_err e;
  ac_host_value v;
  assert_ok(ac_host_call(h, function, 0, NULL, 1, &v, NULL, &e), e);
  assert_int_equal(v.type, AC_HOST_INT);
  return v.i;
}

static void test_steps(void **state) {
  (void)state;
  ac_host *h = host_open(NULL);
  ac_err e;
  ac_host_progress p;
  const char *const argv[] = {"4"};
  host_run(h, "at, closed = 0, 0 function where() return at end function is_closed() return closed end");
  assert_fails(ac_host_step(h, 0, &p, &e), STATE, "no script was started", e);
  assert_ok(
      ac_host_start(h,
                    "local a = require 'accel' local n = tonumber((...)) assert(arg[1] == '4') local m = a.nn.Linear(2, 1) "
                    "local o = a.optim.SGD(m:parameters(), { lr = 0.1 }) "
                    "for i = 1, n do at = i o:zero_grad() m(a.ones(3, 2)):sum():backward() pcall(function() o:step() end) end at = 99",
                    "loop", 1, argv, &e),
      e);
  assert_fails(ac_host_start(h, "return 1", "second", 0, NULL, &e), STATE, "has not ended", e);
  for (int i = 1; i <= 4; i++) {
    assert_ok(ac_host_step(h, 0, &p, &e), e);
    assert_int_equal(p, AC_HOST_AT_STEP);
    assert_int_equal(number(h, "where"), i);
    host_run(h, "assert(require('accel').ones(2):sum():item() == 2) require('accel').step()"); /* one of its own does not count */
  }
  assert_ok(ac_host_step(h, 0, &p, &e), e);
  assert_int_equal(p, AC_HOST_ENDED);
  assert_int_equal(number(h, "where"), 99);

  /* a file, with an error: its traceback has the frames of the script */
  char *path = ac_test_tmp_path("driven.lua");
  const char *text =
      "local accel = require 'accel'\nlocal function deep(t_in)\n  accel.step()\n  return t_in:matmul(t_in)\nend\ndeep(accel.ones(2, 3))\n";
  ac_test_write(path, text, strlen(text));
  assert_ok(ac_host_start_file(h, path, 0, NULL, &e), e);
  assert_ok(ac_host_step(h, 0, &p, &e), e);
  assert_int_equal(p, AC_HOST_AT_STEP);
  assert_fails(ac_host_step(h, 0, &p, &e), SHAPE, "driven.lua:4: matmul", e);
  assert_int_equal(p, AC_HOST_ENDED);
  ac_test_contains(ac_host_error_text(h), "t_in: f32 (2, 3)", __FILE__, __LINE__);
  ac_test_contains(ac_host_error_text(h), "'deep'", __FILE__, __LINE__);
  free(path);
  assert_fails(ac_host_start(h, "x = = 1", "bad", 0, NULL, &e), PARSE, "bad:1:", e);
  assert_ok(ac_host_start(h, "os.exit(3)", "exits", 0, NULL, &e), e);
  assert_ok(ac_host_step(h, 0, &p, &e), e);
  int code = 0;
  assert_true(ac_host_exit_code(h, &code) && code == 3 && p == AC_HOST_ENDED);
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_time(void **state) {
  (void)state;
  ac_host *h = host_open(NULL);
  ac_err e;
  ac_host_progress p = AC_HOST_ENDED;
  host_run(h, "n = 0 function count() return n end");
  assert_ok(ac_host_start(h, "while n < 3e7 do n = n + 1 end", "busy", 0, NULL, &e), e);
  int64_t before = 0;
  for (int i = 0; i < 3; i++) {
    const double t = now();
    assert_ok(ac_host_step(h, 0.01, &p, &e), e);
    const double took = now() - t;
    assert_int_equal(p, AC_HOST_PAUSED);
    assert_true(number(h, "count") > before);
    before = number(h, "count");
    assert_true(took >= 0.009);
    if (took > 0.05) ac_test_late("a step of 10 ms", took);
  }
  ac_host_interrupt_now(h);
  assert_fails(ac_host_step(h, 0.01, &p, &e), INTERRUPTED, "interrupted", e);
  assert_fails(ac_host_step(h, 0.01, &p, &e), STATE, "no script was started", e);
  /* without yields through C, and in coroutines, it runs on until it can */
  assert_ok(ac_host_start(h,
                          "table.sort({ 3, 1, 2 }, function(a, b) for i = 1, 1e5 do end return a < b end) "
                          "coroutine.wrap(function() for i = 1, 1e5 do end end)() n = -1 while true do end",
                          "c", 0, NULL, &e),
            e);
  while (number(h, "count") != -1) assert_ok(ac_host_step(h, 0.001, &p, &e), e);
  ac_host_stop(h);
  host_run(h, "log = {}");
  assert_ok(
      ac_host_start(
          h, "local x <close> = setmetatable({}, { __close = function() log[1] = 'closed' end }) while true do require('accel').step() end",
          "gives up", 0, NULL, &e),
      e);
  assert_ok(ac_host_step(h, 0, &p, &e), e);
  ac_host_stop(h);
  ac_host_stop(h);
  host_run(h, "assert(log[1] == 'closed')");
  assert_ok(ac_host_start(h, "require('accel').step()", "left", 0, NULL, &e), e);
  ac_host_close(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), AC_TEST_TIMED(test_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
