/* A host's end of `accel-run attach`: ac_host_listen, the steps at which a prompt may stop the
 * script, and accel.console.attach for lua/repl/attached.lua, which is that prompt's part in the
 * rank.
 *
 *   attach.job() -> the name of the job's folder, nil: nobody can attach
 *   attach.stand() -> true, descriptor or nil       a client waits: stand. The caller owns the
 *   descriptor, given once. false: no client
 *   attach.go(keep)                                 the script continues
 *   attach.pause_at(step)                           stand at this step
 *   attach.every_step(on)                           attached.lua looks at every step, for :watch
 *   attach.console(on)                              this process has a prompt: while the script runs,
 *                                                   Ctrl-C opens it
 *   attach.stop_on_error(on)                        an uncaught error opens a prompt, as with --pdb
 *   attach.wait(seconds) -> whether a client came   seconds nil: no limit. Ctrl-C ends it
 *   attach.prompt(on)                               the status page shows that this rank stands:
 *   others' timeouts are suspended
 *   attach.interruptible(on)                        the client's Ctrl-C stops the prompt's code,
 *   not the script
 *   attach.tidy(folder) -> whether                  removes a job's folder whose ranks are all gone
 *   attach.tell_abort()                             without a launcher, passes the reason that
 *   ended collectives to clients
 *   attach.note(name, value)                        "loss" or "tokens_per_s", for accel-run top */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attach.h"
#include "comm/comm_impl.h"
#include "bindings/core/chunk.h"
#include "bindings/comm/dist.h"
#include "bindings/embed/host_check.h"
#include "bindings/embed/interrupt.h"
#include "ops/core/ctx_impl.h"

/* ---- the host's end ---- */

static size_t stacks(void *user, bool all, char *buf, size_t n) {
  return lac_stacks_take(user, all, buf, n);
}

static void interrupt(void *user) {
  const lac_state *S = user;
  /* the prompt's session has the handler while it stands */
  syscall(SYS_tgkill, getpid(), S->attach->thread, SIGINT);
}

static void close_pages(lac_attach *A) {
  if (A->pages.head != NULL) aci_segment_close(&A->pages);
  A->pages = (aci_segment_map){.fd = -1};
  A->page = NULL;
}

