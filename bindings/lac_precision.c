/* accel.autocast: the region in which matrix products and their like run in a 16-bit dtype.
 *   local _ <close> = accel.autocast{dtype = "bf16"}      accel.autocast({dtype = "bf16"}, f, ...)      accel.autocast("cpu", ...) */
#include "accel/precision.h"
#include "core/guard.h"
#include "core/lac.h"
#include "ops/ctx_impl.h"

static void restore(lua_State *L, lac_state *S, lac_guard *g) { ac_autocast_end(S->ctx, &g->was.cast); }

static int autocast(lua_State *L) {
  static const char *const names[] = {"device", "device_type",   "dtype", "enabled",
                                      "cache",  "cache_enabled", NULL};
  lac_state *S = lac_get(L);
  int i = 1;
  ac_err e;
  if (lua_type(L, i) == LUA_TSTRING) lac_check_device(L, S, i++, "device");
  bool has_opts = lua_istable(L, i);
  lac_opts o = lac_opts_open(L, S, has_opts ? i : lua_gettop(L) + 1, names);
  if (has_opts) i++;
  if (!lua_isnoneornil(L, i)) lac_check_function(L, S, i, "f");
  ac_dtype dt = AC_BF16;
  lac_opt_device(&o, "device", S->ctx->device[0]);
  lac_opt_device(&o, "device_type", S->ctx->device[0]);
  lac_opt_dtype(&o, "dtype", &dt);
  bool enabled = lac_opt_bool(&o, "enabled", true);
  bool cache = lac_opt_bool(&o, "cache", lac_opt_bool(&o, "cache_enabled", true));
  lac_guard *g = lac_guard_push(L, S, "autocast", restore);
  if (ac_autocast_begin(S->ctx, enabled, dt, cache, &g->was.cast, &e) != AC_OK) return lac_raise(L, S, &e);
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
