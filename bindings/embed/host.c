/* ac_host_*: a Lua state with accel in it, for C programs (accel/host.h). accel-run is one of them.
 *
 * All code that touches Lua runs in a protected C function (lac_host_protect), so that no error
 * meets an unprotected state. Data for such a function is in a struct on the C stack. Errors become
 * text with a traceback at the place that raised (lua/traceback.lua), kept in the host, and an
 * ac_err. */
#include "accel/host.h"
#include "accel/launch.h"

#include <errno.h>
#include <limits.h>
#include <lualib.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "accel/lua.h"
#include "bindings/attach/attach.h"
#include "base/visible.h"
#include "bindings/core/callback.h"
#include "bindings/core/chunk.h"
#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "bindings/comm/dist.h"
#include "host_check.h"
#include "interrupt.h"
#include "bindings/ops/math_random.h"
#include "ops/core/ctx_impl.h"

/* ---- warnings ---- */

/* warn() and messages of the collector go through the log of the process. */
static void on_warning(void *ud, const char *text, int more) {
  ac_host *h = ud;
  size_t n = strlen(h->warning);
  snprintf(h->warning + n, sizeof h->warning - n, "%s", text);
  if (more) return;
  if (strcmp(h->warning, "@off") == 0) h->warnings_off = true;
  else if (strcmp(h->warning, "@on") == 0) h->warnings_off = false;
  else if (!h->warnings_off) ac_log_write(AC_LOG_WARN, "lua", "%s", h->warning);
  h->warning[0] = 0;
}

/* ---- errors ---- */

/* NULL: no error. Without memory for a copy the beginning of the text is kept. */
static void set_error_text(ac_host *h, const char *text) {
  if (h->error_text != h->short_text) free(h->error_text);
  size_t n = text != NULL ? strlen(text) : 0, shown = 0;
  /* it may go to a terminal, and names in it come from others */
  aci_visible(NULL, 0, text != NULL ? text : "", n, true, &shown);
  h->error_text = text != NULL ? malloc(shown + 1) : NULL;
  if (h->error_text != NULL) aci_visible(h->error_text, shown + 1, text, n, true, NULL);
  if (text == NULL || h->error_text != NULL) return;
  snprintf(h->short_text, sizeof h->short_text, "%s", text);
  h->error_text = h->short_text;
}

/* Message handler: keeps the text with the traceback, and passes on the value or a better
 * replacement. Upvalue 1: the host. */
static int on_error(lua_State *L) {
  ac_host *h = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 1);
  if (h->exited) return 1;
  if (h->S != NULL) lac_site(L, h->S, 1, h->S->ranks->end_site);
  if (h->S != NULL && h->S->ctx != NULL) {
    lac_chunk(L, h->S, "traceback");
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 1);
    lua_call(L, 2, 2);
    if (lua_isstring(L, -1)) lua_copy(L, -1, 1);
    lua_pop(L, 1);
  } else {
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
  }
  const char *text = lua_tostring(L, -1);
  set_error_text(h, text != NULL ? text : "(error without text)");
  lua_settop(L, 1);
  ac_err why;
  const ac_world *w = h->S != NULL ? h->S->ranks->world : NULL;
  const bool by_others =
      w != NULL && ac_world_aborted(h->S->ranks->world, &why) && why.rank != ac_world_rank(w);
  if (h->S != NULL && h->S->ctx != NULL && !by_others &&
      (h->S->attach->on_error || ac_params_int(ac_ctx_params(h->S->ctx), "PDB") != 0)) {
    lac_chunk(L, h->S, "repl/attached"); /* the frames are still there */
    lua_getfield(L, -1, "post_mortem");
    lua_pushvalue(L, 1);
    lua_pushstring(L, h->error_text);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK)
      ac_log_write(AC_LOG_WARN, "attach", "no prompt: %s", luaL_tolstring(L, -1, NULL));
    lua_settop(L, 1);
  }
  return 1;
}

typedef struct failure {
  ac_err *e;
  ac_host *h;
  lac_state *S; /* NULL: there is none so far */
  ac_status fallback;
} failure;

/* (error value, failure): code and message into the ac_err. Protected: printing a value may run
 * code. */
