/* Output of a host that the program takes over (accel/host.h): print, io.write and the files
 * io.stdout and io.stderr write to its function, line by line. Warnings and messages of the log go
 * to functions of it as well. */
#include <errno.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "host_impl.h"

static ssize_t pass_on(void *cookie, const char *bytes, size_t n) {
  const lac_output *o = cookie;
  char small[256], *text = n < sizeof small ? small : malloc(n + 1);
  if (text == NULL) {
    errno = ENOMEM;
    return 0;
  }
  memcpy(text, bytes, n);
  text[n] = 0;
  o->h->o.output(o->h->o.user, o->h, o->stream, text, n);
  if (text != small) free(text);
  return (ssize_t)n;
}

/* io.stdout:close(): it refuses, as Lua's own does. */
static int stay_open(lua_State *L) {
  luaL_Stream *s = luaL_checkudata(L, 1, LUA_FILEHANDLE);
  s->closef = stay_open;
  luaL_pushfail(L);
  lua_pushliteral(L, "cannot close standard file");
  return 2;
}

/* Pushes a file of Lua over a stream of C. That one is closed with the host, because finalizers may
 * write until then. */
static void push_file(lua_State *L, lac_output *o, ac_host *h, ac_host_stream stream) {
  luaL_Stream *s = lua_newuserdatauv(L, sizeof *s, 0);
  s->closef = NULL; /* closed so far */
  luaL_setmetatable(L, LUA_FILEHANDLE);
  o->h = h;
  o->stream = stream;
  o->file = fopencookie(o, "w", (cookie_io_functions_t){.write = pass_on});
  if (o->file == NULL) luaL_error(L, "no memory for the output of a host");
  setvbuf(o->file, NULL, _IOLBF, BUFSIZ);
  s->f = o->file;
  s->closef = stay_open;
}

/* print(...). Upvalue 1: the host. */
static int print(lua_State *L) {
  const ac_host *h = lua_touserdata(L, lua_upvalueindex(1));
  FILE *out = h->output[0].file;
  const int n = lua_gettop(L);
  for (int i = 1; i <= n; i++) {
    size_t len;
    const char *text = luaL_tolstring(L, i, &len);
    if (i > 1) fputc('\t', out);
    fwrite(text, 1, len, out);
    lua_pop(L, 1);
  }
  fputc('\n', out);
  return 0;
}

void lac_output_open(lua_State *L, ac_host *h) {
  if (h->o.output == NULL) return;
  const int top = lua_gettop(L);
  lua_getglobal(L, LUA_IOLIBNAME);
  push_file(L, &h->output[0], h, AC_HOST_OUT);
  lua_getfield(L, -2, "output"); /* the file of io.write */
  lua_pushvalue(L, -2);
  lua_call(L, 1, 0);
  lua_setfield(L, -2, "stdout");
  push_file(L, &h->output[1], h, AC_HOST_ERR);
  lua_setfield(L, -2, "stderr");
  lua_pushglobaltable(L);
  lua_pushlightuserdata(L, h);
  lua_pushcclosure(L, print, 1);
  lua_setfield(L, -2, "print");
  lua_settop(L, top);
}

static void flush(ac_host *h) {
  for (int i = 0; i < 2; i++)
    if (h->output[i].file != NULL) fflush(h->output[i].file);
}

void lac_output_close(ac_host *h) {
  for (int i = 0; i < 2; i++)
    if (h->output[i].file != NULL) fclose(h->output[i].file);
}

/* ---- warnings and the log ---- */

static void log_to_host(void *user, ac_log_level level, const char *subsystem, const char *msg) {
  ac_host *h = user;
  h->o.log(h->o.user, h, level, subsystem, msg);
}

atomic_bool lac_any_log;

aci_log_sink lac_output_begin(ac_host *h) {
  if (h->o.log != NULL) atomic_store(&lac_any_log, true);
  if (h->o.log == NULL) return aci_log_thread((aci_log_sink){0});
  const ac_log_level level = h->o.log_level == AC_LOG_TRACE ? AC_LOG_WARN : h->o.log_level;
  return aci_log_thread((aci_log_sink){log_to_host, h, level});
}

void lac_output_end(ac_host *h, aci_log_sink was) {
  flush(h);
  aci_log_thread(was);
}

/* warn(), and messages of the collector. */
void lac_host_warning(void *ud, const char *text, int more) {
  ac_host *h = ud;
  size_t n = strlen(h->warning);
  snprintf(h->warning + n, sizeof h->warning - n, "%s", text);
  if (more) return;
  if (strcmp(h->warning, "@off") == 0) h->warnings_off = true;
  else if (strcmp(h->warning, "@on") == 0) h->warnings_off = false;
  else if (!h->warnings_off && h->o.output != NULL)
    h->o.output(h->o.user, h, AC_HOST_WARNING, h->warning, strlen(h->warning));
  else if (!h->warnings_off) ac_log_write(AC_LOG_WARN, "lua", "%s", h->warning);
  h->warning[0] = 0;
}
