/* Shards of samples: accel.file.core.open_tar(path [, {limit =}]), open_tfrecord(path [, {limit =}]),
 * parse_example(bytes). limit: bytes of a member or record, 0 for aci_unpacked_limit's.
 *
 *   tar:next()      name, type ("file", "folder", "link", "symlink", "other"), size, the place of
 *                   the first byte. nil at the end
 *   tar:read()      the member's content
 *   records:next()  a record. nil at the end
 *
 * A file that fails returns nil, message, code. */
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "bindings/base/json.h"
#include "bindings/file/open.h"
#include "file/records/tar.h"
#include "file/records/tfrecord.h"

#define TAR "accel.file.tar"
#define TFRECORD "accel.file.tfrecord"
enum { PIECE = 1 << 16 };

/* ---- tar ---- */

typedef struct archive {
  aci_tar t;
  uint64_t limit;
} archive;

static int open_tar(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_tar");
  const uint64_t limit = lac_limit_opt(L, S, 2);
  archive *a = lua_newuserdatauv(L, sizeof *a, 0);
  *a = (archive){0};
  luaL_setmetatable(L, TAR);
  ac_err e;
  if (aci_tar_open(path, &a->t, &e) != AC_OK) return lac_fail(L, &e);
  a->limit = aci_unpacked_limit(limit, aci_content_size(a->t.content));
  return 1;
}

static int close_tar(lua_State *L) {
  archive *a = luaL_checkudata(L, 1, TAR);
  if (a->t.content != NULL) aci_tar_close(&a->t);
  return 0;
}

static archive *check_tar(lua_State *L) {
  archive *a = luaL_checkudata(L, 1, TAR);
  if (a->t.content == NULL) lac_error(L, lac_get(L), AC_RELEASED, "the archive is closed");
  return a;
}

static int tar_next(lua_State *L) {
  static const char *const types[] = {"file", "folder", "link", "symlink", "other"};
  aci_tar *t = &check_tar(L)->t;
  ac_err e;
  if (aci_tar_next(t, &e) != AC_OK) return lac_fail(L, &e);
  if (t->ended) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushlstring(L, t->name.s, t->name.len);
  lua_pushstring(L, types[t->type]);
  lua_pushinteger(L, (lua_Integer)t->size);
  lua_pushinteger(L, (lua_Integer)t->at);
  return 4;
}

static int tar_read(lua_State *L) {
  archive *a = check_tar(L);
  aci_tar *t = &a->t;
  luaL_Buffer b;
  ac_err e;
  if (t->left > a->limit) {
    char what[300];
    snprintf(what, sizeof what, "member %.200s of %llu bytes", t->name.s,
             (unsigned long long)t->left);
    aci_over_limit(aci_content_path(t->content), what, a->limit, &e);
    return lac_fail(L, &e);
  }
  luaL_buffinit(L, &b);
  for (size_t got = 1; got > 0 && t->left > 0;) {
    char *to = luaL_prepbuffsize(&b, PIECE);
    if (aci_tar_read(t, to, PIECE, &got, &e) != AC_OK) return lac_fail(L, &e);
    luaL_addsize(&b, got);
  }
  luaL_pushresult(&b);
  return 1;
}

/* ---- TFRecord ---- */

typedef struct tfrecord {
  aci_content *s;
  uint64_t limit;
} tfrecord;

static int open_tfrecord(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_tfrecord");
  const uint64_t limit = lac_limit_opt(L, S, 2);
  tfrecord *r = lua_newuserdatauv(L, sizeof *r, 0);
  r->s = NULL;
  luaL_setmetatable(L, TFRECORD);
  ac_err e;
  if (aci_content_open(path, 0, &r->s, &e) != AC_OK) return lac_fail(L, &e);
  r->limit = aci_unpacked_limit(limit, aci_content_size(r->s));
  return 1;
}

static int close_tfrecord(lua_State *L) {
  tfrecord *r = luaL_checkudata(L, 1, TFRECORD);
  aci_content_close(r->s);
  r->s = NULL;
  return 0;
}

