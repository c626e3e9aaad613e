/* Checkpoints for accel.ckpt (stdlib/accel/ckpt), which gives them the shape that scripts see: handles of saves and of opened
 * checkpoints, and what is done with folders of them. Misuse raises; what the disk does returns nil, message, code.
 *
 * A save that was started stays in the registry until it is over, whatever becomes of its handle. When the Lua state closes meanwhile,
 * it is waited for as long as it gets on, and given up when it does not: either way what is on disk is whole. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accel/ckpt.h"
#include "core/gc.h"
#include "core/lac.h"
#include "dist.h"

#define SAVE "accel.ckpt.Save"
#define CKPT "accel.ckpt.Checkpoint"
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
  ac_ckpt_save *s; /* NULL: it is over, and what it came to stands below */
  bool started;
  ac_status st;
  ac_err err;
  uint64_t written, all;
} save;

static save *save_of(lua_State *L, lac_state *S) {
  save *h = luaL_testudata(L, 1, SAVE);
  if (h == NULL) lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a save, got %s", luaL_typename(L, 1));
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

/* core.create(path, {part =, parts =, folder =, replace =}) -> save, folder; or nil, message, code */
static int create(lua_State *L) {
  static const char *const names[] = {"part", "parts", "folder", "replace", NULL};
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_string(L, S, 1, "path", NULL);
  lua_settop(L, 2);
  const lac_opts o = lac_opts_open(L, S, 2, names);
  ac_ckpt_options opts = AC_CKPT_OPTIONS_INIT;
  const int64_t part = lac_opt_int(&o, "part", 0), parts = lac_opt_int(&o, "parts", 1);
  if (part < 0 || part > INT32_MAX || parts < 1 || parts > INT32_MAX)
    return lac_error(L, S, AC_INVALID, "ckpt.create: part %lld of %lld", (long long)part, (long long)parts);
  opts.part = (int)part;
  opts.parts = (int)parts;
  opts.folder = lac_opt_string(&o, "folder", NULL);
  opts.replace = lac_opt_bool(&o, "replace", false);
  save *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (save){0};
  luaL_setmetatable(L, SAVE);
  const ac_status st = ac_ckpt_create(path, &opts, &h->s, &e);
  if (st == AC_INVALID) return lac_raise(L, S, &e);
  if (st != AC_OK) return lac_fail(L, &e);
  lua_pushstring(L, ac_ckpt_folder(h->s));
  return 2;
}

/* Field `name` of the table on top, a list of ndim integers, into out; false when it is nil. */
static bool ints_of(lua_State *L, lac_state *S, const char *name, const char *tensor, int ndim, int64_t *out) {
  const int type = lua_getfield(L, -1, name);
  if (type == LUA_TNIL) {
    lua_pop(L, 1);
    return false;
  }
  if (type != LUA_TTABLE || (int)lua_rawlen(L, -1) != ndim)
    lac_error(L, S, AC_INVALID, "ckpt: '%s' of tensor '%s' is no list of %d integers", name, tensor, ndim);
  for (int d = 0; d < ndim; d++) {
    int is;
    lua_rawgeti(L, -1, d + 1);
    out[d] = lua_tointegerx(L, -1, &is);
    if (!is) lac_error(L, S, AC_INVALID, "ckpt: '%s' of tensor '%s' is no list of %d integers", name, tensor, ndim);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return true;
}

/* Strings by name of the table at idx into keys and values, which live in the table. Returns how many. */
static int metadata_of(lua_State *L, lac_state *S, int idx, const char ***keys, const char ***values) {
  int n = 0, i = 0;
  if (!lua_isnil(L, idx))
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) n++;
  *keys = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof **keys, 0);
  *values = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof **values, 0);
  if (n == 0) return 0;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1), i++) {
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
      lac_error(L, S, AC_INVALID, "ckpt: metadata is a table of strings by name, found %s = %s", luaL_typename(L, -2),
                luaL_typename(L, -1));
    (*keys)[i] = lua_tostring(L, -2);
    (*values)[i] = lua_tostring(L, -1);
  }
  return n;
}

