/* string.find, match, gmatch, gsub, rep and table.concat, sort of a host. They give the results and
 * messages of Lua's own, and look at the host's flag, so that ac_host_interrupt_now ends them.
 * Patterns are matched by host_match.c. Installed when a host is opened
 * (lac_strings_open). Upvalue 1 of each function: the host. */
#include <limits.h>
#include <lualib.h>
#include <string.h>

#include "host_match.h"

enum { BLOCK = 1 << 20 }; /* bytes that rep copies between two looks at the flag */

#define HOST ((ac_host *)lua_touserdata(L, lua_upvalueindex(1)))

static void look(lua_State *L, ac_host *h) {
  if (atomic_load_explicit(&h->stop, memory_order_relaxed) != LAC_STOP_NONE)
    lac_host_raise_stop(L, h);
}

/* ---- find and match ---- */

/* An argument `init` as an offset from 0: negative ones count from the end. */
static size_t offset_of(lua_Integer init, size_t n) {
  if (init > 0) return (size_t)init - 1;
  if (init == 0 || init < -(lua_Integer)n) return 0;
  return n + (size_t)init;
}

static bool is_plain(const char *pattern, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (memchr("^$*+?.([%-", pattern[i], 10) != NULL) return false;
  return true;
}

/* memmem in blocks, so that it can be stopped. */
static const char *find_plain(lua_State *L, const char *s, size_t n, const char *part, size_t k) {
  if (k == 0) return s;
  while (n >= k) {
    const size_t here = n < BLOCK + k ? n : BLOCK + k;
    const char *found = memmem(s, here, part, k);
    if (found != NULL) return found;
    const size_t passed = here - k + 1;
    s += passed;
    n -= passed;
    look(L, HOST);
  }
  return NULL;
}

static int find_or_match(lua_State *L, bool find) {
  size_t n, k;
  const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &k);
  const size_t init = offset_of(luaL_optinteger(L, 3, 1), n);
  if (init > n) {
    luaL_pushfail(L);
    return 1;
  }
  if (find && (lua_toboolean(L, 4) || is_plain(p, k))) {
    const char *found = find_plain(L, s + init, n - init, p, k);
    if (found == NULL) {
      luaL_pushfail(L);
      return 1;
    }
    lua_pushinteger(L, found - s + 1);
    lua_pushinteger(L, found - s + (lua_Integer)k);
    return 2;
  }
  lac_match m;
  lac_match_init(&m, L, HOST, s, n, p, k);
  const bool anchored = k > 0 && *p == '^';
  for (const char *at = s + init; at <= m.end; at++) {
    m.n_captures = 0;
    const char *e = lac_match_at(&m, at, p + anchored);
    if (e != NULL && find) {
      lua_pushinteger(L, at - s + 1);
      lua_pushinteger(L, e - s);
      return lac_match_push_all(&m, NULL, NULL) + 2;
    }
    if (e != NULL) return lac_match_push_all(&m, at, e);
    if (anchored) break;
  }
  luaL_pushfail(L);
  return 1;
}

static int string_find(lua_State *L) { return find_or_match(L, true); }
static int string_match(lua_State *L) { return find_or_match(L, false); }

/* ---- gmatch ---- */

/* The state of a loop. Text and pattern are upvalues 2 and 3 of its function, this one is 4. */
typedef struct walk_state {
  size_t at;
  ptrdiff_t last; /* end of the match before. -1: none */
} walk_state;

static int gmatch_next(lua_State *L) {
  size_t n, k;
  const char *s = lua_tolstring(L, lua_upvalueindex(2), &n),
             *p = lua_tolstring(L, lua_upvalueindex(3), &k);
  walk_state *w = lua_touserdata(L, lua_upvalueindex(4));
  lac_match m;
  lac_match_init(&m, L, HOST, s, n, p, k);
  for (; w->at <= n; w->at++) {
    m.n_captures = 0;
    const char *e = lac_match_at(&m, s + w->at, p);
    if (e == NULL || e - s == w->last) continue;
    const char *from = s + w->at;
    w->at = (size_t)(e - s);
    w->last = e - s;
    return lac_match_push_all(&m, from, e);
  }
  return 0;
}

