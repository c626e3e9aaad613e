/* accel.json: decode(text [, {wide_integers =, nulls =, ordered =, records =}]) and encode(value [, {pretty =}]).
 *
 * Objects become tables with string keys, arrays tables that remember being arrays (metatable
 * accel.json.array), so that an empty one is written back as an array. null is dropped from
 * objects, unless nulls is set, and is accel.json.null in arrays. Encoding writes keys in sorted
 * order. With ordered, objects are tables of accel.util.ordered, which keep the order of the text,
 * and encoding follows the __pairs of a table. A table is an array if it is marked as one or holds
 * exactly 1 .. n, and an object otherwise ({} is an object). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "bindings/core/lac.h"
#include "json.h"

static const char key_array, key_doc, key_buffer;

/* ---- decode ---- */

static int doc_gc(lua_State *L) {
  aci_json_doc **d = lua_touserdata(L, 1);
  aci_json_free(*d);
  *d = NULL;
  return 0;
}

void lac_push_json_array(lua_State *L) { lua_rawgetp(L, LUA_REGISTRYINDEX, &key_array); }

/* keep: null is accel.json.null here. nulls: in objects as well. make: the stack index of the
 * function that makes ordered tables. 0: objects are plain tables. */
static void push_value(lua_State *L, const aci_json *v, bool keep, bool nulls, int make) {
  luaL_checkstack(L, 6, "json");
  switch (v->type) {
    case ACI_JSON_BOOL: lua_pushboolean(L, v->u.b); break;
    case ACI_JSON_INT: lua_pushinteger(L, v->u.i); break;
    case ACI_JSON_DOUBLE: lua_pushnumber(L, v->u.f); break;
    case ACI_JSON_STRING: lua_pushlstring(L, v->u.s, v->len); break;
    case ACI_JSON_ARRAY: {
      lua_Integer i = 0;
      lua_createtable(L, (int)v->len, 0);
      for (const aci_json *m = aci_json_first(v), *end = aci_json_after(v); m != end;
           m = aci_json_after(m)) {
        push_value(L, m, true, nulls, make);
        lua_rawseti(L, -2, ++i);
      }
      lac_push_json_array(L);
      lua_setmetatable(L, -2);
      break;
    }
    case ACI_JSON_OBJECT:
      if (make > 0) {
        lua_pushvalue(L, make);
        lua_call(L, 0, 1);
      } else {
        lua_createtable(L, 0, (int)v->len);
      }
      for (const aci_json *m = aci_json_first(v), *end = aci_json_after(v); m != end;) {
        const aci_json *value = aci_json_after(m);
        lua_pushlstring(L, m->u.s, m->len);
        push_value(L, value, nulls, nulls, make);
        if (make > 0) lua_settable(L, -3);
        else lua_rawset(L, -3);
        m = aci_json_after(value);
      }
      break;
    default: /* null */
      if (keep) lua_pushlightuserdata(L, NULL);
      else lua_pushnil(L);
  }
}

static int decode(lua_State *L) {
  static const char *const names[] = {"wide_integers", "nulls", "ordered", "records", NULL};
  lac_state *S = lac_get(L);
  size_t n;
  const char *text = lac_check_string(L, S, 1, "text", &n);
  lac_opts o = lac_opts_open(L, S, 2, names);
  const bool records = lac_opt_bool(&o, "records", false);
  aci_json_opts opts = records ? ACI_JSON_RECORDS : ACI_JSON_TOKENIZER;
  opts.wide_integers = lac_opt_bool(&o, "wide_integers", false);
  bool nulls = lac_opt_bool(&o, "nulls", false);
  int make = 0;
  if (lac_opt_bool(&o, "ordered", false)) {
    lua_getglobal(L, "require");
    lua_pushliteral(L, "accel.util.ordered");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "new");
    make = lua_gettop(L);
  }
  aci_json_doc **d = lua_newuserdatauv(L, sizeof *d, 0);
  *d = NULL;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_doc);
  lua_setmetatable(L, -2);
  ac_err e;
  ac_status st = aci_json_parse(text, n, &opts, d, &e);
  if (st != AC_OK) return lac_raise(L, S, &e);
  push_value(L, aci_json_root(*d), true, nulls, make);
  aci_json_free(*d);
  *d = NULL;
  return 1;
}

/* ---- encode ---- */

typedef struct encoder {
  aci_strbuf buf;
  aci_json_writer w;
} encoder;

