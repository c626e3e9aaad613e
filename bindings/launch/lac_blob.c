/* Blobs: bytes that other processes of this user read, or write, by path, as process.blob of the
 * table accel.process. Memory without a name: it is gone with the handle, or with this process,
 * whatever ends it. Used by accel.launch. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bindings/core/lac.h"

#define BLOB "accel.blob"

typedef struct blob {
  int fd; /* -1: closed */
} blob;

static int blob_close(lua_State *L) {
  blob *b = luaL_checkudata(L, 1, BLOB);
  const int fd = b->fd;
  b->fd = -1;
  if (fd >= 0) close(fd);
  return 0;
}

static const blob *check_blob(lua_State *L, lac_state *S) {
  const blob *b = luaL_checkudata(L, 1, BLOB);
  if (b->fd < 0) lac_error(L, S, AC_RELEASED, "the blob is closed");
  return b;
}

static int new_blob(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n = 0;
  const char *bytes = lua_isnoneornil(L, 1) ? "" : lac_check_string(L, S, 1, "bytes", &n);
  blob *b = lua_newuserdatauv(L, sizeof *b, 0);
  b->fd = -1;
  luaL_setmetatable(L, BLOB);
  b->fd = memfd_create("accel", MFD_CLOEXEC);
  for (size_t at = 0; b->fd >= 0 && at < n;) {
    const ssize_t k = write(b->fd, bytes + at, n - at);
    if (k < 0 && errno != EINTR)
      return lac_error(L, S, AC_IO, "cannot keep %zu bytes in memory: %s", n, strerror(errno));
    at += k > 0 ? (size_t)k : 0;
  }
  if (b->fd < 0)
    return lac_error(L, S, AC_IO, "cannot make memory for other processes: %s", strerror(errno));
  return 1;
}

/* Valid for processes of this user while this one lives and the blob is open. */
static int blob_path(lua_State *L) {
  lua_pushfstring(L, "/proc/%d/fd/%d", (int)getpid(), check_blob(L, lac_get(L))->fd);
  return 1;
}

static int blob_read(lua_State *L) {
  lac_state *S = lac_get(L);
  const blob *b = check_blob(L, S);
  struct stat st;
  if (fstat(b->fd, &st) != 0) return lac_error(L, S, AC_IO, "cannot read: %s", strerror(errno));
  luaL_Buffer buf;
  const size_t n = (size_t)st.st_size;
  char *to = luaL_buffinitsize(L, &buf, n);
  size_t at = 0;
  while (at < n) {
    const ssize_t k = pread(b->fd, to + at, n - at, (off_t)at);
    if (k == 0 || (k < 0 && errno != EINTR)) break;
    at += k > 0 ? (size_t)k : 0;
  }
  luaL_pushresultsize(&buf, at);
  return 1;
}

LAC_OPEN("accel.process", blob) {
  static const luaL_Reg funcs[] = {{"blob", new_blob}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"path", blob_path}, {"read", blob_read}, {"close", blob_close}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", blob_close}, {"__close", blob_close}, {NULL, NULL}};
  lac_new_class(L, S, BLOB, metas, methods);
  lac_setfuncs(L, S, funcs);
}
