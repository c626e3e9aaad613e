/* The part of accel.console for ranks: the launcher's sockets and segment, and the ranks' status
 * pages. For lua/repl.
 *
 *   console.place() -> nil, or {rank, ranks, local_ranks, console, segment, fronts}   values that
 *   accel-run gave this rank
 *   console.at(site)                  sets the line on this rank's page
 *   console.prompting(on) -> before   this machine's ranks stand at a prompt, or no longer: Ctrl-C
 *                                     is the prompt's. before: how many prompts there were, nil
 *                                     without a launcher
 *   console.meet()                    a barrier of all ranks that no other call is taken for:
 *                                     accel.repl()
 *   console.reset() -> next, or nil, message   collectives begin anew (comm/prompt.c): first step,
 *   on each rank
 *   console.resume(next)              last one, with the greatest `next`
 *   console.pages(segment) -> p     by its descriptor here, or its path in /proc (nil, message if
 *                                   it cannot be opened)
 *     p:read() -> list of {rank, pid, state, stopped, step, at, waits, missing, seconds, ended,
 *     exit_code, signal, prompt,
 *                 stepped (seconds ago), step_seconds, loss, tokens_per_s, late (for so many
 *                 seconds), usual (time of a step)}, the abort reason or nil
 *     p:resume()                      the step on which ranks agreed to stop is past
 *     p:scale(n), p:leave(rank)       ask the launcher of an elastic job. nil, message
 *     p:renew()                       clears the abort reason, between reset and resume
 *   console.digest(t)                 of a tensor's bytes, which lie in order */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "comm/comm_impl.h"
#include "comm/wait.h"
#include "console.h"
#include "bindings/comm/dist.h"
#include "ops/core/ctx_impl.h"

#define PAGES "accel.console.pages"

static void set_int(lua_State *L, const char *key, int64_t v) {
  lua_pushinteger(L, (lua_Integer)v);
  lua_setfield(L, -2, key);
}

