/* accel.graph.core, the native part of accel.graph: steps that a device records and replays
 * (ops/core/capture.h).
 *
 *   open(device) -> capture, or nil and why not
 *   capture:begin(record)      a run of the function begins: watched, or recorded
 *   capture:finish(keep)       ends it. keep: it succeeded
 *   capture:why() -> string?   the operation that cannot be recorded. nil: none
 *   capture:counts() -> leaves, steps capture:wrote(tensor) -> whether the run wrote to it
 *   capture:differs() -> string?
 *   capture:replay()           capture:settle()           capture:close()
 *   note(why)                  called by a library whose operation cannot be recorded. No effect
 *                              without a run */
#include "bindings/core/lac.h"
#include "ops/core/capture.h"

#define CAPTURE "accel.graph.capture"
#define RUNNING "accel.graph.running" /* in the registry: the one whose run is under way */

static aci_capture **slot(lua_State *L) { return luaL_checkudata(L, 1, CAPTURE); }
static aci_capture *check(lua_State *L) {
  aci_capture *k = *slot(L);
  if (k == NULL) luaL_error(L, "this recorded step is closed");
  return k;
}

static int open_capture(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_device *d = NULL;
  const char *name = luaL_checkstring(L, 1);
  aci_capture **k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = NULL;
  luaL_setmetatable(L, CAPTURE);
  ac_status st = ac_ctx_device(S->ctx, name, &d, &e);
  if (st == AC_OK) st = aci_capture_open(S->ctx, d, k, &e);
  if (st == AC_OK) return 1;
  if (st != AC_UNSUPPORTED) return lac_raise(L, S, &e);
  lua_pushnil(L);
  lua_pushstring(L, e.msg);
  return 2;
}

static int collect(lua_State *L) {
  aci_capture **k = slot(L);
  aci_capture_close(*k);
  *k = NULL;
  return 0;
}

static int begin(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  aci_capture *k = check(L);
  if (aci_capture_begin(k, lua_toboolean(L, 2) ? AC_CAPTURE_RECORD : AC_CAPTURE_WATCH, &e) != AC_OK)
    return lac_raise(L, S, &e);
  lua_pushvalue(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, RUNNING);
  return 0;
}

static int finish(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  aci_capture *k = check(L);
  lua_pushnil(L);
  lua_setfield(L, LUA_REGISTRYINDEX, RUNNING);
  return aci_capture_end(k, lua_toboolean(L, 2), &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int note(lua_State *L) {
  const char *why = luaL_checkstring(L, 1);
  if (lua_getfield(L, LUA_REGISTRYINDEX, RUNNING) == LUA_TUSERDATA)
    aci_capture_note(*(aci_capture **)lua_touserdata(L, -1), why);
  return 0;
}

static int text_or_nil(lua_State *L, const char *text) {
  if (text == NULL || text[0] == '\0') lua_pushnil(L);
  else lua_pushstring(L, text);
  return 1;
}
static int why(lua_State *L) { return text_or_nil(L, aci_capture_why(check(L))); }
static int differs(lua_State *L) { return text_or_nil(L, aci_capture_differs(check(L))); }

static int counts(lua_State *L) {
  const aci_capture *k = check(L);
  lua_pushinteger(L, aci_capture_leaves(k));
  lua_pushinteger(L, aci_capture_steps(k));
  return 2;
}

static int wrote(lua_State *L) {
  lua_pushboolean(L, aci_capture_wrote(check(L), lac_check_tensor(L, lac_get(L), 2, "tensor")));
  return 1;
}

static int replay(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  return aci_capture_replay(check(L), &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}
static int settle(lua_State *L) {
  aci_capture_settle(check(L));
  return 0;
}

LAC_OPEN("accel.graph.core", graph) {
  static const luaL_Reg funcs[] = {{"open", open_capture}, {"note", note}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"begin", begin},   {"finish", finish},   {"why", why},
                                     {"counts", counts}, {"differs", differs}, {"replay", replay},
                                     {"settle", settle}, {"close", collect},   {"wrote", wrote},
                                     {NULL, NULL}};
  if (luaL_newmetatable(L, CAPTURE)) {
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lac_setfuncs(L, S, methods);
    lua_setfield(L, -2, "__index");
  }
  lua_pop(L, 1);
  lac_setfuncs(L, S, funcs);
}