/* save:add_tensors(file, {{name =, tensor =, shape =, offsets =, copied =}, ...} [, metadata]); tensors are contiguous, on the CPU */
static int add_tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_ckpt_save *s = open_of(L, S);
  const char *file = lac_check_string(L, S, 2, "file", NULL), **keys, **values;
  luaL_checktype(L, 3, LUA_TTABLE);
  lua_settop(L, 4);
  if (!lua_isnil(L, 4)) luaL_checktype(L, 4, LUA_TTABLE);
  const int n = (int)lua_rawlen(L, 3), n_meta = metadata_of(L, S, 4, &keys, &values);
  ac_ckpt_item *v = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *v, 0);
  int64_t(*dims)[2][AC_MAX_DIMS] = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *dims, 0);
  for (int i = 0; i < n; i++) {
    if (lua_rawgeti(L, 3, i + 1) != LUA_TTABLE) return lac_error(L, S, AC_INVALID, "ckpt: item %d is no table", i + 1);
    if (lua_getfield(L, -1, "name") != LUA_TSTRING) return lac_error(L, S, AC_INVALID, "ckpt: item %d has no name", i + 1);
    const char *name = lua_tostring(L, -1); /* the item keeps it */
    lua_pop(L, 1);
    lua_getfield(L, -1, "tensor");
    const lac_box *b = lac_box_test(L, -1);
    if (b == NULL || b->t == NULL) return lac_error(L, S, AC_INVALID, "ckpt: '%s' is no tensor but %s", name, luaL_typename(L, -1));
    lua_pop(L, 1);
    lua_getfield(L, -1, "copied");
    v[i] = (ac_ckpt_item){.name = name, .tensor = b->t, .copied = lua_toboolean(L, -1)};
    lua_pop(L, 1);
    const int ndim = ac_tensor_ndim(b->t);
    if (ints_of(L, S, "shape", name, ndim, dims[i][0])) v[i].shape = dims[i][0];
    if (ints_of(L, S, "offsets", name, ndim, dims[i][1])) v[i].offsets = dims[i][1];
    lua_pop(L, 1);
  }
  if (ac_ckpt_add_tensors(s, file, n, v, n_meta, keys, values, &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

/* save:add_bytes(file, bytes) */
static int add_bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  ac_ckpt_save *s = open_of(L, S);
  const char *file = lac_check_string(L, S, 2, "file", NULL), *p = lac_check_string(L, S, 3, "bytes", &n);
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
  if (st == AC_OK) LAC_RETRY(L, S, st, ac_ckpt_start(s, state, n, m != NULL ? m->a : NULL, ac_ctx_team(S->ctx), &e));
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

/* save:poll(seconds) -> nil while it is under way; true; false, message, code. Waits a second at most, so that whoever asks in a loop is
 * interrupted between. */
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
    if (st == AC_TIMEOUT && ac_ckpt_done(h->s)) st = ac_ckpt_wait(h->s, -1, &e); /* it ended since */
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

/* save:abort(): gives it up; one that was not started is gone at once */
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

/* ---- opened checkpoints ---- */

typedef struct ckpt {
  ac_ckpt *c;
  uint64_t done; /* of the verification under way */
} ckpt;

static int ckpt_close(lua_State *L) {
  ckpt *k = luaL_checkudata(L, 1, CKPT);
  ac_ckpt_close(k->c);
  k->c = NULL;
  return 0;
}

static ac_ckpt *ckpt_of(lua_State *L, lac_state *S) {
  ckpt *k = luaL_testudata(L, 1, CKPT);
  if (k == NULL) lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a checkpoint, got %s", luaL_typename(L, 1));
  if (k->c == NULL) lac_error(L, S, AC_RELEASED, "the checkpoint is closed");
  return k->c;
}

/* core.open(path) -> checkpoint, manifest as JSON; or nil, message, code */
static int open_(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_string(L, S, 1, "path", NULL);
  ac_err e;
  size_t n;
  ckpt *k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = (ckpt){0};
  luaL_setmetatable(L, CKPT);
  if (ac_ckpt_open(path, &k->c, &e) != AC_OK) return lac_fail(L, &e);
  const char *text = ac_ckpt_manifest(k->c, &n);
  lua_pushlstring(L, text, n);
  return 2;
}

static int objects(lua_State *L) {
  const ac_ckpt *c = ckpt_of(L, lac_get(L));
  const int n = ac_ckpt_n_objects(c);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, ac_ckpt_object_at(c, i));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static void push_tensor(lua_State *L, const ac_ckpt_tensor *t) {
  lua_createtable(L, 0, 4);
  lua_pushstring(L, t->name);
  lua_setfield(L, -2, "name");
  lua_pushstring(L, t->has_dtype ? ac_dtype_name(t->dtype) : t->dtype_name);
  lua_setfield(L, -2, "dtype");
  lua_Integer bytes = t->has_dtype ? (lua_Integer)ac_dtype_bytes(t->dtype) : 0;
  lua_createtable(L, t->ndim, 0);
  for (int d = 0; d < t->ndim; d++) {
    lua_pushinteger(L, t->shape[d]);
    lua_rawseti(L, -2, d + 1);
    bytes *= t->shape[d];
  }
  lua_setfield(L, -2, "shape");
  lua_pushinteger(L, bytes);
  lua_setfield(L, -2, "bytes");
}

/* c:tensors(object) -> list of {name, dtype, shape, bytes} */
static int tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_ckpt *c = ckpt_of(L, S);
  const char *object = lac_check_string(L, S, 2, "object", NULL);
  int n;
  ac_err e;
  ac_ckpt_tensor t;
  if (ac_ckpt_object(c, object, &n, &e) != AC_OK) return lac_fail(L, &e);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    if (ac_ckpt_tensor_at(c, object, i, &t, &e) != AC_OK) return lac_fail(L, &e);
    push_tensor(L, &t);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* c:read(object, name, tensor [, offsets]): a contiguous tensor on the CPU -> true; or nil, message, code */
static int read_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_ckpt *c = ckpt_of(L, S);
  const char *object = lac_check_string(L, S, 2, "object", NULL), *name = lac_check_string(L, S, 3, "name", NULL);
  ac_tensor *t = lac_check_tensor(L, S, 4, "tensor");
  int64_t at[AC_MAX_DIMS] = {0};
  ac_err e;
  if (!lua_isnoneornil(L, 5)) {
    const int n = ac_tensor_ndim(t);
    luaL_checktype(L, 5, LUA_TTABLE);
    if ((int)lua_rawlen(L, 5) != n) return lac_error(L, S, AC_INVALID, "ckpt: read of '%s' needs %d offsets", name, n);
    for (int d = 0; d < n; d++) {
      lua_rawgeti(L, 5, d + 1);
      at[d] = lac_check_int(L, S, -1, "offsets");
      lua_pop(L, 1);
    }
  }
  if (ac_ckpt_read(c, object, name, at, t, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* c:verify_some(again) -> bytes done, bytes in all; or nil, message, code */
static int verify_some(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_ckpt *c = ckpt_of(L, S);
  ckpt *k = lua_touserdata(L, 1);
  ac_err e;
  if (lua_toboolean(L, 2)) k->done = 0;
  const ac_status st = ac_ckpt_verify(c, ac_ctx_team(S->ctx), &k->done, &e);
  if (st != AC_OK) return lac_fail(L, &e);
  lua_pushinteger(L, (lua_Integer)k->done);
  lua_pushinteger(L, (lua_Integer)ac_ckpt_bytes(c));
  return 2;
}

/* ---- folders ---- */

/* What the core hands over, until it is Lua's. */
typedef struct list {
  ac_ckpt_list l;
  char *bytes;
} list;

static int list_gc(lua_State *L) {
  list *l = lua_touserdata(L, 1);
  ac_ckpt_list_free(&l->l);
  free(l->bytes);
  l->bytes = NULL;
  return 0;
}

static list *list_push(lua_State *L) {
  list *l = lua_newuserdatauv(L, sizeof *l, 0);
  *l = (list){0};
  luaL_setmetatable(L, "accel.ckpt.List");
  lua_toclose(L, -1);
  return l;
}

/* c:bytes(file) -> string; or nil, message, code */
static int bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_ckpt *c = ckpt_of(L, S);
  const char *file = lac_check_string(L, S, 2, "file", NULL);
  ac_err e;
  size_t n;
  list *l = list_push(L);
  if (ac_ckpt_read_bytes(c, file, &l->bytes, &n, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushlstring(L, l->bytes, n);
  return 1;
}

static void set(lua_State *L, const char *key, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

/* core.scan(parent) -> list of {name, path, number, status, reason, bytes, state as JSON}; or nil, message, code */
static int scan(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *parent = lac_check_string(L, S, 1, "parent", NULL);
  ac_err e;
  list *l = list_push(L);
  if (ac_ckpt_scan(parent, &l->l, &e) != AC_OK) return lac_fail(L, &e);
  lua_createtable(L, l->l.n, 0);
  for (int i = 0; i < l->l.n; i++) {
    const ac_ckpt_entry *x = &l->l.entry[i];
    lua_createtable(L, 0, 8);
    set(L, "name", x->name);
    set(L, "path", x->path);
    set(L, "status", ac_ckpt_status_name(x->status));
    set(L, "reason", x->reason);
    if (x->state != NULL) set(L, "state", x->state);
    lua_pushinteger(L, x->number);
    lua_setfield(L, -2, "number");
    lua_pushinteger(L, (lua_Integer)x->bytes);
    lua_setfield(L, -2, "bytes");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* core.prune(parent, keep) -> names; or nil, message, code */
static int prune(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *parent = lac_check_string(L, S, 1, "parent", NULL);
  const int64_t keep = lac_check_int(L, S, 2, "keep");
  ac_err e;
  if (keep < 1) return lac_argerror(L, S, AC_INVALID, NULL, 2, "keep", "expected 1 or more, got %lld", (long long)keep);
  list *l = list_push(L);
  if (ac_ckpt_prune(parent, keep > INT32_MAX ? INT32_MAX : (int)keep, &l->l, &e) != AC_OK) return lac_fail(L, &e);
  lua_createtable(L, l->l.n, 0);
  for (int i = 0; i < l->l.n; i++) {
    lua_pushstring(L, l->l.entry[i].name);
    lua_rawseti(L, -2, i + 1);
  }
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

static void list_class(lua_State *L) {
  luaL_newmetatable(L, "accel.ckpt.List");
  lua_pushcfunction(L, list_gc);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close");
  lua_pop(L, 1);
}

LAC_OPEN("accel.ckpt.core", ckpt) {
  static const luaL_Reg funcs[] = {{"create", create}, {"open", open_},     {"scan", scan},  {"prune", prune},
                                   {"memory", memory}, {"release", release}, {NULL, NULL}};
  static const luaL_Reg save_metas[] = {{"__gc", save_gc}, {NULL, NULL}};
  static const luaL_Reg save_methods[] = {{"add_tensors", add_tensors}, {"add_bytes", add_bytes}, {"start", start},
                                          {"progress", progress},       {"poll", poll_},          {"abort", abort_},
                                          {NULL, NULL}};
  static const luaL_Reg ckpt_metas[] = {{"__gc", ckpt_close}, {"__close", ckpt_close}, {NULL, NULL}};
  static const luaL_Reg ckpt_methods[] = {{"objects", objects}, {"tensors", tensors},         {"read", read_},
                                          {"bytes", bytes},     {"verify_some", verify_some}, {"close", ckpt_close},
                                          {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SAVE, save_metas, save_methods);
  lac_new_class(L, S, CKPT, ckpt_metas, ckpt_methods);
  list_class(L);
  /* the arena first: what was made last is finalized first, and saves read from it */
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
