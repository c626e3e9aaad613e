/* Queues of log records, for accel.track (stdlib/accel/track), which gives them the public
 * interface. Misuse raises. A file that cannot be opened or written returns nil, message, code. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accel/store.h"
#include "bindings/core/lac.h"
#include "bindings/embed/host_impl.h"

#define WRITER "accel.track.Writer"

typedef struct writer {
  ac_track *t;
  bool run; /* of the run store, and not ended */
} writer;

/* A run that nobody ended ends with its script: how, the host knows. */
static void end_run(const ac_host *h, ac_track *t) {
  const bool failed = h != NULL && (h->exited ? h->exit_code != 0 : h->error_text != NULL);
  const char *text = failed && !h->exited ? h->error_text : "";
  const int code = h != NULL && h->exited ? h->exit_code : failed ? 1 : 0;
  ac_err e;
  ac_run_record(t, "end", failed ? "failed" : "finished", code, NULL, text, strcspn(text, "\n"), 0,
                &e);
}

static int writer_gc(lua_State *L) {
  writer *w = luaL_checkudata(L, 1, WRITER);
  ac_track *t = w->t;
  ac_err e;
  w->t = NULL;
  if (t != NULL && w->run) end_run(lac_get(L)->host, t);
  if (t != NULL) ac_track_close(t, &e);
  return 0;
}

static ac_track *writer_of(lua_State *L, lac_state *S) {
  writer *w = luaL_testudata(L, 1, WRITER);
  if (w == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a writer, got %s",
                 luaL_typename(L, 1));
  if (w->t == NULL) lac_error(L, S, AC_RELEASED, "the writer is closed");
  return w->t;
}

static writer *push(lua_State *L) {
  writer *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (writer){0};
  luaL_setmetatable(L, WRITER);
  return w;
}

