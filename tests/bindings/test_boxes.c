/* Boxes and their slots: one that dies, filled or not, gives its slot back, in a host's state as in a foreign one. */
#include "support/test.h"

#include <lauxlib.h>
#include <lualib.h>

#include "accel/accel.h"
#include "accel/lua.h"
#include "bindings/core/lac.h"

static void run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

/* Many more calls than slots: results that are dropped, results of calls that fail before there is one. */
static void check(lua_State *L) {
  const lac_state *S = lac_state_of(L);
  run(L,
      "accel = require 'accel.core'\n"
      "local a, b = accel.ones(2), accel.ones(3)\n"
      "for i = 1, 20000 do\n"
      "  local ok = pcall(accel.add, a, b)\n"
      "  local sum = a + a\n"
      "  assert(not ok and sum)\n"
      "  if i % 500 == 0 then collectgarbage() collectgarbage() accel.gc_check() end\n"
      "end\n"
      "a, b = nil, nil\n"
      "collectgarbage() collectgarbage()");
  assert_true(S->boxes->n_slots <= 4096);
  assert_int_equal(S->boxes->n_live, 0);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_host(void **state) {
  (void)state;
  ac_host *h = NULL;
  ac_err e;
  assert_ok(ac_host_open(NULL, &h, &e), e);
  lua_State *L = ac_host_lua(h);
  check(L);
  run(L, "collectgarbage 'incremental'");
  check(L);
  ac_host_close(h);
}

/* Memory of Lua's that looks like a box, down to the last bit (say, what an earlier host left there). */
static void test_impostor(void **state) {
  (void)state;
  ac_host *h = NULL;
  ac_err e;
  assert_ok(ac_host_open(NULL, &h, &e), e);
  lua_State *L = ac_host_lua(h);
  run(L, "accel = require 'accel.core' kept = accel.ones(1)");
  lua_getglobal(L, "kept");
  const lac_box *b = lac_box_test(L, -1);
  assert_non_null(b);
  memcpy(lua_newuserdatauv(L, sizeof *b, 0), b, sizeof *b);
  lua_pop(L, 2);
  run(L, "collectgarbage() collectgarbage() accel.collect()");
  assert_int_equal(ac_tensor_live(), 1);
  run(L, "assert(kept:item() == 1) kept = nil collectgarbage()");
  assert_int_equal(ac_tensor_live(), 0);
  ac_host_close(h);
}

static void test_foreign(void **state) {
  (void)state;
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  luaL_requiref(L, "accel.core", luaopen_accel_core, 0);
  lua_pop(L, 1);
  check(L);
  lua_close(L);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_host), cmocka_unit_test(test_foreign),
                                     cmocka_unit_test(test_impostor)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