static int fill_error(lua_State *L) {
  failure *f = lua_touserdata(L, 2);
  ac_status code = f->fallback;
  if (lua_istable(L, 1)) {
    lua_pushliteral(L, "code");
    if (lua_rawget(L, 1) == LUA_TSTRING) {
      for (int i = 1; i <= AC_TIMEOUT; i++)
        if (strcmp(lua_tostring(L, -1), ac_status_name((ac_status)i)) == 0) code = (ac_status)i;
    }
    lua_pop(L, 1);
  }
  if (f->S != NULL && f->S->ctx != NULL) {
    lac_chunk(L, f->S, "error_text");
    lua_pushvalue(L, 1);
    lua_call(L, 1, 2);
    f->h->refused = lua_toboolean(L, -1);
    lua_pop(L, 1);
  } else {
    luaL_tolstring(L, 1, NULL);
  }
  f->fallback = ac_err_set(f->e, code, __FILE__, __LINE__, "%s", lua_tostring(L, -1));
  return 0;
}

/* Whether a protected call is under way. A longjmp or a C++ exception of the program may have left
 * one without leave(). Then the stack is shorter now than before. */
static bool is_running(const ac_host *h) {
  return h->depth > 0 && (uintptr_t)__builtin_frame_address(0) < h->frame;
}

/* A host serves one thread at a time. A second thread gets an error instead of a torn Lua state. */
static ac_status enter(ac_host *h, ac_err *e) {
  uintptr_t none = 0, self = (uintptr_t)pthread_self();
  if (!atomic_compare_exchange_strong(&h->thread, &none, self) && none != self)
    return AC_FAIL(
        e, INVALID,
        "another thread is running this host; use one host per thread, or a lock around it");
  if (!is_running(h)) {
    h->depth = 0;
    h->frame = (uintptr_t)__builtin_frame_address(0);
  }
  h->depth++;
  return AC_OK;
}

static ac_status leave(ac_host *h, ac_status st, ac_err *e) {
  if (h->depth > 0 && --h->depth > 0) return st;
  if (h->closed_inside && st == AC_OK)
    st = AC_FAIL(
        e, INVALID,
        "a function of the host called ac_host_close while a script ran; close the host after the call returns");
  h->closed_inside = false;
  atomic_store(&h->thread, 0);
  return st;
}

static ac_status protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e) {
  lua_State *L = h->L;
  int saved = errno, top = lua_gettop(L);
  set_error_text(h, NULL);
  h->exited = false;
  h->refused = false;
  if (!lua_checkstack(L, 10)) return AC_FAIL(e, STATE, "the Lua stack is full");
  ac_status st = AC_OK;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, h) != LUA_TFUNCTION) {
    lua_settop(L, top);
    return AC_FAIL(
        e, INVALID,
        "the registry of this host's Lua state was cleared; close the host, and leave the registry to its libraries");
  }
  lua_pushcfunction(L, body);
  lua_pushlightuserdata(L, arg);
  int result = lua_pcall(L, 1, 0, top + 1);
  if (result != LUA_OK && !h->exited) {
    failure f = {e, h, h->S, result == LUA_ERRMEM ? AC_OOM : AC_CALLBACK};
    lua_pushcfunction(L, fill_error);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, &f);
    const int printed = lua_pcall(L, 2, 0, 0);
    if (printed == LUA_ERRMEM) f.fallback = AC_FAIL(e, OOM, "out of memory");
    else if (printed != LUA_OK)
      f.fallback = AC_FAIL(e, CALLBACK, "an error that cannot be printed");
    st = f.fallback;
    if (h->error_text == NULL) set_error_text(h, e != NULL ? e->msg : "out of memory");
  }
  lua_settop(L, top);
  if (h->S != NULL) {
    h->S->now = NULL;
    lac_forget_error(L, h->S);
  }
  errno = saved;
  return st;
}

ac_status lac_host_protect(ac_host *h, lua_CFunction body, void *arg, ac_err *e) {
  if (h->S != NULL && h->S->ctx != NULL) AC_TRY(aci_ctx_usable(h->S->ctx, e));
  AC_TRY(enter(h, e));
  ac_status st = leave(h, protect(h, body, arg, e), e);
  /* it was its own */
  if (h->S != NULL && h->S->ctx != NULL && atomic_load(&aci_fault_pending))
    st = aci_ctx_usable(h->S->ctx, e);
  return st;
}

