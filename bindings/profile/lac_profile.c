/* Recorders of spans and memory, for accel.profiler (stdlib/accel/profiler), which gives them
 * PyTorch's shape. One records at a time in a Lua state. One that still records when the state is
 * closed is stopped first. */
#include <string.h>

#include "accel/profile.h"
#include "comm/comm_impl.h"
#include "bindings/core/lac.h"
#include "bindings/comm/dist.h"
#include "profile.h"

#define RECORDER "accel.profiler.Recorder"
enum { MAX_POINTS = 200000 };

typedef struct recorder {
  ac_profile *p;
  lac_state *S;
  uint32_t world_nr;
} recorder;

static recorder *recorder_of(lua_State *L, lac_state *S) {
  recorder *r = luaL_testudata(L, 1, RECORDER);
  if (r == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a recorder, got %s",
                 luaL_typename(L, 1));
  return r;
}

/* A world that was left meanwhile is gone, and took its watch with it. */
static void end(recorder *r) {
  lac_profiling *s = r->S->profiling;
  if (s->recorder != r) return;
  s->recorder = NULL;
  s->running = NULL;
  if (r->S->ranks->world == NULL || r->S->ranks->world_nr != r->world_nr)
    ac_profile_world_closed(r->p);
  lac_offload_watch(r->S, NULL);
  ac_profile_stop(r->p);
}

static int recorder_gc(lua_State *L) {
  recorder *r = luaL_checkudata(L, 1, RECORDER);
  if (r->p == NULL) return 0;
  end(r);
  ac_profile_free(r->p);
  r->p = NULL;
  return 0;
}

/* core.new { shapes =, memory =, sites =, flops =, sync = } -> recorder */
static int new (lua_State *L) {
  static const char *const names[] = {"shapes", "memory",    "sites", "flops",
                                      "sync",   "max_spans", NULL};
  lac_state *S = lac_get(L);
  const lac_opts o = lac_opts_open(L, S, 1, names);
  ac_profile_options po = AC_PROFILE_OPTIONS_INIT;
  po.shapes = lac_opt_bool(&o, "shapes", false);
  po.memory = lac_opt_bool(&o, "memory", false);
  po.sites = lac_opt_bool(&o, "sites", false);
  po.flops = lac_opt_bool(&o, "flops", false);
  po.sync = lac_opt_bool(&o, "sync", false);
  po.max_spans = (size_t)lac_opt_int(&o, "max_spans", 0);
  recorder *r = lua_newuserdatauv(L, sizeof *r, 0);
  *r = (recorder){.S = S};
  luaL_setmetatable(L, RECORDER);
  ac_err e;
  if (ac_profile_new(S->ctx, &po, &r->p, &e) != AC_OK) return lac_raise(L, S, &e);
  return 1;
}

/* recorder:start(): once */
static int start(lua_State *L) {
  lac_state *S = lac_get(L);
  recorder *r = recorder_of(L, S);
  ac_err e;
  r->world_nr = S->ranks->world_nr;
  if (ac_profile_start(r->p, S->ranks->world, &e) != AC_OK) return lac_raise(L, S, &e);
  S->profiling->recorder = r;
  S->profiling->running = r->p;
  lac_offload_watch(S, r->p);
  return 0;
}

static int stop(lua_State *L) {
  end(recorder_of(L, lac_get(L)));
  return 0;
}

/* recorder:count() -> spans, dropped spans. times() -> start and stop in ns */
static int count(lua_State *L) {
  const recorder *r = recorder_of(L, lac_get(L));
  lua_pushinteger(L, ac_profile_n_spans(r->p));
  lua_pushinteger(L, ac_profile_dropped(r->p));
  return 2;
}

static int times(lua_State *L) {
  const recorder *r = recorder_of(L, lac_get(L));
  lua_pushinteger(L, ac_profile_start_ns(r->p));
  lua_pushinteger(L, ac_profile_stop_ns(r->p));
  return 2;
}

static void push_text(lua_State *L, const char *s) {
  if (s != NULL && s[0] != 0) lua_pushstring(L, s);
  else lua_pushnil(L);
}

/* recorder:span(i) -> name, kind, begin, end, parent (0: none), thread, flops, memory, shapes,
 * dtypes, site, bytes, sent, ranks, moved, remote. i from 1 */
static int span(lua_State *L) {
  lac_state *S = lac_get(L);
  const recorder *r = recorder_of(L, S);
  const int64_t i = lac_check_pos(L, S, 2, ac_profile_n_spans(r->p), "i");
  ac_span s;
  ac_profile_span(r->p, i, &s);
  luaL_checkstack(L, 16, "span");
  lua_pushstring(L, s.name);
  lua_pushstring(L, ac_span_kind_name(s.kind));
  lua_pushinteger(L, s.begin);
  lua_pushinteger(L, s.end != 0 ? s.end : s.begin);
  lua_pushinteger(L, s.parent + 1);
  lua_pushinteger(L, s.thread);
  if (s.flops >= 0) lua_pushinteger(L, s.flops);
  else lua_pushnil(L);
  lua_pushinteger(L, s.memory);
  push_text(L, s.shapes);
  push_text(L, s.dtypes);
  push_text(L, s.site);
  lua_pushinteger(L, (lua_Integer)s.bytes);
  lua_pushinteger(L, (lua_Integer)s.sent);
  lua_pushinteger(L, s.group);
  lua_pushinteger(L, (lua_Integer)s.moved);
  lua_pushboolean(L, s.remote);
  return 16;
}

