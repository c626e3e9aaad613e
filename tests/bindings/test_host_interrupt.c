/* ac_host_interrupt_now from another thread: the script ends within 100 ms, wherever it is and whatever it catches, and the host can be
 * used again. Finalizers of scripts can be refused. */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "accel/accel.h"

static ac_host *open_with(uint32_t rights) {
  static char dir[4096];
  ac_host *h = NULL;
  ac_err e;
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  o.rights = rights;
  assert_ok(ac_host_open(&o, &h, &e), e);
  return h;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct shot {
  ac_host *h;
  double at;
} shot;

static void *fire(void *user) {
  shot *s = user;
  usleep(100000);
  s->at = now();
  ac_host_interrupt_now(s->h);
  return NULL;
}

static const char *const loops[] = {
    "while true do end",
    "coroutine.wrap(function() while true do end end)()",
    "local a = require 'accel' coroutine.wrap(function() local x = a.ones(2) while true do x = x + 1 end end)()",
    "local co = coroutine.create(function() local i = 0 while true do i = i + 1 end end) coroutine.resume(co)",
    "local co = coroutine.wrap(function() while true do coroutine.yield(1) end end) while true do co() end",
    "while true do coroutine.wrap(function() for i = 1, 100 do end end)() end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function(e) while true do end end) end",
    "local function f() pcall(f) f() end while true do pcall(f) end",
    "while true do local x <close> = setmetatable({}, { __close = function() while true do end end }) end",
    "local co = coroutine.create(function() local x <close> = setmetatable({}, { __close = function() while true do end end }) "
    "coroutine.yield() end) coroutine.resume(co) coroutine.close(co)",
    "local t = setmetatable({}, { __index = function(t, k) return t[k + 1] end }) while true do pcall(function() return t[1] end) end",
    "error(setmetatable({}, { __tostring = function() while true do end end }))",
    "local a = require 'accel' local x = a.ones(64, 64):requires_grad_() local y = x for _ = 1, 200 do y = y:matmul(x) * 0.01 end "
    "while true do a.grad(y:sum(), x, { retain_graph = true }) end",
    "local a = require 'accel' local x = a.ones(4):requires_grad_() local y = x * 2 y:register_hook(function() while true do end end) "
    "y:sum():backward()",
    "local s = ('a'):rep(40) s:find(('a*'):rep(40) .. 'b')",
    "local s = ('a'):rep(40) s:match(('a-'):rep(40) .. 'b')",
    "local s = ('a'):rep(40) s:gsub(('a?'):rep(40) .. ('a*'):rep(20) .. 'b', 'x')",
    "for _ in (('a'):rep(40)):gmatch(('a*'):rep(40) .. 'b') do end",
    "local t = {} for i = 1, 3e6 do t[i] = i * 7919 % 3000017 end while true do table.sort(t) table.sort(t, math.ult) end",
    "local t = {} for i = 1, 1e6 do t[i] = 'abcdefgh' end while true do pcall(table.concat, t) end",
    "while true do pcall(string.rep, 'ab', 1 << 29) end",
    "os.exit = 1 while true do pcall(error, nil) end",
};

static void stop_all(void **state) {
  (void)state;
  ac_host *h = open_with(0);
  ac_err e;
  double worst = 0;
  for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
    if (ac_test_every(5) > 1 && i % 5 != 0) continue;
    shot s = {.h = h};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fire, &s), 0);
    ac_status st = ac_host_run_string(h, loops[i], "loop", 0, NULL, &e);
    const double end = now();
    pthread_join(thread, NULL);
    if (st != AC_INTERRUPTED) fail_msg("%s: %s: %s", loops[i], ac_status_name(st), st != AC_OK ? e.msg : "");
    ac_test_contains(e.msg, "interrupted", __FILE__, __LINE__);
    ac_test_contains(ac_host_error_text(h), "interrupted", __FILE__, __LINE__);
    if (end - s.at > worst) worst = end - s.at;
    if (end - s.at > 0.1 && ac_test_every(5) == 1) ac_test_late(loops[i], end - s.at);
    assert_ok(
        ac_host_run_string(h,
                           "local n = 0 for i = 1, 1000 do n = n + i end assert(n == 500500 and require('accel').ones(3):sum():item() == 3)"
                           " local co = coroutine.wrap(function(a) return a + coroutine.yield(a) end) assert(co(2) == 2 and co(3) == 5)",
                           "after", 0, NULL, &e),
        e);
  }
  print_message("the latest stop came after %.1f ms\n", 1e3 * worst);
  ac_host_close(h);
}

