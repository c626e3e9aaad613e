/* A server for pages on this machine, for accel-run ui (stdlib/accel/cli/ui.lua): core.http. The
 * handler is a Lua function that runs within server:poll. Its errors become answers with status
 * 500, and their text goes to server:poll's caller. */
#include <stdlib.h>
#include <string.h>

#include "accel/http.h"
#include "bindings/core/lac.h"

#define SERVER "accel.track.Server"
#define REQUEST "accel.track.Request"

typedef struct server {
  ac_http *h;
} server;
typedef struct request {
  const ac_http_request *r; /* NULL: over */
} request;

static int server_gc(lua_State *L) {
  server *s = luaL_checkudata(L, 1, SERVER);
  ac_http *h = s->h;
  s->h = NULL;
  ac_http_close(h);
  return 0;
}

static ac_http *http_of(lua_State *L) {
  server *s = luaL_checkudata(L, 1, SERVER);
  if (s->h == NULL) lac_error(L, lac_get(L), AC_RELEASED, "the server is closed");
  return s->h;
}

static const ac_http_request *request_of(lua_State *L) {
  request *q = luaL_checkudata(L, 1, REQUEST);
  if (q->r == NULL) lac_error(L, lac_get(L), AC_RELEASED, "the request is answered");
  return q->r;
}

/* core.http(port) -> server, or nil, message, code. Port 0: any free one. */
static int http(lua_State *L) {
  const int64_t port = lac_check_int(L, lac_get(L), 1, "port");
  ac_err e;
  server *s = lua_newuserdatauv(L, sizeof *s, 0);
  s->h = NULL;
  luaL_setmetatable(L, SERVER);
  return ac_http_open((int)(port < -1 || port > 65536 ? -1 : port), &s->h, &e) == AC_OK
             ? 1
             : lac_fail(L, &e);
}

/* core.http_library() -> version, or nil, message, code */
static int http_library(lua_State *L) {
  const char *version = NULL;
  ac_err e;
  if (ac_http_library(&version, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushstring(L, version);
  return 1;
}

/* server:port() -> its port */
static int port_(lua_State *L) {
  lua_pushinteger(L, ac_http_port(http_of(L)));
  return 1;
}

typedef struct call {
  lua_State *L;
  int handler, answers; /* indices: the function, a table that keeps the strings of answers alive */
  const ac_http_request *r;
  ac_http_answer *answer;
  bool failed;
} call;

/* The handler's result, at index 2, into the answer. Strings stay alive in the table of answers.
 * Protected. */
static int run_handler(lua_State *L) {
  call *c = lua_touserdata(L, 1);
  request *q = lua_newuserdatauv(L, sizeof *q, 0);
  q->r = c->r;
  luaL_setmetatable(L, REQUEST);
  const int me = lua_gettop(L);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, me);
  lua_call(L, 1, 1);
  q->r = NULL;
  luaL_checktype(L, -1, LUA_TTABLE);
  const int t = lua_gettop(L);
  lua_pushvalue(L, t);
  lua_rawseti(L, 3, (lua_Integer)lua_rawlen(L, 3) + 1);
  if (lua_getfield(L, t, "status") == LUA_TNUMBER) c->answer->status = (int)lua_tointeger(L, -1);
  if (lua_getfield(L, t, "body") == LUA_TSTRING)
    c->answer->body = lua_tolstring(L, -1, &c->answer->n);
  lua_getfield(L, t, "stream");
  c->answer->stream = lua_toboolean(L, -1);
  int n = 0;
  if (lua_getfield(L, t, "headers") == LUA_TTABLE) {
    const int headers = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, headers) != 0 && n < 22; lua_pop(L, 1)) {
      if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING) continue;
      c->answer->headers[n++] = lua_tostring(L, -2);
      c->answer->headers[n++] = lua_tostring(L, -1);
    }
  }
  return 0;
}

