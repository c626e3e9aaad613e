/* Tokenizers for Lua: package.preload["accel.text.core"], from which stdlib/accel/text makes
 * Tokenizer and Encoding. Encodings are in lac_encoding.c, training in lac_train.c. Methods of the
 * userdata are plain and positional. The library adds names and defaults. */
#include <stdlib.h>
#include <string.h>

#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"
#include "text.h"

static ac_tokenizer *check_tokenizer(lua_State *L, lac_state *S) {
  lac_tokenizer *k = luaL_testudata(L, 1, LAC_TOKENIZER);
  if (k == NULL || k->t == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected tokenizer, got %s",
                 luaL_typename(L, 1));
  return k->t;
}

static int tokenizer_gc(lua_State *L) {
  lac_tokenizer *k = luaL_checkudata(L, 1, LAC_TOKENIZER);
  ac_tokenizer *t = k->t;
  k->t = NULL;
  ac_tokenizer_free(t);
  return 0;
}

/* ---- making and writing ---- */

/* core.open(path): or nil, message, code */
static int open_file(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  lac_tokenizer *k = lac_tokenizer_push(L);
  return ac_tokenizer_open(path, &k->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* core.parse(json) */
static int parse(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  const char *text = lac_check_string(L, S, 1, "json", &n);
  lac_tokenizer *k = lac_tokenizer_push(L);
  return ac_tokenizer_parse(text, n, &k->t, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

/* Text that C made, freed with the userdata below it on the stack whatever Lua does meanwhile. */
static int holder_gc(lua_State *L) {
  char **p = lua_touserdata(L, 1);
  free(*p);
  *p = NULL;
  return 0;
}

static char **push_holder(lua_State *L) {
  char **p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = NULL;
  if (luaL_newmetatable(L, "accel.text.holder")) {
    lua_pushcfunction(L, holder_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return p;
}

static int json(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  const ac_tokenizer *t = check_tokenizer(L, S);
  const bool pretty = lua_toboolean(L, 2);
  char **p = push_holder(L);
  if (ac_tokenizer_json(t, pretty, p, &n, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushlstring(L, *p, n);
  return 1;
}

/* ---- vocabulary ---- */
static int vocab_size(lua_State *L) {
  lua_pushinteger(L, ac_tokenizer_vocab_size(check_tokenizer(L, lac_get(L)), lua_toboolean(L, 2)));
  return 1;
}

static int id_limit(lua_State *L) {
  lua_pushinteger(L, ac_tokenizer_id_limit(check_tokenizer(L, lac_get(L))));
  return 1;
}

static int token_to_id(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *s = lac_check_string(L, S, 2, "token", &n);
  const int64_t id = ac_tokenizer_token_to_id(check_tokenizer(L, S), s, n);
  if (id >= 0) lua_pushinteger(L, id);
  else lua_pushnil(L);
  return 1;
}

static int id_to_token(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *s = ac_tokenizer_id_to_token(check_tokenizer(L, S), lac_check_int(L, S, 2, "id"), &n);
  if (s != NULL) lua_pushlstring(L, s, n);
  else lua_pushnil(L);
  return 1;
}

static int model(lua_State *L) {
  const ac_tokenizer *t = check_tokenizer(L, lac_get(L));
  lua_pushstring(L, ac_tokenizer_model(t));
  lua_pushboolean(L, ac_tokenizer_is_random(t));
  return 2;
}

static bool flag(lua_State *L, const char *name, bool fallback) {
  if (lua_getfield(L, -1, name) != LUA_TNIL) fallback = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return fallback;
}

/* t:add_tokens({{content =, special =, ...}, ...}) -> how many were new or changed */
static int add_tokens(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t added;
  ac_tokenizer *t = check_tokenizer(L, S);
  luaL_checktype(L, 2, LUA_TTABLE);
  const size_t n = lua_rawlen(L, 2);
  ac_added_token *list = lua_newuserdatauv(L, (n + 1) * sizeof *list, 0);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    if (lua_getfield(L, -1, "content") != LUA_TSTRING)
      return lac_argerror(L, S, AC_INVALID, "add_tokens", 0, "content", "expected string, got %s",
                          luaL_typename(L, -1));
    ac_added_token *a = &list[i];
    a->content = lua_tolstring(L, -1, &a->n); /* anchored by the list's table */
    lua_pop(L, 1);
    a->special = flag(L, "special", false);
    a->single_word = flag(L, "single_word", false);
    a->lstrip = flag(L, "lstrip", false);
    a->rstrip = flag(L, "rstrip", false);
    a->normalized = flag(L, "normalized", !a->special);
    lua_pop(L, 1);
  }
  if (ac_tokenizer_add_tokens(t, list, n, &added, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushinteger(L, (lua_Integer)added);
  return 1;
}

static int added_tokens(lua_State *L) {
  const ac_tokenizer *t = check_tokenizer(L, lac_get(L));
  const size_t n = ac_tokenizer_n_added(t);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    ac_added_token a;
    int64_t id;
    ac_tokenizer_added(t, i, &a, &id);
    lua_createtable(L, 0, 7);
    lua_pushlstring(L, a.content, a.n);
    lua_setfield(L, -2, "content");
    lua_pushinteger(L, id);
    lua_setfield(L, -2, "id");
    const struct {
      const char *name;
      bool v;
    } flags[] = {{"single_word", a.single_word},
                 {"lstrip", a.lstrip},
                 {"rstrip", a.rstrip},
                 {"normalized", a.normalized},
                 {"special", a.special}};
    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++) {
      lua_pushboolean(L, flags[k].v);
      lua_setfield(L, -2, flags[k].name);
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

/* ---- truncation and padding: tables {max_length =, stride =, strategy = 0 .. 2, left =} and {length = nil or n, multiple =,
 * left =, id =, type_id =, token =} ---- */
static const ac_truncation *read_truncation(lua_State *L, lac_state *S, int idx, ac_truncation *p) {
  if (!lua_istable(L, idx)) return NULL;
  *p = (ac_truncation){lac_text_count(L, S, idx, "max_length"), lac_text_count(L, S, idx, "stride"),
                       (ac_truncate)(lac_text_count(L, S, idx, "strategy") % 3),
                       lac_text_set(L, idx, "left")};
  return p;
}

static int set_truncation(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_truncation p;
  ac_err e;
  ac_tokenizer *t = check_tokenizer(L, S);
  if (ac_tokenizer_set_truncation(t, read_truncation(L, S, 2, &p), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 0;
}

static int set_padding(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_padding p;
  ac_err e;
  ac_tokenizer *t = check_tokenizer(L, S);
  if (ac_tokenizer_set_padding(t, lac_text_padding(L, S, 2, &p), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 0;
}

static void set_int(lua_State *L, const char *name, lua_Integer v) {
  lua_pushinteger(L, v);
  lua_setfield(L, -2, name);
}

static int truncation(lua_State *L) {
  const ac_truncation *p = ac_tokenizer_truncation(check_tokenizer(L, lac_get(L)));
  if (p == NULL) return 0;
  lua_createtable(L, 0, 4);
  set_int(L, "max_length", p->max_length);
  set_int(L, "stride", p->stride);
  set_int(L, "strategy", p->strategy);
  lua_pushboolean(L, p->left);
  lua_setfield(L, -2, "left");
  return 1;
}

static int padding(lua_State *L) {
  const ac_padding *p = ac_tokenizer_padding(check_tokenizer(L, lac_get(L)));
  if (p == NULL) return 0;
  lua_createtable(L, 0, 6);
  if (p->fixed) set_int(L, "length", p->length);
  set_int(L, "multiple", p->multiple);
  set_int(L, "id", p->id);
  set_int(L, "type_id", p->type_id);
  lua_pushboolean(L, p->left);
  lua_setfield(L, -2, "left");
  lua_pushstring(L, p->token);
  lua_setfield(L, -2, "token");
  return 1;
}

static int n_special(lua_State *L) {
  lua_pushinteger(L, ac_tokenizer_n_special(check_tokenizer(L, lac_get(L)), lua_toboolean(L, 2)));
  return 1;
}

/* ---- encoding ---- */

/* {add_special_tokens =, offsets =, split_special_tokens =, overflowing =, truncation = table, seed
 * =} at idx */
static ac_encode_options read_options(lua_State *L, lac_state *S, int idx, ac_truncation *p) {
  ac_encode_options o = {.add_special_tokens = true};
  if (!lua_istable(L, idx)) return o;
  lua_pushvalue(L, idx);
  o.add_special_tokens = flag(L, "add_special_tokens", true);
  o.offsets = flag(L, "offsets", false);
  o.split_special_tokens = flag(L, "split_special_tokens", false);
  o.overflowing = flag(L, "overflowing", false);
  lua_getfield(L, -1, "truncation");
  o.truncation = read_truncation(L, S, lua_gettop(L), p);
  lua_getfield(L, -2, "seed");
  o.seed = (uint64_t)lua_tointeger(L, -1);
  lua_pop(L, 3);
  return o;
}

/* t:encode(a, b or nil, options) */
static int encode(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_truncation p;
  ac_err e;
  ac_text a, b = {0};
  ac_tokenizer *t = check_tokenizer(L, S);
  a.s = lac_check_string(L, S, 2, "text", &a.n);
  if (!lua_isnoneornil(L, 3)) b.s = lac_check_string(L, S, 3, "pair", &b.n);
  const ac_encode_options o = read_options(L, S, 4, &p);
  lac_encoding *k = lac_encoding_push(L, 1);
  if (ac_tokenizer_encode(t, a, b, &o, &k->x, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

/* t:encode_batch(list, list of second texts or nil, options) -> list of encodings */
static int encode_batch(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_truncation p;
  ac_err e;
  ac_tokenizer *t = check_tokenizer(L, S);
  luaL_checktype(L, 2, LUA_TTABLE);
  const size_t n = lua_rawlen(L, 2);
  const bool pairs = lua_istable(L, 3);
  if (pairs && lua_rawlen(L, 3) != n)
    return lac_error(L, S, AC_INVALID, "encode_batch: %zu texts and %zu second texts", n,
                     (size_t)lua_rawlen(L, 3));
  lua_settop(L, 4);
  ac_text *texts = lua_newuserdatauv(L, (2 * n + 1) * sizeof *texts, 0);
  lac_text_list(L, S, 2, "texts", texts, n);
  if (pairs) lac_text_list(L, S, 3, "pairs", texts + n, n);
  const ac_encode_options o = read_options(L, S, 4, &p);
  ac_encoding **out = lua_newuserdatauv(L, (n + 1) * sizeof *out, 0);
  lua_createtable(L, (int)n, 0);
  const int list = lua_gettop(L);
  for (size_t i = 0; i < n; i++) { /* boxes first: filling them cannot fail */
    lac_encoding_push(L, 1);
    lua_rawseti(L, list, (lua_Integer)i + 1);
  }
  if (ac_tokenizer_encode_batch(t, S->ctx->team, n, texts, pairs ? texts + n : NULL, &o, out, &e) !=
      AC_OK)
    return lac_raise(L, S, &e);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, list, (lua_Integer)i + 1);
    ((lac_encoding *)lua_touserdata(L, -1))->x = out[i];
    lua_pop(L, 1);
  }
  return 1;
}

/* ---- decoding ---- */

/* t:decode(list or i64 tensor of rank 1, skip_special_tokens) */
static int decode(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  int64_t *ids;
  const ac_tokenizer *t = check_tokenizer(L, S);
  const bool skip = lua_toboolean(L, 3);
  if (lac_box_test(L, 2) != NULL) {
    const ac_tensor *x = lac_check_tensor(L, S, 2, "ids");
    if (x->dtype != AC_I64 || x->ndim != 1 || !aci_is_contiguous(x) ||
        x->device->kind != AC_DEV_CPU)
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids",
                          "expected list or contiguous i64 tensor of rank 1 on the CPU");
    n = (size_t)x->numel;
    ids = lua_newuserdatauv(L, (n + 1) * sizeof *ids, 0);
    x = lac_check_tensor(L, S, 2, "ids"); /* the collector may have run finalizers */
    if (n > 0) memcpy(ids, ac_tensor_data(x), n * sizeof *ids);
  } else {
    if (!lua_istable(L, 2))
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids",
                          "expected list of integers or i64 tensor, got %s", luaL_typename(L, 2));
    n = lua_rawlen(L, 2);
    ids = lua_newuserdatauv(L, (n + 1) * sizeof *ids, 0);
    for (size_t i = 0; i < n; i++) {
      int ok;
      lua_rawgeti(L, 2, (lua_Integer)i + 1);
      ids[i] = lua_tointegerx(L, -1, &ok);
      if (!ok)
        return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids", "entry %d: expected integer, got %s",
                            (int)i + 1, luaL_typename(L, -1));
      lua_pop(L, 1);
    }
  }
  char **p = push_holder(L);
  if (ac_tokenizer_decode(t, ids, n, skip, p, &n, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushlstring(L, *p, n);
  return 1;
}

/* ---- the table ---- */
LAC_OPEN("accel.text.core", text) {
  static const luaL_Reg funcs[] = {{"open", open_file}, {"parse", parse}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"json", json},
                                     {"vocab_size", vocab_size},
                                     {"id_limit", id_limit},
                                     {"token_to_id", token_to_id},
                                     {"id_to_token", id_to_token},
                                     {"model", model},
                                     {"add_tokens", add_tokens},
                                     {"added_tokens", added_tokens},
                                     {"truncation", truncation},
                                     {"set_truncation", set_truncation},
                                     {"padding", padding},
                                     {"set_padding", set_padding},
                                     {"n_special", n_special},
                                     {"encode", encode},
                                     {"encode_batch", encode_batch},
                                     {"decode", decode},
                                     {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", tokenizer_gc}, {NULL, NULL}};
  lac_new_class(L, S, LAC_TOKENIZER, metas, methods);
  lac_setfuncs(L, S, funcs);
}
