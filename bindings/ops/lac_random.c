/* Random numbers from Lua: accel.manual_seed, accel.Generator, states of generators as plain tables
 * of integers, and random tensors (rand, randn and their _like forms, randint, randperm). In a
 * host's Lua state math.random belongs to the default generator: manual_seed seeds both, and the
 * state has four integers of it as `math`. */
#include "bindings/core/op.h"
#include "bindings/tensor/factory.h"
#include "math_random.h"

/* ---- generators ---- */

static const char *const state_names[] = {"seed",  "stream", "step", "ordinal",
                                          "drawn", "row0",   "math", NULL};

static void push_state(lua_State *L, const ac_generator *g) {
  lua_createtable(L, 0, 6);
  lua_pushinteger(L, (lua_Integer)g->seed);
  lua_setfield(L, -2, "seed");
  lua_pushinteger(L, g->stream);
  lua_setfield(L, -2, "stream");
  lua_pushinteger(L, g->step);
  lua_setfield(L, -2, "step");
  lua_pushinteger(L, g->ordinal);
  lua_setfield(L, -2, "ordinal");
  lua_pushinteger(L, g->drawn);
  lua_setfield(L, -2, "drawn");
  lua_pushinteger(L, g->row0);
  lua_setfield(L, -2, "row0");
}

static uint32_t part(const lac_opts *o, const char *name) {
  int64_t v = lac_opt_int(o, name, 0);
  if (v < 0 || v > UINT32_MAX)
    lac_argerror(o->L, o->S, AC_INVALID, NULL, 0, name, "expected 0 .. 4294967295, got %lld",
                 (long long)v);
  return (uint32_t)v;
}

/* Reads everything before it changes g, and m if the state has that part. m NULL: it is left
 * alone. */
static void read_state(lua_State *L, lac_state *S, int idx, ac_generator *g, lac_math_state *m) {
  lac_math_state numbers;
  if (!lua_istable(L, idx))
    lac_argerror(L, S, AC_INVALID, NULL, idx, "state", "expected table from get_rng_state, got %s",
                 luaL_typename(L, idx));
  lac_opts o = lac_opts_open(L, S, idx, state_names);
  ac_generator n = {.seed = (uint64_t)lac_opt_int(&o, "seed", 0),
                    .stream = part(&o, "stream"),
                    .step = part(&o, "step"),
                    .ordinal = part(&o, "ordinal"),
                    .drawn = part(&o, "drawn"),
                    .row0 = lac_opt_int(&o, "row0", 0)};
  const int at = lac_opt_push(&o, "math");
  for (int i = 0; at != 0 && i < 4; i++) {
    int ok = 0;
    if (!lua_istable(L, at) || lua_rawgeti(L, at, i + 1) != LUA_TNUMBER ||
        (numbers.s[i] = (uint64_t)lua_tointegerx(L, -1, &ok), !ok))
      lac_argerror(L, S, AC_INVALID, NULL, 0, "math",
                   "expected the four integers of get_rng_state");
    lua_pop(L, 1);
  }
  if (at != 0) lua_pop(L, 1);
  if (at != 0 && m != NULL) *m = numbers;
  *g = n;
}

static int manual_seed(lua_State *L) {
  lac_state *S = lac_get(L);
  const uint64_t seed = (uint64_t)lac_check_int(L, S, 1, "seed");
  lac_math_state *m = lac_math_owned(L);
  ac_generator_seed(ac_ctx_generator(S->ctx), seed);
  if (m != NULL) lac_math_seed(m, seed);
  return 0;
}

/* accel.micro_batch(row0): later draws belong to the micro-batch whose first row is row row0
 * (0-based) of the global batch. For draws that belong to rows, calls count from the first
 * again. */
static int micro_batch(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t row0 = lac_check_int(L, S, 1, "row0");
  if (row0 < 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "row0",
                        "rows of the global batch count from 0, got %lld", (long long)row0);
  ac_generator_micro_batch(ac_ctx_generator(S->ctx), row0);
  return 0;
}

static int get_rng_state(lua_State *L) {
  const lac_state *S = lac_get(L);
  const lac_math_state *m = lac_math_owned(L);
  push_state(L, ac_ctx_generator(S->ctx));
  if (m == NULL) return 1;
  lua_createtable(L, 4, 0);
  for (int i = 0; i < 4; i++) {
    lua_pushinteger(L, (lua_Integer)m->s[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "math");
  return 1;
}

static int set_rng_state(lua_State *L) {
  lac_state *S = lac_get(L);
  read_state(L, S, 1, ac_ctx_generator(S->ctx), lac_math_owned(L));
  return 0;
}

/* accel.Generator(seed) or accel.Generator{seed =, stream =} */
static int generator(lua_State *L) {
  static const char *const names[] = {"seed", "stream", NULL};
  lac_state *S = lac_get(L);
  ac_generator g;
  if (lua_type(L, 1) == LUA_TNUMBER) {
    ac_generator_seed(&g, (uint64_t)lac_check_int(L, S, 1, "seed"));
  } else {
    lac_opts o = lac_opts_open(L, S, 1, names);
    ac_generator_seed(&g, (uint64_t)lac_opt_int(&o, "seed", 0));
    g.stream = part(&o, "stream");
  }
  ac_generator *b = lua_newuserdatauv(L, sizeof *b, 0);
  *b = g;
  luaL_setmetatable(L, "accel.Generator");
  return 1;
}

static ac_generator *self_of(lua_State *L, lac_state *S) {
  return lac_check_generator(L, S, 1, "self");
}

static int g_manual_seed(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_generator *g = self_of(L, S);
  uint32_t stream = g->stream;
  ac_generator_seed(g, (uint64_t)lac_check_int(L, S, 2, "seed"));
  g->stream = stream;
  lua_settop(L, 1);
  return 1;
}

static int g_initial_seed(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)self_of(L, lac_get(L))->seed);
  return 1;
}

