/* Opened checkpoints and folders of them for accel.ckpt: the other half of lac_ckpt.c, whose module
 * these functions belong to. */
#include <stdlib.h>
#include <string.h>

#include "accel/ckpt.h"
#include "ckpt.h"
#include "bindings/core/lac.h"

#define CKPT "accel.ckpt.Checkpoint"

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
  if (k == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a checkpoint, got %s",
                 luaL_typename(L, 1));
  if (k->c == NULL) lac_error(L, S, AC_RELEASED, "the checkpoint is closed");
  return k->c;
}

/* core.open(path) -> checkpoint, manifest as JSON, or nil, message, code */
static int open_(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
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

/* c:read(object, name, tensor [, offsets]): a contiguous tensor on the CPU -> true, or nil,
 * message, code */
static int read_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_ckpt *c = ckpt_of(L, S);
  const char *object = lac_check_string(L, S, 2, "object", NULL),
             *name = lac_check_string(L, S, 3, "name", NULL);
  ac_tensor *t = lac_check_tensor(L, S, 4, "tensor");
  int64_t at[AC_MAX_DIMS] = {0};
  ac_err e;
  if (!lua_isnoneornil(L, 5)) {
    const int n = ac_tensor_ndim(t);
    luaL_checktype(L, 5, LUA_TTABLE);
    if ((int)lua_rawlen(L, 5) != n)
      return lac_error(L, S, AC_INVALID, "ckpt: read of '%s' needs %d offsets", name, n);
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

/* c:verify_some(again) -> bytes done, bytes in all, or nil, message, code */
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

/* Memory from the core, until Lua owns it. */
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

/* c:bytes(file) -> string, or nil, message, code */
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

/* core.scan(parent) -> list of {name, path, number, status, reason, bytes, state and continues as
 * JSON, run, sequence}, by age, or nil, message, code */
static int scan(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *parent = lac_check_path(L, S, 1, "parent", NULL);
  ac_err e;
  list *l = list_push(L);
  if (ac_ckpt_scan(parent, &l->l, &e) != AC_OK) return lac_fail(L, &e);
  lua_createtable(L, l->l.n, 0);
  for (int i = 0; i < l->l.n; i++) {
    const ac_ckpt_entry *x = &l->l.entry[i];
    lua_createtable(L, 0, 12);
    set(L, "name", x->name);
    set(L, "path", x->path);
    set(L, "status", ac_ckpt_status_name(x->status));
    set(L, "reason", x->reason);
    if (x->state != NULL) set(L, "state", x->state);
    if (x->run != NULL) set(L, "run", x->run);
    if (x->continues != NULL) set(L, "continues", x->continues);
    if (x->sequence > 0) {
      lua_pushinteger(L, x->sequence);
      lua_setfield(L, -2, "sequence");
    }
    lua_pushinteger(L, x->number);
    lua_setfield(L, -2, "number");
    lua_pushinteger(L, (lua_Integer)x->bytes);
    lua_setfield(L, -2, "bytes");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

const char **lac_ckpt_strings(lua_State *L, lac_state *S, int idx, const char *name, int *n) {
  idx = lua_absindex(L, idx);
  if (!lua_istable(L, idx))
    lac_error(L, S, AC_INVALID, "ckpt: '%s' must be a list of strings, got %s", name,
              luaL_typename(L, idx));
  *n = (int)lua_rawlen(L, idx);
  const char **v = lua_newuserdatauv(L, ((size_t)*n + 1) * sizeof *v, 0);
  for (int i = 0; i < *n; i++) {
    if (lua_rawgeti(L, idx, i + 1) != LUA_TSTRING)
      lac_error(L, S, AC_INVALID, "ckpt: '%s' must be a list of strings, got %s at place %d", name,
                luaL_typename(L, -1), i + 1);
    v[i] = lua_tostring(L, -1); /* the list keeps it */
    lua_pop(L, 1);
  }
  return v;
}

/* core.prune(parent, keep, {runs =, spare =, dry_run =}) -> names, or nil, message, code */
static int prune(lua_State *L) {
  static const char *const names[] = {"runs", "spare", "dry_run", NULL};
  lac_state *S = lac_get(L);
  const char *parent = lac_check_path(L, S, 1, "parent", NULL);
  const int64_t keep = lac_check_int(L, S, 2, "keep");
  ac_ckpt_prune_options o = AC_CKPT_PRUNE_OPTIONS_INIT;
  ac_err e;
  if (keep < 1)
    return lac_argerror(L, S, AC_INVALID, NULL, 2, "keep", "expected 1 or more, got %lld",
                        (long long)keep);
  lac_args_end(L, S, 3);
  const lac_opts opts = lac_opts_open(L, S, 3, names);
  o.spare = lac_opt_string(&opts, "spare", NULL);
  o.dry_run = lac_opt_bool(&opts, "dry_run", false);
  if (lua_istable(L, 3) && lua_getfield(L, 3, "runs") != LUA_TNIL)
    o.runs = lac_ckpt_strings(L, S, -1, "runs", &o.n_runs);
  list *l = list_push(L);
  if (ac_ckpt_prune_with(parent, keep > INT32_MAX ? INT32_MAX : (int)keep, &o, &l->l, &e) != AC_OK)
    return lac_fail(L, &e);
  lua_createtable(L, l->l.n, 0);
  for (int i = 0; i < l->l.n; i++) {
    lua_pushstring(L, l->l.entry[i].name);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* core.last_sequence(parent) -> integer, 0 without checkpoints */
static int last_sequence(lua_State *L) {
  lua_pushinteger(L, ac_ckpt_last_sequence(lac_check_path(L, lac_get(L), 1, "parent", NULL)));
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

void lac_ckpt_read_functions(lua_State *L, lac_state *S) {
  static const luaL_Reg funcs[] = {{"open", open_},
                                   {"scan", scan},
                                   {"prune", prune},
                                   {"last_sequence", last_sequence},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", ckpt_close}, {"__close", ckpt_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"objects", objects},         {"tensors", tensors},  {"read", read_}, {"bytes", bytes},
      {"verify_some", verify_some}, {"close", ckpt_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, CKPT, metas, methods);
  list_class(L);
}
