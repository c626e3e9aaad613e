/* GGUF files for Lua (accel.file.core): open_gguf, gguf_quantize, create_gguf. Called by
 * stdlib/accel/models/gguf, which knows the names in them. */
#include <string.h>

#include "accel/file.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "file/gguf.h"

#define READER "accel.gguf"
#define WRITER "accel.gguf_writer"

typedef struct holder {
  ac_gguf *f; /* NULL: closed */
} holder;

static int reader_close(lua_State *L) {
  holder *h = luaL_checkudata(L, 1, READER);
  ac_gguf *f = h->f;
  h->f = NULL;
  ac_gguf_close(f);
  return 0;
}

static ac_gguf *check_self(lua_State *L, lac_state *S) {
  const holder *h = luaL_testudata(L, 1, READER);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a GGUF file, got %s",
                 luaL_typename(L, 1));
  if (h->f == NULL) lac_error(L, S, AC_RELEASED, "the GGUF file is closed");
  return h->f;
}

/* open_gguf(path) -> file, or nil, message, code */
static int open_gguf(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  ac_err e;
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->f = NULL;
  luaL_setmetatable(L, READER);
  if (ac_gguf_open(path, &h->f, &e) != AC_OK) return lac_fail(L, &e);
  return 1;
}

static uint64_t little(const unsigned char *p, int n) {
  uint64_t v = 0;
  for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
  return v;
}

/* Pushes a value of fixed size. Returns its bytes. */
static int push_fixed(lua_State *L, int kind, const unsigned char *p) {
  float f32;
  double f64;
  uint32_t w;
  uint64_t v;
  switch (kind) {
    case AC_GGUF_U8: lua_pushinteger(L, p[0]); return 1;
    case AC_GGUF_I8: lua_pushinteger(L, (int8_t)p[0]); return 1;
    case AC_GGUF_BOOL: lua_pushboolean(L, p[0]); return 1;
    case AC_GGUF_U16: lua_pushinteger(L, (lua_Integer)little(p, 2)); return 2;
    case AC_GGUF_I16: lua_pushinteger(L, (int16_t)little(p, 2)); return 2;
    case AC_GGUF_U32: lua_pushinteger(L, (lua_Integer)little(p, 4)); return 4;
    case AC_GGUF_I32: lua_pushinteger(L, (int32_t)little(p, 4)); return 4;
    case AC_GGUF_F32:
      w = (uint32_t)little(p, 4);
      memcpy(&f32, &w, 4);
      lua_pushnumber(L, (lua_Number)f32);
      return 4;
    case AC_GGUF_F64:
      v = little(p, 8);
      memcpy(&f64, &v, 8);
      lua_pushnumber(L, f64);
      return 8;
    default: /* 64 bits. Beyond those of a Lua integer as a float */
      v = little(p, 8);
      if (kind == AC_GGUF_U64 && v > INT64_MAX) lua_pushnumber(L, (lua_Number)v);
      else lua_pushinteger(L, (lua_Integer)v);
      return 8;
  }
}

