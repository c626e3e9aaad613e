/* Files: accel.save and accel.load (safetensors), accel.open_safetensors (one tensor at a time),
 * accel.open_tokens, accel.write_file, accel.makedirs. Misuse raises; a file that fails, or is not what it
 * should be, returns nil, message, code. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accel/file.h"
#include "core/lac.h"
#include "file/io.h"

/* ---- writing ---- */

/* What a call of accel.save hands to the writer; lists live in userdata on the Lua stack. */
typedef struct save_list {
  int n, cap;
  const char **names;
  lac_list *tensors; /* retained: whatever finalizers do meanwhile */
} save_list;

/* Calls fn for every key and value of the table at idx, through __pairs when it has one. */
static void each(lua_State *L, int idx, void (*fn)(lua_State *, lac_state *, void *), lac_state *S,
                 void *arg) {
  if (luaL_getmetafield(L, idx, "__pairs") == LUA_TNIL) {
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) fn(L, S, arg);
    return;
  }
  lua_pushvalue(L, idx);
  lua_call(L, 1, 3); /* f, state, key */
  int f = lua_gettop(L) - 2;
  for (;;) {
    lua_pushvalue(L, f);
    lua_pushvalue(L, f + 1);
    lua_pushvalue(L, f + 2);
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2)) break;
    lua_pushvalue(L, -2);
    lua_replace(L, f + 2);
    fn(L, S, arg);
    lua_settop(L, f + 2);
  }
  lua_settop(L, f - 1);
}

static void count_one(lua_State *L, lac_state *S, void *arg) { (*(int *)arg)++; }

/* Key at -2, value at -1. The anchor table (index 4) keeps names and metadata alive. */
static void add_tensor(lua_State *L, lac_state *S, void *arg) {
  save_list *l = arg;
  char buf[96];
  if (lua_type(L, -2) != LUA_TSTRING)
    lac_error(L, S, AC_INVALID, "save: names are strings, found %s", lac_typename(L, -2, buf, sizeof buf));
  const char *name = lua_tostring(L, -2);
  lac_box *b = lac_box_test(L, -1);
  if (b == NULL || b->t == NULL)
    lac_error(L, S, AC_INVALID, "save: '%s' is no tensor but %s%s", name, lac_typename(L, -1, buf, sizeof buf),
              lua_istable(L, -1) ? "; a file holds one flat table of tensors" : "");
  if (l->n == l->cap) lac_error(L, S, AC_STATE, "save: the table changed while it was read");
  lua_pushvalue(L, -2);
  lua_rawseti(L, 4, l->n + 1);
  ac_tensor *t = b->t, **place = &l->tensors->t[l->tensors->n++];
  ac_tensor_retain(t);
  *place = t;
  l->names[l->n++] = name;
  if (aci_is_contiguous(t) && t->device->kind == AC_DEV_CPU) return;
  ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = t}};
  ac_device *cpu;
  ac_err e;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) lac_raise(L, S, &e);
  lac_box *c = lac_box_push(L, S);
  if (t->device == cpu) {
    lac_call_op(L, S, "clone", v, 1, c);
  } else {
    v[1] = (ac_value){.kind = AC_T_DTYPE, .dtype = (ac_dtype)t->dtype};
    v[2] = (ac_value){.kind = AC_T_DEVICE, .device = cpu};
    lac_call_op(L, S, "to", v, 3, c);
  }
  ac_tensor_retain(c->t);
  *place = c->t;
  ac_tensor_release(t);
  lua_pop(L, 1);
}

typedef struct meta_list {
  int n, cap;
  const char **keys, **values;
} meta_list;

static void add_meta(lua_State *L, lac_state *S, void *arg) {
  meta_list *m = arg;
  if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING)
    lac_error(L, S, AC_INVALID, "save: metadata is a table of strings by name, found %s = %s",
              luaL_typename(L, -2), luaL_typename(L, -1));
  if (m->n == m->cap) lac_error(L, S, AC_STATE, "save: the metadata changed while it was read");
  int at = (int)lua_rawlen(L, 4); /* behind the names: what __pairs made lives nowhere else */
  lua_pushvalue(L, -2);
  lua_rawseti(L, 4, at + 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, 4, at + 2);
  m->keys[m->n] = lua_tostring(L, -2);
  m->values[m->n++] = lua_tostring(L, -1);
}

