/* A state dict in a file of torch.save, one tensor at a time, each with memory of its own:
 * accel.file.core.open_pt, with the methods of accel.open_safetensors. Called by
 * accel.ckpt.weights, for weights that are a pytorch_model.bin. */
#include <string.h>

#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "pt.h"

#define READER \
  "accel.pt.reader" /* its user values: name -> number of the tensor, and the names in the order of the file */

static int reader_close(lua_State *L) {
  lac_pt_holder *h = luaL_checkudata(L, 1, READER);
  ac_pt *f = h->f;
  h->f = NULL;
  ac_pt_close(f);
  return 0;
}

/* The dict of tensors: the root, or its "state_dict", as Lightning and others write it. */
static const ac_pt_value *find_state(const ac_pt *f) {
  const ac_pt_value *root = ac_pt_at(f, ac_pt_root(f));
  if (root->kind != AC_PT_DICT) return NULL;
  for (uint32_t i = 0; i + 1 < root->n; i += 2) {
    const ac_pt_value *k = ac_pt_at(f, root->item[i]), *v = ac_pt_at(f, root->item[i + 1]);
    if (k->kind == AC_PT_STR && k->n == 10 && memcmp(k->s, "state_dict", 10) == 0 &&
        v->kind == AC_PT_DICT)
      return v;
  }
  return root;
}

/* open_pt(path) -> file, or nil, message, code */
static int open_pt(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  ac_err e;
  lac_pt_holder *h = lua_newuserdatauv(L, sizeof *h, 2);
  h->f = NULL;
  luaL_setmetatable(L, READER);
  if (ac_pt_open(path, &h->f, &e) != AC_OK) return lac_fail(L, &e);
  const ac_pt_value *state = find_state(h->f);
  lua_newtable(L); /* name -> number */
  lua_newtable(L); /* names */
  lua_Integer n = 0;
  for (uint32_t i = 0; state != NULL && i + 1 < state->n; i += 2) {
    const ac_pt_value *k = ac_pt_at(h->f, state->item[i]), *v = ac_pt_at(h->f, state->item[i + 1]);
    if (k->kind != AC_PT_STR || v->kind != AC_PT_TENSOR) continue;
    lua_pushlstring(L, k->s, k->n);
    lua_pushvalue(L, -1);
    /* of a name that comes twice the last tensor counts, as in Python */
    if (lua_rawget(L, -4) == LUA_TNIL) {
      lua_pushvalue(L, -2);
      lua_rawseti(L, -4, ++n);
    }
    lua_pop(L, 1);
    lua_pushinteger(L, v->i);
    lua_rawset(L, -4);
  }
  if (n == 0) {
    AC_FAIL(&e, PARSE, "%s: holds no table of tensors by name", path);
    return lac_fail(L, &e);
  }
  lua_setiuservalue(L, -3, 2);
  lua_setiuservalue(L, -2, 1);
  return 1;
}

static ac_pt *check_self(lua_State *L, lac_state *S) {
  const lac_pt_holder *h = luaL_testudata(L, 1, READER);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected torch.save file, got %s",
                 luaL_typename(L, 1));
  if (h->f == NULL) lac_error(L, S, AC_RELEASED, "the torch.save file is closed");
  return h->f;
}

static const ac_pt_tensor *check_name(lua_State *L, lac_state *S, const ac_pt *f) {
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  lua_getiuservalue(L, 1, 1);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, -2) != LUA_TNUMBER)
    lac_error(L, S, AC_NOT_FOUND, "the file has no tensor '%s'", name);
  const ac_pt_tensor *t = ac_pt_tensor_at(f, lua_tointeger(L, -1));
  lua_pop(L, 2);
  return t;
}

static int keys(lua_State *L) {
  check_self(L, lac_get(L));
  lua_getiuservalue(L, 1, 2);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
  lua_createtable(L, (int)n, 0);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, -2, i);
    lua_rawseti(L, -2, i);
  }
  return 1;
}

static int info(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_pt_tensor *t = check_name(L, S, check_self(L, S));
  lua_createtable(L, 0, 2);
  lua_pushstring(L, t->has_dtype ? ac_dtype_name(t->dtype) : t->dtype_name);
  lua_setfield(L, -2, "dtype");
  lua_createtable(L, t->ndim, 0);
  for (int d = 0; d < t->ndim; d++) {
    lua_pushinteger(L, t->shape[d]);
    lua_rawseti(L, -2, d + 1);
  }
  lua_setfield(L, -2, "shape");
  return 1;
}

/* Whether the tensor's elements are all of its storage in their order. */
static bool is_whole(const ac_pt *f, const ac_pt_tensor *t) {
  uint64_t step = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] != 1 && t->stride[d] != (int64_t)step) return false;
    step *= (uint64_t)t->shape[d];
  }
  return t->offset == 0 && step * ac_dtype_bytes(t->dtype) == ac_pt_storage_bytes(f, t->storage);
}