static int encoder_gc(lua_State *L) {
  encoder *c = lua_touserdata(L, 1);
  aci_strbuf_fini(&c->buf);
  return 0;
}

/* 1: array, 0: object, raises for keys of both kinds. *n: elements. */
static bool is_array(lua_State *L, lac_state *S, int idx, lua_Integer *n) {
  lua_Integer count = 0;
  *n = (lua_Integer)lua_rawlen(L, idx);
  bool strings = false;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) strings = true;
    else if (lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 && lua_tointeger(L, -2) <= *n)
      count++;
    else
      lac_error(L, S, AC_INVALID,
                "json.encode: a table with a key that is neither a string nor a position: %s",
                luaL_tolstring(L, -2, NULL));
  }
  if (strings && *n > 0)
    lac_error(L, S, AC_INVALID, "json.encode: a table with both positions and names");
  if (count != *n)
    lac_error(L, S, AC_INVALID, "json.encode: a list with holes (use accel.json.null)");
  if (*n > 0) return true;
  if (strings || !lua_getmetatable(L, idx)) return false;
  lac_push_json_array(L);
  bool marked = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return marked;
}

typedef struct key {
  const char *s;
  size_t n;
} key;

static int by_bytes(const void *a, const void *b) {
  const key *x = a, *y = b;
  int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
  return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

/* The way to a value, for messages: a list from the innermost. */
typedef struct place {
  const struct place *up;
  int depth;
  const char *key; /* NULL: the i-th of a list */
  lua_Integer i;
} place;

static size_t add_place(const place *p, char *buf, size_t n) {
  if (p->up == NULL) return 0;
  size_t k = add_place(p->up, buf, n);
  if (k >= n) return k;
  const int m = p->key == NULL ? snprintf(buf + k, n - k, "[%lld]", (long long)p->i)
                               : snprintf(buf + k, n - k, "%s%s", k > 0 ? "." : "", p->key);
  return k + (m > 0 ? (size_t)m : 0);
}

/* Raises "json.encode: cannot write NaN at history[3].loss". */
static void cannot_write(lua_State *L, lac_state *S, const place *p, const char *what) {
  char where[160] = "";
  add_place(p, where, sizeof where);
  lac_error(L, S, AC_INVALID, "json.encode: cannot write %s%s%s", what, where[0] != 0 ? " at " : "",
            where);
}

static void check_text(lua_State *L, lac_state *S, const place *p, const char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    const int len =
        (unsigned char)s[i] < 0x80 ? 1 : aci_utf8_length((const unsigned char *)s + i, n - i);
    if (len == 0) cannot_write(L, S, p, "text that is not UTF-8");
    i += (size_t)len;
  }
}

static void encode_value(lua_State *L, lac_state *S, aci_json_writer *w, int idx, const place *p);

/* The members of a table in the order of its __pairs, which is on top of the stack. */
static void encode_ordered(lua_State *L, lac_state *S, aci_json_writer *w, int idx,
                           const place *p) {
  lua_pushvalue(L, idx);
  lua_call(L, 1, 3);
  const int next = lua_gettop(L) - 2;
  aci_json_begin(w, true);
  for (;;) {
    lua_pushvalue(L, next);
    lua_pushvalue(L, next + 1);
    lua_pushvalue(L, next + 2);
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2)) break;
    if (lua_type(L, -2) != LUA_TSTRING)
      cannot_write(L, S, p, "a table whose __pairs gives a key that is not a string");
    size_t n;
    const char *s = lua_tolstring(L, -2, &n);
    check_text(L, S, p, s, n);
    aci_json_key(w, s, n);
    const place at = {p, p->depth + 1, s, 0};
    encode_value(L, S, w, lua_gettop(L), &at);
    lua_pop(L, 1);
    lua_replace(L, next + 2);
  }
  aci_json_end(w);
  lua_settop(L, next - 1);
}

static void encode_object(lua_State *L, lac_state *S, aci_json_writer *w, int idx, const place *p) {
  if (luaL_getmetafield(L, idx, "__pairs") != LUA_TNIL) {
    encode_ordered(L, S, w, idx, p);
    return;
  }
  size_t n = 0, i = 0;
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) n++;
  key *keys = lua_newuserdatauv(L, (n + 1) * sizeof *keys, 0);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
    keys[i].s = lua_tolstring(L, -2, &keys[i].n);
    i++;
  }
  qsort(keys, n, sizeof *keys, by_bytes);
  aci_json_begin(w, true);
  for (i = 0; i < n; i++) {
    check_text(L, S, p, keys[i].s, keys[i].n);
    aci_json_key(w, keys[i].s, keys[i].n);
    lua_pushlstring(L, keys[i].s, keys[i].n);
    lua_rawget(L, idx);
    const place at = {p, p->depth + 1, keys[i].s, 0};
    encode_value(L, S, w, lua_gettop(L), &at);
    lua_pop(L, 1);
  }
  aci_json_end(w);
  lua_pop(L, 1);
}

