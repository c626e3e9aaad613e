/* The embedding API: scripts, values, functions of the host, errors, several hosts in one process. */
#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lualib.h>

#include "accel/accel.h"
#include "accel/lua.h"

static ac_host_options options(void) {
  static char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  const char *build = getenv("ACCEL_TEST_BUILD");
  snprintf(dir, sizeof dir, "%s/share/lua/5.4", build != NULL ? build : ".");
  o.lua_dir = dir;
  return o;
}

static ac_host *open_host(void) {
  ac_host *h = NULL;
  ac_err e;
  ac_host_options o = options();
  assert_ok(ac_host_open(&o, &h, &e), e);
  return h;
}

static void run(ac_host *h, const char *code) {
  ac_err e;
  assert_ok(ac_host_run_string(h, code, "test", 0, NULL, &e), e);
}

static void test_scripts(void **state) {
  (void)state;
  ac_host *h = open_host();
  ac_err e;
  const char *const argv[] = {"one", "two"};
  errno = 77;
  assert_ok(ac_host_run_string(h, "local a, b = ...; assert(a == 'one' and arg[2] == b and arg[0] == 'test')",
                               "test", 2, argv, &e),
            e);
  assert_int_equal(errno, 77);
  run(h,
      "local accel = require 'accel'; assert(accel.ones(2, 3):sum():item() == 6); shared = accel.nn ~= nil");
  assert_string_equal(ac_host_error_text(h), "");

  assert_fails(ac_host_run_string(h, "x = = 1", "bad", 0, NULL, &e), PARSE, "bad:1:", e);
  assert_fails(ac_host_run_string(h, "error('told you')", "test", 0, NULL, &e), CALLBACK, "told you", e);
  assert_fails(ac_host_run_string(
                   h,
                   "local accel = require 'accel'\nlocal t_in = accel.ones(2, 3)\nreturn t_in:matmul(t_in)",
                   "test", 0, NULL, &e),
               SHAPE, "test:3: matmul", e);
  ac_test_contains(ac_host_error_text(h), "stack traceback", __FILE__, __LINE__);
  ac_test_contains(ac_host_error_text(h), "t_in: f32 (2, 3)", __FILE__, __LINE__);
  assert_fails(ac_host_run_string(h, "error(setmetatable({}, {__tostring = error}))", "test", 0, NULL, &e),
               CALLBACK, "cannot be printed", e);
  assert_fails(ac_host_run_string(h, "return undeclared_thing", "test", 0, NULL, &e), CALLBACK,
               "undeclared_thing", e);
  assert_fails(ac_host_run_file(h, "/no/such/script.lua", 0, NULL, &e), NOT_FOUND, "/no/such/script.lua", e);

  /* os.exit ends the script only */
  int code = -1;
  assert_false(ac_host_exit_code(h, &code));
  run(h, "os.exit(3); error('not reached')");
  assert_true(ac_host_exit_code(h, &code));
  assert_int_equal(code, 3);
  run(h, "os.exit(true)");
  assert_true(ac_host_exit_code(h, &code));
  assert_int_equal(code, 0);
  run(h, "assert(shared == true)");
  assert_false(ac_host_exit_code(h, &code));

  char *path = ac_test_tmp_path("script.lua");
  const char *text = "#!/usr/bin/env accel-run\nassert(arg[0]:find('script.lua', 1, true) and ... == 'one')";
  ac_test_write(path, text, strlen(text));
  assert_ok(ac_host_run_file(h, path, 1, argv, &e), e);
  free(path);
  ac_host_close(h);
  ac_host_close(NULL);
}

