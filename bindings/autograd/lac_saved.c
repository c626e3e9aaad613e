/* accel.autograd.core, the native part of accel.autograd: hooks on saved tensors, regions that are
 * computed again, anomaly mode, and the way in for ops while one of these is on. The Lua files of
 * accel/autograd are its only users.
 *
 *   hooks(pack, unpack)                                 installed from here on. h:close() removes
 *   them
 *   region(again, state, early_stop, check, ...)        for the block: local r <close> =
 *   region(...)
 *   set_anomaly(on, check_nan) -> on, check_nan         the previous values
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/callback.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"

/* ---- hooks on saved tensors ---- */

typedef struct hooks {
  ac_saved_hooks h;
  lac_state *S;
  lac_callback *cb; /* {pack, unpack}. NULL: closed */
} hooks;

typedef struct pack_call {
  lac_callback *cb, *packed;
  ac_tensor *t, *result;
} pack_call;

static int pack_body(lua_State *L) {
  pack_call *p = lua_touserdata(L, 1);
  lac_state *S = p->cb->state;
  lua_createtable(L, 2, 0); /* 2: {unpack, value} */
  lua_rawgeti(L, LUA_REGISTRYINDEX, p->cb->ref);
  lua_rawgeti(L, 3, 2);
  lua_rawseti(L, 2, 1);
  lua_rawgeti(L, 3, 1);
  lac_push_tensor(L, S, p->t);
  lua_call(L, 1, 1);
  lua_rawseti(L, 2, 2);
  p->packed = lac_callback_new(L, S, 2);
  return 0;
}

static ac_status pack(void *user, ac_tensor *t, void **packed, ac_err *e) {
  pack_call p = {.cb = ((hooks *)user)->cb, .t = t};
  if (p.cb == NULL) return AC_FAIL(e, STATE, "the hooks on saved tensors are closed");
  AC_TRY(lac_protect(p.cb->state, pack_body, &p, e));
  *packed = p.packed;
  return AC_OK;
}

static int unpack_body(lua_State *L) {
  pack_call *p = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, p->cb->ref);
  lua_rawgeti(L, 2, 1);
  lua_rawgeti(L, 2, 2);
  lua_call(L, 1, 1);
  lac_box *b = lac_box_test(L, -1);
  if (b == NULL || b->t == NULL)
    return lac_error(
        L, p->cb->state, AC_GRAD,
        "saved_tensors_hooks: unpack must return the tensor that pack was given, got %s",
        b != NULL ? "a released tensor" : luaL_typename(L, -1));
  ac_tensor_retain(p->result = b->t);
  return 0;
}

static ac_status unpack(void *packed, ac_tensor **out, ac_err *e) {
  pack_call p = {.cb = packed};
  AC_TRY(lac_protect(p.cb->state, unpack_body, &p, e));
  *out = p.result;
  return AC_OK;
}

static void hooks_end(hooks *h) {
  if (h->cb == NULL) return;
  if (h->S->ctx != NULL) ac_saved_hooks_pop(h->S->ctx, &h->h);
  lac_callback_free(h->cb);
  h->cb = NULL;
}

static int hooks_gc(lua_State *L) {
  hooks_end(lua_touserdata(L, 1));
  return 0;
}

static int hooks_close(lua_State *L) {
  hooks_end(luaL_checkudata(L, 1, "accel.saved_tensors_hooks"));
  return 0;
}

static int hooks_new(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_function(L, S, 1, "pack_hook");
  lac_check_function(L, S, 2, "unpack_hook");
  hooks *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (hooks){.S = S,
               .h = {.struct_size = sizeof h->h,
                     .pack = pack,
                     .unpack = unpack,
                     .free_packed = lac_callback_free,
                     .user = h}};
  luaL_setmetatable(L, "accel.saved_tensors_hooks");
  lua_createtable(L, 2, 0);
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, 2);
  lua_rawseti(L, -2, 2);
  h->cb = lac_callback_new(L, S, -1);
  lua_pop(L, 1);
  ac_saved_hooks_push(S->ctx, &h->h);
  return 1;
}

/* ---- regions that are computed again ---- */

/* The region's Lua data: {again, state, n, arguments other than tensors}. extra: the argument of
 * each tensor. */
typedef struct region {
  lac_state *S;
  ac_recompute *r; /* NULL: closed */
} region;

typedef struct again_call {
  lac_callback *cb;
  int n_args;
  ac_tensor *const *args;
} again_call;

enum { ANCHOR_FIXED = 3 };

