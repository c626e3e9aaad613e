/* Misuse of the embedding API returns AC_INVALID with words and leaves the host usable: addresses that are NULL, counts and types
 * out of range, empty names, functions that lie about their results, a host closed from inside, a second thread, a longjmp. */
#include "support/test.h"

#include <lua.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/accel.h"

static ac_host *H; /* of the running test */
static ac_err E;

static int open_host(void **state) {
  (void)state;
  static char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  H = NULL;
  return ac_host_open(&o, &H, &E);
}

static int close_host(void **state) {
  (void)state;
  ac_host_close(H);
  return ac_tensor_live() == 0 ? 0 : -1;
}

static ac_status run(const char *code) { return ac_host_run_string(H, code, "t", 0, NULL, &E); }
static void assert_usable(void) {
  assert_ok(run("local x = require('accel').ones(3); assert(x:sum():item() == 3)"), E);
}

static void test_null(void **state) {
  (void)state;
  ac_host_value v = {.type = AC_HOST_NIL};
  assert_fails(ac_host_open(NULL, NULL, &E), INVALID, "out is NULL", E);
  assert_fails(ac_host_run_string(NULL, "x = 1", "t", 0, NULL, &E), INVALID, "host is NULL", E);
  assert_fails(run(NULL), INVALID, "code is NULL", E);
  assert_fails(ac_host_run_file(H, NULL, 0, NULL, &E), INVALID, "path is NULL", E);
  assert_fails(ac_host_run_string(H, "x = 1", "t", 3, NULL, &E), INVALID, "3 arguments at NULL", E);
  assert_fails(ac_host_run_string(H, "x = 1", "t", -1, NULL, &E), INVALID, "-1 arguments", E);
  const char *const hole[] = {"a", NULL};
  assert_fails(ac_host_run_string(H, "x = 1", "t", 2, hole, &E), INVALID, "argument 2 of 2 is NULL", E);
  assert_fails(ac_host_call(NULL, "f", 0, NULL, 0, NULL, NULL, &E), INVALID, "host is NULL", E);
  assert_fails(ac_host_call(H, NULL, 0, NULL, 0, NULL, NULL, &E), INVALID, "name is NULL", E);
  assert_fails(ac_host_call(H, "print", 2, NULL, 0, NULL, NULL, &E), INVALID, "2 arguments at NULL", E);
  assert_fails(ac_host_call(H, "print", -1, &v, 0, NULL, NULL, &E), INVALID, "-1 arguments", E);
  assert_fails(ac_host_call(H, "print", 0, NULL, 5, NULL, NULL, &E), INVALID, "5 results into NULL", E);
  assert_int_equal(ac_host_call(NULL, "f", 0, NULL, 0, NULL, NULL, NULL),
                   AC_INVALID); /* no place for the message */
  assert_fails(ac_host_register(H, "f", NULL, NULL, &E), INVALID, "'f' is NULL", E);
  assert_null(ac_host_ctx(NULL));
  assert_null(ac_host_lua(NULL));
  assert_string_equal(ac_host_error_text(NULL), "");
  ac_host_close(NULL);
  assert_usable();
}

static ac_status do_nothing(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r,
                            int *nr, ac_err *e) {
  (void)user, (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr, (void)e;
  return AC_OK;
}

static void test_names(void **state) {
  (void)state;
  static const char *const empty[] = {"", ".", "..", "x.", ".x", "a..b"};
  for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
    assert_fails(ac_host_call(H, empty[i], 0, NULL, 0, NULL, NULL, &E), INVALID, "has an empty part", E);
    assert_fails(ac_host_register(H, empty[i], do_nothing, NULL, &E), INVALID, "has an empty part", E);
  }
  assert_fails(ac_host_call(H, "a.b", 0, NULL, 0, NULL, NULL, &E), NOT_FOUND, "no function 'a.b'", E);
}

