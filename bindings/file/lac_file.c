/* Files: accel.save and accel.load (safetensors), accel.open_safetensors (one tensor at a time).
 * Misuse raises. A file that fails, or has the wrong format, returns nil, message, code. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/file.h"
#include "bindings/core/guard.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/io.h"
#include "file/pt.h"
#include "file/safetensors.h"
#include "bindings/ops/placeholders.h"
#include "pt.h"
#include "writer.h"

#define SAFETENSORS "accel.safetensors"

enum { ANCHOR = 5 }; /* in save_grad_off, after its arguments */

/* ---- writing ---- */

/* Arguments of accel.save for the writer. Lists live in userdata on the Lua stack. */
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

/* Key at -2, value at -1. The anchor table (index ANCHOR) keeps names and metadata alive. */
static void add_tensor(lua_State *L, lac_state *S, void *arg) {
  save_list *l = arg;
  char buf[96];
  if (lua_type(L, -2) != LUA_TSTRING)
    lac_error(L, S, AC_INVALID, "save: names are strings, found %s",
              lac_typename(L, -2, buf, sizeof buf));
  const char *name = lua_tostring(L, -2);
  lac_box *b = lac_box_test(L, -1);
  if (b == NULL || b->t == NULL)
    lac_error(L, S, AC_INVALID, "save: '%s' is not a tensor but %s%s", name,
              lac_typename(L, -1, buf, sizeof buf),
              lua_istable(L, -1) ? "; a file holds one flat table of tensors" : "");
  if (l->n == l->cap) lac_error(L, S, AC_STATE, "save: the table changed while it was read");
  lua_pushvalue(L, -2);
  lua_rawseti(L, ANCHOR, l->n + 1);
  ac_tensor *t = b->t, **place = &l->tensors->t[l->tensors->n++];
  ac_tensor_retain(t);
  *place = t;
  l->names[l->n++] = name;
  if ((aci_is_contiguous(t) && t->device->kind == AC_DEV_CPU) || lac_placeholders(L)) return;
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
  /* after the names: nothing else anchors values that __pairs made */
  int at = (int)lua_rawlen(L, ANCHOR);
  lua_pushvalue(L, -2);
  lua_rawseti(L, ANCHOR, at + 1);
  lua_pushvalue(L, -1);
  lua_rawseti(L, ANCHOR, at + 2);
  m->keys[m->n] = lua_tostring(L, -2);
  m->values[m->n++] = lua_tostring(L, -1);
}

/* format = "pt", where the script names no format but its own for save: readers of Hugging Face
 * refuse a file without one. The lists have room for it. */
static void name_format(meta_list *m) {
  for (int i = 0; i < m->n; i++) {
    if (strcmp(m->keys[i], "format") != 0) continue;
    if (strcmp(m->values[i], "safetensors") == 0) m->values[i] = "pt";
    return;
  }
  m->keys[m->n] = "format";
  m->values[m->n++] = "pt";
}

static int save_grad_off(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lua_tostring(L, 1);
  int n = 0, n_meta = 0;
  each(L, 2, count_one, S, &n);
  if (!lua_isnil(L, 3)) each(L, 3, count_one, S, &n_meta);
  lua_createtable(L, n, 0); /* ANCHOR */
  save_list l = {.cap = n};
  l.names = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *l.names, 0);
  l.tensors = lac_list_new(L, (size_t)n);
  meta_list m = {.cap = n_meta};
  m.keys = lua_newuserdatauv(L, ((size_t)n_meta + 1) * sizeof *m.keys, 0);
  m.values = lua_newuserdatauv(L, ((size_t)n_meta + 1) * sizeof *m.values, 0);
  each(L, 2, add_tensor, S, &l);
  if (!lua_isnil(L, 3)) each(L, 3, add_meta, S, &m);
  name_format(&m);
  /* after all that runs Lua code, which may close it */
  aci_set *set = lac_check_set(L, S, 4, "set");
  if (lac_placeholders(L)) {
    lac_list_release(l.tensors);
    if (set != NULL) { /* path is a name in its folder */
      lua_pushfstring(L, "%s/%s", aci_set_folder(set), path);
      lua_replace(L, 1);
    }
    return lac_placeholders_save(L, 1, 2);
  }
  ac_err e;
  ac_status st = aci_st_write(set, path, l.n, l.names, l.tensors->t, m.n, m.keys, m.values, &e);
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
    lac_argerror(L, S, AC_INVALID, "save", idx, "tensors",
                 "expected table of tensors, got %s; give its state_dict()", name);
  lua_pop(L, 2);
}