static void test_call(void **state) {
  (void)state;
  ac_host *h = open_host();
  ac_err e;
  ac_host_value r[4], args[3] = {{.type = AC_HOST_INT, .i = 20},
                                 {.type = AC_HOST_NUMBER, .n = 0.5},
                                 {.type = AC_HOST_STRING, .len = 3, .s = "a\0b"}};
  int n = -1;
  run(h, "local accel = require 'accel'\n"
         "function add(a, b, s) return a + b, s .. '!', #s == 3, nil end\n"
         "model = {step = function(t) return t * 2, t.shape[1] end}\n"
         "function fails() error('inside') end\n"
         "function table_out() return {} end");
  assert_ok(ac_host_call(h, "add", 3, args, 4, r, &n, &e), e);
  assert_int_equal(n, 4);
  assert_true(r[0].type == AC_HOST_NUMBER && r[0].n == 20.5);
  assert_true(r[1].type == AC_HOST_STRING && r[1].len == 4 && memcmp(r[1].s, "a\0b!", 5) == 0);
  assert_true(r[2].type == AC_HOST_BOOL && r[2].b && r[3].type == AC_HOST_NIL);
  assert_ok(ac_host_call(h, "add", 3, args, 1, r, &n, &e), e);
  assert_int_equal(n, 1);

  /* memory of ours as a tensor, without a copy; the result is ours too */
  float data[4] = {1, 2, 3, 4};
  int64_t shape[2] = {2, 2};
  ac_device *cpu = ac_ctx_default_device(ac_host_ctx(h));
  ac_host_value t = {.type = AC_HOST_TENSOR};
  assert_ok(ac_tensor_wrap(cpu, AC_F32, 2, shape, data, NULL, NULL, &t.t, &e), e);
  assert_ok(ac_host_call(h, "model.step", 1, &t, 4, r, &n, &e), e);
  assert_int_equal(n, 2);
  assert_true(r[0].type == AC_HOST_TENSOR && r[1].type == AC_HOST_INT && r[1].i == 2);
  ac_scalar s;
  assert_ok(ac_tensor_item(r[0].t, 3, &s, &e), e);
  assert_true(s.f == 8);
  ac_tensor_release(r[0].t);
  ac_tensor_release(t.t);

  assert_fails(ac_host_call(h, "nothing", 0, NULL, 0, NULL, &n, &e), NOT_FOUND, "no function 'nothing'", e);
  assert_fails(ac_host_call(h, "model.nothing", 0, NULL, 0, NULL, &n, &e), NOT_FOUND, "model.nothing", e);
  assert_fails(ac_host_call(h, "no.such.table", 0, NULL, 0, NULL, &n, &e), NOT_FOUND, "no.such.table", e);
  assert_fails(ac_host_call(h, "fails", 0, NULL, 0, NULL, &n, &e), CALLBACK, "inside", e);
  assert_ok(ac_host_call(h, "table_out", 0, NULL, 1, r, &n, &e), e);
  assert_int_equal(r[0].type, AC_HOST_TABLE);
  ac_host_value_release(&r[0]);
  ac_host_close(h);
}

static int64_t calls;

static ac_status give(void *user, ac_ctx *c, int n_args, const ac_host_value *args, int max_results,
                      ac_host_value *results, int *n_results, ac_err *e) {
  int64_t shape[1] = {3};
  calls++;
  assert_ptr_equal(user, &calls);
  assert_true(max_results >= 3);
  if (n_args > 0 && args[0].type == AC_HOST_STRING)
    return AC_FAIL(e, UNSUPPORTED, "no batch named %s", args[0].s);
  if (n_args > 0 && args[0].type != AC_HOST_INT) return AC_FAIL(e, DTYPE, "expected a number of a batch");
  AC_TRY(ac_tensor_new(ac_ctx_default_device(c), AC_F64, 1, shape, &results[0].t, e));
  results[0].type = AC_HOST_TENSOR;
  double *p = ac_tensor_data(results[0].t);
  for (int i = 0; i < 3; i++) p[i] = i + (n_args > 0 ? (double)args[0].i : 0);
  results[1] = (ac_host_value){.type = AC_HOST_STRING, .len = 2, .s = "ok"};
  results[2] = (ac_host_value){.type = AC_HOST_BOOL, .b = true};
  *n_results = 3;
  return AC_OK;
}

static void test_register(void **state) {
  (void)state;
  ac_host *h = open_host();
  ac_err e;
  calls = 0;
  assert_ok(ac_host_register(h, "load_batch", give, &calls, &e), e);
  assert_ok(ac_host_register(h, "app.data.load", give, &calls, &e), e);
  run(h,
      "local t, s, b = load_batch(5)\n"
      "assert(t:tolist()[3] == 7 and t.dtype == 'f64' and s == 'ok' and b == true)\n"
      "assert(app.data.load():sum():item() == 3)\n"
      "local ok, err = pcall(load_batch, 'x')\n"
      "assert(not ok and err.code == 'unsupported' and err:find('no batch named x', 1, true) and "
      "err:find('load_batch', 1, true))\n"
      "ok, err = pcall(load_batch, {})\n"
      "assert(not ok and err:find('expected a number of a batch', 1, true))");
  assert_int_equal(calls, 4);
  assert_fails(ac_host_register(h, "print.x", give, NULL, &e), STATE, "is not a table", e);
  ac_host_close(h);
}

