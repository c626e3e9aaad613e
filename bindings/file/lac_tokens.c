/* Token files: accel.open_tokens, whose batches of windows become i64 tensors. Misuse raises. A
 * file that fails returns nil, message, code. */
#include "accel/file.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"

#define TOKENS "accel.tokens"

typedef struct tokens {
  ac_tokens *t;
} tokens;

static int tokens_close(lua_State *L) {
  tokens *k = luaL_checkudata(L, 1, TOKENS);
  ac_tokens *t = k->t;
  k->t = NULL;
  if (t != NULL) ac_tokens_close(t);
  return 0;
}

static ac_tokens *check_tokens(lua_State *L, lac_state *S) {
  tokens *k = luaL_testudata(L, 1, TOKENS);
  if (k == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected token file, got %s",
                 luaL_typename(L, 1));
  if (k->t == NULL) lac_error(L, S, AC_RELEASED, "the token file is closed");
  return k->t;
}

/* accel.open_tokens(path [, {dtype = "u16", header = 0}]): header in bytes */
static int open_tokens(lua_State *L) {
  static const char *const names[] = {"dtype", "header", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
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
  luaL_setmetatable(L, TOKENS);
  ac_status st = ac_tokens_open(path, dt, (uint64_t)header, &k->t, &e);
  if (st == AC_DTYPE || st == AC_INVALID) return lac_raise(L, S, &e);
  return st == AC_OK ? 1 : lac_fail(L, &e);
}

static int tokens_len(lua_State *L) {
  lua_pushinteger(L, ac_tokens_length(check_tokens(L, lac_get(L))));
  return 1;
}

/* file:batch(offsets, length) -> i64 [#offsets, length]. offsets are 0-based tokens, a list or an
 * i64 tensor */
static int tokens_batch(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tokens *t = check_tokens(L, S);
  ac_err e;
  int64_t shape[2], *offset;
  const lac_box *given = lac_box_test(L, 2);
  if (given != NULL) {
    const ac_tensor *x = lac_check_tensor(L, S, 2, "offsets");
    if (x->dtype != AC_I64 || x->ndim != 1 || !aci_is_contiguous(x) ||
        x->device->kind != AC_DEV_CPU)
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
        return lac_argerror(L, S, AC_INVALID, NULL, 2, "offsets",
                            "entry %d: expected integer, got %s", (int)i + 1, luaL_typename(L, -1));
      lua_pop(L, 1);
    }
  }
  shape[1] = lac_check_int(L, S, 3, "length");
  if (shape[1] < 0)
    return lac_argerror(L, S, AC_SHAPE, NULL, 3, "length", "must not be negative, got %lld",
                        (long long)shape[1]);
  ac_tensor *out = lac_new_cpu(L, S, AC_I64, 2, shape);
  /* making the box may have run a finalizer that closed the file or released the offsets */
  t = check_tokens(L, S);
  if (given != NULL && given->t == NULL)
    return lac_error(L, S, AC_RELEASED, "the offsets were released");
  if (ac_tokens_read(t, shape[0], offset, shape[1], ac_tensor_data(out), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 1;
}

LAC_OPEN("accel", tokens) {
  static const luaL_Reg funcs[] = {{"open_tokens", open_tokens}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", tokens_close}, {"__close", tokens_close}, {"__len", tokens_len}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"len", tokens_len}, {"batch", tokens_batch}, {"close", tokens_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, TOKENS, metas, methods);
}
