/* Checkpoints for accel.ckpt (stdlib/accel/ckpt), which gives them the public interface. Handles of
 * saves are here, those of opened checkpoints and folders in lac_ckpt_read.c. Misuse raises. Errors
 * of the disk return nil, message, code.
 *
 * A started save stays in the registry until it is over, whatever happens to its handle. If the Lua
 * state closes meanwhile, it waits while the save makes progress, and otherwise gives it up. Either
 * way the data on disk is whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "accel/ckpt.h"
#include "ckpt.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "bindings/comm/dist.h"

#define SAVE "accel.ckpt.Save"
enum { STUCK_SECONDS = 60, MAX_SECONDS = 1 };

static const char key_running, key_arena;

/* ---- memory of asynchronous saves: one per Lua state, made with the first ---- */

typedef struct arena {
  ac_ckpt_arena *a;
} arena;

static int arena_gc(lua_State *L) {
  arena *m = lua_touserdata(L, 1);
  ac_ckpt_arena_free(m->a);
  m->a = NULL;
  return 0;
}

static arena *arena_of(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_arena);
  arena *m = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return m;
}

/* ---- saves ---- */

typedef struct save {
  ac_ckpt_save *s; /* NULL: it is over, with its outcome below */
  bool started;
  ac_status st;
  ac_err err;
  uint64_t written, all;
  int64_t sequence;
} save;

static save *save_of(lua_State *L, lac_state *S) {
  save *h = luaL_testudata(L, 1, SAVE);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a save, got %s", luaL_typename(L, 1));
  return h;
}
static ac_ckpt_save *open_of(lua_State *L, lac_state *S) {
  save *h = save_of(L, S);
  if (h->s == NULL) lac_error(L, S, AC_STATE, "the save is over");
  return h->s;
}

/* Takes the handle at idx out of those that run, or puts it there. */
static void anchor(lua_State *L, int idx, bool on) {
  idx = lua_absindex(L, idx);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_running);
  lua_pushvalue(L, idx);
  lua_pushboolean(L, on);
  if (!on) {
    lua_pop(L, 1);
    lua_pushnil(L);
  }
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

static void end(save *h) {
  ac_ckpt_progress(h->s, &h->written, &h->all);
  h->sequence = ac_ckpt_save_sequence(h->s);
  ac_ckpt_save_free(h->s);
  h->s = NULL;
}

/* At the end of the Lua state, or of a handle that was never started. */
static int save_gc(lua_State *L) {
  save *h = luaL_checkudata(L, 1, SAVE);
  if (h->s == NULL) return 0;
  uint64_t was = 0, now, all;
  int still = 0;
  while (h->started && ac_ckpt_wait(h->s, 100000000, &h->err) == AC_TIMEOUT) {
    ac_ckpt_progress(h->s, &now, &all);
    still = now == was ? still + 1 : 0;
    was = now;
    if (still > STUCK_SECONDS * 10) ac_ckpt_abort(h->s);
  }
  end(h);
  return 0;
}

/* core.create(path, {part =, parts =, folder =, replace =, run =, continues =, after =}) -> save,
 * folder, or nil, message, code */
static int create(lua_State *L) {
  static const char *const names[] = {"part", "parts",     "folder", "replace",
                                      "run",  "continues", "after",  NULL};
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  lac_args_end(L, S, 2);
  const lac_opts o = lac_opts_open(L, S, 2, names);
  ac_ckpt_options opts = AC_CKPT_OPTIONS_INIT;
  const int64_t part = lac_opt_int(&o, "part", 0), parts = lac_opt_int(&o, "parts", 1);
  if (part < 0 || part > INT32_MAX || parts < 1 || parts > INT32_MAX)
    return lac_error(L, S, AC_INVALID, "ckpt.create: part %lld of %lld", (long long)part,
                     (long long)parts);
  opts.part = (int)part;
  opts.parts = (int)parts;
  opts.folder = lac_opt_string(&o, "folder", NULL);
  opts.replace = lac_opt_bool(&o, "replace", false);
  opts.run = lac_opt_string(&o, "run", NULL);
  opts.after = lac_opt_int(&o, "after", 0);
  if (lua_istable(L, 2) && lua_getfield(L, 2, "continues") != LUA_TNIL)
    opts.continues = lac_ckpt_strings(L, S, -1, "continues", &opts.n_continues);
  save *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (save){0};
  luaL_setmetatable(L, SAVE);
  const ac_status st = ac_ckpt_create(path, &opts, &h->s, &e);
  if (st == AC_INVALID) return lac_raise(L, S, &e);
  if (st != AC_OK) return lac_fail(L, &e);
  lua_pushstring(L, ac_ckpt_folder(h->s));
  return 2;
}