static int tfrecord_next(lua_State *L) {
  tfrecord *r = luaL_checkudata(L, 1, TFRECORD);
  if (r->s == NULL) lac_error(L, lac_get(L), AC_RELEASED, "the file is closed");
  uint64_t left;
  uint32_t crc = 0;
  bool ended;
  luaL_Buffer b;
  ac_err e;
  if (aci_tfrecord_next(r->s, &left, &ended, &e) != AC_OK) return lac_fail(L, &e);
  if (ended) {
    lua_pushnil(L);
    return 1;
  }
  if (left > r->limit) {
    char what[100];
    snprintf(what, sizeof what, "the record of %llu bytes at byte %llu", (unsigned long long)left,
             (unsigned long long)aci_content_at(r->s));
    aci_over_limit(aci_content_path(r->s), what, r->limit, &e);
    return lac_fail(L, &e);
  }
  luaL_buffinit(L, &b);
  while (left > 0) {
    size_t got;
    const size_t n = left < PIECE ? (size_t)left : PIECE;
    char *to = luaL_prepbuffsize(&b, PIECE);
    if (aci_content_read(r->s, to, n, &got, &e) != AC_OK) return lac_fail(L, &e);
    if (got == 0) break; /* the checksum is missing then, too */
    crc = aci_crc32c(crc, to, got);
    luaL_addsize(&b, got);
    left -= got;
  }
  if (aci_tfrecord_end(r->s, crc, &e) != AC_OK) return lac_fail(L, &e);
  luaL_pushresult(&b);
  return 1;
}

/* ---- Example ---- */

typedef struct example {
  lua_State *L;
  int values, kinds; /* stack places */
  lua_Integer n;
} example;

/* The stack holds the list of the feature under way on top. */
static void on_feature(void *user, const aci_feature *x) {
  static const char *const kinds[] = {NULL, "bytes", "floats", "ints"};
  example *s = user;
  lua_State *L = s->L;
  if (x->event != ACI_FEATURE_VALUE) {
    lua_settop(L, s->kinds);
    lua_pushlstring(L, x->name, x->n_name);
    lua_pushstring(L, kinds[x->kind]);
    lua_rawset(L, s->kinds);
    lua_newtable(L);
    lac_push_json_array(L);
    lua_setmetatable(L, -2);
    lua_pushlstring(L, x->name, x->n_name);
    lua_pushvalue(L, -2);
    lua_rawset(L, s->values);
    s->n = 0;
    return;
  }
  if (x->kind == ACI_FEATURE_BYTES) lua_pushlstring(L, x->bytes, x->n_bytes);
  else if (x->kind == ACI_FEATURE_FLOATS) lua_pushnumber(L, x->f);
  else lua_pushinteger(L, x->i);
  lua_rawseti(L, -2, ++s->n);
}

/* parse_example(bytes) -> lists by name, kinds by name. nil, message, code for other bytes. */
static int parse_example(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *p = lac_check_string(L, S, 1, "bytes", &n);
  lua_settop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  luaL_checkstack(L, 8, "example");
  example s = {.L = L, .values = 2, .kinds = 3};
  ac_err e;
  if (aci_example_read(p, n, on_feature, &s, &e) != AC_OK) return lac_fail(L, &e);
  lua_settop(L, 3);
  return 2;
}

LAC_OPEN("accel.file.core", records) {
  static const luaL_Reg funcs[] = {{"open_tar", open_tar},
                                   {"open_tfrecord", open_tfrecord},
                                   {"parse_example", parse_example},
                                   {NULL, NULL}};
  static const luaL_Reg tar_metas[] = {{"__gc", close_tar}, {"__close", close_tar}, {NULL, NULL}};
  static const luaL_Reg tar_methods[] = {
      {"next", tar_next}, {"read", tar_read}, {"close", close_tar}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", close_tfrecord}, {"__close", close_tfrecord}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"next", tfrecord_next}, {"close", close_tfrecord}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, TAR, tar_metas, tar_methods);
  lac_new_class(L, S, TFRECORD, metas, methods);
}
