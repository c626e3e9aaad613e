/* Safe access to foreign input for Lua code: accel.file.core.open_read(path) opens regular files,
 * accel.console.visible(text, lines) makes text safe for a terminal. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lualib.h>

#include "base/open_read.h"
#include "base/visible.h"
#include "bindings/core/lac.h"
#include "bindings/file/open.h"

static int close_stream(lua_State *L) {
  luaL_Stream *s = luaL_checkudata(L, 1, LUA_FILEHANDLE);
  return luaL_fileresult(L, fclose(s->f) == 0, NULL);
}

/* A file of Lua's io library that is still closed: whatever raises now, nothing is open. */
luaL_Stream *lac_push_file(lua_State *L) {
  luaL_Stream *s = lua_newuserdatauv(L, sizeof *s, 0);
  s->closef = NULL;
  luaL_setmetatable(L, LUA_FILEHANDLE);
  return s;
}

int lac_fill_file(lua_State *L, luaL_Stream *s, int fd, const char *mode, const char *path) {
  s->f = fdopen(fd, mode);
  if (s->f == NULL) {
    const int error = errno;
    close(fd);
    errno = error;
    return luaL_fileresult(L, 0, path);
  }
  s->closef = close_stream;
  return 1;
}

const char *lac_path_arg(lua_State *L, lac_state *S, const char *who) {
  size_t n;
  const char *path = lac_check_string(L, S, 1, "path", &n);
  char source[sizeof S->lib_dir + PATH_MAX];
  snprintf(source, sizeof source, "@%s", path);
  /* the library reads its own files, whatever scripts may do */
  if (!lac_site_own(S, source) || strstr(path, "/../") != NULL)
    path = lac_check_path(L, S, 1, "path", &n);
  if (strlen(path) != n) lac_argerror(L, S, AC_INVALID, who, 1, "path", "has a zero byte");
  return path;
}

uint64_t lac_limit_of(const lac_opts *o) {
  const int64_t limit = lac_opt_int(o, "limit", 0);
  if (limit < 0)
    lac_argerror(o->L, o->S, AC_INVALID, NULL, 0, "limit", "must not be negative, got %lld",
                 (long long)limit);
  return (uint64_t)limit;
}

uint64_t lac_limit_opt(lua_State *L, lac_state *S, int idx) {
  static const char *const options[] = {"limit", NULL};
  const lac_opts o = lac_opts_open(L, S, idx, options);
  return lac_limit_of(&o);
}

/* core.open_read(path) -> file, as io.open(path, "rb") of a regular file, or nil, message, number
 * of the error. Never waits. */
static int open_read(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_read");
  luaL_Stream *s = lac_push_file(L);
  ac_err e;
  int fd;
  uint64_t bytes;
  if (aci_open_read(path, &fd, &bytes, &e) == AC_OK) return lac_fill_file(L, s, fd, "rb", path);
  lua_pushnil(L);
  lua_pushstring(L, e.msg);
  lua_pushinteger(L, e.code == AC_NOT_FOUND ? ENOENT : EIO);
  return 3;
}

/* console.visible(text, lines) -> the text without control characters. lines: newlines and tabs
 * stay. */
static int visible(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n, needed;
  const char *text = lac_check_string(L, S, 1, "text", &n);
  const bool lines = lua_toboolean(L, 2);
  if (aci_is_visible(text, n, lines)) {
    lua_settop(L, 1);
    return 1;
  }
  aci_visible(NULL, 0, text, n, lines, &needed);
  luaL_Buffer b;
  char *out = luaL_buffinitsize(L, &b, needed + 1);
  luaL_pushresultsize(&b, aci_visible(out, needed + 1, text, n, lines, NULL));
  return 1;
}

LAC_OPEN("accel.file.core", open) {
  static const luaL_Reg funcs[] = {{"open_read", open_read}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}

LAC_OPEN("accel.console", visible) {
  static const luaL_Reg funcs[] = {{"visible", visible}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