static void handle(void *user, const ac_http_request *r, ac_http_answer *answer) {
  static const char sorry[] = "the server failed; see its terminal\n";
  call *c = user;
  lua_State *L = c->L;
  c->r = r;
  c->answer = answer;
  lua_pushcfunction(L, run_handler);
  lua_pushlightuserdata(L, c);
  lua_pushvalue(L, c->handler);
  lua_pushvalue(L, c->answers);
  if (lua_pcall(L, 3, 0, 0) == LUA_OK) return;
  *answer = (ac_http_answer){.status = 500,
                             .body = sorry,
                             .n = sizeof sorry - 1,
                             .headers = {"Content-Type", "text/plain"}};
  if (c->failed) {
    lua_pop(L, 1);
    return;
  }
  c->failed = true;
  lua_rawseti(L, c->answers, 0); /* the first error's value */
}

/* server:poll(seconds, handler) -> true, or nil, message if a handler failed. handler(request) -> {
 * status =, headers =, body =, stream = } */
static int poll_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_http *h = http_of(L);
  const double seconds = lac_check_number(L, S, 2, "seconds");
  luaL_checktype(L, 3, LUA_TFUNCTION);
  lua_settop(L, 3);
  lua_newtable(L);
  luaL_checkstack(L, 16, NULL);
  call c = {.L = L, .handler = 3, .answers = 4};
  ac_err e;
  if (ac_http_poll(h, seconds, handle, &c, &e) != AC_OK) return lac_fail(L, &e);
  if (c.failed) {
    lua_pushnil(L);
    lua_rawgeti(L, c.answers, 0);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    return 2;
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* server:send(stream, bytes) -> whether the client is still there */
static int send_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_http *h = http_of(L);
  size_t n;
  const int64_t id = lac_check_int(L, S, 2, "stream");
  const char *p = lac_check_string(L, S, 3, "bytes", &n);
  lua_pushboolean(L, ac_http_send(h, (uint64_t)id, p, n));
  return 1;
}

/* server:finish(stream): its end, once all is sent */
static int finish(lua_State *L) {
  ac_http *h = http_of(L);
  ac_http_end(h, (uint64_t)lac_check_int(L, lac_get(L), 2, "stream"));
  return 0;
}

/* request:path(), request:method(), request:body(), request:stream() */
static int path(lua_State *L) {
  lua_pushstring(L, ac_http_path(request_of(L)));
  return 1;
}
static int method(lua_State *L) {
  lua_pushstring(L, ac_http_method(request_of(L)));
  return 1;
}
static int body(lua_State *L) {
  size_t n;
  const char *p = ac_http_body(request_of(L), &n);
  lua_pushlstring(L, p, n);
  return 1;
}
static int stream(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)ac_http_stream(request_of(L)));
  return 1;
}
/* request:query(name), request:header(name) -> string or nil */
static int query(lua_State *L) {
  const ac_http_request *r = request_of(L);
  lua_pushstring(L, ac_http_query(r, luaL_checkstring(L, 2)));
  return 1;
}
static int header(lua_State *L) {
  const ac_http_request *r = request_of(L);
  lua_pushstring(L, ac_http_header(r, luaL_checkstring(L, 2)));
  return 1;
}

LAC_OPEN("accel.track.core", http) {
  static const luaL_Reg funcs[] = {{"http", http}, {"http_library", http_library}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", server_gc}, {"__close", server_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"port", port_},    {"poll", poll_},      {"send", send_},
                                     {"finish", finish}, {"close", server_gc}, {NULL, NULL}};
  static const luaL_Reg none[] = {{NULL, NULL}};
  static const luaL_Reg request_methods[] = {
      {"path", path},     {"method", method}, {"stream", stream}, {"query", query},
      {"header", header}, {"body", body},     {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, SERVER, metas, methods);
  lac_new_class(L, S, REQUEST, none, request_methods);
}
