/* Scripts of a host: ac_host_run_file, ac_host_run_string and the end of a script by os.exit
 * (accel/host.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "accel/launch.h"
#include "bindings/core/site.h"
#include "bindings/comm/dist.h"
#include "host_check.h"
#include "host_script.h"
#include "interrupt.h"

bool ac_host_exit_code(const ac_host *h, int *code) {
  if (!lac_host_is_open(h) || !h->exited) return false;
  if (code != NULL) *code = h->exit_code;
  return true;
}

/* Modules next to the script come first: "dir/?.lua;dir/?/init.lua". */
static void add_script_dir(lua_State *L, const char *path) {
  const char *slash = strrchr(path, '/');
  lua_getglobal(L, "package");
  lua_pushlstring(L, slash != NULL ? path : ".", slash != NULL ? (size_t)(slash - path) : 1);
  if (lua_rawlen(L, -1) == 0) lua_pushliteral(L, "/"), lua_replace(L, -2);
  const char *dir = lua_tostring(L, -1);
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;", dir, dir);
  lua_getfield(L, -3, "path");
  const char *have = lua_tostring(L, -1), *add = lua_tostring(L, -2);
  if (have != NULL && strncmp(have, add, strlen(add)) != 0) {
    lua_concat(L, 2);
    lua_setfield(L, -3, "path");
  }
}

/* The script ended at its last line: that line goes to peers that still wait for this rank. */
static void end_of_chunk(lua_State *L, lac_state *S, int chunk) {
  lua_Debug ar;
  lua_Integer last = 0;
  lua_pushvalue(L, chunk);
  lua_getinfo(L, ">SL", &ar);
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1))
    if (lua_tointeger(L, -2) > last) last = lua_tointeger(L, -2);
  lac_site_text(ar.short_src, (int)last, S->ranks->end_site);
}

/* Sets `arg` and pushes the script as a function. s->load distinguishes an error of loading from one
 * of running. */
void lac_script_load(lua_State *L, lac_script *s) {
  const int top = lua_gettop(L);
  int st;
  lua_createtable(L, s->argc, 1);
  for (int i = 0; i < s->argc; i++) {
    lua_pushstring(L, s->argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushstring(L, s->path != NULL ? s->path : s->name);
  lua_rawseti(L, -2, 0);
  lua_pushglobaltable(L);
  lua_insert(L, -2);
  lua_pushliteral(L, "arg");
  lua_insert(L, -2);
  lua_rawset(L, -3);
  lua_settop(L, top);
  if (s->path != NULL) {
    bool in = strcmp(s->path, "-") == 0;
    if (!in) add_script_dir(L, s->path);
    lua_settop(L, top);
    /* Links are followed to pipes, as shells name them (/dev/stdin, /dev/fd/63). A pipe in a folder
     * may never get a writer. */
    struct stat sb;
    if (!in && lstat(s->path, &sb) == 0 &&
        (S_ISFIFO(sb.st_mode) || S_ISSOCK(sb.st_mode) || S_ISBLK(sb.st_mode))) {
      s->load = AC_IO;
      luaL_error(
          L,
          "cannot read %s: not a regular file; to run a script from a pipe, pass it on standard input: accel-run - < %s",
          s->path, s->path);
    }
    errno = 0;
    st = luaL_loadfilex(L, in ? NULL : s->path, "t");
    if (st == LUA_ERRFILE) s->load = errno == ENOENT ? AC_NOT_FOUND : AC_IO;
  } else {
    lua_pushfstring(L, "=%s", s->name);
    st = luaL_loadbufferx(L, s->code, strlen(s->code), lua_tostring(L, -1), "t");
    lua_remove(L, -2);
  }
  if (st == LUA_ERRSYNTAX) s->load = AC_PARSE;
  if (st != LUA_OK) lua_error(L);
}

/* The chunk stays below its arguments on the stack, to find the line at which it ended. */
static int script_body(lua_State *L) {
  lac_script *s = lua_touserdata(L, 1);
  lac_script_load(L, s);
  luaL_checkstack(L, s->argc + 4, "arguments");
  const int chunk = lua_gettop(L);
  lua_pushvalue(L, chunk);
  for (int i = 0; i < s->argc; i++) lua_pushstring(L, s->argv[i]);
  lua_call(L, s->argc, 0);
  if (s->h->S->ranks->world != NULL) end_of_chunk(L, s->h->S, chunk);
  return 0;
}

static void tell_ranks(lac_state *S, const char *text) {
  const size_t n = strlen(S->ranks->end_site);
  if (n > 0 && strncmp(text, S->ranks->end_site, n) == 0 && text[n] == ':')
    text += text[n + 1] == ' ' ? n + 2 : n + 1;
  ac_world_fail(S->ranks->world, n > 0 ? S->ranks->end_site : NULL, text);
}

void lac_script_tell(ac_host *h, ac_status st, const ac_err *e) {
  /* ranks that stop at the step on which they agreed have not failed */
  if (!(st == AC_INTERRUPTED && h->S->interrupt->raised) && h->join && h->S->ranks->world != NULL)
    tell_ranks(h->S, h->refused ? AC_REFUSED_TEXT : e->msg);
}

ac_status lac_script_run(ac_host *h, lac_script *s, lua_CFunction body, const char *who,
                         ac_err *e) {
  ac_err local;
  if (e == NULL) e = &local;
  AC_TRY(lac_host_check_open(h, who, e));
  if (s->argc < 0 || (s->argc > 0 && s->argv == NULL))
    return lac_host_invalid(e, who, "%d arguments at %s", s->argc,
                            s->argv != NULL ? "an address" : "NULL");
  for (int i = 0; i < s->argc; i++)
    if (s->argv[i] == NULL)
      return lac_host_invalid(e, who, "argument %d of %d is NULL", i + 1, s->argc);
  if (h->S != NULL) h->S->ranks->end_site[0] = 0;
  ac_status st = lac_host_protect(h, body, s, e);
  if (st != AC_OK && s->load != AC_OK) {
    /* a script that could not be loaded has no frames to show */
    lac_host_set_error(h, e->msg);
    st = e->code = s->load;
    h->refused = st == AC_PARSE;
  }
  if (st != AC_OK) lac_script_tell(h, st, e);
  return st;
}

ac_status ac_host_run_file(ac_host *h, const char *path, int argc, const char *const *argv,
                           ac_err *e) {
  HOST_NEEDS(path != NULL, e, "the path is NULL");
  lac_script s = {.h = h, .path = path, .argc = argc, .argv = argv};
  return lac_script_run(h, &s, script_body, __func__, e);
}

ac_status ac_host_run_string(ac_host *h, const char *code, const char *name, int argc,
                             const char *const *argv, ac_err *e) {
  HOST_NEEDS(code != NULL, e, "the code is NULL");
  lac_script s = {
      .h = h, .code = code, .name = name != NULL ? name : "string", .argc = argc, .argv = argv};
  return lac_script_run(h, &s, script_body, __func__, e);
}
