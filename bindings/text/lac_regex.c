/* accel.text.core.fullmatch(pattern, texts): which of several strings a regular expression
 * (text/regex.h) matches from begin to end, as a list of booleans. */
#include <string.h>

#include "bindings/core/lac.h"
#include "text/regex.h"

typedef struct program {
  aci_regex *r;
  aci_regex_cache *c;
} program;

static int program_gc(lua_State *L) {
  program *p = lua_touserdata(L, 1);
  aci_regex_cache_free(p->c);
  aci_regex_free(p->r);
  *p = (program){0};
  return 0;
}

static int fullmatch(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  size_t n;
  lac_check_string(L, S, 1, "pattern", &n);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_pushliteral(L, "\\A(?:");
  lua_pushvalue(L, 1);
  lua_pushliteral(L, ")\\z");
  lua_concat(L, 3);
  const char *pattern = lua_tolstring(L, -1, &n);
  program *p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = (program){0};
  lua_newtable(L);
  lua_pushcfunction(L, program_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  if (aci_regex_new(pattern, n, &p->r, &e) != AC_OK) return lac_raise(L, S, &e);
  p->c = aci_regex_cache_new(p->r);
  if (p->c == NULL) return lac_error(L, S, AC_OOM, "fullmatch: no memory");
  const lua_Integer many = luaL_len(L, 2);
  lua_createtable(L, (int)many, 0);
  for (lua_Integer i = 1; i <= many; i++) {
    size_t begin, end, len;
    bool found = false;
    lua_geti(L, 2, i);
    const char *text = lac_check_string(L, S, lua_gettop(L), "texts", &len);
    aci_regex_begin(p->c, len);
    if (aci_regex_find(p->c, text, len, 0, &begin, &end, &found, &e) != AC_OK)
      return lac_raise(L, S, &e);
    lua_pop(L, 1);
    lua_pushboolean(L, found);
    lua_rawseti(L, -2, i);
  }
  return 1;
}

LAC_OPEN("accel.text.core", regex) {
  static const luaL_Reg funcs[] = {{"fullmatch", fullmatch}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
