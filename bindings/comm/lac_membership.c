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

static void set_ranks(lua_State *L, const char *key, const int *ranks, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, ranks[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, key);
}

/* {generation, committed, rank, size, rank_before, size_before, lost = {ranks of before}, seconds,
 * reason, kind, joined = {ranks}, healing = {ranks}, leaves} */
static int push_change(lua_State *L, const ac_membership *m) {
  static const char *const kinds[] = {"none", "lost", "joined", "left", "resized"};
  lua_createtable(L, 0, 13);
  set_int(L, "generation", (int64_t)m->generation);
  set_int(L, "committed", (int64_t)m->committed);
  set_int(L, "rank", m->rank);
  set_int(L, "size", m->size);
  set_int(L, "rank_before", m->rank_before);
  set_int(L, "size_before", m->size_before);
  set_ranks(L, "lost", m->lost, m->n_lost);
  set_ranks(L, "joined", m->joined, m->n_joined);
  set_ranks(L, "healing", m->healing, m->n_healing);
  lua_pushnumber(L, m->seconds);
  lua_setfield(L, -2, "seconds");
  lua_pushstring(L, m->reason);
  lua_setfield(L, -2, "reason");
  lua_pushstring(L, kinds[m->change]);
  lua_setfield(L, -2, "kind");
  lua_pushboolean(L, m->leaves);
  lua_setfield(L, -2, "leaves");
  return 1;
}

/* version(t): grows with every write to the tensor's storage */
static int version(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "t");
  lua_pushinteger(L, (lua_Integer)ac_storage_version(ac_tensor_storage(t)));
  return 1;
}

typedef ac_status change_fn(ac_world *w, ac_membership *out, ac_err *e);

static int change_by(lua_State *L, change_fn *fn) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  ac_world *w = lac_world(L, S);
  ac_err e;
  /* before the core: a failure to allocate it changes nothing */
  ac_membership *m = lua_newuserdatauv(L, sizeof *m, 0);
  if (fn(w, m, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_works_drain(S, false);
  return push_change(L, m);
}

static int recover(lua_State *L) { return change_by(L, ac_world_recover); }
/* change(): all members come here between two updates, when they know that it is asked for */
static int change(lua_State *L) { return change_by(L, ac_world_meet_change); }
/* join(): the observer waits until it is a member */
static int join(lua_State *L) { return change_by(L, ac_world_join); }

static int asked(lua_State *L) {
  const lac_state *S = lac_get(L);
  lua_pushboolean(L, S->ranks->world != NULL && ac_world_asked(S->ranks->world));
  return 1;
}

static int observes(lua_State *L) {
  const lac_state *S = lac_get(L);
  lua_pushboolean(L, S->ranks->world != NULL && ac_world_observes(S->ranks->world));
  return 1;
}

/* preamble(on): collectives that follow are those of preparations */
static int preamble(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_world_preamble(lac_world(L, S), lua_toboolean(L, 1));
  return 0;
}

/* healed(bytes, seconds): this rank has the state of the job */
static int healed(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_world_healed(lac_world(L, S), (uint64_t)lac_check_int(L, S, 1, "bytes"),
                  luaL_checknumber(L, 2));
  return 0;
}

/* start_size(): the number of ranks at the start */
static int start_size(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_pushinteger(L, ac_world_start_size(lac_world(L, S)));
  return 1;
}

/* scale(n), leave(rank): ask the launcher */
static int scale(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const int64_t n = lac_check_int(L, S, 1, "n");
  return ac_world_ask_ranks(lac_world(L, S), n > 0 && n < 1 << 16 ? (int)n : -1, &e) == AC_OK
             ? 0
             : lac_raise(L, S, &e);
}

static int leave(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const int64_t r = lac_check_int(L, S, 1, "rank");
  return ac_world_ask_leave(lac_world(L, S), r >= 0 && r < 1 << 16 ? (int)r : -1, &e) == AC_OK
             ? 0
             : lac_raise(L, S, &e);
}

LAC_OPEN("accel.elastic.core", elastic) {
  static const luaL_Reg funcs[] = {
      {"active", active},   {"generation", generation}, {"phase", phase},
      {"recover", recover}, {"asked", asked},           {"change", change},
      {"join", join},       {"observes", observes},     {"preamble", preamble},
      {"healed", healed},   {"start_size", start_size}, {"scale", scale},
      {"leave", leave},     {"version", version},       {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