static int string_gmatch(lua_State *L) {
  size_t n;
  luaL_checklstring(L, 1, &n);
  luaL_checkstring(L, 2);
  size_t init = offset_of(luaL_optinteger(L, 3, 1), n);
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  walk_state *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (walk_state){init <= n ? init : n + 1, -1};
  lua_pushcclosure(L, gmatch_next, 4);
  return 1;
}

/* ---- gsub ---- */

/* The replacement is text: %0 to %9 are captures, %% is a %. */
static void add_text(lac_match *m, luaL_Buffer *b, const char *s, const char *e) {
  lua_State *L = m->L;
  size_t n;
  const char *text = lua_tolstring(L, 3, &n), *end = text + n, *mark;
  while ((mark = memchr(text, '%', (size_t)(end - text))) != NULL) {
    luaL_addlstring(b, text, (size_t)(mark - text));
    const char c = mark[1];
    text = mark + 2;
    if (c == '%') {
      luaL_addchar(b, '%');
    } else if (c == '0') {
      luaL_addlstring(b, s, (size_t)(e - s));
    } else if (c >= '1' && c <= '9') {
      const int i = c - '1';
      lac_match_push(m, i, s, e);
      luaL_tolstring(L, -1, NULL); /* a position is a number */
      lua_remove(L, -2);
      luaL_addvalue(b);
    } else {
      luaL_error(L, "invalid use of '%%' in replacement string");
    }
  }
  luaL_addlstring(b, text, (size_t)(end - text));
}

/* Adds the replacement of the match from s to e. False: the match stays as it is. */
static bool add_value(lac_match *m, luaL_Buffer *b, const char *s, const char *e, int type) {
  lua_State *L = m->L;
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    const int n = lac_match_push_all(m, s, e);
    lua_call(L, n, 1);
  } else if (type == LUA_TTABLE) {
    lac_match_push(m, 0, s, e);
    lua_gettable(L, 3);
  } else {
    add_text(m, b, s, e);
    return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(b, s, (size_t)(e - s));
    return false;
  }
  if (!lua_isstring(L, -1)) luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  luaL_addvalue(b);
  return true;
}

static int string_gsub(lua_State *L) {
  size_t n, k;
  const char *s = luaL_checklstring(L, 1, &n), *p = luaL_checklstring(L, 2, &k), *last = NULL;
  const int type = lua_type(L, 3);
  const lua_Integer most = luaL_optinteger(L, 4, (lua_Integer)n + 1);
  luaL_argexpected(
      L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE,
      3, "string/function/table");
  const bool anchored = k > 0 && *p == '^';
  lua_Integer count = 0;
  bool changed = false;
  lac_match m;
  luaL_Buffer b;
  lac_match_init(&m, L, HOST, s, n, p, k);
  p += anchored;
  luaL_buffinit(L, &b);
  while (count < most) {
    m.n_captures = 0;
    const char *e = lac_match_at(&m, s, p);
    if (e != NULL && e != last) {
      count++;
      changed = add_value(&m, &b, s, e, type) || changed;
      s = last = e;
    } else if (s < m.end) {
      luaL_addchar(&b, *s++);
    } else {
      break;
    }
    if (anchored) break;
  }
  if (!changed) {
    lua_pushvalue(L, 1);
  } else {
    luaL_addlstring(&b, s, (size_t)(m.end - s));
    luaL_pushresult(&b);
  }
  lua_pushinteger(L, count);
  return 2;
}

/* ---- rep ---- */

