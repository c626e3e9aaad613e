/* accel.encode(value [, opts]) and accel.decode(bytes [, opts]): plain Lua data and tensors as
 * bytes (codec.h). */
#include <stdlib.h>

#include "codec.h"
#include "bindings/core/gc.h"

static const char key_encoder, key_holder;

static int encoder_close(lua_State *L) {
  lac_encoder *w = lua_touserdata(L, 1);
  while (w->n_held > 0) ac_tensor_release(w->held[--w->n_held]);
  free(w->held);
  free(w->keys);
  aci_strbuf_fini(&w->buf);
  *w = (lac_encoder){0};
  return 0;
}

lac_encoder *lac_encoder_push(lua_State *L, size_t max_bytes) {
  lac_encoder *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (lac_encoder){.max_bytes = max_bytes};
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_encoder) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, encoder_close);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "__gc");
    lua_setfield(L, -2, "__close");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_encoder);
  }
  lua_setmetatable(L, -2);
  return w;
}

static size_t max_bytes_of(const lac_opts *o) {
  const int64_t n = lac_opt_int(o, "max_bytes", LAC_CODEC_MAX_BYTES);
  if (n < 0)
    lac_argerror(o->L, o->S, AC_INVALID, NULL, 0, "max_bytes", "must not be negative, got %lld",
                 (long long)n);
  return (size_t)n;
}

/* Pushes the bytes as a u8 tensor, without a copy. */
static int push_bytes(lua_State *L, lac_state *S, lac_encoder *w) {
  ac_err e;
  ac_device *cpu;
  ac_tensor *t;
  size_t n;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_gc_due(L, S);
  lac_box *b = lac_box_push(L, S);
  char *bytes = aci_strbuf_take(&w->buf, &n);
  const int64_t shape[1] = {(int64_t)n};
  if (ac_tensor_wrap(cpu, AC_U8, 1, shape, bytes, free, bytes, &t, &e) != AC_OK) {
    free(bytes);
    return lac_raise(L, S, &e);
  }
  lac_box_fill(S, b, t);
  lac_charge(S, t);
  return 1;
}

/* accel.encode(value [, {tensor = false, max_bytes = 2^30}]) -> string, or u8 tensor */
static int encode(lua_State *L) {
  static const char *const names[] = {"tensor", "max_bytes", NULL};
  lac_state *S = lac_get(L);
  luaL_checkany(L, 1);
  lac_args_end(L, S, 2);
  const lac_opts o = lac_opts_open(L, S, 2, names);
  const bool as_tensor = lac_opt_bool(&o, "tensor", false);
  lac_encoder *w = lac_encoder_push(L, max_bytes_of(&o));
  lua_toclose(L, -1);
  lac_encode(L, S, w, 1);
  if (as_tensor) return push_bytes(L, S, w);
  lua_pushlstring(L, w->buf.s, w->buf.len);
  return 1;
}

/* Keeps the tensor whose bytes are read, whatever finalizers release meanwhile. */
typedef struct holder {
  ac_tensor *t;
} holder;

static int holder_close(lua_State *L) {
  holder *h = lua_touserdata(L, 1);
  ac_tensor *t = h->t;
  h->t = NULL;
  ac_tensor_release(t);
  return 0;
}

/* Retains the u8 tensor at 1 in a holder that is pushed and closed at the end of the function. */
static const ac_tensor *hold_bytes(lua_State *L, lac_state *S) {
  holder *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->t = NULL;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_holder) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, holder_close);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "__gc");
    lua_setfield(L, -2, "__close");
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key_holder);
  }
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  ac_tensor *t = lac_check_tensor(L, S, 1, "bytes");
  if (t->dtype != AC_U8 || t->ndim != 1 || !aci_is_contiguous(t) || t->device->kind != AC_DEV_CPU)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "bytes",
                 "expected string or contiguous u8 tensor of rank 1 on the CPU");
  ac_tensor_retain(t);
  return h->t = t;
}

/* accel.decode(string or u8 tensor [, {device =, max_bytes = 2^30}]) -> value, or nil, message,
 * code */
static int decode(lua_State *L) {
  static const char *const names[] = {"device", "max_bytes", NULL};
  lac_state *S = lac_get(L);
  luaL_checkany(L, 1);
  lac_args_end(L, S, 2);
  const lac_opts o = lac_opts_open(L, S, 2, names);
  ac_device *d = lac_opt_device(&o, "device", NULL);
  const size_t max = max_bytes_of(&o);
  const void *bytes;
  size_t n;
  ac_err e;
  if (lac_box_test(L, 1) != NULL) {
    const ac_tensor *t = hold_bytes(L, S);
    bytes = ac_tensor_data(t);
    n = (size_t)t->numel;
  } else if (lua_type(L, 1) == LUA_TSTRING) {
    bytes = lua_tolstring(L, 1, &n);
  } else {
    char buf[96];
    return lac_argerror(L, S, AC_INVALID, "decode", 1, "bytes",
                        "expected string or u8 tensor, got %s",
                        lac_typename(L, 1, buf, sizeof buf));
  }
  ac_status st = AC_OK;
  if (n > max)
    st = AC_FAIL(&e, PARSE, "decode: %zu bytes, more than the option max_bytes, %zu", n, max);
  if (st == AC_OK) st = lac_decode(L, S, bytes, n, d, &e);
  if (st == AC_OOM) return lac_raise(L, S, &e);
  return st == AC_OK ? 1 : lac_fail(L, &e);
}

LAC_OPEN("accel", codec) {
  static const luaL_Reg funcs[] = {{"encode", encode}, {"decode", decode}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