/* The module of stdlib that writes what save is asked for. NULL: safetensors. metadata.format decides, or
 * else the names that PyTorch's files have. Such files have no metadata. */
static const char *foreign_writer(lua_State *L, lac_state *S) {
  static const char *const endings[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  size_t n;
  int given = 0;
  const char *path = lua_tolstring(L, 1, &n), *format = "";
  if (lua_istable(L, 3)) {
    if (lua_getfield(L, 3, "format") == LUA_TSTRING) format = lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps the string */
    each(L, 3, count_one, S, &given);
  }
  const bool dcp = strcmp(format, "dcp") == 0, asked = dcp || strcmp(format, "torch") == 0;
  bool torch = asked;
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    const size_t m = strlen(endings[i]);
    torch = torch || (n > m && strcmp(path + n - m, endings[i]) == 0);
  }
  if (!torch || strcmp(format, "safetensors") == 0) return NULL;
  if (asked && n > 12 && strcmp(path + n - 12, ".safetensors") == 0)
    lac_argerror(L, S, AC_INVALID, "save", 3, "format", "'%s' does not fit the name %s; rename it",
                 format, path);
  if (given > (asked ? 1 : 0))
    lac_argerror(L, S, AC_INVALID, "save", 3, "metadata",
                 "PyTorch's files have no metadata; store the values next to the tensors, or name "
                 "the file .safetensors");
  if (dcp && !lua_isnil(L, 4))
    lac_argerror(L, S, AC_INVALID, "save", 4, "set", "a folder is not a file of a set");
  return dcp ? "accel.util.distcp_write" : "accel.util.torch_file";
}

/* Calls the module, or its function save, with path, value and set. */
static int save_foreign(lua_State *L, const char *module) {
  lua_getglobal(L, "require");
  lua_pushstring(L, module);
  lua_call(L, 1, 1);
  if (lua_istable(L, -1)) lua_getfield(L, -1, "save");
  const int before = lua_gettop(L) - 1;
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 4);
  lua_call(L, 3, LUA_MULTRET);
  return lua_gettop(L) - before;
}

/* accel.save(path, tensors by name [, metadata [, set]]) -> true, or nil, message, code. With a set
 * of files, path is a name in it. metadata.format = "torch", or the name, asks for a file of torch.save, which
 * holds any tree of plain data and tensors, and "dcp" for a folder of torch.distributed.checkpoint. */
static int save(lua_State *L) {
  lac_state *S = lac_get(L);
  if (lua_type(L, 2) == LUA_TSTRING && lua_type(L, 1) != LUA_TSTRING) /* torch.save's order */
    return lac_argerror(L, S, AC_INVALID, "save", 1, "path",
                        "expected string, got %s; the path comes first: save(path, tensors)",
                        luaL_typename(L, 1));
  lac_check_path(L, S, 1, "path", NULL);
  lac_args_end(L, S, 4);
  if (!lua_isnil(L, 3) && !lua_istable(L, 3))
    return lac_argerror(L, S, AC_INVALID, "save", 3, "metadata",
                        "expected table of strings, got %s", luaL_typename(L, 3));
  const char *foreign = foreign_writer(L, S);
  if (!lua_istable(L, 2) && !(foreign != NULL && !lua_isnil(L, 2)))
    return lac_argerror(L, S, AC_INVALID, "save", 2, "tensors", "expected table of tensors, got %s",
                        luaL_typename(L, 2));
  if (lua_istable(L, 2)) refuse_object(L, S, 2);
  lac_check_set(L, S, 4, "set");
  if (foreign != NULL) return save_foreign(L, foreign);
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
  reader *r = luaL_checkudata(L, 1, SAFETENSORS);
  ac_safetensors *f = r->f;
  r->f = NULL;
  if (f != NULL) ac_safetensors_close(f);
  return 0;
}