/* The pages of the ranks that a launcher started, mapped once more. Otherwise a page of our own. */
static ac_status open_pages(lac_attach *A, const ac_world *w, const char *script, ac_err *e) {
  A->pages = (aci_segment_map){.fd = -1};
  A->alone = w == NULL || w->page == NULL;
  if (!A->alone) {
    const int fd = fcntl(w->segment.fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return AC_FAIL(e, IO, "attach: %s", strerror(errno));
    const ac_status st = aci_segment_open(fd, &A->pages, e);
    if (st != AC_OK) close(fd);
    else A->page = aci_page_of(A->pages.head, w->place.local_rank);
    return st;
  }
  AC_TRY(aci_segment_make(1, &A->pages, e));
  A->page = aci_page_of(A->pages.head, 0);
  A->page->pid = (int32_t)getpid();
  A->page->rank = w != NULL ? w->place.rank : 0;
  snprintf(A->page->script, sizeof A->page->script, "%s", script != NULL ? script : "");
  atomic_store(&A->page->state, ACI_RUNNING);
  return AC_OK;
}

void lac_attach_close(lac_state *S) {
  lac_attach *A = S->attach;
  if (A->a == NULL) return;
  ac_attach_close(A->a);
  A->a = NULL;
  lac_stacks_close(S);
  close_pages(A);
}

void lac_attach_ends(lac_state *S, int exit_code) {
  aci_page *p = S->attach->page;
  if (p == NULL || !S->attach->alone) return; /* a launcher sees it */
  p->exit_code = exit_code;
  atomic_store(&p->state, exit_code != 0 ? ACI_DEAD : ACI_LEFT);
}

static void close_attach(lua_State *L, lac_state *S) {
  (void)L;
  lac_attach_close(S);
}

/* A value that all ranks of a job know and no other job has: the launcher's name for it. */
static const char *job_name(char *buf, size_t n) {
  static const char *const vars[] = {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"};
  for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++) {
    const char *v = getenv(vars[i]);
    if (v == NULL || v[0] == 0) continue;
    /* several srun's of one allocation run side by side */
    const char *step = i == 2 ? getenv("SLURM_STEP_ID") : NULL;
    /* torchrun's default is the word "none" for every job. Its agent is the ranks' parent */
    snprintf(buf, n, "%s %ld%s%s", v, strcmp(v, "none") == 0 ? (long)getppid() : 0L,
             step != NULL ? "." : "", step != NULL ? step : "");
    return buf;
  }
  return NULL;
}

ac_status ac_host_listen(ac_host *h, const char *script, ac_err *e) {
  AC_TRY(lac_host_check_open(h, __func__, e));
  lac_state *S = h->S;
  lac_attach *A = S->attach;
  char name[256], hosts[2048] = "";
  if (A->a != NULL) return AC_OK;
  ac_attach_options o = AC_ATTACH_OPTIONS_INIT;
  const ac_world *w = S->ranks->world;
  A->thread = (int)syscall(SYS_gettid);
  AC_TRY(open_pages(A, w, script, e));
  o.job = w != NULL && w->place.size > 1 ? job_name(name, sizeof name) : NULL;
  o.rank = w != NULL ? w->place.rank : 0;
  o.ranks = w != NULL ? w->place.size : 1;
  o.script = script;
  if (w != NULL && w->backend->hosts != NULL) w->backend->hosts(w, hosts, sizeof hosts);
  o.hosts = hosts;
  o.segment = A->pages.fd;
  o.look = A->pages.head->n_ranks > 1 ? lac_attach_look : NULL;
  o.stacks = stacks;
  o.interrupt = interrupt;
  o.user = S;
  ac_status st = lac_stacks_open(S, A->thread, e) ? AC_OK : AC_STATE;
  if (st == AC_OK) st = ac_attach_open(&o, &A->a, e);
  if (st == AC_OK) return AC_OK;
  lac_stacks_close(S);
  close_pages(A);
  return st;
}

/* At the next instruction of the script, or of a library function that it runs. */
static void break_hook(lua_State *L, lua_Debug *ar) {
  lac_state *S = lac_state_of(L);
  if (S == NULL) return; /* the state closes */
  lua_getinfo(L, "S", ar);
  if (ar->what[0] == 'C' || strncmp(ar->source, "=lua/", 5) == 0) return;
  lac_host_rehook(L);
  atomic_store(&S->attach->breaking, false);
  const int top = lua_gettop(L);
  luaL_checkstack(L, 8, "Ctrl-C");
  lac_chunk(L, S, "repl/attached");
  lua_getfield(L, -1, "interrupted");
  lua_call(L, 0, 0);
  lua_settop(L, top);
}

/* The next two are called by handlers of signals. */
bool ac_host_breaks(ac_host *h) {
  lac_attach *A = h->S->attach;
  bool none = false;
  if (!A->console || !atomic_compare_exchange_strong(&A->breaking, &none, true)) return false;
  const int mask = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
  lua_sethook(A->running != NULL ? A->running->L : h->S->main, break_hook, mask, 1);
  return true;
}

bool ac_host_at_prompt(const ac_host *h) {
  const ac_world *w = h->S->ranks->world;
  return w != NULL && w->segment.head != NULL && atomic_load(&w->segment.head->console) != 0;
}

/* ---- steps ---- */

void lac_attach_step(lua_State *L, lac_state *S) {
  lac_attach *A = S->attach;
  aci_page *p = lac_attach_page(S);
  if (p != NULL) {
    const int64_t now = aci_now_ns(),
                  before = atomic_load_explicit(&p->stepped_at, memory_order_relaxed);
    if (A->alone) {
      char site[LAC_SITE];
      aci_page_set_at(p, lac_site(L, S, 1, site), S->ctx->step);
    }
    if (before != 0) atomic_store_explicit(&p->step_ns, now - before, memory_order_relaxed);
    atomic_store_explicit(&p->stepped_at, now, memory_order_relaxed);
  }
  const unsigned what = A->a != NULL ? ac_attach_step(A->a, S->ctx->step) : 0;
  if (what == 0 && !A->every_step) return;
  const int top = lua_gettop(L);
  lac_chunk(L, S, "repl/attached");
  lua_getfield(L, -1, "step");
  lua_pushboolean(L, (what & AC_ATTACH_PAUSE) != 0);
  lua_pushboolean(L, (what & AC_ATTACH_GONE) != 0);
  lua_call(L, 2, 0);
  lua_settop(L, top);
  p = lac_attach_page(S);
  /* the time at the prompt is not a step's */
  if (p != NULL) atomic_store_explicit(&p->stepped_at, aci_now_ns(), memory_order_relaxed);
}

/* ---- accel.console.attach ---- */

static ac_attach *check_open(lua_State *L, lac_state *S) {
  if (S->attach->a == NULL) lac_error(L, S, AC_STATE, "attach: this host does not listen");
  return S->attach->a;
}

static int job(lua_State *L) {
  const lac_state *S = lac_get(L);
  if (S->attach->a == NULL) return 0;
  lua_pushstring(L, ac_attach_job(S->attach->a));
  return 1;
}

static int stand(lua_State *L) {
  lac_state *S = lac_get(L);
  int fd = -1;
  lua_pushboolean(L, ac_attach_stand(check_open(L, S), &fd));
  if (fd < 0) return 1;
  lua_pushinteger(L, fd);
  return 2;
}

static int go(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_attach_go(check_open(L, S), lua_toboolean(L, 1));
  return 0;
}

static int pause_at(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_attach_pause_at(check_open(L, S), (uint64_t)lac_check_int(L, S, 1, "step"));
  return 0;
}

static int console(lua_State *L) {
  lac_get(L)->attach->console = lua_toboolean(L, 1);
  return 0;
}

static int stop_on_error(lua_State *L) {
  lac_get(L)->attach->on_error = lua_toboolean(L, 1);
  return 0;
}

static int every_step(lua_State *L) {
  lac_get(L)->attach->every_step = lua_toboolean(L, 1);
  return 0;
}

/* In turns, so that an interrupt is served between them. */
static int wait_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_attach *a = check_open(L, S);
  const double seconds = lua_isnoneornil(L, 1) ? INFINITY : lac_check_number(L, S, 1, "seconds");
  const int64_t began = aci_now_ns();
  bool came = false;
  while (!came && (double)(aci_now_ns() - began) * 1e-9 < seconds &&
         atomic_load(&S->interrupt->signal) == 0) {
    ac_err e;
    if (S->ranks->world != NULL && ac_world_aborted(S->ranks->world, &e))
      return lac_raise(L, S, &e);
    came = ac_attach_wait(a, 0.1);
  }
  lua_pushboolean(L, came);
  return 1;
}

