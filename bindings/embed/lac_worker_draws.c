/* worker.draws(seed, stream): the random numbers of one reader of data, separate from the script's.
 * A data set's draws depend on (seed, stream, position of the sample) alone, not on other draws or
 * on the reader.
 *
 *   local d = worker.draws(seed, epoch) do
 *     local _ <close> = d:enter(place)     accel's default generator and math.random are d's until
 *                                          the block ends
 *     d:at(place + 1)                      ... and begin anew for another sample
 *   end
 *
 * Without a position, enter continues where the previous block stopped. Used by
 * accel.data.fetch. */
#include "bindings/ops/math_random.h"

#define DRAWS "accel.worker.draws"

typedef struct draws {
  uint64_t key;
  bool inside;
  ac_generator generator; /* ours. inside: the script's */
  lac_math_state numbers;
  lac_math_state *math; /* the interpreter's, anchored by the user value. NULL: unknown */
} draws;

static uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static void begin(const draws *d, uint64_t place, ac_generator *g, lac_math_state *m) {
  const uint64_t h = mix(d->key ^ mix(place));
  ac_generator_seed(g, h);
  for (uint64_t i = 0; m != NULL && i < 4; i++) m->s[i] = mix(h + i + 1);
}

static void swap(draws *d, ac_generator *g) {
  const ac_generator was = *g;
  *g = d->generator;
  d->generator = was;
  if (d->math != NULL) {
    const lac_math_state numbers = *d->math;
    *d->math = d->numbers;
    d->numbers = numbers;
  }
  d->inside = !d->inside;
}

static int d_enter(lua_State *L) {
  lac_state *S = lac_get(L);
  draws *d = luaL_checkudata(L, 1, DRAWS);
  if (d->inside) return lac_error(L, S, AC_STATE, "draws: entered twice");
  if (!lua_isnoneornil(L, 2))
    begin(d, (uint64_t)luaL_checkinteger(L, 2), &d->generator, &d->numbers);
  swap(d, ac_ctx_generator(S->ctx));
  lua_settop(L, 1);
  return 1;
}

static int d_at(lua_State *L) {
  lac_state *S = lac_get(L);
  draws *d = luaL_checkudata(L, 1, DRAWS);
  const uint64_t place = (uint64_t)luaL_checkinteger(L, 2);
  if (d->inside) begin(d, place, ac_ctx_generator(S->ctx), d->math);
  else begin(d, place, &d->generator, &d->numbers);
  return 0;
}

static int d_leave(lua_State *L) {
  lac_state *S = lac_get(L);
  draws *d = luaL_checkudata(L, 1, DRAWS);
  if (d->inside) swap(d, ac_ctx_generator(S->ctx));
  return 0;
}

static int new_draws(lua_State *L) {
  lac_state *S = lac_get(L);
  const uint64_t seed = (uint64_t)lac_check_int(L, S, 1, "seed"),
                 stream = (uint64_t)lac_check_int(L, S, 2, "stream");
  draws *d = lua_newuserdatauv(L, sizeof *d, 1);
  *d = (draws){.key = mix(mix(seed) + stream)};
  luaL_setmetatable(L, DRAWS);
  const int at = lua_gettop(L);
  d->math = lac_math_find(L);
  if (d->math != NULL) lua_setiuservalue(L, at, 1);
  begin(d, 0, &d->generator, &d->numbers);
  return 1;
}

LAC_OPEN("accel.worker", draws) {
  static const luaL_Reg methods[] = {
      {"enter", d_enter}, {"at", d_at}, {"leave", d_leave}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__close", d_leave}, {NULL, NULL}};
  static const luaL_Reg funcs[] = {{"draws", new_draws}, {NULL, NULL}};
  lac_new_class(L, S, DRAWS, metas, methods);
  lac_setfuncs(L, S, funcs);
}