/* ---- opening and closing ---- */

typedef struct opening {
  ac_host *h;
  const ac_host_options *o;
  ac_device *const *devices;
  int n_devices;
} opening;

/* os.exit of scripts: unwinds to ac_host_run_*. */
static int script_exit(lua_State *L) {
  ac_host *h = lua_touserdata(L, lua_upvalueindex(1));
  h->exit_code = lua_isnoneornil(L, 1) ? 0
                 : lua_isboolean(L, 1) ? !lua_toboolean(L, 1)
                                       : (int)luaL_checkinteger(L, 1);
  h->exited = true;
  lac_site(L, h->S, 1, h->S->ranks->end_site);
  lua_pushliteral(L, "os.exit");
  return lua_error(L);
}

static int open_body(lua_State *L) {
  opening *p = lua_touserdata(L, 1);
  ac_host *h = p->h;
  const ac_host_options *o = p->o;
  luaL_openlibs(L);
  ac_ctx_options c = AC_CTX_OPTIONS_INIT;
  c.n_threads = o->n_threads;
  c.memory_limit = o->memory_limit;
  c.seed = o->seed;
  c.devices = p->devices;
  c.n_devices = p->n_devices;
  c.device = o->device;
  c.local_rank = ac_env_local_rank();
  lua_pushlightuserdata(L, &c);
  lua_setfield(L, LUA_REGISTRYINDEX, LAC_OPTIONS);
  luaL_requiref(L, "accel.core", luaopen_accel_core, 0);
  lua_pushnil(L);
  lua_setfield(L, LUA_REGISTRYINDEX, LAC_OPTIONS);
  h->S = lac_state_of(L);
  h->S->host = h;
  h->S->gc->generational = !o->keep_gc;
  lac_math_own(L);
  if (lac_math_owned(L) != NULL)
    lac_math_seed(lac_math_owned(L), ac_ctx_generator(h->S->ctx)->seed);
  char dir[PATH_MAX];
  bool found = true;
  if (o->lua_dir != NULL) snprintf(dir, sizeof dir, "%s", o->lua_dir);
  else found = lac_lua_dir(dir, sizeof dir);
  if (found && strlen(dir) + 9 < sizeof h->S->lib_dir)
    snprintf(h->S->lib_dir, sizeof h->S->lib_dir, "@%s/accel/", dir);
  lac_chunk(L, h->S, "boot");
  lua_createtable(L, 0, 5);
  if (found) {
    lua_pushstring(L, dir);
    lua_setfield(L, -2, "lua_dir");
  }
  lua_pushboolean(L, o->strict);
  lua_setfield(L, -2, "strict");
  lua_pushboolean(L, o->sorted_pairs);
  lua_setfield(L, -2, "sorted_pairs");
  lua_pushliteral(L, ACCEL_LFS);
  lua_setfield(L, -2, "lfs");
  lua_pushlightuserdata(L, h);
  lua_pushcclosure(L, script_exit, 1);
  lua_setfield(L, -2, "exit");
  lua_call(L, 1, 0);
  /* Called when everything is loaded, because a heap that grows without garbage leaves generational
   * mode for a while. Young collections after 10 % growth, not 20, so that the garbage of loops of
   * small ops stays in the caches. Major ones after 60 %, not 100, because boxes are small compared
   * with the memory they hold. */
  if (!o->keep_gc) lua_gc(L, LUA_GCGEN, 10, 60);
  return 0;
}

/* Without upvalues nothing is allocated. This function needs the host. */
static int install_handler(lua_State *L) {
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, on_error, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, lua_touserdata(L, 1));
  return 0;
}

ac_status ac_host_open(const ac_host_options *o, ac_host **out, ac_err *e) {
  return lac_host_open_on(o, NULL, 0, out, e);
}

