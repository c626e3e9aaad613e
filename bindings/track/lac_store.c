/* The run store for accel.track.Store: rows of statements, curves. Errors of the store return nil,
 * message, code. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "accel/store.h"
#include "bindings/core/lac.h"

#define STORE "accel.track.Store"
#define CURSOR "accel.track.Cursor"

typedef struct cursor {
  ac_cursor *c;
} cursor;
typedef struct store {
  ac_store *s;
  /* the cursor of a statement that failed, until the collector comes: it must end before the store
   * does */
  cursor *open;
} store;

static void cursor_end(cursor *h) {
  ac_cursor *c = h->c;
  h->c = NULL;
  ac_cursor_free(c);
}

static void store_settle(store *h) {
  if (h->open != NULL) cursor_end(h->open);
  h->open = NULL;
}

static int store_gc(lua_State *L) {
  store *h = luaL_checkudata(L, 1, STORE);
  ac_store *s = h->s;
  store_settle(h);
  h->s = NULL;
  ac_store_close(s);
  return 0;
}

static int cursor_gc(lua_State *L) { /* the user value is its store */
  cursor *h = luaL_checkudata(L, 1, CURSOR);
  if (lua_getiuservalue(L, 1, 1) == LUA_TUSERDATA) {
    store *of = lua_touserdata(L, -1);
    if (of->open == h) of->open = NULL;
  }
  cursor_end(h);
  return 0;
}

static ac_store *store_of(lua_State *L, lac_state *S) {
  store *h = luaL_checkudata(L, 1, STORE);
  if (h->s == NULL) lac_error(L, S, AC_RELEASED, "the store is closed");
  return h->s;
}

/* core.open_store(path [, write]) -> store, or nil, message, code */
static int open_(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const bool write = lua_toboolean(L, 2);
  ac_err e;
  store *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (store){0};
  luaL_setmetatable(L, STORE);
  return ac_store_open(path, write, &h->s, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static ac_store_value value_at(lua_State *L, lac_state *S, int i) {
  ac_store_value v = {.kind = AC_VALUE_NULL};
  switch (lua_type(L, i)) {
    case LUA_TNIL: break;
    case LUA_TBOOLEAN: v = (ac_store_value){AC_VALUE_INT, lua_toboolean(L, i), 0, NULL, 0}; break;
    case LUA_TNUMBER:
      if (lua_isinteger(L, i)) v = (ac_store_value){AC_VALUE_INT, lua_tointeger(L, i), 0, NULL, 0};
      else v = (ac_store_value){AC_VALUE_FLOAT, 0, lua_tonumber(L, i), NULL, 0};
      break;
    case LUA_TSTRING:
      v.kind = AC_VALUE_TEXT;
      v.p = lua_tolstring(L, i, &v.n);
      break;
    default:
      lac_argerror(L, S, AC_INVALID, NULL, i, "value", "expected a number, string or nil, got %s",
                   luaL_typename(L, i));
  }
  return v;
}

static void push_value(lua_State *L, const ac_store_value *v) {
  switch (v->kind) {
    case AC_VALUE_NULL: lua_pushnil(L); break;
    case AC_VALUE_INT: lua_pushinteger(L, v->i); break;
    case AC_VALUE_FLOAT: lua_pushnumber(L, v->f); break;
    default: lua_pushlstring(L, v->p == NULL ? "" : v->p, v->n);
  }
}

/* store:rows(sql, ...) -> list of rows by the names of their columns, number of rows changed, or
 * nil, message, code */
static int rows(lua_State *L) {
  enum { MOST = 16 };
  lac_state *S = lac_get(L);
  ac_store *s = store_of(L, S);
  const char *sql = lac_check_string(L, S, 2, "sql", NULL);
  const int n = lua_gettop(L) - 2;
  ac_store_value values[MOST];
  if (n > MOST) return lac_argerror(L, S, AC_INVALID, NULL, 3, "values", "at most %d", (int)MOST);
  for (int i = 0; i < n; i++) values[i] = value_at(L, S, i + 3);
  ac_err e;
  store *of = lua_touserdata(L, 1);
  store_settle(of);
  cursor *h = lua_newuserdatauv(L, sizeof *h, 1);
  h->c = NULL;
  luaL_setmetatable(L, CURSOR);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  of->open = h;
  if (ac_cursor_open(s, sql, values, n, &h->c, &e) != AC_OK) return lac_fail(L, &e);
  lua_newtable(L);
  const int columns = ac_cursor_columns(h->c);
  bool more = false;
  for (lua_Integer at = 1;; at++) {
    if (ac_cursor_next(h->c, &more, &e) != AC_OK) return lac_fail(L, &e);
    if (!more) break;
    lua_createtable(L, 0, columns);
    for (int i = 0; i < columns; i++) {
      const ac_store_value v = ac_cursor_value(h->c, i);
      push_value(L, &v);
      lua_setfield(L, -2, ac_cursor_name(h->c, i));
    }
    lua_rawseti(L, -2, at);
  }
  lua_pushinteger(L, ac_cursor_changes(h->c));
  store_settle(of);
  return 2;
}

/* store:curve(series, "step" or "wall", from, to, points) -> bytes: of every point four float64, x,
 * mean, least, most. Or nil, message, code */
static int curve(lua_State *L) {
  static const char *const axes[] = {"step", "wall", NULL};
  lac_state *S = lac_get(L);
  ac_store *s = store_of(L, S);
  const int64_t series = lac_check_int(L, S, 2, "series");
  const int axis = luaL_checkoption(L, 3, "step", axes);
  const double from = lac_check_number(L, S, 4, "from"), to = lac_check_number(L, S, 5, "to");
  const int64_t most = lac_check_int(L, S, 6, "points");
  ac_curve_point *points = NULL;
  int64_t n = 0;
  ac_err e;
  luaL_Buffer b;
  if (ac_store_curve(s, series, axis == 0 ? AC_CURVE_STEP : AC_CURVE_WALL, from, to, most, &points,
                     &n, &e) != AC_OK)
    return lac_fail(L, &e);
  const size_t size = (size_t)n * sizeof *points;
  char *to_ = luaL_buffinitsize(L, &b, size);
  memcpy(to_, points, size);
  free(points);
  luaL_pushresultsize(&b, size);
  return 1;
}

/* core.sqlite() -> version, or nil, message, code */
static int sqlite(lua_State *L) {
  const char *version = NULL;
  ac_err e;
  if (ac_store_library(&version, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushstring(L, version);
  return 1;
}

/* core.now() -> seconds since 1970 */
static int now(lua_State *L) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  lua_pushnumber(L, (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec);
  return 1;
}

/* core.pause(seconds): waits, or less if a signal arrives */
static int pause_(lua_State *L) {
  const double s = lac_check_number(L, lac_get(L), 1, "seconds");
  if (s > 0) nanosleep(&(struct timespec){(time_t)s, (long)((s - (double)(time_t)s) * 1e9)}, NULL);
  return 0;
}

LAC_OPEN("accel.track.core", store) {
  static const luaL_Reg funcs[] = {
      {"open_store", open_}, {"pause", pause_}, {"now", now}, {"sqlite", sqlite}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", store_gc}, {"__close", store_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"rows", rows}, {"curve", curve}, {"close", store_gc}, {NULL, NULL}};
  static const luaL_Reg cursor_metas[] = {{"__gc", cursor_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, STORE, metas, methods);
  lac_new_class(L, S, CURSOR, cursor_metas, none);
}
