/* Folders: accel.makedirs, accel.mkdtemp, accel.listdir. Misuse raises. A folder that cannot be
 * made or read returns nil, message, code. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bindings/core/lac.h"
#include "file/io.h"

/* Argument 1, a path without zero bytes. */
static const char *path_arg(lua_State *L, lac_state *S, const char *who, size_t *n) {
  const char *path = lac_check_path(L, S, 1, "path", n);
  if (strlen(path) != *n) lac_argerror(L, S, AC_INVALID, who, 1, "path", "has a zero byte");
  return path;
}

static int io_failed(lua_State *L, const char *path, const char *doing, int err) {
  ac_err e;
  aci_io_error(&e, path, doing, err);
  return lac_fail(L, &e);
}

/* accel.makedirs(path) -> true, or nil, message, code. Makes a folder and those above it, on disk
 * when it returns. A folder that exists is fine. */
static int makedirs(lua_State *L) {
  size_t n;
  ac_err e;
  if (aci_make_folders(path_arg(L, lac_get(L), "makedirs", &n), &e) != AC_OK)
    return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* accel.mkdtemp(prefix) -> the path of a new folder, only for this user: prefix and six characters,
 * or nil, message, code */
static int make_temporary(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n;
  const char *prefix = path_arg(L, S, "mkdtemp", &n);
  char *path = lua_newuserdatauv(L, n + 7, 0);
  memcpy(path, prefix, n);
  memcpy(path + n, "XXXXXX", 7);
  if (mkdtemp(path) == NULL) return io_failed(L, prefix, "cannot make a temporary folder", errno);
  lua_pushstring(L, path);
  return 1;
}

#define DIRECTORY "accel.directory"

/* A DIR that is closed whatever raises while it is read. */
static int close_directory(lua_State *L) {
  DIR **d = luaL_checkudata(L, 1, DIRECTORY);
  if (*d != NULL) closedir(*d);
  *d = NULL;
  return 0;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* accel.listdir(path) -> names of the folder's entries, sorted, without "." and "..", or nil,
 * message, code */
static int listdir(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t length;
  const char *path = path_arg(L, S, "listdir", &length);
  DIR **d = lua_newuserdatauv(L, sizeof *d, 0);
  *d = NULL;
  luaL_setmetatable(L, DIRECTORY);
  lua_toclose(L, -1);
  *d = opendir(path);
  if (*d == NULL) return io_failed(L, path, "cannot read the folder", errno);
  lua_newtable(L); /* keeps the names while they are sorted */
  const struct dirent *entry;
  lua_Integer n = 0;
  errno = 0;
  while ((entry = readdir(*d)) != NULL) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    lua_pushstring(L, entry->d_name);
    lua_rawseti(L, -2, ++n);
    errno = 0;
  }
  if (errno != 0) return io_failed(L, path, "cannot read the folder", errno);
  const char **names = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *names, 0);
  for (lua_Integer i = 0; i < n; i++) {
    lua_rawgeti(L, -2, i + 1);
    names[i] = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  qsort(names, (size_t)n, sizeof *names, by_name);
  lua_createtable(L, (int)n, 0);
  for (lua_Integer i = 0; i < n; i++) {
    lua_pushstring(L, names[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

LAC_OPEN("accel", folder) {
  static const luaL_Reg funcs[] = {
      {"makedirs", makedirs}, {"mkdtemp", make_temporary}, {"listdir", listdir}, {NULL, NULL}};
  static const luaL_Reg metas[] = {
      {"__gc", close_directory}, {"__close", close_directory}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, DIRECTORY, metas, methods);
}
