/* Files as streams of bytes, compressed or not: accel.file.core.open_stream(path [, {limit =}]), with
 * the methods read(n), line(most), skip(n), seek(at), at(), codec(), size() and close(). A file that
 * fails returns nil, message, code. The end is nil alone.
 *
 * open_unpacked(path [, {limit =}]) is for readers that need a file of Lua's io library: the file
 * itself, or its unpacked content in memory without a name. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lualib.h>

#include "bindings/core/lac.h"
#include "bindings/file/open.h"
#include "file/compress/compress.h"
#include "file/io.h"

#define STREAM "accel.file.stream"
enum { BUFFER = 1 << 16 };

typedef struct stream {
  aci_content *s;
  size_t from, to; /* content that was read ahead for lines */
  char ahead[BUFFER];
} stream;

static const char *const options[] = {"limit", NULL};

static uint64_t limit_of(lua_State *L, lac_state *S) {
  lac_opts o = lac_opts_open(L, S, 2, options);
  const int64_t limit = lac_opt_int(&o, "limit", 0);
  if (limit < 0)
    lac_argerror(L, S, AC_INVALID, NULL, 0, "limit", "must not be negative, got %lld",
                 (long long)limit);
  return (uint64_t)limit;
}

static int open_stream(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_stream");
  const uint64_t limit = limit_of(L, S);
  stream *p = lua_newuserdatauv(L, sizeof *p, 0);
  p->s = NULL;
  p->from = p->to = 0;
  luaL_setmetatable(L, STREAM);
  ac_err e;
  return aci_content_open(path, limit, &p->s, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static int close_stream(lua_State *L) {
  stream *p = luaL_checkudata(L, 1, STREAM);
  aci_content_close(p->s);
  p->s = NULL;
  return 0;
}

static stream *check_stream(lua_State *L, lac_state *S) {
  stream *p = luaL_checkudata(L, 1, STREAM);
  if (p->s == NULL) lac_error(L, S, AC_RELEASED, "the file is closed");
  return p;
}

static uint64_t check_count(lua_State *L, lac_state *S, const char *name) {
  const int64_t n = lac_check_int(L, S, 2, name);
  if (n < 0)
    lac_argerror(L, S, AC_INVALID, NULL, 2, name, "must not be negative, got %lld", (long long)n);
  return (uint64_t)n;
}

/* Bytes from those read ahead, then from the file. A buffer of Lua grows with the content, so that a
 * length that a file claims costs no memory. */
static int stream_read(lua_State *L) {
  lac_state *S = lac_get(L);
  stream *p = check_stream(L, S);
  uint64_t left = check_count(L, S, "n");
  luaL_Buffer b;
  ac_err e;
  luaL_buffinit(L, &b);
  while (left > 0) {
    size_t k = p->to - p->from;
    const size_t piece = left < BUFFER ? (size_t)left : BUFFER;
    char *to = luaL_prepbuffsize(&b, piece);
    if (k > 0) {
      k = k < piece ? k : piece;
      memcpy(to, p->ahead + p->from, k);
      p->from += k;
    } else if (aci_content_read(p->s, to, piece, &k, &e) != AC_OK) {
      return lac_fail(L, &e);
    }
    luaL_addsize(&b, k);
    left -= k;
    if (k == 0) break;
  }
  luaL_pushresult(&b);
  if (lua_rawlen(L, -1) == 0 && left > 0) lua_pushnil(L);
  return 1;
}

/* stream:line(most) -> a line without its line feed, or nil at the end. */
static int stream_line(lua_State *L) {
  lac_state *S = lac_get(L);
  stream *p = check_stream(L, S);
  const uint64_t most = check_count(L, S, "most");
  luaL_Buffer b;
  ac_err e;
  size_t n = 0;
  bool any = false;
  luaL_buffinit(L, &b);
  for (;;) {
    if (p->from == p->to) {
      p->from = p->to = 0;
      if (aci_content_read(p->s, p->ahead, BUFFER, &p->to, &e) != AC_OK) return lac_fail(L, &e);
      if (p->to == 0) break;
    }
    any = true;
    const char *at = p->ahead + p->from, *end = memchr(at, '\n', p->to - p->from);
    const size_t k = end != NULL ? (size_t)(end - at) : p->to - p->from;
    n += k;
    if (n > most) {
      AC_FAIL(&e, PARSE, "%s: a line of more than %llu bytes", aci_content_path(p->s),
              (unsigned long long)most);
      return lac_fail(L, &e);
    }
    luaL_addlstring(&b, at, k);
    p->from += k + (end != NULL);
    if (end != NULL) break;
  }
  luaL_pushresult(&b);
  if (!any) lua_pushnil(L);
  return 1;
}

static int stream_skip(lua_State *L) {
  lac_state *S = lac_get(L);
  stream *p = check_stream(L, S);
  const uint64_t n = check_count(L, S, "n");
  uint64_t k = p->to - p->from < n ? p->to - p->from : n, rest;
  ac_err e;
  p->from += (size_t)k;
  if (aci_content_skip(p->s, n - k, &rest, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushinteger(L, (lua_Integer)(k + rest));
  return 1;
}

static int stream_seek(lua_State *L) {
  lac_state *S = lac_get(L);
  stream *p = check_stream(L, S);
  const uint64_t at = check_count(L, S, "at");
  ac_err e;
  p->from = p->to = 0;
  if (aci_content_seek(p->s, at, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushboolean(L, true);
  return 1;
}

static int stream_at(lua_State *L) {
  stream *p = check_stream(L, lac_get(L));
  lua_pushinteger(L, (lua_Integer)(aci_content_at(p->s) - (p->to - p->from)));
  return 1;
}

static int stream_codec(lua_State *L) {
  lua_pushstring(L, aci_content_codec(check_stream(L, lac_get(L))->s));
  return 1;
}

static int stream_size(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)aci_content_size(check_stream(L, lac_get(L))->s));
  return 1;
}

/* All content of s in a file without a name. */
static ac_status unpack_all(aci_content *s, int fd, ac_err *e) {
  char piece[1 << 14];
  for (uint64_t at = 0;;) {
    size_t k;
    AC_TRY(aci_content_read(s, piece, sizeof piece, &k, e));
    if (k == 0) return AC_OK;
    AC_TRY(aci_pwrite_all(fd, aci_content_path(s), piece, k, at, e));
    at += k;
  }
}

static int open_unpacked(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_unpacked");
  const uint64_t limit = limit_of(L, S);
  luaL_Stream *file = lac_push_file(L);
  aci_content *s;
  ac_err e;
  int fd = -1;
  uint64_t bytes;
  ac_status st = aci_content_open(path, limit, &s, &e);
  if (st == AC_OK && aci_content_codec(s) == NULL) {
    st = aci_open_read(path, &fd, &bytes, &e);
  } else if (st == AC_OK) {
    fd = memfd_create("accel-unpacked", MFD_CLOEXEC);
    st =
        fd < 0 ? aci_io_error(&e, path, "make a file in memory for", errno) : unpack_all(s, fd, &e);
  }
  if (st == AC_OK) {
    aci_content_close(s);
    return lac_fill_file(L, file, fd, "rb", path);
  }
  if (fd >= 0) close(fd);
  if (s != NULL) aci_content_close(s);
  return lac_fail(L, &e);
}

LAC_OPEN("accel.file.core", stream) {
  static const luaL_Reg funcs[] = {
      {"open_stream", open_stream}, {"open_unpacked", open_unpacked}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", close_stream}, {"__close", close_stream}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"read", stream_read}, {"line", stream_line},   {"skip", stream_skip},
      {"seek", stream_seek}, {"at", stream_at},       {"codec", stream_codec},
      {"size", stream_size}, {"close", close_stream}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, STREAM, metas, methods);
}