/* Field `name` of the table on top, a list of ndim integers, into out. False when it is nil. */
static bool ints_of(lua_State *L, lac_state *S, const char *name, const char *tensor, int ndim,
                    int64_t *out) {
  const int type = lua_getfield(L, -1, name);
  if (type == LUA_TNIL) {
    lua_pop(L, 1);
    return false;
  }
  if (type != LUA_TTABLE || (int)lua_rawlen(L, -1) != ndim)
    lac_error(L, S, AC_INVALID, "ckpt: '%s' of tensor '%s' must be a list of %d integers", name,
              tensor, ndim);
  for (int d = 0; d < ndim; d++) {
    int is;
    lua_rawgeti(L, -1, d + 1);
    out[d] = lua_tointegerx(L, -1, &is);
    if (!is)
      lac_error(L, S, AC_INVALID, "ckpt: '%s' of tensor '%s' must be a list of %d integers", name,
                tensor, ndim);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return true;
}

/* Strings by name of the table at idx into keys and values, which live in the table. Returns how
 * many. */
static int metadata_of(lua_State *L, lac_state *S, int idx, const char ***keys,
                       const char ***values) {
  int n = 0, i = 0;
  if (!lua_isnil(L, idx))
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) n++;
  *keys = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof **keys, 0);
  *values = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof **values, 0);
  if (n == 0) return 0;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1), i++) {
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      lac_error(L, S, AC_INVALID, "ckpt: metadata is a table of strings by name, found %s = %s",
                luaL_typename(L, -2), luaL_typename(L, -1));
    (*keys)[i] = lua_tostring(L, -2);
    (*values)[i] = lua_tostring(L, -1);
  }
  return n;
}

/* save:add_tensors(file, {{name =, tensor =, shape =, offsets =, copied =}, ...} [, metadata]).
 * Tensors are contiguous, on the CPU */
