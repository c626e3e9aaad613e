/* accel.data.core, the native part of accel.data.ahead: tensors of the host copied to a device
 * ahead of their use (tensor/prefetch.h).
 *
 *   copies(device) -> Copies         nil if the device has no streams
 *   copies:begin(t) -> tensor        t on the CPU, contiguous. Use the result after a join
 *   copies:join()                    copies begun so far have their values for all later calls
 *   copies:close()                   also __gc and __close
 */
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"
#include "tensor/prefetch.h"

#define COPIES "accel.data.Copies"

static int copies_close(lua_State *L) {
  aci_prefetch **p = luaL_checkudata(L, 1, COPIES);
  aci_prefetch_free(*p);
  *p = NULL;
  return 0;
}

static aci_prefetch *copies_at(lua_State *L, lac_state *S) {
  aci_prefetch **p = luaL_checkudata(L, 1, COPIES);
  if (*p == NULL) lac_error(L, S, AC_RELEASED, "the copies are closed");
  return *p;
}

static int copies(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_device *d = lac_check_device(L, S, 1, "device");
  if (!aci_prefetch_takes(d)) return lua_pushnil(L), 1;
  aci_prefetch **p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = NULL;
  luaL_setmetatable(L, COPIES);
  return aci_prefetch_new(d, p, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int copies_begin(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  aci_prefetch *p = copies_at(L, S);
  const ac_tensor *t = lac_check_tensor(L, S, 2, "t");
  lac_box *b = lac_box_new(L, S);
  ac_tensor *out;
  if (aci_prefetch_begin(p, t, &out, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  return 1;
}

static int copies_join(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  return aci_prefetch_join(copies_at(L, S), &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

LAC_OPEN("accel.data.core", prefetch) {
  static const luaL_Reg funcs[] = {{"copies", copies}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"begin", copies_begin}, {"join", copies_join}, {"close", copies_close}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", copies_close}, {"__close", copies_close}, {NULL, NULL}};
  lac_new_class(L, S, COPIES, metas, methods);
  lac_setfuncs(L, S, funcs);
}
