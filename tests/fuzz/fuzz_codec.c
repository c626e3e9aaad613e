/* Fuzz entry of the codec (bindings/base/codec.h): any bytes are refused with their place, or a value that says the same when
 * it is encoded and decoded again. Nothing stays alive. Built with libFuzzer by clang, with driver.c otherwise
 * (CMakeLists.txt here). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lualib.h>

#include "accel/host.h"
#include "accel/lua.h"
#include "accel/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define REQUIRE(x) \
  if (!(x)) (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), abort())

enum { COLLECT_EVERY = 64 };
static lua_State *L;
static int function; /* where the check is on its stack */
static int64_t live;

/* Encoded values differ where a string that came before is written out; what encode makes of them does not. */
static const char check[] =
    "local accel = ...\n"
    "return function(bytes)\n"
    "  local value, message, code = accel.decode(bytes, { max_bytes = 1 << 20 })\n"
    "  if code then\n"
    "    assert(value == nil and code == 'parse' and message:find('^decode: '), message)\n"
    "    return\n"
    "  end\n"
    "  local again = accel.encode(value)\n"
    "  local same, why, failed = accel.decode(again)\n"
    "  assert(not failed, why)\n"
    "  assert(accel.encode(same) == again)\n"
    "end\n";

static void open_once(void) {
  static ac_host *h;
  static char dir[4096];
  ac_host_options o = AC_HOST_OPTIONS_INIT;
  ac_err e;
  const char *build = getenv("ACCEL_TEST_BUILD");
  if (L != NULL) return;
  if (build != NULL) snprintf(dir, sizeof dir, "%s/share/lua/5.4", build), o.lua_dir = dir;
  o.memory_limit = (size_t)1 << 26;
  REQUIRE(ac_host_open(&o, &h, &e) == AC_OK);
  L = ac_host_lua(h);
  REQUIRE(luaL_loadbufferx(L, check, sizeof check - 1, "=check", "t") == LUA_OK);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "accel.core");
  REQUIRE(lua_pcall(L, 1, 1, 0) == LUA_OK);
  REQUIRE(lua_pcall(L, 1, 1, 0) == LUA_OK);
  function = lua_gettop(L);
  live = ac_tensor_live();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static int runs;
  open_once();
  lua_pushvalue(L, function);
  lua_pushlstring(L, (const char *)data, n);
  if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
    fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
    abort();
  }
  if (++runs % COLLECT_EVERY == 0) {
    lua_gc(L, LUA_GCCOLLECT);
    lua_gc(L, LUA_GCCOLLECT);
    REQUIRE(ac_tensor_live() == live);
  }
  return 0;
}