static void push_value(lua_State *L, const ac_gguf_value *v) {
  if (v->kind == AC_GGUF_STRING) {
    lua_pushlstring(L, (const char *)v->at, (size_t)v->n);
  } else if (v->kind == AC_GGUF_ARRAY) {
    const unsigned char *p = v->at;
    lua_createtable(L, v->n < 1 << 24 ? (int)v->n : 0, 0);
    for (uint64_t i = 0; i < v->n; i++) {
      if (v->item_kind == AC_GGUF_STRING) {
        const uint64_t n = little(p, 8);
        lua_pushlstring(L, (const char *)p + 8, (size_t)n);
        p += 8 + n;
      } else {
        p += push_fixed(L, v->item_kind, p);
      }
      lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
  } else {
    push_fixed(L, v->kind, v->at);
  }
}

/* file:metadata() -> table by key */
static int metadata(lua_State *L) {
  ac_gguf *f = check_self(L, lac_get(L));
  lua_createtable(L, 0, ac_gguf_n_meta(f));
  for (int i = 0; i < ac_gguf_n_meta(f); i++) {
    const ac_gguf_value *v = ac_gguf_meta(f, i);
    push_value(L, v);
    lua_setfield(L, -2, v->key);
  }
  return 1;
}

/* file:tensors() -> list of {name =, type = "Q8_0", dtype = "f32", shape =} in the order of the
 * file */
static int tensors(lua_State *L) {
  ac_gguf *f = check_self(L, lac_get(L));
  lua_createtable(L, ac_gguf_n_tensors(f), 0);
  for (int i = 0; i < ac_gguf_n_tensors(f); i++) {
    const ac_gguf_entry *t = ac_gguf_tensor(f, i);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, t->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, t->type_name);
    lua_setfield(L, -2, "type");
    lua_pushstring(L, ac_dtype_name(t->dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushinteger(L, (lua_Integer)t->bytes);
    lua_setfield(L, -2, "bytes");
    lua_createtable(L, t->ndim, 0);
    for (int d = 0; d < t->ndim; d++) {
      lua_pushinteger(L, t->shape[d]);
      lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "shape");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* file:get(i) -> tensor i (1-based) on the host, or nil, message, code */
static int get(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_gguf *f = check_self(L, S);
  const int64_t i = lac_check_int(L, S, 2, "i");
  if (i < 1 || i > ac_gguf_n_tensors(f))
    lac_error(L, S, AC_INDEX, "the file has %d tensors, not %lld", ac_gguf_n_tensors(f),
              (long long)i);
  const ac_gguf_entry *t = ac_gguf_tensor(f, (int)i - 1);
  ac_device *cpu;
  ac_tensor *out = NULL;
  ac_err e;
  lac_box *b = lac_box_push(L, S);
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  ac_status st = ac_tensor_new_class(cpu, t->dtype, t->ndim, t->shape, AC_MEM_PARAMETER, &out, &e);
  if (st == AC_OOM && lac_gc_oom(L, S)) {
    f = check_self(L, S); /* a finalizer may have closed it */
    t = ac_gguf_tensor(f, (int)i - 1);
    st = ac_tensor_new_class(cpu, t->dtype, t->ndim, t->shape, AC_MEM_PARAMETER, &out, &e);
  }
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  if (ac_gguf_read(f, (int)i - 1, out, &e) != AC_OK) return lac_fail(L, &e);
  return 1;
}

/* gguf_quantize(t, type) -> u8 tensor [blocks of all rows]: t contiguous f32, type the number of one
 * that ac_gguf_quantize takes */
static int quantize(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *src = lac_check_tensor(L, S, 1, "x");
  const int64_t type = lac_check_int(L, S, 2, "type");
  const aci_gguf_type *k = type < 0 || type > 255 ? NULL : aci_gguf_type_at((uint32_t)type);
  const int64_t n = k == NULL ? 0 : ac_tensor_numel(src) / k->block * k->bytes;
  ac_device *cpu;
  ac_tensor *out = NULL;
  ac_err e;
  lac_box *b = lac_box_push(L, S);
  src = lac_check_tensor(L, S, 1, "x"); /* finalizers may have run */
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  if (ac_tensor_new(cpu, AC_U8, 1, &n, &out, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  if (ac_gguf_quantize(src, (int)type, out, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

/* ---- writing ---- */
typedef struct writer {
  ac_gguf_writer *w; /* NULL: closed */
} writer;

static int writer_close(lua_State *L) {
  writer *h = luaL_checkudata(L, 1, WRITER);
  ac_gguf_writer *w = h->w;
  h->w = NULL;
  ac_gguf_abort(w);
  return 0;
}

static ac_gguf_writer *check_writer(lua_State *L, lac_state *S) {
  const writer *h = luaL_testudata(L, 1, WRITER);
  if (h == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a GGUF file that is written, got %s",
                 luaL_typename(L, 1));
  if (h->w == NULL) lac_error(L, S, AC_RELEASED, "the GGUF file is closed");
  return h->w;
}

/* create_gguf(path, head, alignment, bytes) -> file, of so many bytes of padded tensors, or nil,
 * message, code */
static int create_gguf(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n_head;
  const char *path = lac_check_path(L, S, 1, "path", NULL),
             *head = lac_check_string(L, S, 2, "head", &n_head);
  const int64_t alignment = lac_check_int(L, S, 3, "alignment"),
                bytes = lac_check_int(L, S, 4, "bytes");
  ac_err e;
  if (alignment < 1 || alignment > 65536)
    return lac_error(L, S, AC_INVALID, "alignment must lie in 1 .. 65536, got %lld",
                     (long long)alignment);
  if (bytes < 0)
    return lac_error(L, S, AC_INVALID, "bytes must not be negative, got %lld", (long long)bytes);
  writer *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->w = NULL;
  luaL_setmetatable(L, WRITER);
  if (ac_gguf_create(path, head, n_head, (uint32_t)alignment, (uint64_t)bytes, &h->w, &e) != AC_OK)
    return lac_fail(L, &e);
  return 1;
}

/* file:append(t), file:commit() -> true, or nil, message, code. A file closed without commit leaves
 * no trace. */
static int append(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 2, "tensor");
  ac_err e;
  if (ac_gguf_append(check_writer(L, S), t, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

static int commit(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (ac_gguf_commit(check_writer(L, S), &e) != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

LAC_OPEN("accel.file.core", gguf) {
  static const luaL_Reg funcs[] = {{"open_gguf", open_gguf},
                                   {"gguf_quantize", quantize},
                                   {"create_gguf", create_gguf},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", reader_close}, {"__close", reader_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"metadata", metadata},
                                     {"tensors", tensors},
                                     {"get", get},
                                     {"close", reader_close},
                                     {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  static const luaL_Reg writer_metas[] = {
      {"__gc", writer_close}, {"__close", writer_close}, {NULL, NULL}};
  static const luaL_Reg writer_methods[] = {
      {"append", append}, {"commit", commit}, {"close", writer_close}, {NULL, NULL}};
  lac_new_class(L, S, READER, metas, methods);
  lac_new_class(L, S, WRITER, writer_metas, writer_methods);
}
