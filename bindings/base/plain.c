/* The format of plain.h: one letter for the kind, then N nothing, T F nothing, I eight bytes, D
 * eight bytes, S a length of eight bytes and the text, { pairs of key and value, } the end of
 * them. */
#include "plain.h"

#include <lauxlib.h>
#include <string.h>

static bool put(lac_plain *p, const void *s, size_t n) {
  if (p->cap - p->len < n) {
    p->why = "is more data than allowed";
    return false;
  }
  memcpy(p->s + p->len, s, n);
  p->len += n;
  return true;
}

static bool put_number(lac_plain *p, char kind, const void *v) {
  return put(p, &kind, 1) && put(p, v, 8);
}

static bool write_at(lua_State *L, int idx, lac_plain *p, int depth) {
  size_t n;
  if (++p->nodes > LAC_PLAIN_NODES || depth > LAC_PLAIN_DEPTH || !lua_checkstack(L, 4)) {
    p->why = depth > LAC_PLAIN_DEPTH ? "has more than 32 levels (a cycle?)"
                                     : "has more than 100000 values";
    return false;
  }
  switch (lua_type(L, idx)) {
    case LUA_TNIL: return put(p, "N", 1);
    case LUA_TBOOLEAN: return put(p, lua_toboolean(L, idx) ? "T" : "F", 1);
    case LUA_TNUMBER:
      if (lua_isinteger(L, idx)) {
        const lua_Integer i = lua_tointeger(L, idx);
        return put_number(p, 'I', &i);
      } else {
        const lua_Number f = lua_tonumber(L, idx);
        return put_number(p, 'D', &f);
      }
    case LUA_TSTRING: {
      const char *s = lua_tolstring(L, idx, &n);
      return put_number(p, 'S', &n) && put(p, s, n);
    }
    case LUA_TTABLE:
      if (!put(p, "{", 1)) return false;
      for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        const int key = lua_type(L, -2), top = lua_gettop(L);
        if (key != LUA_TSTRING && key != LUA_TNUMBER) {
          p->why = "has a key that is neither a string nor a number";
          return false;
        }
        if (!write_at(L, top - 1, p, depth + 1) || !write_at(L, top, p, depth + 1)) return false;
      }
      return put(p, "}", 1);
    default: p->why = "holds a function, a thread or a userdata"; return false;
  }
}

bool lac_plain_write(lua_State *L, int idx, lac_plain *p) {
  return write_at(L, lua_absindex(L, idx), p, 0);
}

bool lac_plain_read(lua_State *L, const char **s, const char *end, int depth) {
  size_t n;
  lua_Integer i;
  lua_Number f;
  if (*s >= end || depth > LAC_PLAIN_DEPTH + 1 || !lua_checkstack(L, 4)) return false;
  const char kind = *(*s)++;
  if (strchr("IDS", kind) != NULL && end - *s < 8) return false;
  switch (kind) {
    case 'N': lua_pushnil(L); return true;
    case 'T':
    case 'F': lua_pushboolean(L, kind == 'T'); return true;
    case 'I':
      memcpy(&i, *s, 8);
      lua_pushinteger(L, i);
      break;
    case 'D':
      memcpy(&f, *s, 8);
      lua_pushnumber(L, f);
      break;
    case 'S':
      memcpy(&n, *s, 8);
      if (n > (size_t)(end - *s - 8)) return false;
      lua_pushlstring(L, *s + 8, n);
      *s += n;
      break;
    case '{':
      lua_newtable(L);
      while (*s < end && **s != '}') {
        if (!lac_plain_read(L, s, end, depth + 1)) return false;
        /* a key that a table cannot have: the bytes are not ours */
        if (lua_type(L, -1) != LUA_TSTRING &&
            (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != lua_tonumber(L, -1)))
          return false;
        if (!lac_plain_read(L, s, end, depth + 1)) return false;
        lua_rawset(L, -3);
      }
      if (*s >= end) return false;
      ++*s;
      return true;
    default: return false;
  }
  *s += 8;
  return true;
}
