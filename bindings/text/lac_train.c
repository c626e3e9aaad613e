/* Training of tokenizers for Lua. Part of accel.text.core (lac_text.c). */
#include "bindings/core/callback.h"
#include "bindings/embed/interrupt.h"
#include "text.h"

#define TRAINER "accel.text.trainer"

typedef struct trainer {
  ac_bpe_trainer *b;
} trainer;

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
  if (atomic_load_explicit(&p->S->interrupt->signal, memory_order_relaxed) != 0 &&
      !p->S->interrupt->as_flag)
    return AC_FAIL(e, INTERRUPTED, "train_bpe: interrupted");
  p->done = done;
  p->all = all;
  return lac_protect(p->S, call_progress, p, e);
}

static ac_bpe_trainer *check_trainer(lua_State *L, lac_state *S) {
  trainer *k = luaL_testudata(L, 1, TRAINER);
  if (k == NULL || k->b == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected trainer, got %s",
                 luaL_typename(L, 1));
  return k->b;
}

static int trainer_gc(lua_State *L) {
  trainer *k = luaL_checkudata(L, 1, TRAINER);
  ac_bpe_trainer *b = k->b;
  k->b = NULL;
  ac_bpe_trainer_free(b);
  return 0;
}

/* core.trainer{vocab_size =, min_frequency =, max_token_length =, add_prefix_space =,
 * special_tokens = list} */
static int new_trainer(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  ac_bpe_options o = {.vocab_size = lac_text_count(L, S, 1, "vocab_size"),
                      .min_frequency = lac_text_count(L, S, 1, "min_frequency"),
                      .max_token_length = lac_text_count(L, S, 1, "max_token_length"),
                      .add_prefix_space = lac_text_set(L, 1, "add_prefix_space")};
  lua_getfield(L, 1, "special_tokens");
  if (lua_istable(L, 2)) o.n_special = lua_rawlen(L, 2);
  ac_text *special = lua_newuserdatauv(L, (o.n_special + 1) * sizeof *special, 0);
  lac_text_list(L, S, 2, "special_tokens", special, o.n_special);
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
  lac_tokenizer *k = lac_tokenizer_push(L);
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

LAC_OPEN("accel.text.core", train) {
  static const luaL_Reg funcs[] = {{"trainer", new_trainer}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"feed", trainer_feed}, {"words", trainer_words}, {"finish", trainer_finish}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", trainer_gc}, {NULL, NULL}};
  lac_new_class(L, S, TRAINER, metas, methods);
  lac_setfuncs(L, S, funcs);
}
