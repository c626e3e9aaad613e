/* The world of ranks from Lua: joining and leaving, information about ranks, the flight recorder.
 * Together with lac_group.c, lac_collective.c and lac_coll_list.c it makes the table
 * accel.dist.core, which stdlib/accel/dist completes. The world itself: world.c. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm_impl.h"
#include "bindings/core/op.h"
#include "dist.h"
#include "ops/core/ctx_impl.h"

/* ---- joining and leaving ---- */

/* init_process_group([backend] [, {backend =, timeout =, rank =, world_size =, device_id =}]) */
static int init_process_group(lua_State *L) {
  static const char *const names[] = {"backend",  "timeout",       "rank",      "world_size",
                                      "machines", "shares_memory", "device_id", NULL};
  lac_state *S = lac_get(L);
  char site[LAC_SITE];
  const bool first = lua_type(L, 1) == LUA_TSTRING;
  const int opts = first || lua_isnil(L, 1) ? 2 : 1;
  lac_args_end(L, S, opts);
  const lac_opts o = lac_opts_open(L, S, opts, names);
  const char *backend = lac_opt_string(&o, "backend", first ? lua_tostring(L, 1) : NULL);
  const double timeout = lac_opt_number(&o, "timeout", 0);
  const int64_t rank = lac_opt_int(&o, "rank", -1), size = lac_opt_int(&o, "world_size", -1);
  if (timeout < 0 || timeout != timeout)
    return lac_argerror(L, S, AC_INVALID, NULL, 0, "timeout", "expected seconds, got %g", timeout);
  /* a bad one is reported before others wait for this rank */
  ac_device *device =
      lac_opt_string(&o, "device_id", NULL) != NULL ? lac_opt_device(&o, "device_id", NULL) : NULL;
  /* the name for whatever serves CPU tensors */
  if (backend != NULL && (strcmp(backend, "gloo") == 0 || strcmp(backend, "auto") == 0))
    backend = NULL;
  const bool sim = backend != NULL && strcmp(backend, "sim") == 0;
  if (S->ranks->world == NULL) {
    ac_err e;
    ac_world_options w = AC_WORLD_OPTIONS_INIT;
    w.script = S->ranks->script;
    w.backend = backend;
    w.timeout_s = timeout;
    if (sim) {
      if (size < 1 || size > INT32_MAX || rank >= size || rank < -1)
        return lac_error(
            L, S, AC_INVALID,
            "init_process_group: backend sim plays one rank of a world: world_size >= 1, "
            "rank 0 .. world_size - 1, got rank %lld of %lld",
            (long long)rank, (long long)size);
      w.sim_rank = rank < 0 ? 0 : (int)rank;
      w.sim_size = (int)size;
      const int64_t machines = lac_opt_int(&o, "machines", 1);
      if (machines < 1 || size % machines != 0)
        return lac_error(L, S, AC_INVALID,
                         "init_process_group: %lld ranks on %lld machines: each has equally many",
                         (long long)size, (long long)machines);
      w.sim_machines = (int)machines;
      w.sim_shares_memory = lac_opt_bool(&o, "shares_memory", false);
    }
    if (lac_world_start(S, &w, &e) != AC_OK) return lac_raise(L, S, &e);
  } else {
    const char *now = ac_world_backend(S->ranks->world);
    if (backend != NULL && strcmp(backend, now) != 0)
      return lac_error(
          L, S, AC_STATE,
          "init_process_group: this process is already rank %d of %d with backend %s, not %s; "
          "choose it by accel-run --backend or ACCEL_BACKEND",
          ac_world_rank(S->ranks->world), ac_world_size(S->ranks->world), now, backend);
    if (timeout > 0) ac_world_set_timeout(S->ranks->world, timeout);
  }
  const int got_rank = ac_world_rank(S->ranks->world), got_size = ac_world_size(S->ranks->world);
  if ((rank >= 0 && rank != got_rank) || (size >= 0 && size != got_size))
    return lac_error(
        L, S, AC_INVALID,
        "init_process_group: rank %lld of %lld was requested, but the launcher made this process rank %d "
        "of %d; omit rank and world_size",
        (long long)(rank < 0 ? got_rank : rank), (long long)(size < 0 ? got_size : size), got_rank,
        got_size);
  ac_err e;
  if (device != NULL &&
      ac_world_bind_device(S->ranks->world, device, lac_site(L, S, 1, site), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 0;
}

/* destroy_process_group([group]): a group, or all ranks: then the world is left */
static int destroy_process_group(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_group *own = NULL;
  if (S->ranks->world == NULL && lua_isnoneornil(L, 1)) return 0;
  lac_check_group(L, S, 1, &own);
  if (own != NULL) {
    own->destroyed = true;
    lac_group_retain(own);
    lac_group_release(S, own);
    return 0;
  }
  lac_site(L, S, 1, S->ranks->end_site);
  lac_world_leave(S, S->ranks->end_site);
  S->ranks->left = true;
  return 0;
}

static int is_initialized(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushboolean(L, S->ranks->world != NULL);
  return 1;
}

/* ---- information about this rank ---- */

static int get_local_rank(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, ac_world_local_rank(lac_world(L, S)));
  return 1;
}

static int get_local_world_size(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, ac_world_local_size(lac_world(L, S)));
  return 1;
}

static int get_node_rank(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, ac_world_machine(lac_world(L, S)));
  return 1;
}

static int get_num_nodes(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, ac_world_machines(lac_world(L, S)));
  return 1;
}

static int get_backend(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_group *own;
  lac_check_group(L, S, 1, &own);
  lua_pushstring(L, ac_world_backend(S->ranks->world));
  return 1;
}