static int place(lua_State *L) {
  const lac_state *S = lac_get(L);
  const ac_world *w = S->ranks->world;
  if (w == NULL || w->page == NULL) return 0;
  const aci_place *p = &w->place;
  lua_createtable(L, 0, 6);
  set_int(L, "rank", p->rank);
  set_int(L, "ranks", p->size);
  set_int(L, "local_ranks", p->local_size);
  set_int(L, "segment", w->segment.fd);
  if (p->fd_console >= 0) set_int(L, "console", p->fd_console);
  lua_createtable(L, p->n_fronts, 0);
  for (int i = 0; i < p->n_fronts; i++) {
    lua_pushinteger(L, p->fd_front[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "fronts");
  return 1;
}

static int at(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *site = lac_check_string(L, S, 1, "site", NULL);
  if (S->ranks->world != NULL) ac_world_at(S->ranks->world, site, S->ctx->step);
  return 0;
}

static int prompting(lua_State *L) {
  const lac_state *S = lac_get(L);
  uint32_t before;
  if (S->ranks->world == NULL || S->ranks->world->segment.head == NULL) return 0;
  if (lua_toboolean(L, 1)) before = atomic_fetch_add(&S->ranks->world->segment.head->console, 1);
  else before = atomic_fetch_sub(&S->ranks->world->segment.head->console, 1);
  lua_pushinteger(L, (lua_Integer)before);
  return 1;
}

static int meet(lua_State *L) {
  lac_state *S = lac_get(L);
  char site[LAC_SITE];
  ac_err e;
  lac_site(L, S, 1, site);
  if (aci_prompt_meet(lac_world(L, S), site, &e) == AC_OK) return 0;
  snprintf(e.op, sizeof e.op, "accel.repl");
  return lac_raise(L, S, &e);
}

static int reset(lua_State *L) {
  lac_state *S = lac_get(L);
  uint32_t next = 0;
  ac_err e;
  if (aci_prompt_reset(lac_world(L, S), &next, &e) != AC_OK) return lac_fail(L, &e);
  lua_pushinteger(L, next);
  return 1;
}

static int resume(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_prompt_resume(lac_world(L, S), (uint32_t)lac_check_int(L, S, 1, "next"));
  return 0;
}

/* ---- status pages ---- */

static int pages(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  int fd;
  if (lua_type(L, 1) == LUA_TSTRING) { /* of another process: /proc/PID/fd/N */
    fd = open(lua_tostring(L, 1), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      AC_FAIL(&e, NOT_FOUND, "%s: %s", lua_tostring(L, 1), strerror(errno));
      return lac_fail(L, &e);
    }
  } else {
    fd = (int)lac_check_int(L, S, 1, "segment");
  }
  aci_segment_map *m = lua_newuserdatauv(L, sizeof *m, 0);
  *m = (aci_segment_map){.fd = -1};
  luaL_setmetatable(L, PAGES);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  const bool by_path = lua_type(L, 1) == LUA_TSTRING;
  if (aci_segment_open(fd, m, &e) == AC_OK) return 1;
  if (!by_path) return lac_raise(L, S, &e);
  close(fd);
  return lac_fail(L, &e);
}

static aci_head *head_of(lua_State *L, lac_state *S) {
  const aci_segment_map *m = luaL_checkudata(L, 1, PAGES);
  if (m->head == NULL) lac_error(L, S, AC_STATE, "the pages are closed");
  return m->head;
}

static void push_page(lua_State *L, const aci_head *h, int i) {
  static const char *const states[] = {"absent", "running", "left", "failed", "dead"};
  aci_page p;
  char text[256];
  aci_page_read(aci_page_of(h, i), &p);
  const uint32_t state = atomic_load(&p.state);
  const int first = aci_page_of(h, 0)->rank;
  p.at[sizeof p.at - 1] = p.last[sizeof p.last - 1] = p.want.site[sizeof p.want.site - 1] = 0;
  lua_createtable(L, 0, 10);
  set_int(L, "rank", first + i);
  set_int(L, "pid", p.pid);
  set_int(L, "step", (int64_t)p.step);
  set_int(L, "exit_code", p.exit_code);
  set_int(L, "signal", p.signal);
  lua_pushstring(L, state < sizeof states / sizeof states[0] ? states[state] : "?");
  lua_setfield(L, -2, "state");
  lua_pushboolean(L, atomic_load(&p.stopped) != 0);
  lua_setfield(L, -2, "stopped");
  if (p.at[0] != 0) lua_pushstring(L, p.at), lua_setfield(L, -2, "at");
  if (p.signal != 0) {
    snprintf(text, sizeof text, "killed by signal %d (%s)", p.signal, strsignal(p.signal));
    lua_pushstring(L, text), lua_setfield(L, -2, "ended");
  } else if (state == ACI_DEAD || (state == ACI_FAILED && p.last[0] != 0)) {
    if (state == ACI_DEAD) snprintf(text, sizeof text, "exited with status %d", p.exit_code);
    lua_pushstring(L, state == ACI_DEAD ? text : p.last), lua_setfield(L, -2, "ended");
  }
  lua_pushboolean(L, atomic_load(&p.prompt) != 0), lua_setfield(L, -2, "prompt");
  lua_pushstring(L, p.script), lua_setfield(L, -2, "script");
  const int64_t stepped_at = atomic_load(&p.stepped_at);
  const double loss = atomic_load(&p.loss), tokens = atomic_load(&p.tokens_per_s);
  if (stepped_at != 0)
    lua_pushnumber(L, (double)(aci_now_ns() - stepped_at) * 1e-9), lua_setfield(L, -2, "stepped");
  if (atomic_load(&p.step_ns) != 0)
    lua_pushnumber(L, (double)atomic_load(&p.step_ns) * 1e-9), lua_setfield(L, -2, "step_seconds");
  if (atomic_load(&p.late_ns) != 0) {
    lua_pushnumber(L, (double)atomic_load(&p.late_ns) * 1e-9), lua_setfield(L, -2, "late");
    lua_pushnumber(L, (double)atomic_load(&p.usual_ns) * 1e-9), lua_setfield(L, -2, "usual");
  }
  if (!isnan(loss)) lua_pushnumber(L, loss), lua_setfield(L, -2, "loss");
  if (!isnan(tokens)) lua_pushnumber(L, tokens), lua_setfield(L, -2, "tokens_per_s");
  if (atomic_load(&p.waiting) == 0 || p.want.kind >= AC_COLL_KINDS) return;
  lua_pushstring(L, aci_desc_text(&p.want, text, sizeof text)), lua_setfield(L, -2, "waits");
  lua_pushnumber(L, (double)(aci_now_ns() - p.since) * 1e-9), lua_setfield(L, -2, "seconds");
  lua_newtable(L);
  for (int k = 0, n = 0; k < (int)h->n_ranks; k++)
    if (aci_bit(p.missing, k)) lua_pushinteger(L, first + k), lua_rawseti(L, -2, ++n);
  lua_setfield(L, -2, "missing");
}

static int pages_read(lua_State *L) {
  lac_state *S = lac_get(L);
  const aci_head *h = head_of(L, S);
  lua_createtable(L, (int)h->n_ranks, 0);
  for (int i = 0; i < (int)h->n_ranks; i++) {
    push_page(L, h, i);
    lua_rawseti(L, -2, i + 1);
  }
  if (atomic_load(&h->abort_reason.set) == 0) return 1;
  char text[sizeof h->abort_reason.text];
  memcpy(text, h->abort_reason.text, sizeof text);
  text[sizeof text - 1] = 0;
  lua_pushstring(L, text);
  return 2;
}

static int pages_resume(lua_State *L) {
  lac_state *S = lac_get(L);
  atomic_store(&head_of(L, S)->stop_at, 0);
  return 0;
}

static int pages_renew(lua_State *L) {
  lac_state *S = lac_get(L);
  aci_abort_clear(head_of(L, S));
  return 0;
}

static int pages_scale(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const int64_t n = lac_check_int(L, S, 2, "n");
  if (aci_ask_ranks(head_of(L, S), n > 0 && n < 1 << 16 ? (int)n : -1, &e) != AC_OK)
    return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

static int pages_leave(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const int64_t r = lac_check_int(L, S, 2, "rank");
  if (aci_ask_leave(head_of(L, S), r >= 0 && r < 1 << 16 ? (int)r : -1, &e) != AC_OK)
    return lac_fail(L, &e);
  lua_pushboolean(L, 1);
  return 1;
}

static int pages_close(lua_State *L) {
  aci_segment_map *m = luaL_checkudata(L, 1, PAGES);
  if (m->head != NULL) aci_segment_close(m);
  *m = (aci_segment_map){.fd = -1};
  return 0;
}

static int digest(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "t");
  char text[24];
  if (!ac_tensor_is_contiguous(t) || ac_tensor_device(t)->kind != AC_DEV_CPU)
    return lac_argerror(L, S, AC_INVALID, "digest", 1, "t",
                        "expected a contiguous tensor on the cpu");
  const size_t bytes = (size_t)ac_tensor_numel(t) * ac_dtype_bytes(ac_tensor_dtype(t));
  const uint64_t hash = aci_hash_bytes(0, bytes > 0 ? ac_tensor_data(t) : "", bytes);
  snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  lua_pushstring(L, text);
  return 1;
}

LAC_OPEN("accel.console", ranks) {
  static const luaL_Reg funcs[] = {{"place", place}, {"at", at},         {"prompting", prompting},
                                   {"meet", meet},   {"reset", reset},   {"resume", resume},
                                   {"pages", pages}, {"digest", digest}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"read", pages_read},
                                     {"resume", pages_resume},
                                     {"renew", pages_renew},
                                     {"scale", pages_scale},
                                     {"leave", pages_leave},
                                     {"close", pages_close},
                                     {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", pages_close}, {"__close", pages_close}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lac_new_class(L, S, PAGES, metas, methods);
}
