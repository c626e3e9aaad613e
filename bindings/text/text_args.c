/* Readers of Lua values shared by the bindings of accel/text.h (text.h): lists of strings, members
 * of tables, padding. */
#include <string.h>

#include "text.h"

lac_tokenizer *lac_tokenizer_push(lua_State *L) {
  lac_tokenizer *k = lua_newuserdatauv(L, sizeof *k, 0);
  k->t = NULL;
  luaL_setmetatable(L, LAC_TOKENIZER);
  return k;
}

void lac_text_list(lua_State *L, lac_state *S, int idx, const char *name, ac_text *out, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if (lua_rawgeti(L, idx, (lua_Integer)i + 1) != LUA_TSTRING)
      lac_argerror(L, S, AC_INVALID, NULL, idx, name, "entry %d: expected string, got %s",
                   (int)i + 1, luaL_typename(L, -1));
    out[i].s = lua_tolstring(L, -1, &out[i].n); /* anchored by the list */
    lua_pop(L, 1);
  }
}

uint32_t lac_text_count(lua_State *L, lac_state *S, int idx, const char *name) {
  int ok = 1;
  const int kind = lua_getfield(L, idx, name);
  const lua_Integer v = kind == LUA_TNIL ? 0 : lua_tointegerx(L, -1, &ok);
  lua_pop(L, 1);
  if (!ok || v < 0 || v > INT32_MAX)
    lac_argerror(L, S, AC_INVALID, NULL, 0, name, "expected integer from 0 to 2147483647");
  return (uint32_t)v;
}

bool lac_text_set(lua_State *L, int idx, const char *name) {
  lua_getfield(L, idx, name);
  const bool set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return set;
}

const ac_padding *lac_text_padding(lua_State *L, lac_state *S, int idx, ac_padding *p) {
  if (!lua_istable(L, idx)) return NULL;
  *p = (ac_padding){lac_text_set(L, idx, "length"),
                    lac_text_count(L, S, idx, "length"),
                    lac_text_count(L, S, idx, "multiple"),
                    lac_text_set(L, idx, "left"),
                    lac_text_count(L, S, idx, "id"),
                    lac_text_count(L, S, idx, "type_id"),
                    ""};
  lua_getfield(L, idx, "token");
  const char *s = lua_tostring(L, -1);
  if (s != NULL && strlen(s) < sizeof p->token) memcpy(p->token, s, strlen(s) + 1);
  lua_pop(L, 1);
  return p;
}