static int set_timeout(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  const double s = lac_check_number(L, S, 1, "seconds");
  if (!(s > 0))
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "seconds", "expected more than 0, got %g", s);
  ac_world_set_timeout(lac_world(L, S), s);
  return 0;
}

static int get_timeout(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushnumber(L, ac_world_timeout(lac_world(L, S)));
  return 1;
}

static int bytes_sent(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, (lua_Integer)ac_world_bytes_sent(lac_world(L, S)));
  return 1;
}

static int heap_bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 0);
  lua_pushinteger(L, (lua_Integer)ac_world_heap_bytes(lac_world(L, S)));
  return 1;
}

/* empty(shape [, {dtype = "f32", device = "cpu"}]): contents undefined, in memory that all ranks of
 * this machine map. It is on the CPU whatever the default device is, except for meta, whose tensors
 * are shapes alone. */
static int empty(lua_State *L) {
  static const char *const names[] = {"dtype", "device", NULL};
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  int at;
  const int last = lua_gettop(L), ndim = lac_check_shape(L, S, 1, last, "shape", shape, &at);
  const lac_opts o = lac_opts_open(L, S, at, names);
  ac_dtype dtype = AC_F32;
  lac_opt_dtype(&o, "dtype", &dtype);
  ac_device *d = S->ctx->default_device;
  d = lac_opt_device(&o, "device", d != NULL && d->kind == AC_DEV_META ? d : S->ctx->device[0]);
  if (at < last)
    return lac_error(L, S, AC_INVALID, "empty: a shape and a table of options, got %d arguments",
                     last);
  lac_world(L, S); /* brings the heap */
  lac_new_tensor(L, S, d, dtype, ndim, shape, AC_MEM_PARAMETER);
  return 1;
}

/* ---- the flight recorder ---- */

static void set_int(lua_State *L, const char *key, int64_t v) {
  lua_pushinteger(L, (lua_Integer)v);
  lua_setfield(L, -2, key);
}

static void set_string(lua_State *L, const char *key, const char *v) {
  lua_pushstring(L, v);
  lua_setfield(L, -2, key);
}

static void set_time(lua_State *L, const char *key, int64_t ns) {
  lua_pushnumber(L, (double)ns * 1e-9); /* of accel.clock() */
  lua_setfield(L, -2, key);
}

static bool reduces(ac_coll_kind k) {
  return k == AC_COLL_ALL_REDUCE || k == AC_COLL_REDUCE || k == AC_COLL_REDUCE_SCATTER;
}

/* records([n]): the last n collectives, oldest first */
static int records(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  ac_world *w = lac_world(L, S);
  int64_t most = ac_params_int(ac_ctx_params(S->ctx), "RECORDS");
  if (!lua_isnoneornil(L, 1)) {
    const int64_t n = lac_check_int(L, S, 1, "n");
    if (n < 0)
      return lac_argerror(L, S, AC_INVALID, NULL, 1, "n", "expected 0 or more, got %lld",
                          (long long)n);
    if (n < most) most = n;
  }
  ac_comm_record *r = lua_newuserdatauv(L, ((size_t)most + 1) * sizeof *r, 0);
  const int n = ac_world_records(w, r, (int)most);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++, r++) {
    lua_createtable(L, 0, 15);
    set_int(L, "number", (int64_t)r->number);
    set_int(L, "group", r->group);
    set_int(L, "seq", r->seq);
    set_string(L, "kind", ac_coll_name(r->kind));
    if (r->kind != AC_COLL_BARRIER && r->kind < AC_COLL_NEW_GROUP)
      set_string(L, "dtype", ac_dtype_name(r->dtype));
    if (reduces(r->kind)) set_string(L, "op", ac_reduce_op_name(r->op));
    set_int(L, "root", r->root);
    set_int(L, "count", r->count);
    set_int(L, "bytes", (int64_t)r->bytes);
    set_int(L, "payload", (int64_t)r->payload);
    set_time(L, "queued", r->queued);
    set_time(L, "began", r->began);
    if (r->ended != 0) set_time(L, "ended", r->ended);
    lua_pushboolean(L, r->async);
    lua_setfield(L, -2, "async");
    set_string(L, "status", ac_status_name(r->status));
    set_string(L, "site", r->site);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* ---- the table ---- */

/* require "accel.dist.core" */
/* accel.dist._alone(what?, ranks?): from here on a collective of more than `ranks` ranks (1) is an
 * error. It names `what`, the code that only so many ranks run. The next call ends it. Returns the
 * previous values. For accel.accelerator.region. */
static int alone(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *what = luaL_optstring(L, 1, "");
  const int ranks = (int)luaL_optinteger(L, 2, 1);
  if (S->ranks->alone[0] != 0) lua_pushstring(L, S->ranks->alone);
  else lua_pushnil(L);
  lua_pushinteger(L, S->ranks->alone_ranks);
  snprintf(S->ranks->alone, sizeof S->ranks->alone, "%s", what);
  S->ranks->alone_ranks = ranks;
  return 2;
}

LAC_OPEN("accel.dist.core", dist) {
  static const luaL_Reg funcs[] = {{"init_process_group", init_process_group},
                                   {"_alone", alone},
                                   {"destroy_process_group", destroy_process_group},
                                   {"is_initialized", is_initialized},
                                   {"get_local_rank", get_local_rank},
                                   {"get_node_local_rank", get_local_rank},
                                   {"get_local_world_size", get_local_world_size},
                                   {"get_node_rank", get_node_rank},
                                   {"get_num_nodes", get_num_nodes},
                                   {"get_backend", get_backend},
                                   {"set_timeout", set_timeout},
                                   {"get_timeout", get_timeout},
                                   {"bytes_sent", bytes_sent},
                                   {"heap_bytes", heap_bytes},
                                   {"empty", empty},
                                   {"records", records},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
