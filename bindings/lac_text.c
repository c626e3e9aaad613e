/* Tokenizers for Lua: package.preload["accel.text.core"], from which stdlib/accel/text makes Tokenizer and Encoding.
 *
 * Two userdata: a tokenizer and an encoding, which keeps its tokenizer (or, when it overflowed from another, that one) in
 * its user value. What the userdata offer is plain and positional; names and defaults are the library's. */
#include "accel/text.h"

#include <stdlib.h>
#include <string.h>

#include "core/lac.h"

#define TOKENIZER "accel.text.tokenizer"
#define ENCODING "accel.text.encoding"
#define TRAINER "accel.text.trainer"

typedef struct tokenizer {
  ac_tokenizer *t;
} tokenizer;
typedef struct encoding {
  ac_encoding *x;
  bool borrowed; /* its owner is the user value */
} encoding;
typedef struct trainer {
  ac_bpe_trainer *b;
} trainer;

static ac_tokenizer *check_tokenizer(lua_State *L, lac_state *S) {
  tokenizer *k = luaL_testudata(L, 1, TOKENIZER);
  if (k == NULL || k->t == NULL) lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected tokenizer, got %s", luaL_typename(L, 1));
  return k->t;
}

static ac_encoding *check_encoding(lua_State *L, lac_state *S, int idx) {
  encoding *k = luaL_testudata(L, idx, ENCODING);
  if (k == NULL || k->x == NULL) lac_argerror(L, S, AC_INVALID, NULL, idx, "encoding", "expected encoding, got %s", luaL_typename(L, idx));
  return k->x;
}

static tokenizer *push_tokenizer(lua_State *L) {
  tokenizer *k = lua_newuserdatauv(L, sizeof *k, 0);
  k->t = NULL;
  luaL_setmetatable(L, TOKENIZER);
  return k;
}

/* An empty encoding that keeps what stands at `owner`. */
static encoding *push_encoding(lua_State *L, int owner) {
  owner = lua_absindex(L, owner);
  encoding *k = lua_newuserdatauv(L, sizeof *k, 1);
  *k = (encoding){0};
  luaL_setmetatable(L, ENCODING);
  lua_pushvalue(L, owner);
  lua_setiuservalue(L, -2, 1);
  return k;
}

static int tokenizer_gc(lua_State *L) {
  tokenizer *k = luaL_checkudata(L, 1, TOKENIZER);
  ac_tokenizer *t = k->t;
  k->t = NULL;
  ac_tokenizer_free(t);
  return 0;
}

static int encoding_gc(lua_State *L) {
  encoding *k = luaL_checkudata(L, 1, ENCODING);
  ac_encoding *x = k->borrowed ? NULL : k->x;
  k->x = NULL;
  ac_encoding_free(x);
  return 0;
}

/* ---- making and writing ---- */