/* Writes the value at idx (absolute), whose way from the top p has for messages. Leaves the stack
 * as it was. The writer's memory is a userdata's, so that raising loses nothing. */
static void encode_value(lua_State *L, lac_state *S, aci_json_writer *w, int idx, const place *p) {
  luaL_checkstack(L, 10, "json");
  size_t n;
  lua_Integer len;
  switch (lua_type(L, idx)) {
    case LUA_TNIL: aci_json_null(w); return;
    case LUA_TBOOLEAN: aci_json_bool(w, lua_toboolean(L, idx)); return;
    case LUA_TNUMBER:
      if (lua_isinteger(L, idx)) {
        aci_json_int(w, lua_tointeger(L, idx));
        return;
      }
      if (isnan(lua_tonumber(L, idx))) cannot_write(L, S, p, "NaN");
      if (isinf(lua_tonumber(L, idx))) cannot_write(L, S, p, "infinity");
      aci_json_double(w, lua_tonumber(L, idx));
      return;
    case LUA_TSTRING: {
      const char *s = lua_tolstring(L, idx, &n);
      check_text(L, S, p, s, n);
      aci_json_string(w, s, n);
      return;
    }
    case LUA_TLIGHTUSERDATA: /* NULL is json.null */
      if (lua_touserdata(L, idx) == NULL) {
        aci_json_null(w);
        return;
      }
      break;
    case LUA_TTABLE:
      if (p->depth >= ACI_JSON_WRITE_DEPTH)
        lac_error(L, S, AC_INVALID, "json.encode: more than %d levels (a cycle?)",
                  ACI_JSON_WRITE_DEPTH);
      if (!is_array(L, S, idx, &len)) {
        encode_object(L, S, w, idx, p);
        return;
      }
      aci_json_begin(w, false);
      for (lua_Integer i = 1; i <= len; i++) {
        lua_rawgeti(L, idx, i);
        const place at = {p, p->depth + 1, NULL, i};
        encode_value(L, S, w, lua_gettop(L), &at);
        lua_pop(L, 1);
      }
      aci_json_end(w);
      return;
    default: break;
  }
  char buf[96];
  cannot_write(L, S, p, lac_typename(L, idx, buf, sizeof buf));
}

static int encode(lua_State *L) {
  static const char *const names[] = {"pretty", NULL};
  lac_state *S = lac_get(L);
  lac_opts o = lac_opts_open(L, S, 2, names);
  bool pretty = lac_opt_bool(&o, "pretty", false);
  encoder *c = lua_newuserdatauv(L, sizeof *c, 0);
  memset(c, 0, sizeof *c);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_buffer);
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  c->w = (aci_json_writer){.out = &c->buf, .pretty = pretty};
  luaL_checkany(L, 1);
  encode_value(L, S, &c->w, 1, &(place){0});
  ac_err e;
  if (aci_json_finish(&c->w, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_pushlstring(L, c->buf.s != NULL ? c->buf.s : "", c->buf.len);
  return 1;
}

/* json.array(t): t, marked as an array */
static int array(lua_State *L) {
  if (lua_isnoneornil(L, 1)) lua_settop(L, 0), lua_newtable(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lac_push_json_array(L);
  lua_setmetatable(L, 1);
  return 1;
}

static void new_meta(lua_State *L, const void *k, lua_CFunction gc) {
  lua_newtable(L);
  lua_pushcfunction(L, gc);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "__gc");
  lua_setfield(L, -2, "__close");
  lua_rawsetp(L, LUA_REGISTRYINDEX, k);
}

LAC_OPEN("accel", json) {
  static const luaL_Reg funcs[] = {
      {"decode", decode}, {"encode", encode}, {"array", array}, {NULL, NULL}};
  new_meta(L, &key_doc, doc_gc);
  new_meta(L, &key_buffer, encoder_gc);
  lua_newtable(L);
  lua_pushliteral(L, "accel.json.array");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_array);
  lua_newtable(L);
  lac_setfuncs(L, S, funcs);
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");
  lua_setfield(L, -2, "json");
}