/* Pushes the tensor, contiguous, on d. False: *e is filled. */
static bool push_tensor(lua_State *L, lac_state *S, const ac_pt_tensor *t, ac_device *d,
                        ac_err *e) {
  if (!t->has_dtype)
    return lac_error(L, S, AC_UNSUPPORTED, "load: tensor '%s' is %s, which has no dtype here",
                     lua_tostring(L, 2), t->dtype_name);
  lac_box *b = lac_box_push(L, S);
  ac_pt *f = check_self(L, S); /* a finalizer may have closed it */
  if (!lac_pt_push_storage(L, S, f, t->storage, d, e)) return false;
  ac_tensor *out = NULL;
  ac_storage *bytes = ac_tensor_storage(lac_box_test(L, -1)->t);
  if (ac_tensor_view(bytes, t->dtype, t->ndim, t->shape, t->stride, t->offset, &out, e) != AC_OK)
    return lac_raise(L, S, e);
  lac_box_fill(S, b, out);
  lua_pop(L, 1);
  if (is_whole(check_self(L, S), t)) return true;
  const ac_value v[1] = {{.kind = AC_T_TENSOR, .tensor = out}};
  lac_call_op(L, S, "clone", v, 1, lac_box_push(L, S));
  return true;
}

/* file:get(name) -> a contiguous tensor with memory of its own, on the default device, or nil,
 * message, code */
static int get(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_pt_tensor t = *check_name(L, S, check_self(L, S));
  ac_err e;
  return push_tensor(L, S, &t, ac_ctx_default_device(S->ctx), &e) ? 1 : lac_fail(L, &e);
}

/* file:read(name, tensor) -> true, or nil, message, code: into a contiguous tensor of the host, of
 * the same dtype and size */
static int read_into(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_pt *f = check_self(L, S);
  const ac_pt_tensor t = *check_name(L, S, f);
  ac_tensor *dst = lac_check_tensor(L, S, 3, "tensor"), *view = NULL;
  ac_device *cpu;
  ac_err e;
  int64_t numel = 1;
  for (int d = 0; d < t.ndim; d++) numel *= t.shape[d];
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  if (!t.has_dtype || ac_tensor_dtype(dst) != t.dtype || ac_tensor_numel(dst) != numel ||
      !ac_tensor_is_contiguous(dst) || ac_tensor_device(dst) != cpu)
    return lac_error(L, S, AC_INVALID,
                     "tensor '%s', %lld elements of %s, does not fit its destination",
                     lua_tostring(L, 2), (long long)numel, t.dtype_name);
  int64_t bytes = numel * (int64_t)ac_dtype_bytes(t.dtype);
  const int64_t at = ac_tensor_offset(dst) * (int64_t)ac_dtype_bytes(t.dtype);
  if (is_whole(f, &t)) {
    if (ac_tensor_view(ac_tensor_storage(dst), AC_U8, 1, &bytes, NULL, at, &view, &e) != AC_OK)
      return lac_raise(L, S, &e);
    const ac_status st = ac_pt_read(f, t.storage, view, &e);
    ac_tensor_release(view);
    if (st != AC_OK) return lac_fail(L, &e);
  } else {
    if (!push_tensor(L, S, &t, cpu, &e)) return lac_fail(L, &e);
    dst = lac_check_tensor(L, S, 3, "tensor"); /* finalizers may have run */
    const ac_value v[2] = {{.kind = AC_T_TENSOR, .tensor = dst},
                           {.kind = AC_T_TENSOR, .tensor = lac_box_test(L, -1)->t}};
    lac_call_op(L, S, "copy_", v, 2, lac_box_push(L, S));
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* file:verify() -> true, or nil, message, code if a checksum does not hold */
static int verify(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_pt *f = check_self(L, S);
  ac_device *cpu;
  ac_err e;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  for (int i = 0; i < ac_pt_n_storages(f); i++) {
    ac_tensor *t = NULL;
    const int64_t n = (int64_t)ac_pt_storage_bytes(f, i);
    ac_status st = ac_tensor_new(cpu, AC_U8, 1, &n, &t, &e);
    if (st != AC_OK) return lac_raise(L, S, &e);
    st = ac_pt_read(f, i, t, &e);
    ac_tensor_release(t);
    if (st != AC_OK) return lac_fail(L, &e);
  }
  lua_pushboolean(L, 1);
  return 1;
}

LAC_OPEN("accel.file.core", pt_reader) {
  static const luaL_Reg funcs[] = {{"open_pt", open_pt}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", reader_close}, {"__close", reader_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"keys", keys},     {"info", info},          {"get", get}, {"read", read_into},
      {"verify", verify}, {"close", reader_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, READER, metas, methods);
}