/* core.open(path): or nil, message, code */
static int open_file(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_string(L, S, 1, "path", NULL);
  tokenizer *k = push_tokenizer(L);
  return ac_tokenizer_open(path, &k->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* core.parse(json) */
static int parse(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  const char *text = lac_check_string(L, S, 1, "json", &n);
  tokenizer *k = push_tokenizer(L);
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
      return lac_argerror(L, S, AC_INVALID, "add_tokens", 0, "content", "expected string, got %s", luaL_typename(L, -1));
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
    } flags[] = {{"single_word", a.single_word}, {"lstrip", a.lstrip}, {"rstrip", a.rstrip}, {"normalized", a.normalized}, {"special", a.special}};
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
static uint32_t field_count(lua_State *L, lac_state *S, int idx, const char *name) {
  int ok = 1;
  const int kind = lua_getfield(L, idx, name);
  const lua_Integer v = kind == LUA_TNIL ? 0 : lua_tointegerx(L, -1, &ok);
  lua_pop(L, 1);
  if (!ok || v < 0 || v > INT32_MAX) lac_argerror(L, S, AC_INVALID, NULL, 0, name, "expected integer from 0 to 2147483647");
  return (uint32_t)v;
}

static bool field_set(lua_State *L, int idx, const char *name) {
  lua_getfield(L, idx, name);
  const bool set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return set;
}

static const ac_truncation *read_truncation(lua_State *L, lac_state *S, int idx, ac_truncation *p) {
  if (!lua_istable(L, idx)) return NULL;
  *p = (ac_truncation){field_count(L, S, idx, "max_length"), field_count(L, S, idx, "stride"),
                       (ac_truncate)(field_count(L, S, idx, "strategy") % 3), field_set(L, idx, "left")};
  return p;
}

static const ac_padding *read_padding(lua_State *L, lac_state *S, int idx, ac_padding *p) {
  if (!lua_istable(L, idx)) return NULL;
  *p = (ac_padding){field_set(L, idx, "length"), field_count(L, S, idx, "length"), field_count(L, S, idx, "multiple"),
                    field_set(L, idx, "left"), field_count(L, S, idx, "id"), field_count(L, S, idx, "type_id"), ""};
  lua_getfield(L, idx, "token");
  const char *s = lua_tostring(L, -1);
  if (s != NULL && strlen(s) < sizeof p->token) memcpy(p->token, s, strlen(s) + 1);
  lua_pop(L, 1);
  return p;
}

static int set_truncation(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_truncation p;
  ac_err e;
  ac_tokenizer *t = check_tokenizer(L, S);
  if (ac_tokenizer_set_truncation(t, read_truncation(L, S, 2, &p), &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

static int set_padding(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_padding p;
  ac_err e;
  ac_tokenizer *t = check_tokenizer(L, S);
  if (ac_tokenizer_set_padding(t, read_padding(L, S, 2, &p), &e) != AC_OK) return lac_raise(L, S, &e);
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

/* {add_special_tokens =, offsets =, split_special_tokens =, overflowing =, truncation = table, seed =} at idx */
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
  encoding *k = push_encoding(L, 1);
  if (ac_tokenizer_encode(t, a, b, &o, &k->x, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

static void check_texts(lua_State *L, lac_state *S, int idx, const char *name, ac_text *out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (lua_rawgeti(L, idx, (lua_Integer)i + 1) != LUA_TSTRING)
      lac_argerror(L, S, AC_INVALID, NULL, idx, name, "entry %d: expected string, got %s", (int)i + 1, luaL_typename(L, -1));
    out[i].s = lua_tolstring(L, -1, &out[i].n); /* anchored by the list */
    lua_pop(L, 1);
  }
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
    return lac_error(L, S, AC_INVALID, "encode_batch: %zu texts and %zu second texts", n, (size_t)lua_rawlen(L, 3));
  lua_settop(L, 4);
  ac_text *texts = lua_newuserdatauv(L, (2 * n + 1) * sizeof *texts, 0);
  check_texts(L, S, 2, "texts", texts, n);
  if (pairs) check_texts(L, S, 3, "pairs", texts + n, n);
  const ac_encode_options o = read_options(L, S, 4, &p);
  ac_encoding **out = lua_newuserdatauv(L, (n + 1) * sizeof *out, 0);
  lua_createtable(L, (int)n, 0);
  const int list = lua_gettop(L);
  for (size_t i = 0; i < n; i++) { /* boxes first: filling them cannot fail */
    push_encoding(L, 1);
    lua_rawseti(L, list, (lua_Integer)i + 1);
  }
  if (ac_tokenizer_encode_batch(t, S->ctx->team, n, texts, pairs ? texts + n : NULL, &o, out, &e) != AC_OK) return lac_raise(L, S, &e);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, list, (lua_Integer)i + 1);
    ((encoding *)lua_touserdata(L, -1))->x = out[i];
    lua_pop(L, 1);
  }
  return 1;
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
  read_padding(L, S, 2, &p);
  ac_encoding **list = check_list(L, S, 1, &n);
  if (ac_encoding_pad(list, n, &p, &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

typedef enum field { IDS, TYPE_IDS, ATTENTION, SPECIAL, WORDS, SEQUENCE, FIELDS } field;
static const char *const field_names[] = {"ids", "type_ids", "attention_mask", "special_tokens_mask", "word_ids", "sequence_ids"};

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

/* core.stack(list, name) -> i64 [n, tokens]; all must have the same number of tokens */
static int stack(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  const field f = (field)luaL_checkoption(L, 2, NULL, field_names);
  ac_encoding **list = check_list(L, S, 1, &n);
  int64_t shape[2] = {(int64_t)n, n > 0 ? (int64_t)ac_encoding_length(list[0]) : 0};
  for (size_t i = 1; i < n; i++)
    if ((int64_t)ac_encoding_length(list[i]) != shape[1])
      return lac_error(L, S, AC_SHAPE, "texts of %lld and %lld tokens make no tensor; ask for padding = true (and truncation = true)",
                       (long long)shape[1], (long long)ac_encoding_length(list[i]));
  ac_device *cpu;
  ac_tensor *out = NULL;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box *b = lac_box_push(L, S);
  ac_status st;
  LAC_RETRY(L, S, st, ac_tensor_new(cpu, AC_I64, 2, shape, &out, &e));
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  lac_charge(S, out);
  int64_t *to = ac_tensor_data(out);
  for (size_t i = 0; i < n; i++)
    for (int64_t k = 0; k < shape[1]; k++) *to++ = value_of(list[i], f, (size_t)k);
  return 1;
}

/* x:field(name) -> list; absent words and sequences are false */
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
    encoding *k = push_encoding(L, 1);
    k->x = ac_encoding_overflowing(x, i);
    k->borrowed = true;
    lua_rawseti(L, -2, (lua_Integer)i + 1);
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
    if (x->dtype != AC_I64 || x->ndim != 1 || !aci_is_contiguous(x) || x->device->kind != AC_DEV_CPU)
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids", "expected list or contiguous i64 tensor of rank 1 on the CPU");
    n = (size_t)x->numel;
    ids = lua_newuserdatauv(L, (n + 1) * sizeof *ids, 0);
    x = lac_check_tensor(L, S, 2, "ids"); /* the collector may have run finalizers */
    if (n > 0) memcpy(ids, ac_tensor_data(x), n * sizeof *ids);
  } else {
    if (!lua_istable(L, 2))
      return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids", "expected list of integers or i64 tensor, got %s", luaL_typename(L, 2));
    n = lua_rawlen(L, 2);
    ids = lua_newuserdatauv(L, (n + 1) * sizeof *ids, 0);
    for (size_t i = 0; i < n; i++) {
      int ok;
      lua_rawgeti(L, 2, (lua_Integer)i + 1);
      ids[i] = lua_tointegerx(L, -1, &ok);
      if (!ok) return lac_argerror(L, S, AC_INVALID, NULL, 2, "ids", "entry %d: expected integer, got %s", (int)i + 1, luaL_typename(L, -1));
      lua_pop(L, 1);
    }
  }
  char **p = push_holder(L);
  if (ac_tokenizer_decode(t, ids, n, skip, p, &n, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushlstring(L, *p, n);
  return 1;
}

/* ---- training ---- */
typedef struct progress {
  lac_state *S;
  const lac_callback *fn;
  size_t done, all;
} progress;

static int call_progress(lua_State *L) {
  const progress *p = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, p->fn->ref);
  lua_pushinteger(L, (lua_Integer)p->done);
  lua_pushinteger(L, (lua_Integer)p->all);
  lua_call(L, 2, 0);
  return 0;
}

static ac_status on_progress(void *user, size_t done, size_t all, ac_err *e) {
  progress *p = user;
  if (atomic_load_explicit(&p->S->interrupt, memory_order_relaxed) != 0 && !p->S->interrupt_as_flag)
    return AC_FAIL(e, INTERRUPTED, "train_bpe: interrupted");
  p->done = done;
  p->all = all;
  return lac_protect(p->S, call_progress, p, e);
}

static ac_bpe_trainer *check_trainer(lua_State *L, lac_state *S) {
  trainer *k = luaL_testudata(L, 1, TRAINER);
  if (k == NULL || k->b == NULL) lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected trainer, got %s", luaL_typename(L, 1));
  return k->b;
}

static int trainer_gc(lua_State *L) {
  trainer *k = luaL_checkudata(L, 1, TRAINER);
  ac_bpe_trainer *b = k->b;
  k->b = NULL;
  ac_bpe_trainer_free(b);
  return 0;
}

/* core.trainer{vocab_size =, min_frequency =, max_token_length =, add_prefix_space =, special_tokens = list} */
static int new_trainer(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  ac_bpe_options o = {.vocab_size = field_count(L, S, 1, "vocab_size"), .min_frequency = field_count(L, S, 1, "min_frequency"),
                      .max_token_length = field_count(L, S, 1, "max_token_length"),
                      .add_prefix_space = field_set(L, 1, "add_prefix_space")};
  lua_getfield(L, 1, "special_tokens");
  if (lua_istable(L, 2)) o.n_special = lua_rawlen(L, 2);
  ac_text *special = lua_newuserdatauv(L, (o.n_special + 1) * sizeof *special, 0);
  check_texts(L, S, 2, "special_tokens", special, o.n_special);
  o.special = special;
  trainer *k = lua_newuserdatauv(L, sizeof *k, 0);
  k->b = NULL;
  luaL_setmetatable(L, TRAINER);
  return ac_bpe_trainer_new(&o, &k->b, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int trainer_feed(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  ac_bpe_trainer *b = check_trainer(L, S);
  const char *text = lac_check_string(L, S, 2, "text", &n);
  return ac_bpe_trainer_feed(b, text, n, &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int trainer_words(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)ac_bpe_trainer_words(check_trainer(L, lac_get(L))));
  return 1;
}

/* b:finish(fn(done, all) or nil) -> tokenizer */
static int trainer_finish(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_bpe_trainer *b = check_trainer(L, S);
  progress p = {.S = S};
  if (!lua_isnoneornil(L, 2)) lac_check_function(L, S, 2, "progress");
  tokenizer *k = push_tokenizer(L);
  lac_callback *fn = lua_isnoneornil(L, 2) ? NULL : lac_callback_new(L, S, 2);
  p.fn = fn;
  if (fn != NULL) ac_bpe_trainer_watch(b, on_progress, &p);
  lua_State *was = lac_enter(L, S);
  const ac_status st = ac_bpe_trainer_finish(b, &k->t, &e);
  lac_leave(S, was);
  ac_bpe_trainer_watch(b, NULL, NULL);
  if (fn != NULL) lac_callback_free(fn);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

/* ---- the table ---- */
static void new_class(lua_State *L, lac_state *S, const char *name, const luaL_Reg *methods, lua_CFunction gc) {
  luaL_newmetatable(L, name);
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_setfield(L, -2, "__index");
  lac_pushfunction(L, S, gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}

/* require "accel.text.core" */
static int open_core(lua_State *L) {
  static const luaL_Reg funcs[] = {{"open", open_file}, {"parse", parse}, {"pad", pad}, {"stack", stack}, {"trainer", new_trainer}, {NULL, NULL}};
  static const luaL_Reg tokenizers[] = {
      {"json", json}, {"vocab_size", vocab_size}, {"id_limit", id_limit}, {"token_to_id", token_to_id}, {"id_to_token", id_to_token},
      {"model", model}, {"add_tokens", add_tokens}, {"added_tokens", added_tokens}, {"truncation", truncation},
      {"set_truncation", set_truncation}, {"padding", padding}, {"set_padding", set_padding}, {"n_special", n_special},
      {"encode", encode}, {"encode_batch", encode_batch}, {"decode", decode}, {NULL, NULL}};
  static const luaL_Reg encodings[] = {{"len", encoding_len}, {"field", encoding_field}, {"tokens", encoding_tokens},
                                       {"offsets", encoding_offsets}, {"overflowing", encoding_overflowing}, {NULL, NULL}};
  static const luaL_Reg trainers[] = {{"feed", trainer_feed}, {"words", trainer_words}, {"finish", trainer_finish}, {NULL, NULL}};
  lac_state *S = lac_get(L);
  new_class(L, S, TOKENIZER, tokenizers, tokenizer_gc);
  new_class(L, S, ENCODING, encodings, encoding_gc);
  new_class(L, S, TRAINER, trainers, trainer_gc);
  lua_newtable(L);
  lac_setfuncs(L, S, funcs);
  return 1;
}

void lac_open_text(lua_State *L, lac_state *S) {
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lac_pushfunction(L, S, open_core);
  lua_setfield(L, -2, "accel.text.core");
  lua_pop(L, 1);
}