static void test_values(void **state) {
  (void)state;
  const ac_host_value type = {.type = (ac_host_type)99}, tensor = {.type = AC_HOST_TENSOR},
                      text = {.type = AC_HOST_STRING, .len = 3}, empty = {.type = AC_HOST_STRING};
  assert_fails(ac_host_call(H, "type", 1, &type, 0, NULL, NULL, &E), INVALID,
               "argument 1 has the unknown type 99", E);
  assert_fails(ac_host_call(H, "type", 1, &tensor, 0, NULL, NULL, &E), INVALID, "a tensor that is NULL", E);
  assert_fails(ac_host_call(H, "type", 1, &text, 0, NULL, NULL, &E), INVALID, "a string of 3 bytes at NULL",
               E);
  assert_ok(ac_host_call(H, "type", 1, &empty, 0, NULL, NULL, &E), E);
}

enum { MANY, NEGATIVE, NO_TENSOR, NO_TEXT, NO_TYPE, NO_STATUS, NO_REASON };
static ac_status lie(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r, int *nr,
                     ac_err *e) {
  (void)n, (void)a, (void)max, (void)e;
  *nr = 2;
  int64_t one = 1;
  r[0] = r[1] = (ac_host_value){.type = AC_HOST_NIL};
  switch (*(int *)user) {
    case MANY: *nr = 100000; break;
    case NEGATIVE: *nr = -1; break;
    case NO_TENSOR: /* the tensor beside it must not be lost */
      r[0].type = AC_HOST_TENSOR;
      if (ac_tensor_new(ac_ctx_default_device(c), AC_F32, 1, &one, &r[0].t, e) != AC_OK) return AC_OOM;
      r[1].type = AC_HOST_TENSOR;
      break;
    case NO_TEXT: r[1] = (ac_host_value){.type = AC_HOST_STRING, .len = 7}; break;
    case NO_TYPE: r[1].type = (ac_host_type)77; break;
    case NO_STATUS: return (ac_status)999;
    default: return AC_IO;
  }
  return AC_OK;
}