static int save_grad_off(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lua_tostring(L, 1);
  int n = 0, n_meta = 0;
  each(L, 2, count_one, S, &n);
  if (!lua_isnil(L, 3)) each(L, 3, count_one, S, &n_meta);
  lua_createtable(L, n, 0); /* 4 */
  save_list l = {.cap = n};
  l.names = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *l.names, 0);
  l.tensors = lac_list_new(L, (size_t)n);
  meta_list m = {.cap = n_meta};
  m.keys = lua_newuserdatauv(L, ((size_t)n_meta + 1) * sizeof *m.keys, 0);
  m.values = lua_newuserdatauv(L, ((size_t)n_meta + 1) * sizeof *m.values, 0);
  each(L, 2, add_tensor, S, &l);
  if (!lua_isnil(L, 3)) each(L, 3, add_meta, S, &m);
  ac_err e;
  ac_status st = ac_safetensors_write(path, l.n, l.names, l.tensors->t, m.n, m.keys, m.values, &e);
  lac_list_release(l.tensors);
  if (st == AC_IO || st == AC_NOT_FOUND) return lac_fail(L, &e);
  if (st != AC_OK) return lac_raise(L, S, &e);
  lua_pushboolean(L, 1);
  return 1;
}

static void restore_grad(lua_State *L, lac_state *S, lac_guard *g) {
  ac_ctx_set_grad_enabled(S->ctx, g->was.b);
}

/* Raises for a module or an optimizer in place of its tensors. */
static void refuse_object(lua_State *L, lac_state *S, int idx) {
  if (luaL_getmetafield(L, idx, "__name") == LUA_TNIL) return;
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "object";
  if (lua_getfield(L, idx, "state_dict") == LUA_TFUNCTION)
    lac_argerror(L, S, AC_INVALID, "save", idx, "tensors", "expected table of tensors, got %s; give its state_dict()",
                 name);
  lua_pop(L, 2);
}

/* accel.save(path, tensors by name [, metadata]) -> true, or nil, message, code */
static int save(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_string(L, S, 1, "path", NULL);
  if (!lua_istable(L, 2))
    return lac_argerror(L, S, AC_INVALID, "save", 2, "tensors", "expected table of tensors, got %s",
                        luaL_typename(L, 2));
  refuse_object(L, S, 2);
  lua_settop(L, 3);
  if (!lua_isnil(L, 3) && !lua_istable(L, 3))
    return lac_argerror(L, S, AC_INVALID, "save", 3, "metadata", "expected table of strings, got %s",
                        luaL_typename(L, 3));
  lac_pushfunction(L, S, save_grad_off);
  lua_insert(L, 1);
  lac_guard *g = lac_guard_push(L, S, "save", restore_grad);
  g->was.b = ac_ctx_set_grad_enabled(S->ctx, false);
  g->done = false;
  return lac_guard_finish(L, 1);
}

/* ---- reading ---- */

typedef struct reader {
  ac_safetensors *f;
} reader;

static int reader_close(lua_State *L) {
  reader *r = luaL_checkudata(L, 1, "accel.safetensors");
  ac_safetensors *f = r->f;
  r->f = NULL;
  if (f != NULL) ac_safetensors_close(f);
  return 0;
}

/* Pushes a reader, or nil, message, code; returns how many values those are. */
static int open_reader(lua_State *L, lac_state *S, const char *path, reader **out) {
  ac_err e;
  reader *r = lua_newuserdatauv(L, sizeof *r, 0);
  r->f = NULL;
  luaL_setmetatable(L, "accel.safetensors");
  *out = r;
  ac_status st = ac_safetensors_open(path, &r->f, &e);
  return st == AC_OK ? 1 : lac_fail(L, &e);
}

/* Pushes a tensor of the file, or nil, message, code. Collections that run finalizers stand before the
 * reader's last check: a finalizer may close it, and its entries go with it. */