static int again_body(lua_State *L) {
  const again_call *a = lua_touserdata(L, 1);
  const int *place = a->cb->extra;
  lua_rawgeti(L, LUA_REGISTRYINDEX, a->cb->ref); /* 2 */
  lua_rawgeti(L, 2, 3);
  const int n = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  luaL_checkstack(L, n + 8, "arguments of a checkpoint");
  lua_rawgeti(L, 2, 1);
  lua_rawgeti(L, 2, 2);
  for (int i = 0, k = 0; i < n; i++) {
    if (k < a->n_args && place[k] == i) lac_push_tensor(L, a->cb->state, a->args[k++]);
    else lua_rawgeti(L, 2, ANCHOR_FIXED + 1 + i);
  }
  lua_call(L, n + 1, 0);
  return 0;
}

/* Runs with every second run: the error is there already, with no traceback to be made. */
static void stop(void *user) {
  lac_state *S = ((lac_callback *)user)->state;
  lac_forget_error(lac_thread(S), S);
  S->errors->pending = S->errors->stop;
}

static ac_status again(void *user, ac_recompute *r, int n_args, ac_tensor *const *args, ac_err *e) {
  again_call a = {user, n_args, args};
  lac_state *S = a.cb->state;
  ac_recompute_enter(r);
  ac_status st = lac_protect(S, again_body, &a, e);
  ac_recompute_leave(r);
  /* it ended because it was through */
  if (st != AC_OK && ac_recompute_stopped(r)) lac_forget_error(lac_thread(S), S);
  lac_gc_young(lac_thread(S), S);
  return st;
}

static void region_end(region *g) {
  ac_recompute *r = g->r;
  if (r == NULL) return;
  g->r = NULL;
  ac_recompute_leave(r);
  ac_recompute_release(r);
}

static int region_gc(lua_State *L) {
  region_end(lua_touserdata(L, 1));
  return 0;
}

/* The handles of the region's tensors hold the bytes that it dropped. They are the youngest
 * objects. */
static int region_close(lua_State *L) {
  region *g = luaL_checkudata(L, 1, "accel.region");
  region_end(g);
  lac_gc_young(L, g->S);
  return 0;
}

/* region(again, state, early_stop, check, ...) -> region, for the block. The callback's table
 * anchors {again, state, n} and the arguments that are not tensors. Its `extra` has the positions
 * of the tensors, which the core holds. It owns both from lac_callback_new on. */
static int region_new(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_function(L, S, 1, "again");
  const bool early_stop = lac_check_bool(L, S, 3, "early_stop"),
             check = lac_check_bool(L, S, 4, "check");
  const int first = 5, n = lua_gettop(L) - first + 1;
  region *g = lua_newuserdatauv(L, sizeof *g, 0);
  *g = (region){.S = S};
  luaL_setmetatable(L, "accel.region");
  lua_createtable(L, ANCHOR_FIXED + n, 0);
  const int anchor = lua_gettop(L);
  for (int i = 1; i <= 2; i++) {
    lua_pushvalue(L, i);
    lua_rawseti(L, anchor, i);
  }
  lua_pushinteger(L, n);
  lua_rawseti(L, anchor, 3);
  lac_list *args = lac_list_new(L, (size_t)n + 1);
  int *place = malloc(sizeof *place * ((size_t)n + 1));
  lac_callback *cb = NULL;
  if (place == NULL) return lac_error(L, S, AC_OOM, "no memory for a checkpoint");
  for (int i = 0; i < n; i++) {
    const lac_box *b = lac_box_test(L, first + i);
    if (b != NULL && b->t != NULL) {
      place[args->n] = i;
      ac_tensor_retain(args->t[args->n++] = b->t);
    } else {
      lua_pushvalue(L, first + i);
      lua_rawseti(L, anchor, ANCHOR_FIXED + 1 + i);
    }
  }
  cb = lac_callback_new(L, S, anchor);
  cb->extra = place;
  const ac_recompute_spec spec = {sizeof spec, again, lac_callback_free, stop, cb,
                                  early_stop,  check};
  ac_err e;
  lua_State *was = lac_enter(L, S); /* hooks around the region get the arguments */
  ac_status st = ac_recompute_new(S->ctx, &spec, args->n, args->t, &g->r, &e);
  lac_leave(S, was);
  lac_list_release(args);
  if (st != AC_OK) {
    lac_callback_free(cb);
    return lac_raise(L, S, &e);
  }
  ac_recompute_enter(g->r);
  lua_pushvalue(L, anchor - 1);
  return 1;
}

