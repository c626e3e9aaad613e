/* The state of an interpreter's math.random and math.randomseed, as part of accel's random numbers:
 * math_random.c finds it. If accel owns the Lua state, the seed sets it and get_rng_state includes
 * it. Under a stock interpreter only a data worker's region touches it (lac_worker_draws.c), which
 * restores it. */
#ifndef LAC_MATH_RANDOM_H
#define LAC_MATH_RANDOM_H
#include "bindings/core/lac.h"

/* As in lmathlib.c of Lua 5.4: xoshiro256**. */
typedef struct lac_math_state {
  uint64_t s[4];
} lac_math_state;

/* Pushes the userdata that holds the state of math.random and returns it. NULL, and nothing pushed,
 * if math.random is not Lua's own. */
lac_math_state *lac_math_find(lua_State *L);
/* From now on the state belongs to accel. For a host, before any script runs. */
void lac_math_own(lua_State *L);
/* The state, if it belongs to accel. Otherwise NULL. Valid while the Lua state is open. */
lac_math_state *lac_math_owned(lua_State *L);
/* The state after math.randomseed(seed). */
void lac_math_seed(lac_math_state *m, uint64_t seed);

#endif