static int push_entry(lua_State *L, lac_state *S, const reader *r, const char *name, ac_device *d) {
  lac_box *b = lac_box_push(L, S);
  if (r->f == NULL) return lac_error(L, S, AC_RELEASED, "the safetensors file is closed");
  ac_safetensors *f = r->f;
  const ac_safetensors_entry *t = ac_safetensors_find(f, name);
  if (t == NULL) return lac_error(L, S, AC_NOT_FOUND, "the file has no tensor '%s'", name);
  ac_err e;
  ac_device *cpu;
  ac_tensor *out = NULL;
  if (!t->has_dtype)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' is %s, which has no dtype here", t->name,
                     t->dtype_name);
  if (t->ndim > AC_MAX_DIMS)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' has %d dims, more than %d", t->name, t->ndim,
                     AC_MAX_DIMS);
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  const ac_dtype dt = t->dtype;
  ac_status st = ac_tensor_new_class(cpu, dt, t->ndim, t->shape, AC_MEM_PARAMETER, &out, &e);
  if (st == AC_OOM && lac_gc_oom(L, S)) {
    if (r->f == NULL) return lac_error(L, S, AC_RELEASED, "the safetensors file is closed");
    st = ac_tensor_new_class(cpu, dt, t->ndim, t->shape, AC_MEM_PARAMETER, &out, &e);
  }
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  if (ac_safetensors_read(f, t, out, &e) != AC_OK) return lac_fail(L, &e);
  if (d != cpu) {
    const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = out},
                           {.kind = AC_T_DTYPE, .dtype = dt},
                           {.kind = AC_T_DEVICE, .device = d}};
    lac_call_op(L, S, "to", v, 3, lac_box_push(L, S));
    lua_remove(L, -2);
  }
  return 1;
}

static void push_metadata(lua_State *L, const ac_safetensors *f) {
  int n = ac_safetensors_n_metadata(f);
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) {
    const char *key, *value;
    ac_safetensors_metadata(f, i, &key, &value);
    lua_pushstring(L, value);
    lua_setfield(L, -2, key);
  }
}

/* accel.load(path [, {device =}]) -> tensors by name, metadata; or nil, message, code */
static int load(lua_State *L) {
  static const char *const names[] = {"device", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_check_string(L, S, 1, "path", NULL);
  lac_opts o = lac_opts_open(L, S, 2, names);
  ac_device *d = lac_opt_device(&o, "device", ac_ctx_default_device(S->ctx));
  reader *r;
  int n = open_reader(L, S, path, &r);
  if (n != 1) return n;
  lua_toclose(L, -1);
  n = ac_safetensors_count(r->f);
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) {
    const char *name = ac_safetensors_at(r->f, i)->name;
    int got = push_entry(L, S, r, name, d);
    if (got != 1) return got;
    lua_setfield(L, -2, name);
  }
  push_metadata(L, r->f);
  return 2;
}

