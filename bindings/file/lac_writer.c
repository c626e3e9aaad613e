/* Files that users keep, for Lua: accel.write_file, and in accel.file.core create_file (a file that
 * is written in pieces), create_set (files of one folder that are replaced together) and recover.
 * Called by accel.util.writer. Misuse raises. A file that cannot be written returns nil, message,
 * code. A handle that is closed or collected before its commit leaves no trace. */
#include "writer.h"

#define FILE_WRITER "accel.file_writer"
#define SET "accel.file_set"

typedef struct writer {
  aci_atomic_file f; /* of a set: the set's userdata is the user value */
} writer;

typedef struct set_box {
  aci_set *s; /* NULL: closed */
} set_box;

unsigned lac_private_mode(lua_State *L, lac_state *S, int idx) {
  static const char *const names[] = {"private", NULL};
  const lac_opts o = lac_opts_open(L, S, idx, names);
  return lac_opt_bool(&o, "private", false) ? 0600 : 0;
}

static int done(lua_State *L, ac_status st, const ac_err *e) {
  if (st != AC_OK) return lac_fail(L, e);
  lua_pushboolean(L, 1);
  return 1;
}

/* accel.write_file(path, bytes [, {private =}]) -> true, or nil, message, code. The file is
 * replaced whole or not at all. */
static int write_file(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *path = lac_check_path(L, S, 1, "path", NULL),
             *bytes = lac_check_string(L, S, 2, "bytes", &n);
  const unsigned mode = lac_private_mode(L, S, 3);
  ac_err e;
  aci_atomic_file f = {.fd = -1};
  ac_status st = aci_atomic_open_as(&f, path, mode, n, &e);
  if (st == AC_OK) st = aci_atomic_write(&f, bytes, n, &e);
  if (st == AC_OK) st = aci_atomic_commit(&f, &e);
  aci_atomic_abort(&f);
  return done(L, st, &e);
}

/* ---- a file in pieces ---- */

static writer *new_writer(lua_State *L) {
  writer *w = lua_newuserdatauv(L, sizeof *w, 1);
  *w = (writer){.f = {.fd = -1}};
  luaL_setmetatable(L, FILE_WRITER);
  return w;
}

/* create_file(path [, {private =}]) -> file, or nil, message, code */
static int create_file(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const unsigned mode = lac_private_mode(L, S, 2);
  ac_err e;
  writer *w = new_writer(L);
  if (aci_atomic_open_as(&w->f, path, mode, 0, &e) != AC_OK) return lac_fail(L, &e);
  return 1;
}

static writer *check_writer_at(lua_State *L, lac_state *S, int idx, const char *name) {
  writer *w = luaL_testudata(L, idx, FILE_WRITER);
  if (w == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected a file that is written, got %s",
                 luaL_typename(L, idx));
  if (w->f.fd < 0) lac_error(L, S, AC_RELEASED, "the file is closed");
  return w;
}

static writer *check_writer(lua_State *L, lac_state *S) { return check_writer_at(L, S, 1, "self"); }

aci_atomic_file *lac_check_file(lua_State *L, lac_state *S, int idx) {
  return &check_writer_at(L, S, idx, "file")->f;
}