/* Two hosts share nothing but the process. */
static void test_two_hosts(void **state) {
  (void)state;
  ac_host *a = open_host(), *b = open_host();
  run(a, "accel = require 'accel'; accel.manual_seed(1); kept = accel.ones(10); mode = accel.no_grad()");
  run(b, "accel = require 'accel'; assert(rawget(_G, 'kept') == nil and accel.is_grad_enabled()); kept = "
         "accel.zeros(2)");
  assert_ptr_not_equal(ac_host_ctx(a), ac_host_ctx(b));
  /* a storage crosses and outlives its host */
  ac_err e;
  ac_host_value v, none;
  int n;
  run(a, "function give() return kept end");
  run(b, "function take(t) crossed = t; return t:sum():item() end");
  assert_ok(ac_host_call(a, "give", 0, NULL, 1, &v, &n, &e), e);
  assert_ok(ac_host_call(b, "take", 1, &v, 1, &none, &n, &e), e);
  assert_true(none.n == 10);
  ac_tensor_release(v.t);
  run(a, "mode:close()");
  ac_host_close(a);
  run(b, "assert(crossed:sum():item() == 10)");
  ac_host_close(b);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_interrupt(void **state) {
  (void)state;
  ac_host *h = open_host();
  ac_err e;
  run(h, "accel = require 'accel'; accel.step()");
  assert_true(ac_host_interrupt(h, 2));
  assert_in_range(ac_host_interrupt_grace(h), 1000, 100000);
  assert_fails(ac_host_run_string(h, "accel.step()", "test", 0, NULL, &e), INTERRUPTED, "test:1: ", e);
  assert_int_equal(ac_host_interrupt_grace(h), 0);
  run(h, "accel.step()");
  run(h, "accel.on_interrupt('flag')");
  ac_host_interrupt(h, 2);
  assert_in_range(ac_host_interrupt_grace(h), 1000, 100000);
  run(h, "local yes, signal = accel.interrupted() assert(yes and signal == 2)");
  assert_int_equal(ac_host_interrupt_grace(h), 0);
  run(h, "accel.step(); assert(accel.interrupted())");
  assert_fails(ac_host_run_string(h, "error({1})", "test", 0, NULL, &e), CALLBACK,
               "error object { 1 }", e);
  ac_host_interrupt_now(h);
  assert_fails(ac_host_run_string(h, "while true do end", "test", 0, NULL, &e), INTERRUPTED, "interrupted",
               e);
  run(h, "assert(1 == 1)");
  ac_host_close(h);
}

/* Lua states of others: accel/lua.h through the host's own. */
static void test_lua_values(void **state) {
  (void)state;
  ac_host *h = open_host();
  lua_State *L = ac_host_lua(h);
  assert_ptr_equal(ac_lua_ctx(L), ac_host_ctx(h));
  assert_null(ac_lua_test(L, 1));
  ac_err e;
  ac_tensor *t = NULL;
  int64_t shape[1] = {2};
  assert_ok(ac_tensor_new(ac_ctx_default_device(ac_host_ctx(h)), AC_I32, 1, shape, &t, &e), e);
  ac_lua_push(L, t);
  assert_ptr_equal(ac_lua_check(L, -1), t);
  ac_tensor_release(t);
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

/* A Lua state that somebody else made: nothing of the host's own is changed in it. */
static void test_open_in_other_state(void **state) {
  (void)state;
  ac_host_options o = options();
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_pushfstring(L, "%s/?/init.lua;%s/?.lua", o.lua_dir, o.lua_dir);
  lua_setfield(L, -2, "path");
  lua_pushcfunction(L, luaopen_accel);
  assert_int_equal(lua_pcall(L, 0, 1, 0), LUA_OK);
  lua_setglobal(L, "accel");
  const char *code = "assert(accel.ones(3):sum():item() == 3 and accel.nn ~= nil and undeclared == nil)\n"
                     "assert(require('accel.core') == accel)\n"
                     "local ok, err = pcall(accel.zeros(2, 3).matmul, accel.zeros(2, 3), accel.zeros(2, 3))\n"
                     "assert(not ok and err.code == 'shape')";
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
  lua_close(L);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_bad_options(void **state) {
  (void)state;
  ac_host *h = (ac_host *)1;
  ac_err e;
  ac_host_options o = options();
  o.struct_size = 3;
  assert_fails(ac_host_open(&o, &h, &e), INVALID, "struct_size is 3", e);
  assert_null(h);
  o.struct_size = 0;
  assert_fails(ac_host_open(&o, &h, &e), INVALID, "struct_size is 0", e);
  o = options();
  o.memory_limit = 1 << 20;
  assert_ok(ac_host_open(&o, &h, &e), e);
  assert_fails(ac_host_run_string(h, "local a = require 'accel'; a.zeros(1 << 20)", "test", 0, NULL, &e), OOM,
               "out of memory", e);
  run(h, "local a = require 'accel'; assert(a.zeros(4):sum():item() == 0)");
  ac_host_close(h);
}

/* A program that was built with older headers passes a smaller struct, one with newer headers a larger one. */
static void test_struct_sizes(void **state) {
  (void)state;
  ac_err e;
  ac_host *h = NULL;
  ac_host_options o = options();
  o.strict = false;        /* in the part that the older program knows */
  o.device = "no such one"; /* beyond its struct */
  o.struct_size = offsetof(ac_host_options, device);
  assert_ok(ac_host_open(&o, &h, &e), e);
  run(h, "assert(undeclared == nil)");
  ac_host_close(h);

  struct {
    ac_host_options now;
    uint64_t later[4];
  } newer = {.now = options()};
  newer.now.struct_size = sizeof newer;
  assert_ok(ac_host_open(&newer.now, &h, &e), e);
  run(h, "assert(not pcall(function() return undeclared end))");
  ac_host_close(h);
  newer.later[3] = 1;
  assert_fails(ac_host_open(&newer.now, &h, &e), UNSUPPORTED, "sets a field that this library lacks", e);
  assert_null(h);

  ac_ctx *c = NULL;
  struct {
    ac_ctx_options now;
    uint64_t later[2];
  } ctx = {.now = AC_CTX_OPTIONS_INIT};
  ctx.now.struct_size = sizeof ctx;
  assert_ok(ac_ctx_new(&ctx.now, &c, &e), e);
  ac_ctx_free(c);
  ctx.later[0] = 1;
  assert_fails(ac_ctx_new(&ctx.now, &c, &e), UNSUPPORTED, "newer version of accel", e);
  ctx.now.struct_size = offsetof(ac_ctx_options, device);
  ctx.now.device = "no such one";
  assert_ok(ac_ctx_new(&ctx.now, &c, &e), e);
  ac_ctx_free(c);
}

/* The version of the headers and of the library. */
static void test_version(void **state) {
  (void)state;
  char text[40];
  snprintf(text, sizeof text, "%d.%d.%d", AC_VERSION_MAJOR, AC_VERSION_MINOR, AC_VERSION_PATCH);
  assert_string_equal(ac_version(), text);
  assert_string_equal(AC_VERSION, text);
  assert_int_equal(ac_version_number(), AC_VERSION_NUMBER);
  ac_host *h = open_host();
  char code[120];
  snprintf(code, sizeof code, "assert(require('accel')._VERSION == '%s')", text);
  run(h, code);
  ac_host_close(h);
}

static void test_world(void **state) {
  (void)state;
  ac_err e;
  ac_host *h = open_host();
  assert_null(ac_host_world(h)); /* not before it is used */
  run(h, "assert(not require('accel').dist.is_initialized())");
  assert_null(ac_host_world(h));
  run(h, "local dist = require('accel').dist\nassert(dist.get_world_size() == 1)\nw = dist.all_reduce(require('accel').ones(3), {async_op = true})");
  assert_non_null(ac_host_world(h));
  assert_int_equal(ac_world_size(ac_host_world(h)), 1);
  assert_fails(ac_host_run_string(h, "require('accel').dist.all_reduce(1)", "test", 0, NULL, &e), INVALID, "test:1: ", e);
  assert_non_null(ac_host_world(h));
  ac_host_leave(h, 0);
  assert_null(ac_host_world(h));
  ac_host_leave(h, 0);
  run(h, "assert(w:wait())");
  assert_fails(ac_host_run_string(h, "require('accel').dist.barrier()", "test", 0, NULL, &e), STATE, "destroyed", e);
  ac_host_close(h);

  /* join: only where the environment speaks of ranks */
  ac_host_options o = options();
  o.join = true;
  assert_ok(ac_host_open(&o, &h, &e), e);
  assert_null(ac_host_world(h));
  ac_host_close(h);
  assert_int_equal(setenv("RANK", "0", 1), 0);
  assert_int_equal(setenv("WORLD_SIZE", "1", 1), 0);
  assert_ok(ac_host_open(&o, &h, &e), e);
  assert_non_null(ac_host_world(h));
  run(h, "assert(require('accel').dist.is_initialized())");
  assert_fails(ac_host_run_string(h, "error('told you')", "test", 0, NULL, &e), CALLBACK, "told you", e);
  ac_host_close(h);
  assert_int_equal(setenv("RANK", "1", 1), 0);
  assert_fails(ac_host_open(&o, &h, &e), INVALID, "RANK=1 must be below WORLD_SIZE=1", e);
  o.join = false;
  assert_ok(ac_host_open(&o, &h, &e), e);
  assert_fails(ac_host_run_string(h, "require('accel').dist.get_rank()", "test", 0, NULL, &e), INVALID, "WORLD_SIZE", e);
  ac_host_close(h);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_scripts),
                                     cmocka_unit_test(test_call),
                                     cmocka_unit_test(test_register),
                                     cmocka_unit_test(test_two_hosts),
                                     cmocka_unit_test(test_interrupt),
                                     cmocka_unit_test(test_lua_values),
                                     cmocka_unit_test(test_open_in_other_state),
                                     cmocka_unit_test(test_struct_sizes),
                                     cmocka_unit_test(test_version),
                                     cmocka_unit_test(test_world),
                                     cmocka_unit_test(test_bad_options)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