static int add_tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_ckpt_save *s = open_of(L, S);
  const char *file = lac_check_string(L, S, 2, "file", NULL), **keys, **values;
  luaL_checktype(L, 3, LUA_TTABLE);
  lac_args_end(L, S, 4);
  if (!lua_isnil(L, 4)) luaL_checktype(L, 4, LUA_TTABLE);
  const int n = (int)lua_rawlen(L, 3), n_meta = metadata_of(L, S, 4, &keys, &values);
  ac_ckpt_item *v = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *v, 0);
  int64_t(*dims)[2][AC_MAX_DIMS] = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *dims, 0);
  for (int i = 0; i < n; i++) {
    if (lua_rawgeti(L, 3, i + 1) != LUA_TTABLE)
      return lac_error(L, S, AC_INVALID, "ckpt: item %d must be a table", i + 1);
    if (lua_getfield(L, -1, "name") != LUA_TSTRING)
      return lac_error(L, S, AC_INVALID, "ckpt: item %d has no name", i + 1);
    const char *name = lua_tostring(L, -1); /* the item keeps it */
    lua_pop(L, 1);
    lua_getfield(L, -1, "tensor");
    const lac_box *b = lac_box_test(L, -1);
    if (b == NULL || b->t == NULL)
      return lac_error(L, S, AC_INVALID, "ckpt: '%s' must be a tensor, got %s", name,
                       luaL_typename(L, -1));
    lua_pop(L, 1);
    lua_getfield(L, -1, "copied");
    v[i] = (ac_ckpt_item){.name = name, .tensor = b->t, .copied = lua_toboolean(L, -1)};
    lua_pop(L, 1);
    const int ndim = ac_tensor_ndim(b->t);
    if (ints_of(L, S, "shape", name, ndim, dims[i][0])) v[i].shape = dims[i][0];
    if (ints_of(L, S, "offsets", name, ndim, dims[i][1])) v[i].offsets = dims[i][1];
    lua_pop(L, 1);
  }
  if (ac_ckpt_add_tensors(s, file, n, v, n_meta, keys, values, &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 0;
}

/* save:add_bytes(file, bytes) */
static int add_bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  ac_ckpt_save *s = open_of(L, S);
  const char *file = lac_check_string(L, S, 2, "file", NULL),
             *p = lac_check_string(L, S, 3, "bytes", &n);
  if (ac_ckpt_add_bytes(s, file, p, n, &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

/* save:start(state as JSON or nil, asynchronous) */
static int start(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  save *h = save_of(L, S);
  ac_ckpt_save *s = open_of(L, S);
  size_t n = 0;
  const char *state = lua_isnoneornil(L, 2) ? NULL : lac_check_string(L, S, 2, "state", &n);
  arena *m = arena_of(L);
  ac_status st = AC_OK;
  if (lua_toboolean(L, 3)) {
    if (m->a == NULL) st = ac_ckpt_arena_new(&m->a, &e);
  } else {
    m = NULL;
  }
  if (st == AC_OK)
    LAC_RETRY(L, S, st,
              ac_ckpt_start(s, state, n, m != NULL ? m->a : NULL, ac_ctx_team(S->ctx), &e));
  if (st != AC_OK) return lac_raise(L, S, &e);
  h->started = true;
  anchor(L, 1, true);
  return 0;
}

/* save:progress() -> bytes written, bytes in all */
static int progress(lua_State *L) {
  lac_state *S = lac_get(L);
  save *h = save_of(L, S);
  if (h->s != NULL) ac_ckpt_progress(h->s, &h->written, &h->all);
  lua_pushinteger(L, (lua_Integer)h->written);
  lua_pushinteger(L, (lua_Integer)h->all);
  return 2;
}

/* save:sequence() -> its age once it is committed. 0 before, and of parts above 0 */
static int sequence(lua_State *L) {
  const save *h = save_of(L, lac_get(L));
  lua_pushinteger(L, h->s != NULL ? ac_ckpt_save_sequence(h->s) : h->sequence);
  return 1;
}

/* save:poll(seconds) -> nil while it is under way, true, or false, message, code. Waits a second at
 * most, so that a caller in a loop can be interrupted between. */
static int poll_(lua_State *L) {
  lac_state *S = lac_get(L);
  save *h = save_of(L, S);
  double seconds = lac_check_number(L, S, 2, "seconds");
  if (!(seconds >= 0)) seconds = 0;
  if (seconds > MAX_SECONDS) seconds = MAX_SECONDS;
  if (h->s != NULL) {
    ac_err e;
    ac_status st = ac_ckpt_wait(h->s, (int64_t)(seconds * 1e9), &e);
    if (st == AC_STATE) return lac_raise(L, S, &e);
    /* it ended since */
    if (st == AC_TIMEOUT && ac_ckpt_done(h->s)) st = ac_ckpt_wait(h->s, -1, &e);
    else if (st == AC_TIMEOUT) {
      if (S->ranks->world == NULL || !ac_world_aborted(S->ranks->world, &e)) return 0;
      ac_ckpt_abort(h->s); /* a part may never come */
      return lac_raise(L, S, &e);
    }
    h->st = st;
    if (st != AC_OK) h->err = e;
    anchor(L, 1, false);
    end(h);
  }
  lua_pushboolean(L, h->st == AC_OK);
  if (h->st == AC_OK) return 1;
  lua_pushstring(L, h->err.msg);
  lua_pushstring(L, ac_status_name(h->st));
  return 3;
}

/* save:abort(): gives it up. A save that was not started ends at once */
static int abort_(lua_State *L) {
  lac_state *S = lac_get(L);
  save *h = save_of(L, S);
  if (h->s == NULL) return 0;
  ac_ckpt_abort(h->s);
  if (h->started) return 0;
  end(h);
  h->st = AC_FAIL(&h->err, INTERRUPTED, "the save was given up");
  return 0;
}

/* ---- the module ---- */

/* core.new_id() -> 16 hex digits, other ones at every call */
static int new_id(lua_State *L) {
  char text[17];
  uint64_t id;
  if (getrandom(&id, sizeof id, GRND_NONBLOCK) != (ssize_t)sizeof id) { /* early boot */
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    id = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)t.tv_sec << 24 ^ (uint64_t)getpid();
  }
  snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
  lua_pushstring(L, text);
  return 1;
}

/* core.memory() -> bytes that asynchronous saves keep for their copies */
static int memory(lua_State *L) {
  const arena *m = arena_of(L);
  lua_pushinteger(L, m->a != NULL ? (lua_Integer)ac_ckpt_arena_bytes(m->a) : 0);
  return 1;
}

/* core.release(): gives that memory back, unless a save uses it -> whether it is free */
static int release(lua_State *L) {
  const arena *m = arena_of(L);
  if (m->a != NULL) ac_ckpt_arena_trim(m->a);
  lua_pushboolean(L, m->a == NULL || ac_ckpt_arena_bytes(m->a) == 0);
  return 1;
}

LAC_OPEN("accel.ckpt.core", ckpt) {
  static const luaL_Reg funcs[] = {{"create", create},
                                   {"new_id", new_id},
                                   {"memory", memory},
                                   {"release", release},
                                   {NULL, NULL}};
  static const luaL_Reg save_metas[] = {{"__gc", save_gc}, {NULL, NULL}};
  static const luaL_Reg save_methods[] = {{"add_tensors", add_tensors},
                                          {"add_bytes", add_bytes},
                                          {"start", start},
                                          {"progress", progress},
                                          {"poll", poll_},
                                          {"abort", abort_},
                                          {"sequence", sequence},
                                          {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_ckpt_read_functions(L, S);
  lac_new_class(L, S, SAVE, save_metas, save_methods);
  /* the arena first: the last object made is finalized first, and saves read from the arena */
  arena *m = lua_newuserdatauv(L, sizeof *m, 0);
  m->a = NULL;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, arena_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_arena);
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_running);
}
