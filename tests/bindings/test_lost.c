/* Tensors whose boxes lost their finalizers: they go when the state closes, and what still reaches such a box then finds
 * it released. In a Lua state that is not ours, and in a host's. */
#include "support/test.h"

#include <lauxlib.h>
#include <lualib.h>

#include "accel/accel.h"
#include "accel/lua.h"

static lua_State *open_state(void) {
  lua_State *L = luaL_newstate();
  assert_non_null(L);
  luaL_openlibs(L);
  return L;
}

static void run(lua_State *L, const char *code) {
  if (luaL_dostring(L, code) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
}

static void open_accel(lua_State *L) {
  luaL_requiref(L, "accel", luaopen_accel_core, 1);
  lua_pop(L, 1);
}

/* Lua skips what it has no C stack for. */
static void lose(lua_State *L) {
  run(L,
      "warn '@off'\n"
      "collectgarbage 'stop'\n"
      "local function deep(n)\n"
      "  if n == 0 then for _ = 1, 5 do accel.ones(3) end collectgarbage() return end\n"
      "  return (('x'):gsub('x', function() deep(n - 1) end))\n"
      "end\n"
      "for n = 150, 210 do pcall(deep, n) end\n"
      "collectgarbage() collectgarbage()\n"
      "assert(accel.live() > 0, 'no finalizer was lost: this test tests nothing')");
  assert_true(ac_tensor_live() > 0);
}

static void test_full_stack(void **state) {
  (void)state;
  lua_State *L = open_state();
  open_accel(L);
  lose(L);
  lua_close(L);
  assert_int_equal(ac_tensor_live(), 0);
}

static void test_host(void **state) {
  (void)state;
  ac_host *h = NULL;
  ac_err e;
  assert_ok(ac_host_open(NULL, &h, &e), e);
  run(ac_host_lua(h), "accel = require 'accel.core'");
  lose(ac_host_lua(h));
  ac_host_close(h);
  assert_int_equal(ac_tensor_live(), 0);
}

static int n_checks;

/* Runs after accel closed: the object was there before it. */
static int check_closed(lua_State *L) {
  lua_getglobal(L, "late");
  assert_null(ac_lua_test(L, -1));
  lua_pop(L, 1);
  run(L,
      "assert(tostring(late):find 'released')\n"
      "assert(not pcall(function() return late + late end))\n"
      "assert(not pcall(function() return late.shape end))\n"
      "assert(not pcall(function() return late[1] end))\n"
      "assert(late == late)\n"
      "late:release()\n"
      "late:release()");
  n_checks++;
  return 0;
}

/* Nor are finalizers made while a state closes. */
static void test_closing(void **state) {
  (void)state;
  lua_State *L = open_state();
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, check_closed);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_setglobal(L, "first");
  open_accel(L);
  run(L, "last = setmetatable({}, {__gc = function() late = accel.ones(7) + 1 end})");
  lua_close(L);
  assert_int_equal(n_checks, 1);
  assert_int_equal(ac_tensor_live(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_stack), cmocka_unit_test(test_host),
                                     cmocka_unit_test(test_closing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