static void test_lies(void **state) {
  (void)state;
  static const struct {
    int what;
    const char *text;
  } cases[] = {{MANY, "n_results to 100000; expected 0 to 32"},
               {NEGATIVE, "n_results to -1"},
               {NO_TENSOR, "result 2 is a tensor that is NULL"},
               {NO_TEXT, "result 2 is a string of 7 bytes at NULL"},
               {NO_TYPE, "result 2 has the unknown type 77"},
               {NO_STATUS, "returned 999, which is not an ac_status"},
               {NO_REASON, "failed with io and gave no reason"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int what = cases[i].what;
    assert_ok(ac_host_register(H, "app.lie", lie, &what, &E), E);
    ac_status st = run("app.lie()");
    assert_int_equal(st, what == NO_REASON ? AC_IO : AC_INVALID);
    ac_test_contains(E.msg, "app.lie", __FILE__, __LINE__);
    ac_test_contains(E.msg, cases[i].text, __FILE__, __LINE__);
    assert_ok(run("assert(not pcall(app.lie)) collectgarbage()"), E);
  }
}

static jmp_buf out_of_script;
static ac_status leave_by_jump(void *user, ac_ctx *c, int n, const ac_host_value *a, int max,
                               ac_host_value *r, int *nr, ac_err *e) {
  (void)user, (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr, (void)e;
  longjmp(out_of_script, 1);
}
static ac_status close_inside(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r,
                              int *nr, ac_err *e) {
  (void)user, (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr, (void)e;
  ac_host_close(H);
  return AC_OK;
}

static void test_close_inside(void **state) {
  (void)state;
  assert_ok(ac_host_register(H, "close", close_inside, NULL, &E), E);
  assert_fails(run("close()"), INVALID, "called ac_host_close while a script ran", E);
  assert_fails(ac_host_call(H, "close", 0, NULL, 0, NULL, NULL, &E), INVALID,
               "called ac_host_close while a script ran", E);
  assert_fails(run("close() error('its own')"), CALLBACK, "its own", E);
  assert_usable();
}

/* A call that was left in this way must not keep its host from closing, or another thread from using it. */
static void test_jump(void **state) {
  (void)state;
  assert_ok(ac_host_register(H, "jump", leave_by_jump, NULL, &E), E);
  if (setjmp(out_of_script) == 0) assert_ok(run("jump()"), E);
  assert_usable();
  /* frames of lost calls do not pile up, and their variables are closed */
  assert_ok(run("closed = 0"), E);
  for (volatile int i = 0; i < 400; i++)
    if (setjmp(out_of_script) == 0)
      run("local x <close> = setmetatable({}, { __close = function() closed = closed + 1 end }) local co = coroutine.wrap(jump) jump()");
  assert_ok(run("assert(closed == 400, closed) local ok, why = pcall(error, 'x') assert(not ok and why == 'x')"), E);
  assert_usable();
}

typedef struct meeting {
  pthread_t first;
  atomic_bool inside, checked;
  ac_status st;
  ac_err e;
} meeting;

static ac_status wait_inside(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r,
                             int *nr, ac_err *e) {
  (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr, (void)e;
  meeting *m = user;
  atomic_store(&m->inside, true);
  while (!atomic_load(&m->checked)) sched_yield();
  return AC_OK;
}
static void *run_waiting(void *user) {
  meeting *m = user;
  m->st = ac_host_run_string(H, "wait()", "t", 0, NULL, &m->e);
  return NULL;
}

static void test_second_thread(void **state) {
  (void)state;
  meeting m = {.st = AC_OK};
  assert_ok(ac_host_register(H, "wait", wait_inside, &m, &E), E);
  assert_int_equal(pthread_create(&m.first, NULL, run_waiting, &m), 0);
  while (!atomic_load(&m.inside)) sched_yield();
  ac_status st = run("x = 1");
  atomic_store(&m.checked, true);
  pthread_join(m.first, NULL);
  assert_fails(st, INVALID, "another thread is running this host", E);
  assert_ok(m.st, m.e);
  assert_usable(); /* one thread after the other is fine */
}

static void test_tensors(void **state) {
  (void)state;
  ac_device *d = ac_ctx_default_device(ac_host_ctx(H));
  ac_tensor *t = NULL;
  const int64_t n = 4;
  float x[4] = {0};
  assert_fails(ac_tensor_new(d, (ac_dtype)99, 1, &n, &t, &E), INVALID, "99 is not a dtype", E);
  assert_fails(ac_tensor_new(d, AC_F32, 1, NULL, &t, &E), INVALID, "shape of 1 dims is NULL", E);
  assert_fails(ac_tensor_new(NULL, AC_F32, 1, &n, &t, &E), INVALID, "device is NULL", E);
  assert_fails(ac_tensor_new(d, AC_F32, 1, &n, NULL, &E), INVALID, "out is NULL", E);
  assert_fails(ac_tensor_wrap(d, (ac_dtype)-1, 1, &n, x, NULL, NULL, &t, &E), INVALID, "is not a dtype", E);
  assert_fails(ac_tensor_wrap(d, AC_F32, 1, &n, NULL, NULL, NULL, &t, &E), INVALID, "no address",
               E);
  assert_null(t);
}

/* After an internal check failed, the context that was used next takes no more calls. Another host of the process goes on. */
static void test_fault(void **state) {
  (void)state;
  ac_host *other = H;
  assert_int_equal(open_host(state), AC_OK);
  assert_int_equal(ac_fault(&E, "1 == 2", "here.c", 7), AC_INTERNAL);
  for (int i = 0; i < 2; i++) {
    assert_fails(run("x = 1"), INTERNAL, "1 == 2 (here.c:7)", E);
    assert_fails(ac_host_call(H, "type", 0, NULL, 0, NULL, NULL, &E), INTERNAL, "takes no more calls", E);
  }
  ac_host_close(H);
  H = other;
  assert_usable();
}

static ac_status fail_check(void *user, ac_ctx *c, int n, const ac_host_value *a, int max, ac_host_value *r, int *nr, ac_err *e) {
  (void)user, (void)c, (void)n, (void)a, (void)max, (void)r, (void)nr;
  return ac_fault(e, "2 == 3", "there.c", 9);
}

static void test_fault_inside(void **state) {
  (void)state;
  assert_ok(ac_host_register(H, "broken", fail_check, NULL, &E), E);
  assert_fails(run("broken()"), INTERNAL, "2 == 3 (there.c:9)", E);
  ac_host *h = H;
  assert_int_equal(open_host(state), AC_OK); /* its first call must not take over the fault of the other */
  assert_usable();
  ac_host_close(H);
  H = h;
  assert_fails(run("x = 1"), INTERNAL, "2 == 3", E);
  assert_int_equal(ac_host_interrupt(H, 0), false);
}

static int warnings;
static void count_warnings(void *user, ac_log_level level, const char *area, const char *text) {
  (void)user, (void)area;
  warnings += level == AC_LOG_WARN && strstr(text, "was closed already") != NULL;
}

/* A pointer that the program kept: no memory of the host is read. */
static void test_closed(void **state) {
  (void)state;
  ac_host *h = H;
  int code;
  ac_host_close(h);
  H = NULL;
  warnings = 0;
  ac_log_set(count_warnings, NULL, AC_LOG_WARN);
  ac_host_close(h);
  assert_int_equal(warnings, 1);
  ac_log_set(NULL, NULL, AC_LOG_OFF);
  assert_fails(ac_host_run_string(h, "x = 1", "t", 0, NULL, &E), INVALID, "the host was closed", E);
  assert_fails(ac_host_run_file(h, "x.lua", 0, NULL, &E), INVALID, "the host was closed", E);
  assert_fails(ac_host_call(h, "f", 0, NULL, 0, NULL, NULL, &E), INVALID, "the host was closed", E);
  assert_fails(ac_host_register(h, "f", do_nothing, NULL, &E), INVALID, "the host was closed", E);
  assert_fails(ac_host_listen(h, "x", &E), INVALID, "the host was closed", E);
  assert_null(ac_host_ctx(h));
  assert_null(ac_host_lua(h));
  assert_null(ac_host_world(h));
  ac_host_leave(h, 1);
  assert_string_equal(ac_host_error_text(h), "");
  assert_false(ac_host_refused(h));
  assert_false(ac_host_exit_code(h, &code));
}

/* A C program that clears the registry loses the host, and nothing crashes. Scripts cannot clear it. */
static void test_cleared_registry(void **state) {
  (void)state;
  for (int gc = 0; gc < 2; gc++) {
    assert_ok(run("local accel = require 'accel' t = accel.ones(4):requires_grad_() y = (t * 2):sum() "
                  "local R = debug.getregistry() assert(R._LOADED.string == string) local n = 0 for k in pairs(R) do n = n + 1 end assert(n > 3) "
                  "local ok, why = pcall(function() for k in pairs(R) do R[k] = nil end end) "
                  "assert(not ok and why:find('scripts cannot change it', 1, true), why)"), E);
    assert_usable();
    lua_State *L = ac_host_lua(H);
    const int top = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, LUA_REGISTRYINDEX) != 0) {
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      lua_pushnil(L);
      lua_rawset(L, LUA_REGISTRYINDEX);
    }
    assert_int_equal(lua_gettop(L), top);
    if (gc == 1) lua_gc(L, LUA_GCCOLLECT, 0);
    assert_fails(run("return 1"), INVALID, "the registry of this host's Lua state was cleared", E);
    assert_fails(ac_host_call(H, "print", 0, NULL, 0, NULL, NULL, &E), INVALID, "was cleared", E);
    assert_fails(ac_host_register(H, "f", do_nothing, NULL, &E), INVALID, "was cleared", E);
    ac_host_close(H);
    assert_int_equal(ac_tensor_live(), 0);
    assert_int_equal(open_host(state), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_null, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_names, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_values, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_lies, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_close_inside, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_jump, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_second_thread, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_tensors, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_closed, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_cleared_registry, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_fault, open_host, close_host),
      cmocka_unit_test_setup_teardown(test_fault_inside, open_host, close_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
