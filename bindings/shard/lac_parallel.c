/* accel.parallel.core, the native part of accel.parallel. The Lua files of accel/parallel are its
 * only users.
 *
 *   meta_absorbs(on) -> previous value    a call with an argument on meta takes place there,
 *                                         wherever the others are
 *   random_range([dim, at, of [, dim, at, of]])   dim `dim` (from 1) of tensors
 *       under dropout from now on is the range from `at` (from 0) of a dim of extent `of`, whose
 *       other ranges are on other ranks. Without arguments: whole tensors again
 *   phantom(i) -> name                 the i-th (1 or more) further meta device, opened the first
 *                                      time: "meta:1"
 *   replace(t, from)                   t has from's shape, memory and device from now on, and stays
 *                                      the parameter that it is
 *   backward_inputs(outputs, grads) -> deferred   a backward that leaves gradients of weights of
 *   products for deferred:run(), once, which
 *       returns whether there were any
 *   only_inputs() -> whether the backward under way gives gradients of named inputs (accel.grad,
 *   `inputs`) and of no other leaf */
#include <stdio.h>
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"
#include "shard/shard.h"

static int meta_absorbs(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checktype(L, 1, LUA_TBOOLEAN);
  lua_pushboolean(L, S->ctx->meta_absorbs);
  S->ctx->meta_absorbs = lua_toboolean(L, 1);
  return 1;
}

static int random_range(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_draw_range r[AC_DRAW_RANGES] = {{0}};
  const int n = lua_gettop(L) / 3;
  if (n > AC_DRAW_RANGES || lua_gettop(L) % 3 != 0)
    return lac_error(L, S, AC_INVALID, "random_range: expected up to %d times dim, at, of",
                     AC_DRAW_RANGES);
  for (int i = 0; i < n; i++) {
    const int64_t dim = lac_check_int(L, S, 3 * i + 1, "dim");
    r[i].at = lac_check_int(L, S, 3 * i + 2, "at");
    r[i].of = lac_check_int(L, S, 3 * i + 3, "of");
    if (dim < 1 || dim > AC_MAX_DIMS || r[i].at < 0 || r[i].of < r[i].at)
      return lac_error(L, S, AC_INVALID, "random_range: dim %d, position %d of %d", (int)dim,
                       (int)r[i].at, (int)r[i].of);
    r[i].dim = (int32_t)dim;
  }
  memcpy(ac_ctx_generator(S->ctx)->range, r, sizeof r);
  return 0;
}

static int phantom(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t i = lac_check_int(L, S, 1, "i");
  ac_device *d = NULL;
  ac_err e;
  if (i < 1 || i > 9)
    return lac_error(L, S, AC_INVALID, "phantom: expected 1 to 9, got %lld", (long long)i);
  if (aci_ctx_phantom(S->ctx, (int)i, &d, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushstring(L, d->name);
  return 1;
}

static int replace(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_tensor *t = lac_check_tensor(L, S, 1, "t"), *from = lac_check_tensor(L, S, 2, "from");
  return aci_tensor_replace(t, from, &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

#define DEFERRED "accel.parallel.Deferred"

static int deferred_gc(lua_State *L) {
  ac_deferred **d = luaL_checkudata(L, 1, DEFERRED);
  ac_deferred_free(*d);
  *d = NULL;
  return 0;
}

static int backward_inputs(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  lua_settop(L, 2);
  lac_list *out = lac_check_list(L, S, 1, "outputs", false),
           *g = lac_check_list(L, S, 2, "gradients", false);
  if (g->n != out->n)
    return lac_error(L, S, AC_INVALID, "backward_inputs: %d gradients for %d outputs", g->n,
                     out->n);
  ac_deferred **d = lua_newuserdatauv(L, sizeof *d, 0);
  *d = NULL;
  luaL_setmetatable(L, DEFERRED);
  lac_gc_due(L, S);
  lua_State *was = lac_enter(L, S);
  const ac_status st = ac_backward_inputs(S->ctx, out->n, out->t, g->t, d, &e);
  lac_leave(S, was);
  lac_list_release(out);
  lac_list_release(g);
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_gc_check(L, S);
  return 1;
}

static int only_inputs(lua_State *L) {
  lua_pushboolean(L, lac_get(L)->ctx->only_inputs);
  return 1;
}

static int deferred_run(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_deferred **d = luaL_checkudata(L, 1, DEFERRED);
  if (*d == NULL)
    return lac_error(L, S, AC_STATE,
                     "the deferred gradients of weights have already been computed");
  ac_deferred *own = *d;
  const bool any = ac_deferred_any(own);
  *d = NULL; /* a hook may ask for it again */
  lac_gc_due(L, S);
  lua_State *was = lac_enter(L, S);
  const ac_status st = ac_backward_weights(own, &e);
  lac_leave(S, was);
  ac_deferred_free(own);
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_gc_check(L, S);
  lua_pushboolean(L, any);
  return 1;
}

/* Puts the functions into the table on top. */
LAC_OPEN("accel.parallel.core", parallel) {
  static const luaL_Reg funcs[] = {{"meta_absorbs", meta_absorbs},
                                   {"phantom", phantom},
                                   {"random_range", random_range},
                                   {"replace", replace},
                                   {"backward_inputs", backward_inputs},
                                   {"only_inputs", only_inputs},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", deferred_gc}, {NULL, NULL}},
                        methods[] = {{"run", deferred_run}, {NULL, NULL}};
  lac_new_class(L, S, DEFERRED, metas, methods);
  lac_setfuncs(L, S, funcs);
}
