/* Parts of the codec for keys: their order, the path to a value in messages (".a.b[3]"), and the
 * error for values that cannot be sent. Called by codec_write.c and codec_read.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec.h"

/* ---- order ---- */

static int compare_mixed(lua_Integer i, lua_Number f) { /* f equals no integer */
  if (f >= 0x1p63) return -1;
  if (f < -0x1p63) return 1;
  return i <= (lua_Integer)floor(f) ? -1 : 1;
}

int lac_codec_compare(const void *a, const void *b) {
  const lac_codec_key *x = a, *y = b;
  const int group[] = {
      [LAC_KEY_INT] = 0, [LAC_KEY_FLOAT] = 0, [LAC_KEY_STRING] = 1, [LAC_KEY_BOOL] = 2};
  if (group[x->kind] != group[y->kind]) return group[x->kind] - group[y->kind];
  if (x->kind == LAC_KEY_STRING) {
    const size_t n = x->n < y->n ? x->n : y->n;
    const int c = n > 0 ? memcmp(x->s, y->s, n) : 0;
    return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
  }
  if (x->kind == LAC_KEY_FLOAT && y->kind == LAC_KEY_FLOAT) return (x->f > y->f) - (x->f < y->f);
  if (x->kind == LAC_KEY_FLOAT) return -compare_mixed(y->i, x->f);
  if (y->kind == LAC_KEY_FLOAT) return compare_mixed(x->i, y->f);
  return (x->i > y->i) - (x->i < y->i);
}

/* ---- messages ---- */

static bool is_name(const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') || s[i] == '_';
    if (!letter && !(i > 0 && s[i] >= '0' && s[i] <= '9')) return false;
  }
  return n > 0;
}

static void step_text(lua_State *L, const lac_value_path *p, char *buf, size_t size) {
  size_t n;
  if (p->key == 0) {
    snprintf(buf, size, "[%lld]", (long long)p->i);
  } else if (lua_isinteger(L, p->key)) {
    snprintf(buf, size, "[%lld]", (long long)lua_tointeger(L, p->key));
  } else if (lua_type(L, p->key) == LUA_TNUMBER) {
    snprintf(buf, size, "[%.14g]", lua_tonumber(L, p->key));
  } else if (lua_isboolean(L, p->key)) {
    snprintf(buf, size, "[%s]", lua_toboolean(L, p->key) ? "true" : "false");
  } else {
    const char *s = lua_tolstring(L, p->key, &n);
    if (is_name(s, n)) {
      snprintf(buf, size, ".%s", s);
      return;
    }
    char text[40];
    size_t k = 0;
    for (; k < n && k + 1 < sizeof text; k++)
      text[k] = s[k] >= ' ' && s[k] < 127 && s[k] != '"' && s[k] != '\\' ? s[k] : '?';
    text[k] = 0;
    snprintf(buf, size, "[\"%s%s\"]", text, k < n ? "..." : "");
  }
}

const char *lac_place_text(lua_State *L, const lac_value_path *p, char *buf, size_t size) {
  char *at = buf + size - 1;
  *at = 0;
  if (p->up == NULL) return at;
  for (; p->up != NULL; p = p->up) {
    char step[72];
    step_text(L, p, step, sizeof step);
    const size_t n = strlen(step);
    if (n + 8 > (size_t)(at - buf)) { /* room for "..." and " at " */
      at -= 3;
      memcpy(at, "...", 3);
      break;
    }
    at -= n;
    memcpy(at, step, n);
  }
  at -= 4;
  return memcpy(at, " at ", 4);
}

int lac_codec_refuse(lua_State *L, lac_state *S, int idx, const lac_value_path *p, bool as_key) {
  char where[200], buf[96];
  const char *what = lac_typename(L, idx, buf, sizeof buf);
  const char *hint = "nil, booleans, numbers, strings, tables and tensors travel";
  if (as_key) {
    hint = "keys are numbers, strings and booleans";
  } else if (lua_istable(L, idx)) {
    hint = "only tables without a metatable travel";
    if (what == luaL_typename(L, idx)) what = "table with a metatable";
    if (lua_getmetatable(L, idx) && lua_istable(L, -1)) {
      lua_pushliteral(L, "__index");
      if (lua_rawget(L, -2) == LUA_TTABLE && lua_getfield(L, -1, "state_dict") == LUA_TFUNCTION)
        hint = "give its state_dict()";
    }
  }
  return lac_error(L, S, AC_INVALID, "encode: cannot encode %s%s%s; %s", what,
                   as_key ? " as a key" : "", lac_place_text(L, p, where, sizeof where), hint);
}