/* Pushes a reader, or nil, message, code. Returns the number of values. */
static int open_reader(lua_State *L, lac_state *S, const char *path, reader **out) {
  ac_err e;
  reader *r = lua_newuserdatauv(L, sizeof *r, 0);
  r->f = NULL;
  luaL_setmetatable(L, SAFETENSORS);
  *out = r;
  ac_status st = ac_safetensors_open(path, &r->f, &e);
  return st == AC_OK ? 1 : lac_fail(L, &e);
}

/* Pushes a tensor of the file, or nil, message, code. Collections that run finalizers stand before
 * the reader's last check: a finalizer may close it, and its entries go with it. */
static int push_entry(lua_State *L, lac_state *S, const reader *r, const char *name, ac_device *d) {
  lac_box *b = lac_box_push(L, S);
  if (r->f == NULL) return lac_error(L, S, AC_RELEASED, "the safetensors file is closed");
  ac_safetensors *f = r->f;
  const ac_safetensors_entry *t = ac_safetensors_find(f, name);
  if (t == NULL) return lac_error(L, S, AC_NOT_FOUND, "the file has no tensor '%s'", name);
  ac_err e;
  ac_device *cpu;
  ac_tensor *out = NULL;
  if (!t->has_dtype && !t->widens)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' is %s, which has no dtype here",
                     t->name, t->dtype_name);
  if (t->ndim > AC_MAX_DIMS)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' has %d dims, more than %d", t->name,
                     t->ndim, AC_MAX_DIMS);
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

/* A script in place of a file of tensors: the name of dofile was meant. */
static bool is_script(const char *path) {
  const size_t n = strlen(path);
  return n > 4 && strcmp(path + n - 4, ".lua") == 0 && access(path, R_OK) == 0;
}

/* One warning for all tensors of a file that no dtype of accel can hold. */
static void warn_of_left_out(lua_State *L, const char *path, const ac_safetensors *f) {
  enum { SHOWN = 6 };
  char text[ACI_PATH_SHOWN], name[ACI_ST_SHOWN];
  int left = 0;
  for (int i = 0; i < ac_safetensors_count(f); i++) {
    const ac_safetensors_entry *t = ac_safetensors_at(f, i);
    if (t->has_dtype || t->widens || left++ >= SHOWN) continue;
    if (left == 1) {
      lua_warning(L, "load: ", 1);
      lua_warning(L, aci_path_shown(path, text), 1);
      lua_warning(L, ": left out tensors of types that accel does not have: ", 1);
    }
    lua_warning(L, left == 1 ? "'" : ", '", 1);
    lua_warning(L, aci_st_shown(t->name, strlen(t->name), name), 1);
    lua_warning(L, "' (", 1);
    lua_warning(L, t->dtype_name, 1);
    lua_warning(L, ")", 1);
  }
  if (left > 0) lua_warning(L, left > SHOWN ? ", ..." : "", 0);
}

/* accel.load(path [, {device =}]) -> tensors by name, or of a torch.save file its tree. Or nil,
 * message, code */
