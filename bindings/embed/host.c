/* ac_host_*: a Lua state with accel in it, for C programs (accel/host.h). accel-run is one of them.
 *
 * This file opens and closes hosts. host_protect.c is the entry of every call into the Lua state,
 * host_run.c runs scripts, host_call.c exchanges values with them, host_interrupt.c stops them. */
#include "accel/host.h"

#include <errno.h>
#include <limits.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/launch.h"
#include "accel/lua.h"
#include "bindings/attach/attach.h"
#include "base/struct_size.h"
#include "bindings/core/chunk.h"
#include "bindings/core/gc.h"
#include "bindings/comm/dist.h"
#include "host_check.h"
#include "host_value.h"
#include "bindings/ops/math_random.h"
#include "ops/core/ctx_impl.h"

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
  lac_output_open(L, h); /* before functions of io are replaced */
  lac_chunk(L, h->S, "boot");
  lua_createtable(L, 0, 5);
  if (found) {
    lua_pushstring(L, dir);
    lua_setfield(L, -2, "lua_dir");
  }
  lua_pushboolean(L, o->strict);
  lua_setfield(L, -2, "strict");
  lac_rights_describe(L, h);
  lua_pushboolean(L, o->sorted_pairs);
  lua_setfield(L, -2, "sorted_pairs");
  lua_pushliteral(L, ACCEL_LFS);
  lua_setfield(L, -2, "lfs");
  lua_pushlightuserdata(L, h);
  lua_pushcclosure(L, script_exit, 1);
  lua_setfield(L, -2, "exit");
  lua_call(L, 1, 1);
  lac_chunk_env(L);
  lac_coroutines_open(L, h->S);
  lac_rights_open(L, h);
  if (!o->stock_functions) lac_strings_open(L, h);
  /* Called when everything is loaded, because a heap that grows without garbage leaves generational
   * mode for a while. Young collections after 10 % growth, not 20, so that the garbage of loops of
   * small ops stays in the caches. Major ones after 60 %, not 100, because boxes are small compared
   * with the memory they hold. */
  if (!o->keep_gc) lua_gc(L, LUA_GCGEN, 10, 60);
  return 0;
}

ac_status ac_host_open(const ac_host_options *o, ac_host **out, ac_err *e) {
  return lac_host_open_on(o, NULL, 0, out, e);
}

ac_status lac_host_open_on(const ac_host_options *o, ac_device *const *devices, int n_devices,
                           ac_host **out, ac_err *e) {
  ac_host_options taken = AC_HOST_OPTIONS_INIT;
  if (out == NULL) return lac_host_invalid(e, "ac_host_open", "no place for the host: out is NULL");
  *out = NULL;
  if (o != NULL) AC_TRY(aci_struct_take(&taken, sizeof taken, o, "ac_host_options", e));
  o = &taken;
  if (o->n_threads < 0)
    return lac_host_invalid(e, "ac_host_open",
                            "n_threads is %d; expected 1 or more, or 0 for every core",
                            o->n_threads);
  ac_host *h = calloc(1, sizeof *h);
  if (h == NULL) return AC_FAIL(e, OOM, "no memory for a host");
  lac_host_opened(h);
  h->o = taken;
  h->L = lua_newstate(lac_host_allocator(h), h);
  ac_status st = AC_OK;
  if (h->L == NULL) {
    st = AC_FAIL(e, OOM, "no memory for a Lua state");
  } else {
    lua_setwarnf(h->L, lac_host_warning, h);
    lua_pushcfunction(h->L, lac_host_handler);
    lua_pushlightuserdata(h->L, h);
    if (lua_pcall(h->L, 1, 0, 0) != LUA_OK) st = AC_FAIL(e, OOM, "no memory for a Lua state");
  }
  if (st == AC_OK) {
    opening p = {h, o, devices, n_devices};
    st = lac_host_protect(h, open_body, &p, e);
  }
  h->instructions = o->instructions; /* of scripts alone */
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
  if (lac_host_is_running(h)) {
    h->closed_inside = true;
    return;
  }
  if (!lac_host_forget(h)) return; /* another thread closes it */
  int saved = errno;
  if (h->L != NULL) {
    const aci_log_sink was = lac_output_begin(h);
    lac_host_unstop(h);
    lua_close(h->L);
    lac_output_end(h, was);
    lac_output_close(h);
    lac_refs_orphan(h);
  }
  lac_host_set_error(h, NULL);
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
