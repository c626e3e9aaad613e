/* The part of accel.console for notebooks: sockets of ZeroMQ (attach/zmq.h) and the wait of a kernel.
 * For lua/jupyter.
 *
 *   console.zmq() -> z                        raises without the library
 *     z:open(kind, address [, connects_as]) -> s   "router", "dealer", "pub", "sub", "rep", "req".
 *                                             Binds, or connects under this name ("": any)
 *     z:wait(list, seconds) -> set, broken    list of sockets and descriptors. set[i]: the i-th can be
 *                                             read. broken: Ctrl-C of the session
 *   s:send(frames)                            a list of strings, one message. Never waits
 *   s:receive() -> frames                     nil: none has arrived
 *   s:close()
 *   console.hmac(key, text) -> 64 digits      HMAC-SHA-256. Raises without libcrypto
 *   console.same(a, b) -> boolean             of two signatures, in a time that does not depend on
 *                                             their contents */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/zmq.h"
#include "base/hmac.h"
#include "console.h"

#define CONTEXT "accel.console.zmq"
#define SOCKET "accel.console.zmq.socket"
enum { FRAMES_MAX = 4096, WAITS = 512 };

static int zmq(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  aci_zmq **z = lua_newuserdatauv(L, sizeof *z, 0);
  *z = NULL;
  luaL_setmetatable(L, CONTEXT);
  return aci_zmq_open(z, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int zmq_gc(lua_State *L) {
  aci_zmq **z = luaL_checkudata(L, 1, CONTEXT);
  aci_zmq_release(*z);
  *z = NULL;
  return 0;
}

static aci_zmq *context_of(lua_State *L, lac_state *S) {
  aci_zmq **z = luaL_checkudata(L, 1, CONTEXT);
  if (*z == NULL) lac_error(L, S, AC_RELEASED, "the context of ZeroMQ is closed");
  return *z;
}

static int open_(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_zmq *z = context_of(L, S);
  const char *kind = lac_check_string(L, S, 2, "kind", NULL),
             *address = lac_check_string(L, S, 3, "address", NULL);
  const char *as = lua_isnoneornil(L, 4) ? NULL : lac_check_string(L, S, 4, "connects_as", NULL);
  ac_err e;
  aci_zmq_socket **s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = NULL;
  luaL_setmetatable(L, SOCKET);
  return aci_zmq_socket_open(z, kind, address, as, s, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int socket_close(lua_State *L) {
  aci_zmq_socket **s = luaL_checkudata(L, 1, SOCKET);
  aci_zmq_socket_close(*s);
  *s = NULL;
  return 0;
}

static aci_zmq_socket *socket_of(lua_State *L, lac_state *S) {
  aci_zmq_socket **s = luaL_checkudata(L, 1, SOCKET);
  if (*s == NULL) lac_error(L, S, AC_RELEASED, "the socket of ZeroMQ is closed");
  return *s;
}

static int socket_send(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_zmq_socket *s = socket_of(L, S);
  luaL_checktype(L, 2, LUA_TTABLE);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
  ac_err e;
  for (lua_Integer i = 1; i <= n; i++) { /* a message is sent as a whole or not at all */
    if (lua_rawgeti(L, 2, i) != LUA_TSTRING)
      return lac_error(L, S, AC_INVALID, "frame %lld is not a string", (long long)i);
    lua_pop(L, 1);
  }
  for (lua_Integer i = 1; i <= n; i++) {
    size_t bytes;
    lua_rawgeti(L, 2, i);
    const char *p = lua_tolstring(L, -1, &bytes);
    if (aci_zmq_send(s, p, bytes, i < n, &e) != AC_OK) return lac_raise(L, S, &e);
    lua_pop(L, 1);
  }
  return 0;
}

static int socket_receive(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_zmq_socket *s = socket_of(L, S);
  const void *p;
  size_t n;
  bool more = true;
  ac_err e;
  lua_newtable(L);
  for (lua_Integer i = 1; more; i++) {
    if (aci_zmq_receive(s, &p, &n, &more, &e) != AC_OK) return lac_raise(L, S, &e);
    if (p == NULL) return 0;
    if (i > FRAMES_MAX) continue; /* the rest is read, and what it was is for the caller to see */
    lua_pushlstring(L, p, n);
    lua_rawseti(L, -2, i);
  }
  return 1;
}

static int wait_(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_zmq *z = context_of(L, S);
  aci_zmq_wait list[WAITS];
  luaL_checktype(L, 2, LUA_TTABLE);
  const double seconds = lua_isnoneornil(L, 3) ? -1 : lac_check_number(L, S, 3, "seconds");
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
  const int breaks = lac_console_breaks(S);
  int k = (int)n;
  ac_err e;
  if (n >= WAITS) return lac_error(L, S, AC_INVALID, "%lld things to wait for", (long long)n);
  for (int i = 0; i < k; i++) {
    lua_rawgeti(L, 2, i + 1);
    aci_zmq_socket **s = luaL_testudata(L, -1, SOCKET);
    list[i] = (aci_zmq_wait){.socket = s != NULL ? *s : NULL,
                             .fd = s != NULL ? -1 : (int)lac_check_int(L, S, -1, "descriptor")};
    if (s != NULL && *s == NULL) return lac_error(L, S, AC_RELEASED, "a socket is closed");
    lua_pop(L, 1);
  }
  if (breaks >= 0) list[k++] = (aci_zmq_wait){.fd = breaks};
  const int ms = seconds < 0 ? -1 : seconds > 1e6 ? 1000000000 : (int)(seconds * 1e3 + 0.999);
  if (aci_zmq_wait_for(z, list, k, ms, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_newtable(L);
  for (int i = 0; i < (int)n; i++) {
    if (!list[i].ready) continue;
    lua_pushboolean(L, 1);
    lua_rawseti(L, -2, i + 1);
  }
  uint64_t count;
  lua_pushboolean(L, breaks >= 0 && list[n].ready && read(breaks, &count, sizeof count) > 0);
  return 2;
}

static int hmac(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n_key, n;
  const char *key = lac_check_string(L, S, 1, "key", &n_key),
             *text = lac_check_string(L, S, 2, "text", &n);
  uint8_t out[ACI_HMAC];
  char digits[2 * ACI_HMAC + 1];
  ac_err e;
  if (aci_hmac(key, n_key, text, n, out, &e) != AC_OK) return lac_raise(L, S, &e);
  for (int i = 0; i < ACI_HMAC; i++) snprintf(digits + 2 * i, 3, "%02x", out[i]);
  lua_pushlstring(L, digits, 2 * ACI_HMAC);
  return 1;
}

static int same(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n_a, n_b;
  const char *a = lac_check_string(L, S, 1, "a", &n_a), *b = lac_check_string(L, S, 2, "b", &n_b);
  bool equal = n_a == n_b && n_a == 2 * ACI_HMAC;
  for (size_t i = 0; equal && i < n_a; i += ACI_HMAC)
    equal = aci_hmac_equal((const uint8_t *)a + i, (const uint8_t *)b + i);
  lua_pushboolean(L, equal);
  return 1;
}

LAC_OPEN("accel.console", zmq) {
  static const luaL_Reg funcs[] = {{"zmq", zmq}, {"hmac", hmac}, {"same", same}, {NULL, NULL}};
  static const luaL_Reg of_context[] = {{"open", open_}, {"wait", wait_}, {NULL, NULL}};
  static const luaL_Reg of_socket[] = {
      {"send", socket_send}, {"receive", socket_receive}, {"close", socket_close}, {NULL, NULL}};
  static const luaL_Reg context_metas[] = {{"__gc", zmq_gc}, {"__close", zmq_gc}, {NULL, NULL}};
  static const luaL_Reg socket_metas[] = {
      {"__gc", socket_close}, {"__close", socket_close}, {NULL, NULL}};
  lac_new_class(L, S, CONTEXT, context_metas, of_context);
  lac_new_class(L, S, SOCKET, socket_metas, of_socket);
  lac_setfuncs(L, S, funcs);
}
