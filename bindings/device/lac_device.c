/* Devices, their memory, and queries of the machine: clock, terminal. */
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "bindings/core/guard.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"

static ac_device *device_arg(lua_State *L, lac_state *S, int idx) {
  return lua_isnoneornil(L, idx) ? ac_ctx_default_device(S->ctx)
                                 : lac_check_device(L, S, idx, "device");
}

static void set_int(lua_State *L, const char *name, uint64_t v) {
  lua_pushinteger(L, (lua_Integer)v);
  lua_setfield(L, -2, name);
}

static int mem_stats(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_mem_stats m;
  ac_mem_stats_get(device_arg(L, S, 1), &m);
  lua_createtable(L, 0, 12);
  set_int(L, "live_bytes", m.live_bytes);
  set_int(L, "live_blocks", m.live_blocks);
  set_int(L, "peak_bytes", m.peak_bytes);
  set_int(L, "reserved_bytes", m.reserved_bytes);
  set_int(L, "born_bytes", m.born_bytes);
  set_int(L, "limit_bytes", m.limit_bytes);
  set_int(L, "largest_free_bytes", m.largest_free_bytes);
  /* 0: free memory is one piece. Towards 1: in ever smaller pieces */
  const size_t idle = m.reserved_bytes - m.live_bytes;
  lua_pushnumber(L, idle > 0 ? 1 - (double)m.largest_free_bytes / (double)idle : 0);
  lua_setfield(L, -2, "fragmentation");
  set_int(L, "n_allocs", m.n_allocs);
  set_int(L, "n_maps", m.n_maps);
  set_int(L, "live_tensors", (uint64_t)ac_tensor_live());
  set_int(L, "live_handles", (uint64_t)S->boxes->n_live);
  return 1;
}

static int reset_peak(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_mem_peak_reset(device_arg(L, S, 1));
  return 0;
}

static int empty_cache(lua_State *L) {
  lac_state *S = lac_get(L);
  for (int i = 0; i < S->ctx->n_devices; i++) ac_pool_trim(S->ctx->device[i]);
  return 0;
}

static int synchronize(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (ac_device_sync(device_arg(L, S, 1), &e) != AC_OK) return lac_raise(L, S, &e);
  return 0;
}

static int get_default_device(lua_State *L) {
  lua_pushstring(L, ac_device_name(ac_ctx_default_device(lac_get(L)->ctx)));
  return 1;
}

static void restore_device(lua_State *L, lac_state *S, lac_guard *g) {
  ac_ctx_set_default_device(S->ctx, g->was.device);
}

static int set_default_device(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_ctx_set_default_device(S->ctx, lac_check_device(L, S, 1, "device"));
  return 0;
}

/* accel.device("meta"): new tensors go there until the block ends. Also accel.device("meta", f,
 * ...) */
static int device(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_device *d = lac_check_device(L, S, 1, "device");
  if (!lua_isnoneornil(L, 2)) lac_check_function(L, S, 2, "f");
  lac_guard *g = lac_guard_push(L, S, "device", restore_device);
  g->was.device = S->ctx->default_device; /* NULL: nobody has asked for it so far */
  ac_ctx_set_default_device(S->ctx, d);
  g->done = false;
  return lac_guard_finish(L, 2);
}

static int devices(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_createtable(L, S->ctx->n_devices, 0);
  for (int i = 0; i < S->ctx->n_devices; i++) {
    lua_pushstring(L, ac_device_name(S->ctx->device[i]));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int num_threads(lua_State *L) {
  lua_pushinteger(L, ac_team_size(ac_ctx_team(lac_get(L)->ctx)));
  return 1;
}

/* ---- flags ---- */
/* accel.device_flags("cuda"): {tf32 = false, ...}, the values of this host.
 * accel.device_flags("cuda", {tf32 = true}): the previous values */
static int device_flags(lua_State *L) {
  enum { MOST = 32 };
  lac_state *S = lac_get(L);
  const char *device = luaL_checkstring(L, 1), *names[MOST + 1], *kinds[AC_DEV_KINDS];
  char text[MOST][24];
  const int kind = aci_device_kind_named(device, strcspn(device, ":")),
            n_kinds = ac_device_n_providers();
  if (kind < 0) {
    for (int i = 0; i < n_kinds; i++) kinds[i] = ac_device_provider_at(i)->name;
    const char *near = ac_nearest(device, kinds, n_kinds);
    return lac_argerror(L, S, AC_DEVICE, "device_flags", 1, "device",
                        "no kind of device is called '%s'%s%s%s", device,
                        near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
  }
  const ac_device_provider *p = ac_device_provider_at(kind);
  const int n = p->n_flags < MOST ? p->n_flags : MOST;
  for (int i = 0; i < n; i++)
    aci_device_flag_name(p, i, text[i], sizeof text[i]), names[i] = text[i];
  names[n] = NULL;
  const lac_opts o = lac_opts_open(L, S, 2, names);
  int64_t value[MOST];
  ac_err e;
  lua_createtable(L, 0, n);
  for (int i = 0; i < n; i++) {
    const bool is_bool = p->params[i].type == AC_PARAM_BOOL;
    if (ac_ctx_device_flag(S->ctx, p->name, names[i], &value[i], &e) != AC_OK)
      return lac_raise(L, S, &e);
    if (is_bool) lua_pushboolean(L, value[i] != 0);
    else lua_pushinteger(L, (lua_Integer)value[i]);
    lua_setfield(L, -2, names[i]);
    value[i] =
        is_bool ? lac_opt_bool(&o, names[i], value[i] != 0) : lac_opt_int(&o, names[i], value[i]);
  }
  for (int i = 0; i < n; i++)
    if (ac_ctx_set_device_flag(S->ctx, p->name, names[i], value[i], &e) != AC_OK)
      return lac_raise(L, S, &e);
  return 1;
}

/* Seconds of a clock that only goes forward. */
static int clock_(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (double)t.tv_sec + (double)t.tv_nsec * 1e-9);
  return 1;
}

static int isatty_(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_pushboolean(L, isatty((int)(lua_isnoneornil(L, 1) ? 1 : lac_check_int(L, S, 1, "fd"))));
  return 1;
}

/* Columns and lines of the terminal of stderr, stdout or stdin. nil when there is none. */
static int term_width(lua_State *L) {
  static const int fds[] = {2, 1, 0};
  struct winsize w;
  for (int i = 0; i < 3; i++)
    if (ioctl(fds[i], TIOCGWINSZ, &w) == 0 && w.ws_col > 0) {
      lua_pushinteger(L, w.ws_col);
      lua_pushinteger(L, w.ws_row);
      return 2;
    }
  return 0;
}

LAC_OPEN("accel", device) {
  static const luaL_Reg funcs[] = {{"mem_stats", mem_stats},
                                   {"reset_peak_memory", reset_peak},
                                   {"empty_cache", empty_cache},
                                   {"synchronize", synchronize},
                                   {"get_default_device", get_default_device},
                                   {"set_default_device", set_default_device},
                                   {"device", device},
                                   {"devices", devices},
                                   {"device_flags", device_flags},
                                   {"num_threads", num_threads},
                                   {"clock", clock_},
                                   {"isatty", isatty_},
                                   {"term_width", term_width},
                                   {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
