/* accel.autocast: the region in which matrix products and their like run in a 16-bit dtype.
 *   local _ <close> = accel.autocast{dtype = "bf16"}      accel.autocast({dtype = "bf16"}, f, ...)
 *   accel.autocast("cpu", ...) */
#include "accel/precision.h"
#include "bindings/core/guard.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"

static void restore(lua_State *L, lac_state *S, lac_guard *g) {
  ac_autocast_end(S->ctx, &g->was.cast);
}

/* A region belongs to the thread, not to a device: naming another device than the usual one is
 * reported once for each state. */
static void warn_of_device(lua_State *L) {
  if (lua_getfield(L, LUA_REGISTRYINDEX, "accel.autocast.device") == LUA_TNIL) {
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "accel.autocast.device");
    lua_getglobal(L, "warn"); /* as code in Lua warns */
    lua_pushliteral(
        L,
        "autocast: device has no effect: the region holds for tensors of every device; leave it out");
    lua_call(L, 1, 0);
  }
  lua_pop(L, 1);
}

static int autocast(lua_State *L) {
  static const char *const names[] = {"device", "device_type",   "dtype", "enabled",
                                      "cache",  "cache_enabled", NULL};
  lac_state *S = lac_get(L);
  int i = 1;
  ac_err e;
  /* the default device is asked for only if one is named: it may have to be opened */
  const ac_device *wanted = NULL;
  if (lua_type(L, i) == LUA_TSTRING) wanted = lac_check_device(L, S, i++, "device");
  bool has_opts = lua_istable(L, i);
  lac_opts o = lac_opts_open_first(L, S, has_opts ? i : lua_gettop(L) + 1, names);
  if (has_opts) i++;
  if (!lua_isnoneornil(L, i)) lac_check_function(L, S, i, "f");
  ac_dtype dt = AC_BF16;
  static const char *const keys[] = {"device_type", "device"};
  for (int k = 0; k < 2; k++)
    if (lac_opt_string(&o, keys[k], NULL) != NULL) wanted = lac_opt_device(&o, keys[k], NULL);
  if (wanted != NULL && wanted != ac_ctx_default_device(S->ctx)) warn_of_device(L);
  lac_opt_dtype(&o, "dtype", &dt);
  bool enabled = lac_opt_bool(&o, "enabled", true);
  bool cache = lac_opt_bool(&o, "cache", lac_opt_bool(&o, "cache_enabled", true));
  lac_guard *g = lac_guard_push(L, S, "autocast", restore);
  if (ac_autocast_begin(S->ctx, enabled, dt, cache, &g->was.cast, &e) != AC_OK)
    return lac_raise(L, S, &e);
  g->done = false;
  return lac_guard_finish(L, i);
}

static int is_autocast_enabled(lua_State *L) {
  lua_pushboolean(L, ac_autocast_enabled(lac_get(L)->ctx));
  return 1;
}

static int get_autocast_dtype(lua_State *L) {
  lua_pushstring(L, ac_dtype_name(ac_autocast_dtype(lac_get(L)->ctx)));
  return 1;
}

LAC_OPEN("accel", precision) {
  static const luaL_Reg funcs[] = {{"autocast", autocast},
                                   {"is_autocast_enabled", is_autocast_enabled},
                                   {"get_autocast_dtype", get_autocast_dtype},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
