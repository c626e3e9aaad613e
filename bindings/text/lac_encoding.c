/* Encodings for Lua: their fields as lists, many of them as tensors, padding. Part of
 * accel.text.core (lac_text.c). */
#include "bindings/core/op.h"
#include "text.h"

#define ENCODING "accel.text.encoding"

static ac_encoding *check_encoding(lua_State *L, lac_state *S, int idx) {
  lac_encoding *k = luaL_testudata(L, idx, ENCODING);
  if (k == NULL || k->x == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, idx, "encoding", "expected encoding, got %s",
                 luaL_typename(L, idx));
  return k->x;
}

/* An empty encoding that keeps the value at `owner` alive. */
lac_encoding *lac_encoding_push(lua_State *L, int owner) {
  owner = lua_absindex(L, owner);
  lac_encoding *k = lua_newuserdatauv(L, sizeof *k, 1);
  *k = (lac_encoding){0};
  luaL_setmetatable(L, ENCODING);
  lua_pushvalue(L, owner);
  lua_setiuservalue(L, -2, 1);
  return k;
}

static int encoding_gc(lua_State *L) {
  lac_encoding *k = luaL_checkudata(L, 1, ENCODING);
  ac_encoding *x = k->borrowed ? NULL : k->x;
  k->x = NULL;
  ac_encoding_free(x);
  return 0;
}

/* Encodings of the list at idx, in a userdata that is pushed. */
static ac_encoding **check_list(lua_State *L, lac_state *S, int idx, size_t *n) {
  luaL_checktype(L, idx, LUA_TTABLE);
  *n = lua_rawlen(L, idx);
  ac_encoding **list = lua_newuserdatauv(L, (*n + 1) * sizeof *list, 0);
  for (size_t i = 0; i < *n; i++) {
    lua_rawgeti(L, idx, (lua_Integer)i + 1);
    list[i] = check_encoding(L, S, lua_gettop(L));
    lua_pop(L, 1);
  }
  return list;
}

/* core.pad(list, {length =, ...}) */
static int pad(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_padding p;
  ac_err e;
  size_t n;
  luaL_checktype(L, 2, LUA_TTABLE);
  lac_text_padding(L, S, 2, &p);
  ac_encoding **list = check_list(L, S, 1, &n);
  if (ac_encoding_pad(list, n, &p, &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

typedef enum field { IDS, TYPE_IDS, ATTENTION, SPECIAL, WORDS, SEQUENCE, FIELDS } field;
static const char *const field_names[] = {
    "ids", "type_ids", "attention_mask", "special_tokens_mask", "word_ids", "sequence_ids"};

static int64_t value_of(const ac_encoding *x, field f, size_t i) {
  switch (f) {
    case IDS: return ac_encoding_ids(x)[i];
    case TYPE_IDS: return ac_encoding_type_ids(x)[i];
    case ATTENTION: return ac_encoding_attention_mask(x)[i];
    case SPECIAL: return ac_encoding_special_mask(x)[i];
    case WORDS: return ac_encoding_word_ids(x)[i];
    default: return ac_encoding_sequence_ids(x)[i];
  }
}

/* core.stack(list, name) -> i64 [n, tokens]. All must have the same number of tokens */
static int stack(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const field f = (field)luaL_checkoption(L, 2, NULL, field_names);
  ac_encoding **list = check_list(L, S, 1, &n);
  int64_t shape[2] = {(int64_t)n, n > 0 ? (int64_t)ac_encoding_length(list[0]) : 0};
  for (size_t i = 1; i < n; i++)
    if ((int64_t)ac_encoding_length(list[i]) != shape[1])
      return lac_error(
          L, S, AC_SHAPE,
          "texts of %lld and %lld tokens do not form a tensor; set padding = true (and truncation = true)",
          (long long)shape[1], (long long)ac_encoding_length(list[i]));
  int64_t *to = ac_tensor_data(lac_new_cpu(L, S, AC_I64, 2, shape));
  for (size_t i = 0; i < n; i++)
    for (int64_t k = 0; k < shape[1]; k++) *to++ = value_of(list[i], f, (size_t)k);
  return 1;
}

/* x:field(name) -> list. Absent words and sequences are false */
static int encoding_field(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_encoding *x = check_encoding(L, S, 1);
  const field f = (field)luaL_checkoption(L, 2, NULL, field_names);
  const size_t n = ac_encoding_length(x);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    const int64_t v = value_of(x, f, i);
    if (v >= 0) lua_pushinteger(L, v);
    else lua_pushboolean(L, false);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int encoding_len(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)ac_encoding_length(check_encoding(L, lac_get(L), 1)));
  return 1;
}

static int encoding_tokens(lua_State *L) {
  const ac_encoding *x = check_encoding(L, lac_get(L), 1);
  const size_t n = ac_encoding_length(x);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0, k; i < n; i++) {
    const char *s = ac_encoding_token(x, i, &k);
    lua_pushlstring(L, s, k);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

/* x:offsets() -> list of {begin, end}, or nil when they were not computed */
static int encoding_offsets(lua_State *L) {
  const ac_encoding *x = check_encoding(L, lac_get(L), 1);
  const size_t n = ac_encoding_length(x);
  const uint32_t *o = ac_encoding_offsets(x);
  if (o == NULL) return 0;
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    lua_createtable(L, 2, 0);
    for (int k = 0; k < 2; k++) {
      lua_pushinteger(L, o[2 * i + (size_t)k]);
      lua_rawseti(L, -2, k + 1);
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int encoding_overflowing(lua_State *L) {
  const ac_encoding *x = check_encoding(L, lac_get(L), 1);
  const size_t n = ac_encoding_n_overflowing(x);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    lac_encoding *k = lac_encoding_push(L, 1);
    k->x = ac_encoding_overflowing(x, i);
    k->borrowed = true;
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

LAC_OPEN("accel.text.core", encoding) {
  static const luaL_Reg funcs[] = {{"pad", pad}, {"stack", stack}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"len", encoding_len},
                                     {"field", encoding_field},
                                     {"tokens", encoding_tokens},
                                     {"offsets", encoding_offsets},
                                     {"overflowing", encoding_overflowing},
                                     {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", encoding_gc}, {NULL, NULL}};
  lac_new_class(L, S, ENCODING, metas, methods);
  lac_setfuncs(L, S, funcs);
}