ac_status lac_host_open_on(const ac_host_options *o, ac_device *const *devices, int n_devices,
                           ac_host **out, ac_err *e) {
  static const ac_host_options standard = AC_HOST_OPTIONS_INIT;
  if (out == NULL) return lac_host_invalid(e, "ac_host_open", "no place for the host: out is NULL");
  *out = NULL;
  if (o == NULL) o = &standard;
  if (o->struct_size != sizeof *o)
    return AC_FAIL(e, UNSUPPORTED, "ac_host_options of another version (%zu bytes)",
                   o->struct_size);
  if (o->n_threads < 0)
    return lac_host_invalid(e, "ac_host_open",
                            "n_threads is %d; expected 1 or more, or 0 for every core",
                            o->n_threads);
  ac_host *h = calloc(1, sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for a host");
  lac_host_opened(h);
  h->strict = o->strict;
  h->sorted_pairs = o->sorted_pairs;
  h->L = lua_newstate(lac_host_allocate, h);
  ac_status st = AC_OK;
  if (h->L == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a Lua state");
  } else {
    lua_setwarnf(h->L, on_warning, h);
    lua_pushcfunction(h->L, install_handler);
    lua_pushlightuserdata(h->L, h);
    if (lua_pcall(h->L, 1, 0, 0) != LUA_OK) st = AC_FAIL(e, OOM, "no memory for a Lua state");
  }
  if (st == AC_OK) {
    opening p = {h, o, devices, n_devices};
    st = lac_host_protect(h, open_body, &p, e);
  }
  /* stays on the stack: who clears the registry must not have what we stand on collected */
  if (st == AC_OK) lac_push_upvalues(h->L);
  if (st == AC_OK && o->join) {
    h->join = true;
    st = lac_world_join(h->S, o->script, e);
  }
  if (st != AC_OK) {
    ac_host_close(h);
    return st;
  }
  *out = h;
  return AC_OK;
}

void ac_host_close(ac_host *h) {
  if (h == NULL) return;
  if (!lac_host_is_open(h)) {
    ac_log_write(AC_LOG_WARN, "host",
                 "ac_host_close: the host was closed already, or is not a host");
    return;
  }
  /* from a function that a script of this host called: the call ends with AC_INVALID */
  if (is_running(h)) {
    h->closed_inside = true;
    return;
  }
  if (!lac_host_forget(h)) return; /* another thread closes it */
  int saved = errno;
  if (h->L != NULL) lua_close(h->L);
  set_error_text(h, NULL);
  free(h);
  errno = saved;
}

ac_ctx *ac_host_ctx(ac_host *h) { return lac_host_is_open(h) ? h->S->ctx : NULL; }
struct lua_State *ac_host_lua(ac_host *h) {
  return lac_host_is_open(h) ? h->L : NULL;
}
ac_world *ac_host_world(ac_host *h) { return lac_host_is_open(h) ? h->S->ranks->world : NULL; }

void ac_host_leave(ac_host *h, int exit_code) {
  if (!lac_host_is_open(h)) return;
  lac_state *S = h->S;
  lac_attach_ends(S, exit_code);
  lac_attach_close(S);
  if (S->ranks->world == NULL) return;
  lac_site(S->now != NULL ? S->now : h->L, S, 0, S->ranks->end_site);
  if (exit_code != 0 && exit_code != AC_EXIT_REQUEUE) {
    char text[40];
    snprintf(text, sizeof text, "exit with status %d", exit_code);
    ac_world_fail(S->ranks->world, S->ranks->end_site[0] != 0 ? S->ranks->end_site : NULL, text);
  }
  lac_world_leave(S, S->ranks->end_site[0] != 0 ? S->ranks->end_site : NULL);
  S->ranks->left = true;
}

void ac_host_ends(ac_host *h, int exit_code) {
  if (lac_host_is_open(h)) lac_attach_ends(h->S, exit_code);
}

const char *ac_host_error_text(const ac_host *h) {
  return lac_host_is_open(h) && h->error_text != NULL ? h->error_text : "";
}

bool ac_host_refused(const ac_host *h) { return lac_host_is_open(h) && h->refused; }

bool ac_host_exit_code(const ac_host *h, int *code) {
  if (!lac_host_is_open(h) || !h->exited) return false;
  if (code != NULL) *code = h->exit_code;
  return true;
}

/* ---- scripts ---- */

typedef struct script {
  ac_host *h;
  const char *path, *code, *name;
  int argc;
  const char *const *argv;
  ac_status load; /* error of loading it */
} script;

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

/* Sets `arg`, loads the script and calls it with its arguments. The chunk stays below them on the
 * stack, to find the line at which it ended. s->load distinguishes an error of loading from one of
 * running. */
static int script_body(lua_State *L) {
  script *s = lua_touserdata(L, 1);
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
  lua_settop(L, 0);
  if (s->path != NULL) {
    bool in = strcmp(s->path, "-") == 0;
    if (!in) add_script_dir(L, s->path);
    lua_settop(L, 0);
    /* Links are followed to pipes, as shells name them (/dev/stdin, /dev/fd/63). A pipe in a folder
     * may never get a writer. */
    struct stat sb;
    if (!in && lstat(s->path, &sb) == 0 &&
        (S_ISFIFO(sb.st_mode) || S_ISSOCK(sb.st_mode) || S_ISBLK(sb.st_mode))) {
      s->load = AC_IO;
      return luaL_error(
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
  if (st != LUA_OK) return lua_error(L);
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

static ac_status run(ac_host *h, script *s, ac_err *e) {
  ac_err local;
  if (e == NULL) e = &local;
  AC_TRY(lac_host_check_open(h, "ac_host_run", e));
  if (s->argc < 0 || (s->argc > 0 && s->argv == NULL))
    return lac_host_invalid(e, "ac_host_run", "%d arguments at %s", s->argc,
                            s->argv != NULL ? "an address" : "NULL");
  for (int i = 0; i < s->argc; i++)
    if (s->argv[i] == NULL)
      return lac_host_invalid(e, "ac_host_run", "argument %d of %d is NULL", i + 1, s->argc);
  if (h->S != NULL) h->S->ranks->end_site[0] = 0;
  ac_status st = lac_host_protect(h, script_body, s, e);
  if (st != AC_OK && s->load != AC_OK) {
    /* a script that could not be loaded has no frames to show */
    set_error_text(h, e->msg);
    st = e->code = s->load;
    h->refused = st == AC_PARSE;
  }
  /* ranks that stop at the step on which they agreed have not failed */
  if (st != AC_OK && !(st == AC_INTERRUPTED && h->S->interrupt->raised) && h->join &&
      h->S->ranks->world != NULL)
    tell_ranks(h->S, h->refused ? AC_REFUSED_TEXT : e->msg);
  return st;
}

ac_status ac_host_run_file(ac_host *h, const char *path, int argc, const char *const *argv,
                           ac_err *e) {
  HOST_NEEDS(path != NULL, e, "the path is NULL");
  script s = {.h = h, .path = path, .argc = argc, .argv = argv};
  return run(h, &s, e);
}

ac_status ac_host_run_string(ac_host *h, const char *code, const char *name, int argc,
                             const char *const *argv, ac_err *e) {
  HOST_NEEDS(code != NULL, e, "the code is NULL");
  script s = {
      .h = h, .code = code, .name = name != NULL ? name : "string", .argc = argc, .argv = argv};
  return run(h, &s, e);
}

/* ---- interruption ---- */

bool ac_host_interrupt(ac_host *h, int signal_number) {
  const lac_state *S = h->S;
  atomic_store(&h->S->interrupt->noticed, false);
  atomic_store(&h->S->interrupt->signal, signal_number != 0 ? signal_number : -1);
  return S->interrupt->as_flag || (S->ctx != NULL && S->ctx->step > 0);
}

bool ac_host_requeues(const ac_host *h) { return h->S->interrupt->requeue; }

int ac_host_interrupt_grace(const ac_host *h) {
  if (atomic_load(&h->S->interrupt->noticed)) return 0;
  const int64_t ms = atomic_load(&h->S->interrupt->step_long) / 500000, most = 600000;
  return (int)(ms < 1000 ? 1000 : ms < most ? ms : most);
}

static void stop_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  lac_state *S = lac_state_of(L);
  if (S == NULL) luaL_error(L, "interrupted"); /* the registry was cleared */
  ac_err e = {.code = AC_INTERRUPTED, .rank = -1, .msg = "interrupted"};
  lac_raise(L, S, &e);
}

void ac_host_interrupt_now(ac_host *h) {
  const int mask = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
  lua_State *now = h->S->now;
  lua_sethook(h->L, stop_hook, mask, 1);
  if (now != NULL && now != h->L) lua_sethook(now, stop_hook, mask, 1);
}
