/* Files as streams of bytes, compressed or not: accel.file.core.open_stream(path [, {limit =}]), with
 * the methods read(n), line(), skip(n), seek(at), at(), codec(), size(), fits() and close(). A line has at most
 * `limit` bytes. A file that fails returns nil, message, code. The end is nil alone.
 *
 * open_unpacked(path [, {limit =, whole =}]) is for readers that need a file of Lua's io library: the
 * file itself, or its unpacked content in memory without a name, of at most `limit` bytes. whole: the
 * caller reads all of it into memory, so the limit holds for a file that is not compressed, too.
 *
 * A limit of 0, or none: aci_unpacked_limit's. check_limit(path, what, bytes [, {limit =}]) compares
 * content that other code unpacks. */
#include <stdio.h>
#include <string.h>
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
  uint64_t limit;  /* bytes of a line */
  size_t from, to; /* content that was read ahead for lines */
  char ahead[BUFFER];
} stream;

static int open_stream(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_stream");
  const uint64_t limit = lac_limit_opt(L, S, 2);
  stream *p = lua_newuserdatauv(L, sizeof *p, 0);
  p->s = NULL;
  p->from = p->to = 0;
  luaL_setmetatable(L, STREAM);
  ac_err e;
  if (aci_content_open(path, 0, &p->s, &e) != AC_OK) return lac_fail(L, &e);
  p->limit = aci_unpacked_limit(limit, aci_content_size(p->s));
  return 1;
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

/* stream:line() -> a line without its line feed, or nil at the end. */
static int stream_line(lua_State *L) {
  lac_state *S = lac_get(L);
  stream *p = check_stream(L, S);
  luaL_Buffer b;
  ac_err e;
  uint64_t n = 0;
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
    if (n > p->limit) {
      aci_over_limit(aci_content_path(p->s), "a line", p->limit, &e);
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

/* stream:fits() -> true if all content that was read may be in memory at once, or nil, message, code. */
static int stream_fits(lua_State *L) {
  const stream *p = check_stream(L, lac_get(L));
  ac_err e;
  if (aci_content_at(p->s) > p->limit) {
    aci_over_limit(aci_content_path(p->s), "the content", p->limit, &e);
    return lac_fail(L, &e);
  }
  lua_pushboolean(L, true);
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

static int open_unpacked(lua_State *L) {
  static const char *const options[] = {"limit", "whole", NULL};
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "open_unpacked");
  lac_opts o = lac_opts_open(L, S, 2, options);
  const uint64_t limit = lac_limit_of(&o);
  const bool whole = lac_opt_bool(&o, "whole", false);
  luaL_Stream *file = lac_push_file(L);
  aci_content *s;
  ac_err e;
  int fd = -1;
  uint64_t bytes;
  if (aci_content_open(path, 0, &s, &e) != AC_OK) return lac_fail(L, &e);
  const bool packed = aci_content_codec(s) != NULL;
  const uint64_t size = aci_content_size(s), most = aci_unpacked_limit(limit, size);
  aci_content_close(s);
  ac_status st = packed                 ? aci_content_unpack(path, limit, &fd, &bytes, &e)
                 : whole && size > most ? aci_over_limit(path, "the file", most, &e)
                                        : aci_open_read(path, &fd, &bytes, &e);
  return st == AC_OK ? lac_fill_file(L, file, fd, "rb", path) : lac_fail(L, &e);
}

/* check_limit(path, what, bytes [, {limit =}]) -> true, or nil, message, code: for content that other
 * code unpacks. */
static int check_limit(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_path_arg(L, S, "check_limit");
  const char *what = lac_check_string(L, S, 2, "what", NULL);
  const int64_t bytes = lac_check_int(L, S, 3, "bytes");
  const uint64_t limit = lac_limit_opt(L, S, 4);
  int fd;
  uint64_t size;
  ac_err e;
  if (aci_open_read(path, &fd, &size, &e) != AC_OK) return lac_fail(L, &e);
  close(fd);
  const uint64_t most = aci_unpacked_limit(limit, size);
  if (bytes < 0 || (uint64_t)bytes > most) {
    aci_over_limit(path, what, most, &e);
    return lac_fail(L, &e);
  }
  lua_pushboolean(L, true);
  return 1;
}

LAC_OPEN("accel.file.core", stream) {
  static const luaL_Reg funcs[] = {{"open_stream", open_stream},
                                   {"open_unpacked", open_unpacked},
                                   {"check_limit", check_limit},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", close_stream}, {"__close", close_stream}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"read", stream_read},   {"line", stream_line},
                                     {"skip", stream_skip},   {"seek", stream_seek},
                                     {"at", stream_at},       {"codec", stream_codec},
                                     {"size", stream_size},   {"fits", stream_fits},
                                     {"close", close_stream}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, STREAM, metas, methods);
}
