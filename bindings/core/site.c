/* Lines of scripts: the nearest one of the caller's own, past the frames of the library. Used in
 * errors and for the origin of collectives and released tensors. */
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/lac.h"

static const char key_sites;

bool lac_site_own(const lac_state *S, const char *source) {
  const char *d = S->lib_dir;
  if (source[0] == '=') return strncmp(source, "=lua/", 5) == 0;
  if (*d == 0 || strstr(source, "/../") != NULL) return false;
  while (*d != 0 && *d == *source) d++, source++;
  return *d == 0;
}

void lac_push_where(lua_State *L, lac_state *S) {
  lua_Debug ar, first;
  bool have_first = false;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    if (!lac_site_own(S, ar.source)) {
      lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
      return;
    }
    if (!have_first) first = ar;
    have_first = true;
  }
  if (have_first) lua_pushfstring(L, "%s:%d: ", first.short_src, first.currentline);
  else lua_pushliteral(L, "");
}

/* By hand: every collective asks for it. A path that is too long keeps its end. */
const char *lac_site_text(const char *source, int line, char buf[LAC_SITE]) {
  char digits[16], *d = digits + sizeof digits;
  for (*--d = 0; line > 0; line /= 10) *--d = (char)('0' + line % 10);
  *--d = ':';
  const size_t n = strlen(source), tail = (size_t)(digits + sizeof digits - d),
               room = LAC_SITE - tail;
  if (n <= room) {
    memcpy(buf, source, n);
    memcpy(buf + n, d, tail);
  } else {
    memcpy(buf, "...", 3);
    memcpy(buf + 3, source + n - (room - 3), room - 3);
    memcpy(buf + room, d, tail);
  }
  return buf;
}

const char *lac_site(lua_State *L, const lac_state *S, int level, char buf[LAC_SITE]) {
  lua_Debug ar;
  buf[0] = 0; /* until then a line of our own: better than none */
  for (; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline <= 0) continue;
    const bool own = lac_site_own(S, ar.source);
    if (!own || buf[0] == 0) lac_site_text(ar.short_src, ar.currentline, buf);
    if (!own) break;
  }
  return buf;
}

/* Script lines are numbered: text -> n and n -> text in one table. There are at most as many as
 * lines in the scripts. */
uint32_t lac_site_here(lua_State *L, lac_state *S) {
  uint32_t n = 0;
  luaL_checkstack(L, 6, "site");
  lac_push_where(L, S);
  if (lua_rawlen(L, -1) > 2) {
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    lua_pushlstring(L, text, len - 2); /* without ": " */
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_sites);
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TNUMBER) {
      n = (uint32_t)lua_tointeger(L, -1);
    } else {
      n = (uint32_t)lua_rawlen(L, -2) + 1;
      lua_pushvalue(L, -3);
      lua_pushinteger(L, n);
      lua_rawset(L, -4);
      lua_pushvalue(L, -3);
      lua_rawseti(L, -3, n);
    }
    lua_pop(L, 3);
  }
  lua_pop(L, 1);
  return n;
}

void lac_site_push(lua_State *L, uint32_t site) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_sites);
  lua_rawgeti(L, -1, site);
  lua_remove(L, -2);
}

void lac_sites_open(lua_State *L) {
  lua_newtable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_sites);
}