static int g_get_state(lua_State *L) {
  push_state(L, self_of(L, lac_get(L)));
  return 1;
}

static int g_set_state(lua_State *L) {
  lac_state *S = lac_get(L);
  read_state(L, S, 2, self_of(L, S), NULL);
  return 0;
}

static int g_tostring(lua_State *L) {
  const ac_generator *g = self_of(L, lac_get(L));
  lua_pushfstring(L, "Generator(seed=%I, stream=%I, step=%I, ordinal=%I)", (LUAI_UACINT)g->seed,
                  (LUAI_UACINT)g->stream, (LUAI_UACINT)g->step, (LUAI_UACINT)g->ordinal);
  return 1;
}

/* ---- tensors: the ops uniform_, normal_, randint_, randperm_ into a new one ---- */

static ac_value float_value(double f) { return (ac_value){.kind = AC_T_FLOAT, .f = f}; }
static ac_value int_value(int64_t i) { return (ac_value){.kind = AC_T_INT, .i = i}; }

static int draw(lua_State *L, const char *op, ac_value a, ac_value b, bool is_like) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  int next = 2, n;
  ac_generator *g;
  lac_spec s;
  if (is_like) {
    const ac_tensor *x = lac_check_tensor(L, S, 1, "x");
    n = lac_shape_of(x, shape);
    s = lac_spec_like(L, S, x, 2, &g);
  } else {
    n = lac_check_shape(L, S, 1, lua_gettop(L), "shape", shape, &next);
    s = lac_spec_read(L, S, next, AC_F32, &g);
  }
  const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = lac_spec_new(L, S, &s, n, shape)}, a, b};
  lac_call_random(L, S, op, v, 3, g, NULL);
  return lac_spec_finish(L, S, &s);
}

static int rand_(lua_State *L) {
  return draw(L, "uniform_", float_value(0), float_value(1), false);
}
static int randn(lua_State *L) { return draw(L, "normal_", float_value(0), float_value(1), false); }
static int rand_like(lua_State *L) {
  return draw(L, "uniform_", float_value(0), float_value(1), true);
}
static int randn_like(lua_State *L) {
  return draw(L, "normal_", float_value(0), float_value(1), true);
}

/* accel.randint([low = 0,] high, shape): integers low .. high - 1 */
static int randint(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS], low = 0, high;
  int i = 1, next;
  if (lua_type(L, 2) == LUA_TNUMBER) low = lac_check_int(L, S, i++, "low");
  high = lac_check_int(L, S, i, "high");
  if (high <= low)
    return lac_argerror(L, S, AC_INVALID, NULL, i, "high", "must be above low, got %lld and %lld",
                        (long long)low, (long long)high);
  if (!lua_istable(L, i + 1))
    return lac_argerror(L, S, AC_INVALID, NULL, i + 1, "shape",
                        "expected table of integers, got %s", luaL_typename(L, i + 1));
  int n = lac_check_shape(L, S, i + 1, i + 1, "shape", shape, &next);
  ac_generator *g;
  lac_spec s = lac_spec_read(L, S, next, AC_I64, &g);
  const ac_value v[3] = {{.kind = AC_T_TENSOR, .tensor = lac_spec_new(L, S, &s, n, shape)},
                         int_value(low),
                         int_value(high)};
  lac_call_random(L, S, "randint_", v, 3, g, NULL);
  return lac_spec_finish(L, S, &s);
}

static int randperm(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t n = lac_check_int(L, S, 1, "n");
  if (n < 0)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "n", "must not be negative, got %lld",
                        (long long)n);
  ac_generator *g;
  lac_spec s = lac_spec_read(L, S, 2, AC_I64, &g);
  const ac_value v[1] = {{.kind = AC_T_TENSOR, .tensor = lac_spec_new(L, S, &s, 1, &n)}};
  lac_call_random(L, S, "randperm_", v, 1, g, NULL);
  return lac_spec_finish(L, S, &s);
}

LAC_OPEN("accel", random) {
  static const luaL_Reg funcs[] = {{"manual_seed", manual_seed},
                                   {"micro_batch", micro_batch},
                                   {"get_rng_state", get_rng_state},
                                   {"set_rng_state", set_rng_state},
                                   {"Generator", generator},
                                   {"rand", rand_},
                                   {"randn", randn},
                                   {"rand_like", rand_like},
                                   {"randn_like", randn_like},
                                   {"randint", randint},
                                   {"randperm", randperm},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {{"manual_seed", g_manual_seed},
                                     {"initial_seed", g_initial_seed},
                                     {"get_state", g_get_state},
                                     {"set_state", g_set_state},
                                     {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__tostring", g_tostring}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, "accel.Generator", metas, methods);
}