static int prompt(lua_State *L) {
  const lac_state *S = lac_get(L);
  aci_page *p = lac_attach_page(S);
  if (p != NULL) atomic_store(&p->prompt, lua_toboolean(L, 1) ? 1 : 0);
  return 0;
}

static int interruptible(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_attach_interruptible(check_open(L, S), lua_toboolean(L, 1));
  return 0;
}

static int tidy(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_pushboolean(L, ac_attach_tidy(lac_check_path(L, S, 1, "folder", NULL)));
  return 1;
}

static int tell_abort(lua_State *L) {
  const lac_state *S = lac_get(L);
  ac_err e;
  if (S->attach->a == NULL || !S->attach->alone || S->ranks->world == NULL ||
      !ac_world_aborted(S->ranks->world, &e))
    return 0;
  aci_abort_segment(S->attach->pages.head, e.code, e.rank, e.msg);
  return 0;
}

static int note(lua_State *L) {
  lac_state *S = lac_get(L);
  const char *name = lac_check_string(L, S, 1, "name", NULL);
  const double value = lac_check_number(L, S, 2, "value");
  aci_page *p = lac_attach_page(S);
  if (p == NULL) return 0;
  if (strcmp(name, "loss") == 0) atomic_store(&p->loss, value);
  else if (strcmp(name, "tokens_per_s") == 0) atomic_store(&p->tokens_per_s, value);
  return 0;
}

LAC_OPEN("accel.console", attach) {
  static const luaL_Reg funcs[] = {{"job", job},
                                   {"stand", stand},
                                   {"go", go},
                                   {"pause_at", pause_at},
                                   {"every_step", every_step},
                                   {"stop_on_error", stop_on_error},
                                   {"console", console},
                                   {"wait", wait_},
                                   {"prompt", prompt},
                                   {"note", note},
                                   {"interruptible", interruptible},
                                   {"tidy", tidy},
                                   {"tell_abort", tell_abort},
                                   {NULL, NULL}};
  S->attach = lac_state_part(L, sizeof *S->attach);
  S->attach->pages.fd = -1;
  lua_newtable(L);
  lac_setfuncs(L, S, funcs);
  lua_setfield(L, -2, "attach");
  lac_at_close(S, close_attach);
}