static reader *check_reader(lua_State *L, lac_state *S) {
  reader *r = luaL_testudata(L, 1, "accel.safetensors");
  if (r == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected safetensors file, got %s", luaL_typename(L, 1));
  if (r->f == NULL) lac_error(L, S, AC_RELEASED, "the safetensors file is closed");
  return r;
}

static int open_safetensors(lua_State *L) {
  lac_state *S = lac_get(L);
  reader *r;
  return open_reader(L, S, lac_check_string(L, S, 1, "path", NULL), &r);
}

static int reader_keys(lua_State *L) {
  const reader *r = check_reader(L, lac_get(L));
  int n = ac_safetensors_count(r->f);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, ac_safetensors_at(r->f, i)->name);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static const ac_safetensors_entry *entry_arg(lua_State *L, lac_state *S, const reader *r) {
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  const ac_safetensors_entry *t = ac_safetensors_find(r->f, name);
  if (t == NULL) lac_error(L, S, AC_NOT_FOUND, "the file has no tensor '%s'", name);
  return t;
}

static int reader_get(lua_State *L) {
  lac_state *S = lac_get(L);
  const reader *r = check_reader(L, S);
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  return push_entry(L, S, r, name, ac_ctx_default_device(S->ctx));
}

/* {dtype = "f32", shape = {...}}, without reading the bytes */
static int reader_info(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_safetensors_entry *t = entry_arg(L, S, check_reader(L, S));
  lua_createtable(L, 0, 2);
  lua_pushstring(L, t->has_dtype ? ac_dtype_name(t->dtype) : t->dtype_name);
  lua_setfield(L, -2, "dtype");
  lua_createtable(L, t->ndim, 0);
  for (int i = 0; i < t->ndim; i++) {
    lua_pushinteger(L, t->shape[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "shape");
  return 1;
}

static int reader_metadata(lua_State *L) {
  push_metadata(L, check_reader(L, lac_get(L))->f);
  return 1;
}

/* ---- tokens ---- */

typedef struct tokens {
  ac_tokens *t;
} tokens;

static int tokens_close(lua_State *L) {
  tokens *k = luaL_checkudata(L, 1, "accel.tokens");
  ac_tokens *t = k->t;
  k->t = NULL;
  if (t != NULL) ac_tokens_close(t);
  return 0;
}

static ac_tokens *check_tokens(lua_State *L, lac_state *S) {
  tokens *k = luaL_testudata(L, 1, "accel.tokens");
  if (k == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected token file, got %s", luaL_typename(L, 1));
  if (k->t == NULL) lac_error(L, S, AC_RELEASED, "the token file is closed");
  return k->t;
}

/* accel.open_tokens(path [, {dtype = "u16", header = 0}]): header in bytes */
static int open_tokens(lua_State *L) {
  static const char *const names[] = {"dtype", "header", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_check_string(L, S, 1, "path", NULL);
  lac_opts o = lac_opts_open(L, S, 2, names);
  ac_dtype dt = AC_U16;
  lac_opt_dtype(&o, "dtype", &dt);
  int64_t header = lac_opt_int(&o, "header", 0);
  if (header < 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 0, "header", "must not be negative, got %lld",
                        (long long)header);
  ac_err e;
  tokens *k = lua_newuserdatauv(L, sizeof *k, 0);
  k->t = NULL;
  luaL_setmetatable(L, "accel.tokens");
  ac_status st = ac_tokens_open(path, dt, (uint64_t)header, &k->t, &e);
  if (st == AC_DTYPE || st == AC_INVALID) return lac_raise(L, S, &e);
  return st == AC_OK ? 1 : lac_fail(L, &e);
}

static int tokens_len(lua_State *L) {
  lua_pushinteger(L, ac_tokens_length(check_tokens(L, lac_get(L))));
  return 1;
}

/* file:batch(offsets, length) -> i64 [#offsets, length]; offsets are 0-based tokens, a list or an i64
 * tensor */
static int tokens_batch(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tokens *t = check_tokens(L, S);
  ac_err e;
  int64_t shape[2], *offset;
  const lac_box *given = lac_box_test(L, 2);
  if (given != NULL) {
    const ac_tensor *x = lac_check_tensor(L, S, 2, "offsets");
    if (x->dtype != AC_I64 || x->ndim != 1 || !aci_is_contiguous(x) || x->device->kind != AC_DEV_CPU)
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "offsets",
                          "expected list or contiguous i64 tensor of rank 1 on the CPU");
    shape[0] = x->numel;
    offset = ac_tensor_data(x);
  } else {
    if (!lua_istable(L, 2))
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "offsets", "expected list of integers, got %s",
                          luaL_typename(L, 2));
    shape[0] = (int64_t)lua_rawlen(L, 2);
    offset = lua_newuserdatauv(L, ((size_t)shape[0] + 1) * sizeof *offset, 0);
    for (int64_t i = 0; i < shape[0]; i++) {
      int ok;
      lua_rawgeti(L, 2, i + 1);
      offset[i] = lua_tointegerx(L, -1, &ok);
      if (!ok)
        return lac_argerror(L, S, AC_INVALID, NULL, 2, "offsets", "entry %d: expected integer, got %s",
                            (int)i + 1, luaL_typename(L, -1));
      lua_pop(L, 1);
    }
  }
  shape[1] = lac_check_int(L, S, 3, "length");
  if (shape[1] < 0)
    return lac_argerror(L, S, AC_SHAPE, NULL, 3, "length", "must not be negative, got %lld",
                        (long long)shape[1]);
  ac_device *cpu;
  ac_tensor *out = NULL;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box *b = lac_box_push(L, S);
  ac_status st;
  LAC_RETRY(L, S, st, ac_tensor_new(cpu, AC_I64, 2, shape, &out, &e));
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  lac_charge(S, out);
  /* making the box may have run a finalizer that closed the file or released the offsets */
  t = check_tokens(L, S);
  if (given != NULL && given->t == NULL) return lac_error(L, S, AC_RELEASED, "the offsets were released");
  if (ac_tokens_read(t, shape[0], offset, shape[1], ac_tensor_data(out), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 1;
}

/* ---- plain files and folders ---- */

/* accel.write_file(path, bytes) -> true; or nil, message, code. The file is there whole, or as it was. */
static int write_file(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *path = lac_check_string(L, S, 1, "path", NULL), *bytes = lac_check_string(L, S, 2, "bytes", &n);
  ac_err e;
  aci_atomic_file f = {.fd = -1};
  ac_status st = aci_atomic_open(&f, path, n, &e);
  if (st == AC_OK) st = aci_atomic_write(&f, bytes, n, &e);
  if (st == AC_OK) st = aci_atomic_commit(&f, &e);
  aci_atomic_abort(&f);
  if (st != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* accel.makedirs(path) -> true; or nil, message, code. Makes a folder and those above it; one that exists is
 * fine. */
static int makedirs(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *path = lac_check_string(L, S, 1, "path", &n);
  if (strlen(path) != n) return lac_argerror(L, S, AC_INVALID, "makedirs", 1, "path", "has a zero byte");
  char *part = lua_newuserdatauv(L, n + 1, 0);
  struct stat sb;
  int err = ENOENT;
  memcpy(part, path, n + 1);
  for (size_t i = 1; i <= n; i++) {
    if (part[i] != '/' && part[i] != 0) continue;
    const char was = part[i];
    part[i] = 0;
    err = mkdir(part, 0777) == 0 ? 0 : errno;
    part[i] = was;
  }
  if (n > 0 && stat(path, &sb) == 0 && S_ISDIR(sb.st_mode)) {
    lua_pushboolean(L, 1);
    return 1;
  }
  ac_err e;
  aci_io_error(&e, path, "cannot make the folder", err != 0 ? err : ENOENT);
  return lac_fail(L, &e);
}

static void new_class(lua_State *L, lac_state *S, const char *name, const luaL_Reg *methods,
                      lua_CFunction close, lua_CFunction len) {
  luaL_newmetatable(L, name);
  lua_pushcfunction(L, close);
  lua_setfield(L, -2, "__gc");
  lua_pushcfunction(L, close);
  lua_setfield(L, -2, "__close");
  if (len != NULL) {
    lac_pushfunction(L, S, len);
    lua_setfield(L, -2, "__len");
  }
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_pushcfunction(L, close);
  lua_setfield(L, -2, "close");
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

void lac_open_file(lua_State *L, lac_state *S) {
  static const luaL_Reg funcs[] = {{"save", save},
                                   {"load", load},
                                   {"open_safetensors", open_safetensors},
                                   {"open_tokens", open_tokens},
                                   {"write_file", write_file},
                                   {"makedirs", makedirs},
                                   {NULL, NULL}};
  static const luaL_Reg reader_methods[] = {{"keys", reader_keys},
                                            {"get", reader_get},
                                            {"info", reader_info},
                                            {"metadata", reader_metadata},
                                            {NULL, NULL}};
  static const luaL_Reg tokens_methods[] = {{"len", tokens_len}, {"batch", tokens_batch}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  new_class(L, S, "accel.safetensors", reader_methods, reader_close, NULL);
  new_class(L, S, "accel.tokens", tokens_methods, tokens_close, tokens_len);
}