/* ---- anomaly mode ---- */

enum { SITE_TEXT = 2 * LAC_SITE + 16 };

/* Lines, numbered from 1. Kept in C, since the core asks at times when no Lua call may fail. */
typedef struct sites {
  ac_sites api;
  lac_state *S;
  char (*text)[SITE_TEXT];
  uint32_t n, cap;
} sites;

/* "train.lua:12", or, called by the library, "train.lua:12 (accel/nn/linear.lua:40)" */
static void describe(lua_State *L, const lac_state *S, char buf[SITE_TEXT]) {
  lua_Debug ar;
  const size_t dir = strlen(S->lib_dir);
  char own[LAC_SITE] = "";
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    const bool ours = dir > 0 && strncmp(ar.source, S->lib_dir, dir) == 0;
    if (ours) {
      if (own[0] == 0) {
        char name[LAC_SITE];
        snprintf(name, sizeof name, "accel/%.*s", (int)sizeof name - 7, ar.source + dir);
        lac_site_text(name, ar.currentline, own);
      }
      continue;
    }
    break;
  }
  char script[LAC_SITE];
  lac_site(L, S, 0, script);
  snprintf(buf, SITE_TEXT, own[0] != 0 ? "%s (%s)" : "%s", script, own);
}

static uint32_t site_here(void *user) {
  sites *s = user;
  char buf[SITE_TEXT];
  describe(lac_thread(s->S), s->S, buf);
  if (buf[0] == 0) return 0;
  for (uint32_t i = s->n; i > 0; i--)
    if (strcmp(s->text[i - 1], buf) == 0) return i;
  if (s->n == s->cap) {
    const uint32_t cap = s->cap == 0 ? 64 : s->cap * 2;
    char(*text)[SITE_TEXT] = realloc(s->text, cap * sizeof *text);
    if (text == NULL) return 0;
    s->text = text;
    s->cap = cap;
  }
  memcpy(s->text[s->n++], buf, sizeof buf);
  return s->n;
}

static const char *site_text(void *user, uint32_t site) {
  const sites *s = user;
  return site > 0 && site <= s->n ? s->text[site - 1] : NULL;
}

static int sites_gc(lua_State *L) {
  sites *s = lua_touserdata(L, 1);
  if (s->S->ctx != NULL) ac_ctx_set_sites(s->S->ctx, NULL);
  free(s->text);
  s->text = NULL;
  s->n = s->cap = 0;
  return 0;
}

static int set_anomaly(lua_State *L) {
  lac_state *S = lac_get(L);
  bool nan;
  const bool on = ac_ctx_anomaly(S->ctx, &nan);
  ac_ctx_set_anomaly(S->ctx, lac_check_bool(L, S, 1, "mode"), lac_check_bool(L, S, 2, "check_nan"));
  lua_pushboolean(L, on);
  lua_pushboolean(L, nan);
  return 2;
}

LAC_OPEN("accel.autograd.core", saved) {
  static const luaL_Reg funcs[] = {
      {"hooks", hooks_new}, {"region", region_new}, {"set_anomaly", set_anomaly}, {NULL, NULL}};
  static const luaL_Reg hooks_metas[] = {
      {"__gc", hooks_gc}, {"__close", hooks_close}, {NULL, NULL}};
  static const luaL_Reg hooks_methods[] = {{"close", hooks_close}, {NULL, NULL}};
  static const luaL_Reg region_metas[] = {
      {"__gc", region_gc}, {"__close", region_close}, {NULL, NULL}};
  static const luaL_Reg region_methods[] = {{"close", region_close}, {NULL, NULL}};
  static const char key_sites;
  lac_new_class(L, S, "accel.saved_tensors_hooks", hooks_metas, hooks_methods);
  lac_new_class(L, S, "accel.region", region_metas, region_methods);
  sites *s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = (sites){.api = {site_here, site_text, s}, .S = S};
  lua_createtable(L, 0, 1);
  lac_pushfunction(L, S, sites_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_sites);
  ac_ctx_set_sites(S->ctx, &s->api);
  const ac_err e = {.code = AC_CALLBACK,
                    .rank = -1,
                    .msg = "the recomputation is complete; pass this error on to the checkpoint"};
  lac_push_error(L, S, &e, false);
  S->errors->stop = luaL_ref(L, LUA_REGISTRYINDEX);
  lac_setfuncs(L, S, funcs);
}
