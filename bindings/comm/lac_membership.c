/* Elastic jobs in Lua: the table accel.elastic.core, which stdlib/accel/elastic completes. */
#include "accel/tensor.h"
#include "bindings/core/op.h"
#include "dist.h"

/* active(): whether ranks of this job may be lost while the others continue */
static int active(lua_State *L) {
  const lac_state *S = lac_get(L);
  lua_pushboolean(L, S->ranks->world != NULL && ac_world_elastic(S->ranks->world));
  return 1;
}

/* generation(): its number, from 1. 0: the job is not elastic */
static int generation(lua_State *L) {
  const lac_state *S = lac_get(L);
  lua_pushinteger(L,
                  S->ranks->world != NULL ? (lua_Integer)ac_world_generation(S->ranks->world) : 0);
  return 1;
}

/* phase("begin" | "prepared" | "applying" | "applied", update) */
static int phase(lua_State *L) {
  static const char *const names[] = {"begin", "prepared", "applying", "applied", NULL};
  lac_state *S = lac_get(L);
  const int kind = luaL_checkoption(L, 1, NULL, names);
  const int64_t update = lac_check_int(L, S, 2, "update");
  if (update < 1 || update >= INT64_MAX >> 2)
    return lac_argerror(L, S, AC_INVALID, NULL, 2, "update", "expected 1 or more, got %lld",
                        (long long)update);
  ac_world_set_phase(lac_world(L, S), (ac_phase)kind, (uint64_t)update);
  return 0;
}

static void set_int(lua_State *L, const char *key, int64_t v) {
  lua_pushinteger(L, (lua_Integer)v);
  lua_setfield(L, -2, key);
}

/* recover(): {generation, committed, rank, size, rank_before, size_before, lost = {ranks of before},
 * seconds, reason} */
static int recover(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  ac_world *w = lac_world(L, S);
  ac_err e;
  /* before the core: a failure to allocate it changes nothing */
  ac_membership *m = lua_newuserdatauv(L, sizeof *m, 0);
  if (ac_world_recover(w, m, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_works_drain(S, false);
  lua_createtable(L, 0, 9);
  set_int(L, "generation", (int64_t)m->generation);
  set_int(L, "committed", (int64_t)m->committed);
  set_int(L, "rank", m->rank);
  set_int(L, "size", m->size);
  set_int(L, "rank_before", m->rank_before);
  set_int(L, "size_before", m->size_before);
  lua_createtable(L, m->n_lost, 0);
  for (int i = 0; i < m->n_lost; i++) {
    lua_pushinteger(L, m->lost[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "lost");
  lua_pushnumber(L, m->seconds);
  lua_setfield(L, -2, "seconds");
  lua_pushstring(L, m->reason);
  lua_setfield(L, -2, "reason");
  return 1;
}

/* version(t): grows with every write to the tensor's storage */
static int version(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "t");
  lua_pushinteger(L, (lua_Integer)ac_storage_version(ac_tensor_storage(t)));
  return 1;
}

LAC_OPEN("accel.elastic.core", elastic) {
  static const luaL_Reg funcs[] = {{"active", active},   {"generation", generation},
                                   {"phase", phase},     {"recover", recover},
                                   {"version", version}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
