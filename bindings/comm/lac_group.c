/* Groups of ranks in Lua: handles and membership. A group lives as long as its handle and the works
 * under way in it. Leaving its world frees it as well. Used by lac_dist.c and by every
 * collective. */
#include <stdlib.h>

#include "comm/segment.h"
#include "dist.h"

static const char group_meta[] = "accel.dist.Group";

static bool is_stale(const lac_state *S, const lac_group *own) {
  return own->destroyed || own->nr != S->ranks->world_nr || S->ranks->world == NULL;
}

static int group_gc(lua_State *L) {
  lac_group **at = lua_touserdata(L, 1);
  lac_state *S = lua_touserdata(L, LAC_STATE);
  lac_group *own = *at;
  *at = NULL;
  lac_group_release(S, own);
  return 0;
}

ac_group *lac_check_group(lua_State *L, lac_state *S, int idx, lac_group **own) {
  *own = NULL;
  if (lua_isnoneornil(L, idx)) return ac_world_group(lac_world(L, S));
  lac_group **at = luaL_testudata(L, idx, group_meta);
  if (at == NULL) {
    char buf[96];
    lac_argerror(L, S, AC_INVALID, NULL, idx < 0 ? 0 : idx, "group",
                 "expected group from new_group, got %s", lac_typename(L, idx, buf, sizeof buf));
  }
  if (*at == NULL) return ac_world_group(lac_world(L, S));
  if (is_stale(S, *at)) lac_error(L, S, AC_STATE, "the group was destroyed");
  *own = *at;
  return (*at)->g;
}

/* Handles cost the collector little, groups are few: those that nobody refers to any more are
 * looked for here, each time that twice as many are alive as the last time left. */
static void collect_groups(lua_State *L, lac_state *S) {
  enum { FEW = ACI_GROUPS / 4, MANY = ACI_GROUPS - 8 };
  if (S->ranks->n_groups < (S->ranks->collect_groups_at > FEW ? S->ranks->collect_groups_at : FEW))
    return;
  lua_gc(L, LUA_GCCOLLECT);
  lac_works_drain(S, false);
  const int next = 2 * S->ranks->n_groups;
  S->ranks->collect_groups_at = next < MANY ? next : MANY;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* new_group([ranks]): collective over the world. Ranks are sorted in rising order */
static int new_group(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  ac_err e;
  char site[LAC_SITE];
  ac_world *w = lac_world(L, S);
  lua_settop(L, 1);
  int n = ac_world_size(w);
  if (S->ranks->alone[0] != 0 && n > S->ranks->alone_ranks)
    return lac_error(
        L, S, AC_STATE,
        "new_group: called inside %s, which not all of the %d ranks run together: the others "
        "would never join it; call it outside, on every rank",
        S->ranks->alone, n);
  if (!lua_isnil(L, 1)) {
    if (!lua_istable(L, 1))
      return lac_argerror(L, S, AC_INVALID, NULL, 1, "ranks", "expected list of ranks, got %s",
                          luaL_typename(L, 1));
    const lua_Unsigned len = lua_rawlen(L, 1);
    if (len > (lua_Unsigned)n)
      return lac_argerror(L, S, AC_INVALID, NULL, 1, "ranks", "%d ranks in a world of %d",
                          (int)(len < 1000000 ? len : 1000000), n);
    n = (int)len;
  }
  /* sorted, so that all ranks describe the group alike. A userdata, so that an error frees it */
  int *ranks = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *ranks, 0);
  for (int i = 0; i < n; i++) {
    ranks[i] = i;
    if (lua_isnil(L, 1)) continue;
    int ok = 0;
    lua_rawgeti(L, 1, i + 1);
    const lua_Integer r = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &ok) : 0;
    if (!ok || r < 0 || r >= ac_world_size(w))
      return lac_argerror(L, S, AC_INVALID, NULL, 1, "ranks",
                          "entry %d: expected rank 0 .. %d, got %s", i + 1, ac_world_size(w) - 1,
                          luaL_tolstring(L, -1, NULL));
    ranks[i] = (int)r;
    lua_pop(L, 1);
  }
  qsort(ranks, (size_t)n, sizeof *ranks, by_value);
  lac_works_drain(S, false);
  collect_groups(L, S);
  /* the handle first: nothing may raise between the core and its metatable */
  lac_group **at = lua_newuserdatauv(L, sizeof *at, 0);
  *at = NULL;
  lac_group *own = calloc(1, sizeof *own);
  if (own == NULL) return lac_error(L, S, AC_OOM, "new_group: no memory");
  const ac_status st = ac_group_new(w, n, ranks, lac_site(L, S, 1, site), &own->g, &e);
  if (st != AC_OK) {
    free(own);
    return lac_raise(L, S, &e);
  }
  own->nr = S->ranks->world_nr;
  own->ref = 1;
  S->ranks->n_groups++;
  *at = own;
  luaL_setmetatable(L, group_meta);
  return 1;
}