static int load(lua_State *L) {
  static const char *const names[] = {"device", "map_location", NULL}; /* the second is PyTorch's */
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  if (lua_type(L, 2) == LUA_TSTRING) { /* torch.load(path, "cpu") */
    lua_settop(L, 2);
    lua_createtable(L, 0, 1);
    lua_insert(L, 2);
    lua_setfield(L, 2, "device");
  }
  lac_opts o = lac_opts_open(L, S, 2, names);
  const bool other = lac_opt_push(&o, "map_location") != 0;
  if (other && lac_opt_push(&o, "device") != 0)
    return lac_error(L, S, AC_INVALID, "load: device and map_location mean the same; give one");
  ac_device *d = lac_opt_device(&o, other ? "map_location" : "device", NULL);
  const int before = lua_gettop(L);
  ac_err e;
  bool is_pt;
  struct stat sb;
  if (stat(path, &sb) == 0 && S_ISDIR(sb.st_mode)) { /* torch.distributed.checkpoint's formats */
    lua_getglobal(L, "require");
    lua_pushliteral(L, "accel.util.load_folder");
    lua_call(L, 1, 1);
    lua_pushvalue(L, 1);
    lua_pushstring(L, d->name);
    lua_call(L, 2, LUA_MULTRET);
    return lua_gettop(L) - before;
  }
  if (aci_pt_is(path, &is_pt, &e) != AC_OK) return lac_fail(L, &e);
  if (is_pt) return lac_pt_load(L, S, path, d);
  reader *r;
  int n = open_reader(L, S, path, &r);
  if (n != 1 && is_script(path))
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "path",
                        "%s is a Lua script, and accel.load reads tensors; dofile \"%s\" runs it",
                        path, path);
  if (n != 1) return n;
  lua_toclose(L, -1);
  n = ac_safetensors_count(r->f);
  lua_createtable(L, 0, n);
  warn_of_left_out(L, path, r->f);
  for (int i = 0; i < n; i++) {
    const ac_safetensors_entry *t = ac_safetensors_at(r->f, i);
    if (!t->has_dtype && !t->widens) continue;
    const char *name = t->name;
    int got = push_entry(L, S, r, name, d);
    if (got != 1) return got;
    lua_setfield(L, -2, name);
  }
  /* alone, so that model:load_state_dict(accel.load(path)) works:
   * accel.open_safetensors(path):metadata() has the rest */
  return 1;
}

static reader *check_reader(lua_State *L, lac_state *S) {
  reader *r = luaL_testudata(L, 1, SAFETENSORS);
  if (r == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected safetensors file, got %s",
                 luaL_typename(L, 1));
  if (r->f == NULL) lac_error(L, S, AC_RELEASED, "the safetensors file is closed");
  return r;
}

static int open_safetensors(lua_State *L) {
  lac_state *S = lac_get(L);
  reader *r;
  return open_reader(L, S, lac_check_path(L, S, 1, "path", NULL), &r);
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

/* read(name, tensor) -> true, or nil, message, code. The values into a contiguous tensor of the
 * host with the same dtype and number of elements. */
static int reader_read(lua_State *L) {
  lac_state *S = lac_get(L);
  reader *r = check_reader(L, S);
  const ac_safetensors_entry *t = entry_arg(L, S, r);
  ac_err e;
  if (ac_safetensors_read(r->f, t, lac_check_tensor(L, S, 3, "tensor"), &e) != AC_OK)
    return e.code == AC_INVALID || e.code == AC_DTYPE || e.code == AC_DEVICE ? lac_raise(L, S, &e)
                                                                             : lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* verify() -> true, or nil, message, code if a checksum of the file does not hold */
static int reader_verify(lua_State *L) {
  ac_err e;
  if (ac_safetensors_verify(check_reader(L, lac_get(L))->f, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* {dtype = "f32", shape = {...}, offset = of its first byte in the file}, without reading the
 * bytes */
static int reader_info(lua_State *L) {
  lac_state *S = lac_get(L);
  const reader *r = check_reader(L, S);
  const ac_safetensors_entry *t = entry_arg(L, S, r);
  lua_createtable(L, 0, 3);
  lua_pushinteger(L, (lua_Integer)(r->f->data_at + t->begin));
  lua_setfield(L, -2, "offset");
  lua_pushstring(L, t->has_dtype || t->widens ? ac_dtype_name(t->dtype) : t->dtype_name);
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

LAC_OPEN("accel", file) {
  static const luaL_Reg funcs[] = {
      {"save", save}, {"load", load}, {"open_safetensors", open_safetensors}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", reader_close}, {"__close", reader_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"keys", reader_keys},   {"get", reader_get},
                                     {"info", reader_info},   {"metadata", reader_metadata},
                                     {"read", reader_read},   {"verify", reader_verify},
                                     {"close", reader_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SAFETENSORS, metas, methods);
}