static int string_rep(lua_State *L) {
  size_t n, k;
  const char *s = luaL_checklstring(L, 1, &n);
  const lua_Integer times = luaL_checkinteger(L, 2);
  const char *between = luaL_optlstring(L, 3, "", &k);
  if (times <= 0) {
    lua_pushliteral(L, "");
    return 1;
  }
  const size_t each = n + k, limit = INT_MAX;
  if (each < n || each > limit / (size_t)times) return luaL_error(L, "resulting string too large");
  const size_t total = (size_t)times * n + ((size_t)times - 1) * k;
  luaL_Buffer b;
  char *to = luaL_buffinitsize(L, &b, total), *const end = to + total;
  for (size_t since = 0; to < end; since += each) {
    if (since >= BLOCK) {
      look(L, HOST);
      since = 0;
    }
    memcpy(to, s, n);
    to += n;
    if (to < end) {
      memcpy(to, between, k);
      to += k;
    }
  }
  luaL_pushresultsize(&b, total);
  return 1;
}

/* ---- tables ---- */

/* Lua's own function, upvalue 2, in the place of ours: its messages name the same lines. */
static int original(lua_State *L) { return lua_tocfunction(L, lua_upvalueindex(2))(L); }

static int table_concat(lua_State *L) {
  enum { ENTRIES = 4096 }; /* between two looks at the flag */
  if (!lua_istable(L, 1)) return original(L);
  size_t k;
  luaL_Buffer b;
  lua_settop(L, 4);
  lua_Integer last = luaL_len(L, 1);
  const char *between = luaL_optlstring(L, 2, "", &k);
  lua_Integer i = luaL_optinteger(L, 3, 1);
  last = luaL_optinteger(L, 4, last);
  luaL_buffinit(L, &b);
  for (int n = 0; i <= last; i++) {
    if (lua_geti(L, 1, i), !lua_isstring(L, -1)) {
      lua_settop(L, 4); /* Lua's own has the message */
      return original(L);
    }
    luaL_addvalue(&b);
    if (i == last) break;
    luaL_addlstring(&b, between, k);
    if (++n == ENTRIES) look(L, HOST), n = 0;
  }
  luaL_pushresult(&b);
  return 1;
}

/* The comparison of sort: upvalue 2 is a function of the script in C, or nil for <. */
static int compare(lua_State *L) {
  ac_host *h = HOST;
  look(L, h);
  if (lua_isnil(L, lua_upvalueindex(2))) {
    lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
  } else {
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
  }
  return 1;
}

/* Lua's own sort with a comparison that looks at the flag. One in Lua can be stopped anyway. Short
 * tables are sorted within microseconds. */
static int table_sort(lua_State *L) {
  enum { SHORT = 10000 };
  lua_settop(L, 2);
  const bool checked = lua_istable(L, 1) && (lua_getmetatable(L, 1) || lua_rawlen(L, 1) > SHORT);
  lua_settop(L, 2);
  if (checked && (lua_isnil(L, 2) || lua_iscfunction(L, 2))) {
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 2);
    lua_pushcclosure(L, compare, 2);
  }
  return original(L);
}

/* Replaces fields of the library `name` by functions with the host, and with Lua's own as upvalue 2
 * if `own`. */
static void replace(lua_State *L, ac_host *h, const char *name, const luaL_Reg *funcs, bool own) {
  if (lua_getglobal(L, name) == LUA_TTABLE) {
    for (; funcs->name != NULL; funcs++) {
      lua_pushlightuserdata(L, h);
      if (own) lua_getfield(L, -2, funcs->name);
      lua_pushcclosure(L, funcs->func, own ? 2 : 1);
      lua_setfield(L, -2, funcs->name);
    }
  }
  lua_pop(L, 1);
}

void lac_strings_open(lua_State *L, ac_host *h) {
  static const luaL_Reg strings[] = {{"find", string_find},     {"match", string_match},
                                     {"gmatch", string_gmatch}, {"gsub", string_gsub},
                                     {"rep", string_rep},       {NULL, NULL}};
  static const luaL_Reg tables[] = {{"concat", table_concat}, {"sort", table_sort}, {NULL, NULL}};
  replace(L, h, LUA_STRLIBNAME, strings, false);
  replace(L, h, LUA_TABLIBNAME, tables, true);
}