/* Before a script runs, from a function of the program, and in a call within a call. */
static ac_status stop_self(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r, int *nr, ac_err *e) {
  (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr;
  ac_host *h = user;
  ac_host_interrupt_now(h);
  const ac_status st = ac_host_call(h, "inner", 0, NULL, 0, NULL, NULL, e);
  return st == AC_INTERRUPTED ? AC_OK : AC_FAIL(e, STATE, "the inner call returned %s", ac_status_name(st));
}

static ac_host *of_once;
static ac_status fire_once(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r, int *nr, ac_err *e) {
  (void)user, (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr, (void)e;
  ac_host_interrupt_once(of_once);
  return AC_OK;
}

static void test_nested(void **state) {
  (void)state;
  ac_host *h = open_with(0);
  ac_err e;
  assert_ok(ac_host_register(h, "stop_self", stop_self, h, &e), e);
  assert_ok(ac_host_run_string(h, "function inner() local n = 0 while true do n = n + 1 end end", "t", 0, NULL, &e), e);
  assert_fails(ac_host_run_string(h, "pcall(stop_self) error('went on')", "t", 0, NULL, &e), INTERRUPTED, "interrupted", e);
  ac_host_interrupt_now(h);
  assert_fails(ac_host_run_string(h, "pcall(error) pcall(error) return 1", "t", 0, NULL, &e), INTERRUPTED, "t:1: interrupted", e);
  assert_ok(ac_host_run_string(h, "assert(true)", "t", 0, NULL, &e), e);
  /* one error, which the script may catch */
  of_once = h;
  assert_ok(ac_host_register(h, "once", fire_once, NULL, &e), e);
  assert_ok(ac_host_run_string(h,
                               "local ok, why = pcall(function() once() while true do end end) assert(not ok and why.code == 'interrupted') "
                               "assert(require('accel').ones(2):sum():item() == 2)",
                               "t", 0, NULL, &e),
            e);
  ac_host_interrupt_once(h);
  assert_fails(ac_host_run_string(h, "while true do end", "t", 0, NULL, &e), INTERRUPTED, "t:1: interrupted", e);
  ac_host_interrupt_now(h);
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_finalizers(void **state) {
  (void)state;
  ac_host *h = open_with(AC_HOST_NO_FINALIZERS);
  ac_err e;
  static const char *const refused[] = {
      "setmetatable({}, { __gc = function() while true do end end })",
      "debug.setmetatable({}, { __gc = function() end })",
      "setmetatable({}, { __gc = true })",
      "setmetatable({}, { __gc = coroutine.wrap(function() end) })",
      "local gc = load('return function() end', '=lua/strict.lua')() setmetatable({}, { __gc = gc })",
      "local N = require('accel').nn.Module:extend 'N' N.__gc = function() end N()",
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_fails(ac_host_run_string(h, refused[i], "t", 0, NULL, &e), CALLBACK, "refuses finalizers (__gc)", e);
  assert_ok(ac_host_run_string(
                h,
                "local t = setmetatable({}, { __index = { 7 } }) assert(t[1] == 7) assert(getmetatable(setmetatable(t, nil)) == nil) "
                "assert(not pcall(setmetatable, 1, {})) local a = require 'accel' a.nn.Linear(2, 2)(a.ones(1, 2)) "
                "for _ in a.data.DataLoader { dataset = a.data.TensorDataset(a.ones(4, 2)), batch_size = 2 }() do end",
                "t", 0, NULL, &e),
            e);
  ac_host_close(h);
}

int main(void) {
  const struct CMUnitTest tests[] = {AC_TEST_TIMED(stop_all), cmocka_unit_test(test_nested), cmocka_unit_test(test_finalizers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