/* file:write(bytes, ...) -> true, or nil, message, code */
static int writer_write(lua_State *L) {
  lac_state *S = lac_get(L);
  writer *w = check_writer(L, S);
  ac_err e;
  for (int i = 2, top = lua_gettop(L); i <= top; i++) {
    size_t n;
    const char *bytes = lac_check_string(L, S, i, "bytes", &n);
    if (aci_atomic_write(&w->f, bytes, n, &e) != AC_OK) return lac_fail(L, &e);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* file:commit() -> true, or nil, message, code. A file of a set is on disk then, and takes its name
 * with the set. */
static int writer_commit(lua_State *L) {
  ac_err e;
  return done(L, aci_atomic_commit(&check_writer(L, lac_get(L))->f, &e), &e);
}

static int writer_close(lua_State *L) {
  writer *w = luaL_checkudata(L, 1, FILE_WRITER);
  aci_atomic_abort(&w->f);
  return 0;
}

/* ---- sets ---- */

/* create_set(folder [, {private =}]) -> set, or nil, message, code */
static int create_set(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *folder = lac_check_path(L, S, 1, "folder", NULL);
  const unsigned mode = lac_private_mode(L, S, 2);
  ac_err e;
  set_box *b = lua_newuserdatauv(L, sizeof *b, 0);
  b->s = NULL;
  luaL_setmetatable(L, SET);
  if (aci_set_open(folder, mode, &b->s, &e) != AC_OK) return lac_fail(L, &e);
  return 1;
}

aci_set *lac_check_set(lua_State *L, lac_state *S, int idx, const char *name) {
  if (lua_isnoneornil(L, idx)) return NULL;
  set_box *b = luaL_testudata(L, idx, SET);
  if (b == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected a set of files, got %s",
                 luaL_typename(L, idx));
  if (b->s == NULL) lac_error(L, S, AC_RELEASED, "the set of files is closed");
  return b->s;
}

static aci_set *check_self(lua_State *L, lac_state *S) {
  luaL_checkany(L, 1);
  return lac_check_set(L, S, 1, "self");
}

/* set:create(name) -> file, which must be committed or closed before the set is committed, or nil,
 * message, code */
static int set_create(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  ac_err e;
  writer *w = new_writer(L);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  if (aci_set_add(check_self(L, S), name, 0, &w->f, &e) != AC_OK) return lac_fail(L, &e);
  return 1;
}

/* set:write(name, bytes) -> true, or nil, message, code */
static int set_write(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  aci_set *s = check_self(L, S);
  const char *name = lac_check_string(L, S, 2, "name", NULL),
             *bytes = lac_check_string(L, S, 3, "bytes", &n);
  ac_err e;
  aci_atomic_file f = {.fd = -1};
  ac_status st = aci_set_add(s, name, n, &f, &e);
  if (st == AC_OK) st = aci_atomic_write(&f, bytes, n, &e);
  if (st == AC_OK) st = aci_atomic_commit(&f, &e);
  aci_atomic_abort(&f);
  return done(L, st, &e);
}

/* set:remove(name) -> true, or nil, message, code. The file goes when the set is committed. */
static int set_remove(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  aci_set *s = check_self(L, S);
  return done(L, aci_set_remove(s, lac_check_string(L, S, 2, "name", NULL), &e), &e);
}

static int set_close(lua_State *L) {
  set_box *b = luaL_checkudata(L, 1, SET);
  aci_set *s = b->s;
  b->s = NULL;
  aci_set_free(s);
  return 0;
}

/* set:commit() -> true, or nil, message, code. The set is closed afterwards. */
static int set_commit(lua_State *L) {
  ac_err e;
  const ac_status st = aci_set_commit(check_self(L, lac_get(L)), &e);
  set_close(L);
  return done(L, st, &e);
}

/* recover(folder) -> true, or nil, message, code. Completes a switch that a killed process
 * began. */
static int recover(lua_State *L) {
  ac_err e;
  return done(L, aci_set_recover(lac_check_path(L, lac_get(L), 1, "folder", NULL), &e), &e);
}

LAC_OPEN("accel", write_file) {
  static const luaL_Reg funcs[] = {{"write_file", write_file}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}

LAC_OPEN("accel.file.core", writer) {
  static const luaL_Reg funcs[] = {
      {"create_file", create_file}, {"create_set", create_set}, {"recover", recover}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", writer_close}, {"__close", writer_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"write", writer_write}, {"commit", writer_commit}, {"close", writer_close}, {NULL, NULL}};
  static const luaL_Reg set_metas[] = {{"__gc", set_close}, {"__close", set_close}, {NULL, NULL}};
  static const luaL_Reg set_methods[] = {{"create", set_create}, {"write", set_write},
                                         {"remove", set_remove}, {"commit", set_commit},
                                         {"close", set_close},   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, FILE_WRITER, metas, methods);
  lac_new_class(L, S, SET, set_metas, set_methods);
}
