/* Requests to servers, for threads of trackers (stdlib/accel/track/outbox_sender.lua):
 * core.request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/rest.h"
#include "bindings/core/lac.h"

enum { MAX_HEADERS = 32 };

static const char *field(lua_State *L, const char *name, size_t *n) {
  const char *s = NULL;
  if (lua_getfield(L, 1, name) != LUA_TNIL) s = luaL_checklstring(L, -1, n);
  return s; /* stays on the stack */
}

/* core.rest_library() -> version, or nil, message, code */
static int rest_library(lua_State *L) {
  const char *version = NULL;
  ac_err e;
  if (ac_rest_library(&version, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushstring(L, version);
  return 1;
}

static bool file_is_there(void *path) {
  FILE *f = fopen(path, "re");
  if (f != NULL) fclose(f);
  return f != NULL;
}

/* core.request { method =, url =, headers = { "Name: value", ... }, body =, file =, user =, seconds
 * =, stop =, insecure = } -> status, body, or nil, message, code. stop: the request is given up
 * once a file of this name exists. */
static int request_(lua_State *L) {
  const char *headers[MAX_HEADERS + 1];
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  luaL_checkstack(L, MAX_HEADERS + 16, NULL);
  ac_rest_request r = {
      .method = field(L, "method", NULL), .url = field(L, "url", NULL), .headers = headers};
  r.body = field(L, "body", &r.n_body);
  r.file = field(L, "file", NULL);
  r.user = field(L, "user", NULL);
  const char *stop = field(L, "stop", NULL);
  if (r.url == NULL) return luaL_argerror(L, 1, "url is missing");
  if (r.method == NULL) r.method = r.body != NULL ? "POST" : "GET";
  if (lua_getfield(L, 1, "seconds") == LUA_TNUMBER) r.seconds = lua_tonumber(L, -1);
  lua_getfield(L, 1, "insecure");
  r.insecure = lua_toboolean(L, -1);
  int n = 0;
  if (lua_getfield(L, 1, "headers") == LUA_TTABLE) {
    const int t = lua_gettop(L);
    for (; n < MAX_HEADERS && lua_rawgeti(L, t, n + 1) != LUA_TNIL; n++)
      headers[n] = luaL_checkstring(L, -1);
  }
  headers[n] = NULL;
  if (stop != NULL) {
    r.stop = file_is_there;
    r.stop_arg = (void *)(uintptr_t)stop;
  }
  int status = 0;
  char *answer = NULL;
  size_t size = 0;
  ac_err e;
  if (ac_rest(&r, &status, &answer, &size, &e) != AC_OK) return lac_fail(L, &e);
  luaL_Buffer b;
  lua_pushinteger(L, status);
  memcpy(luaL_buffinitsize(L, &b, size), answer, size);
  free(answer);
  luaL_pushresultsize(&b, size);
  return 2;
}

LAC_OPEN("accel.track.core", rest) {
  static const luaL_Reg funcs[] = {
      {"request", request_}, {"rest_library", rest_library}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