static void push_point(lua_State *L, const ac_memory_point *m) {
  lua_createtable(L, 0, AC_MEMORY_CATEGORIES + 2);
  lua_pushinteger(L, m->ns);
  lua_setfield(L, -2, "ns");
  lua_pushinteger(L, (lua_Integer)m->total);
  lua_setfield(L, -2, "total");
  for (int i = 0; i < AC_MEMORY_CATEGORIES; i++) {
    lua_pushinteger(L, (lua_Integer)m->bytes[i]);
    lua_setfield(L, -2, ac_memory_category_name((ac_memory_category)i));
  }
}

/* recorder:memory(i [, most points]) -> device, peak, points, events. nil after the last device.
 * Stopped recorders only. */
static int memory(lua_State *L) {
  lac_state *S = lac_get(L);
  const recorder *r = recorder_of(L, S);
  const int64_t i = lac_check_int(L, S, 2, "device") - 1;
  int64_t most = luaL_optinteger(L, 3, 0);
  if (i < 0 || i >= ac_profile_n_devices(r->p) || ac_profile_running(r->p)) return 0;
  if (most < 0) most = 0;
  if (most > MAX_POINTS) most = MAX_POINTS;
  ac_memory_point *points = lua_newuserdatauv(L, ((size_t)most + 1) * sizeof *points, 0), peak;
  const int64_t n = ac_profile_memory(r->p, (int)i, points, most, &peak);
  lua_pushstring(L, ac_profile_device(r->p, (int)i));
  push_point(L, &peak);
  const int64_t stride = most > 0 && n > most ? (n + most - 1) / most : 1;
  const int64_t have = most == 0 ? 0 : (n + stride - 1) / stride;
  lua_createtable(L, (int)have, 0);
  for (int64_t k = 0; k < have; k++) {
    push_point(L, &points[k]);
    lua_rawseti(L, -2, k + 1);
  }
  lua_pushinteger(L, n - 1);
  return 4;
}

/* ---- marks for the running recorder. No effect when none runs ---- */

/* core.begin(kind, name) -> span or nil. kind: a number of ac_span_kind. core.finish(span) */
static int begin(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_profile *p = S->profiling->running;
  if (p == NULL) return 0;
  const int64_t kind = lac_check_int(L, S, 1, "kind");
  const char *name = lac_check_string(L, S, 2, "name", NULL);
  if (kind < 0 || kind >= AC_SPAN_KINDS)
    return lac_error(L, S, AC_INVALID, "no kind of span %lld", (long long)kind);
  lua_State *was = lac_enter(L, S);
  const int64_t i = ac_profile_begin(p, (ac_span_kind)kind, name);
  lac_leave(S, was);
  if (i < 0) return 0;
  lua_pushinteger(L, i);
  return 1;
}

static int finish(lua_State *L) {
  lac_state *S = lac_get(L);
  if (S->profiling->running != NULL && lua_isinteger(L, 1))
    ac_profile_end(S->profiling->running, lua_tointeger(L, 1));
  return 0;
}

/* core.mark(tensor, category): a number of ac_memory_category */
static int mark(lua_State *L) {
  lac_state *S = lac_get(L);
  const int64_t c = lac_check_int(L, S, 2, "category");
  if (c < 0 || c >= AC_MEMORY_CATEGORIES)
    return lac_error(L, S, AC_INVALID, "no category %lld", (long long)c);
  if (S->profiling->running != NULL)
    ac_profile_mark(S->profiling->running, lac_check_tensor(L, S, 1, "tensor"),
                    (ac_memory_category)c);
  return 0;
}

/* core.trace_add(path, head, text [, replace]) -> true, or nil, message, code */
static int trace_add(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *path = lac_check_path(L, S, 1, "path", NULL),
             *head = lac_check_string(L, S, 2, "head", NULL);
  size_t n;
  const char *text = lac_check_string(L, S, 3, "text", &n);
  ac_err e;
  if ((lua_toboolean(L, 4) ? ac_trace_write : ac_trace_add)(path, head, text, n, &e) != AC_OK)
    return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

/* core.now() -> ns of the clock of spans */
static int now(lua_State *L) {
  lua_pushinteger(L, aci_now_ns());
  return 1;
}

static void close_recorder(lua_State *L, lac_state *S) {
  (void)L;
  if (S->profiling->recorder != NULL) end(S->profiling->recorder);
}

LAC_OPEN("accel.profiler.core", profile) {
  static const luaL_Reg funcs[] = {{"new", new},   {"begin", begin}, {"finish", finish},
                                   {"mark", mark}, {"now", now},     {"trace_add", trace_add},
                                   {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", recorder_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"start", start}, {"stop", stop}, {"count", count},
                                     {"times", times}, {"span", span}, {"memory", memory},
                                     {NULL, NULL}};
  S->profiling = lac_state_part(L, sizeof *S->profiling);
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, RECORDER, metas, methods);
  lac_at_close(S, close_recorder);
}