static int group_rank(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_group *own;
  lua_pushinteger(L, ac_group_rank(lac_check_group(L, S, 1, &own)));
  return 1;
}

/* Of a group without this rank: -1. */
static int group_size(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_group *own;
  const ac_group *g = lac_check_group(L, S, 1, &own);
  lua_pushinteger(L, ac_group_rank(g) < 0 ? -1 : ac_group_size(g));
  return 1;
}

static int group_ranks(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_group *own;
  const ac_group *g = lac_check_group(L, S, 1, &own);
  const int n = ac_group_size(g);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, ac_group_global_rank(g, i));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* get_global_rank(group, group_rank) */
static int get_global_rank(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 2);
  lac_group *own;
  const ac_group *g = lac_check_group(L, S, 1, &own);
  const int64_t r = lac_check_int(L, S, 2, "group_rank");
  if (r < 0 || r >= ac_group_size(g))
    return lac_argerror(L, S, AC_INVALID, NULL, 2, "group_rank", "%lld in a group of %d",
                        (long long)r, ac_group_size(g));
  lua_pushinteger(L, ac_group_global_rank(g, (int)r));
  return 1;
}

/* get_group_rank(group, global_rank): nil when it is not a member */
static int get_group_rank(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 2);
  lac_group *own;
  const ac_group *g = lac_check_group(L, S, 1, &own);
  const int64_t r = lac_check_int(L, S, 2, "global_rank");
  for (int i = 0; i < ac_group_size(g); i++)
    if (ac_group_global_rank(g, i) == r) {
      lua_pushinteger(L, i);
      return 1;
    }
  lua_pushnil(L);
  return 1;
}

static int group_tostring(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_group **at = luaL_checkudata(L, 1, group_meta);
  if (*at == NULL) {
    lua_pushliteral(L, "Group(all ranks)");
  } else if (is_stale(S, *at)) {
    lua_pushliteral(L, "Group(destroyed)");
  } else {
    const ac_group *g = (*at)->g;
    const int n = ac_group_size(g);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addstring(&b, n == 1 ? "Group(rank " : "Group(ranks ");
    for (int i = 0; i < n && i < 32; i++) {
      lua_pushfstring(L, i > 0 ? ", %d" : "%d", ac_group_global_rank(g, i));
      luaL_addvalue(&b);
    }
    luaL_addstring(&b, n > 32 ? ", ...)" : ")");
    luaL_pushresult(&b);
  }
  return 1;
}

/* Puts the functions into the table on top, and group.WORLD. */
LAC_OPEN("accel.dist.core", groups) {
  static const luaL_Reg funcs[] = {{"new_group", new_group},
                                   {"get_rank", group_rank},
                                   {"get_world_size", group_size},
                                   {"get_process_group_ranks", group_ranks},
                                   {"get_global_rank", get_global_rank},
                                   {"get_group_rank", get_group_rank},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"rank", group_rank}, {"size", group_size}, {"ranks", group_ranks}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", group_gc}, {"__tostring", group_tostring}, {NULL, NULL}};
  lac_new_class(L, S, group_meta, metas, methods);
  lac_setfuncs(L, S, funcs);
  lua_createtable(L, 0, 1);
  lac_group **all = lua_newuserdatauv(L, sizeof *all, 0);
  *all = NULL;
  luaL_setmetatable(L, group_meta);
  lua_setfield(L, -2, "WORLD");
  lua_setfield(L, -2, "group");
}
