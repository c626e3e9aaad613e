/* math.random's state: found through the upvalue that math.random and math.randomseed share
 * (math_random.h). */
#include "math_random.h"

#include <lualib.h>

static const char key_owned;

lac_math_state *lac_math_find(lua_State *L) {
  const int top = lua_gettop(L);
  lac_math_state *m = NULL;
  luaL_checkstack(L, 4, "math.random");
  if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE) == LUA_TTABLE &&
      lua_getfield(L, -1, LUA_MATHLIBNAME) == LUA_TTABLE &&
      lua_getfield(L, -1, "random") == LUA_TFUNCTION && lua_iscfunction(L, -1) &&
      lua_getupvalue(L, -1, 1) != NULL && lua_type(L, -1) == LUA_TUSERDATA &&
      lua_rawlen(L, -1) == sizeof *m)
    m = lua_touserdata(L, -1);
  if (m != NULL) {
    lua_replace(L, top + 1);
    lua_settop(L, top + 1);
  } else {
    lua_settop(L, top);
  }
  return m;
}

void lac_math_own(lua_State *L) {
  if (lac_math_find(L) != NULL) lua_rawsetp(L, LUA_REGISTRYINDEX, &key_owned);
}

lac_math_state *lac_math_owned(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_owned);
  lac_math_state *m = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return m;
}

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

void lac_math_seed(lac_math_state *m, uint64_t seed) {
  uint64_t *s = m->s;
  s[0] = seed;
  s[1] = 0xff;
  s[2] = s[3] = 0;
  for (int i = 0; i < 16; i++) { /* the first numbers tell too much of the seed */
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
  }
}