/* core.events(folder) -> writer, or nil, message, code */
static int events(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *folder = lac_check_path(L, S, 1, "folder", NULL);
  ac_err e;
  writer *w = push(L);
  return ac_track_open_events(folder, &w->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* core.wandb(path) -> writer, or nil, message, code */
static int wandb(lua_State *L) {
  const char *path = lac_check_path(L, lac_get(L), 1, "path", NULL);
  ac_err e;
  writer *w = push(L);
  return ac_track_open_wandb(path, &w->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* core.lines(path [, head]) -> writer, or nil, message, code */
static int lines(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const char *head = lua_isnoneornil(L, 2) ? NULL : lac_check_string(L, S, 2, "head", NULL);
  ac_err e;
  writer *w = push(L);
  return ac_track_open_lines(path, head, &w->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static const char *text_of(lua_State *L, int idx, const char *name) {
  const char *s = NULL;
  lua_getfield(L, idx, name);
  if (!lua_isnil(L, -1)) s = lac_check_string(L, lac_get(L), -1, name, NULL);
  return s; /* stays on the stack */
}

/* core.run(path, { uid=, project=, name=, environment=, resume=, system= }) -> writer, or nil,
 * message, code */
static int run(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_settop(L, 2);
  ac_run_info info = {.uid = text_of(L, 2, "uid"), .project = text_of(L, 2, "project")};
  info.name = text_of(L, 2, "name");
  info.environment = text_of(L, 2, "environment");
  lua_getfield(L, 2, "resume");
  info.resume = lua_toboolean(L, -1);
  lua_getfield(L, 2, "system");
  info.system = lua_toboolean(L, -1);
  info.nvml = ac_params_str(ac_ctx_params(S->ctx), "NVML");
  ac_err e;
  writer *w = push(L);
  w->run = true;
  return ac_track_open_run(path, &info, &w->t, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

/* writer:record(kind, tag, step, meta or nil, data [, seconds since 1970]), of a run */
static int record(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_track *t = writer_of(L, S);
  const char *kind = lac_check_string(L, S, 2, "kind", NULL),
             *tag = lac_check_string(L, S, 3, "tag", NULL);
  const int64_t step = lac_check_int(L, S, 4, "step");
  const char *meta = lua_isnil(L, 5) ? NULL : lac_check_string(L, S, 5, "meta", NULL);
  size_t n;
  const char *p = lac_check_string(L, S, 6, "data", &n);
  ac_err e;
  if (ac_run_record(t, kind, tag, step, meta, p, n, luaL_optnumber(L, 7, 0), &e) != AC_OK)
    return lac_raise(L, S, &e);
  if (strcmp(kind, "end") == 0) ((writer *)lua_touserdata(L, 1))->run = false;
  return 0;
}

/* writer:scalar(tag, step, value [, seconds since 1970]) */
static int scalar(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_track *t = writer_of(L, S);
  const char *tag = lac_check_string(L, S, 2, "tag", NULL);
  const int64_t step = lac_check_int(L, S, 3, "step");
  const double value = lac_check_number(L, S, 4, "value"), wall = luaL_optnumber(L, 5, 0);
  ac_err e;
  if (ac_track_scalar(t, tag, step, value, wall, &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

/* writer:bytes(step, bytes [, seconds since 1970]) */
static int bytes(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_track *t = writer_of(L, S);
  const int64_t step = lac_check_int(L, S, 2, "step");
  size_t n;
  const char *p = lac_check_string(L, S, 3, "bytes", &n);
  ac_err e;
  if (ac_track_bytes(t, step, p, n, luaL_optnumber(L, 4, 0), &e) != AC_OK)
    return lac_raise(L, S, &e);
  return 0;
}

static int outcome(lua_State *L, ac_status st, const ac_err *e) {
  if (st != AC_OK) return lac_fail(L, e);
  lua_pushboolean(L, 1);
  return 1;
}

/* writer:flush() -> true, or nil, message, code */
static int flush(lua_State *L) {
  ac_err e;
  return outcome(L, ac_track_flush(writer_of(L, lac_get(L)), &e), &e);
}

/* writer:fault() -> the reason why it cannot write, or nil, and the number of dropped records */
static int fault(lua_State *L) {
  ac_track *t = writer_of(L, lac_get(L));
  ac_err e;
  if (ac_track_fault(t, &e)) lua_pushstring(L, e.msg);
  else lua_pushnil(L);
  lua_pushinteger(L, (lua_Integer)ac_track_dropped(t));
  return 2;
}

/* writer:path() -> of its first file */
static int path(lua_State *L) {
  lua_pushstring(L, ac_track_path(writer_of(L, lac_get(L))));
  return 1;
}

/* writer:close() -> true, or nil, message, code. Once. */
static int close_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_track *t = writer_of(L, S);
  writer *w = lua_touserdata(L, 1);
  ac_err e;
  w->t = NULL;
  return outcome(L, ac_track_close(t, &e), &e);
}

/* core.png(bytes, width, height, channels) -> the file's bytes */
static int png(lua_State *L) {
  lac_state *S = lac_get(L);
  size_t n, size = 0;
  const char *p = lac_check_string(L, S, 1, "bytes", &n);
  const int64_t width = lac_check_int(L, S, 2, "width"), height = lac_check_int(L, S, 3, "height"),
                channels = lac_check_int(L, S, 4, "channels");
  char *out = NULL;
  ac_err e;
  if (width < 1 || height < 1 || channels < 1 || width > INT16_MAX || height > INT16_MAX ||
      channels > 4 || (uint64_t)(width * height * channels) != n)
    return lac_argerror(L, S, AC_INVALID, NULL, 1, "bytes",
                        "%zu bytes are no %lld x %lld pixels of %lld channels", n, (long long)width,
                        (long long)height, (long long)channels);
  if (ac_png_encode((const uint8_t *)p, (int)width, (int)height, (int)channels, &out, &size, &e) !=
      AC_OK)
    return lac_raise(L, S, &e);
  luaL_Buffer b;
  memcpy(luaL_buffinitsize(L, &b, size), out, size);
  free(out);
  luaL_pushresultsize(&b, size);
  return 1;
}

/* core.sha256(bytes) -> 64 digits */
static int sha256(lua_State *L) {
  size_t n;
  const char *p = lac_check_string(L, lac_get(L), 1, "bytes", &n);
  uint8_t hash[32];
  char text[65];
  ac_sha256(p, n, hash);
  for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", hash[i]);
  lua_pushlstring(L, text, 64);
  return 1;
}

/* core.current_folder() -> its absolute path, or nil */
static int current_folder(lua_State *L) {
  char path[PATH_MAX];
  lua_pushstring(L, getcwd(path, sizeof path));
  return 1;
}

LAC_OPEN("accel.track.core", track) {
  static const luaL_Reg funcs[] = {{"events", events},
                                   {"lines", lines},
                                   {"run", run},
                                   {"png", png},
                                   {"wandb", wandb},
                                   {"sha256", sha256},
                                   {"current_folder", current_folder},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", writer_gc}, {"__close", writer_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"scalar", scalar}, {"bytes", bytes}, {"record", record},
                                     {"flush", flush},   {"fault", fault}, {"path", path},
                                     {"close", close_},  {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, WRITER, metas, methods);
}
