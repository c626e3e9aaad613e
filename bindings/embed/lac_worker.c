/* accel.worker: threads with a Lua state each, for the library's own files (accel.data.workers).
 * Scripts use num_workers of accel.data.DataLoader.
 *
 *   worker.start(module, value [, {name = "", most = 64}]) -> w     require(module)(value,
 *   endpoint) in a thread
 *     w:send(value) -> bool         a job. false when the thread has ended
 *     w:receive([seconds]) -> true, value. false when none came. nil, text of the error when it has
 *     ended
 *     w:clear()                     forgets jobs and results that wait
 *     w:close()
 *   worker.close { w, ... }         all at once
 *   worker.draws(seed, stream)      random numbers of their own (lac_worker_draws.c)
 *
 * Values are plain data and tensors. Tensors are not copied (worker.h). Closing asks the thread to
 * end, which it does between two jobs. After GRACE its Lua code is interrupted. A thread that then
 * stays inside C for PATIENCE is abandoned. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/core/gc.h"
#include "bindings/comm/dist.h"
#include "host_impl.h"
#include "ops/core/ctx_impl.h"
#include "worker.h"

#define WORKER "accel.worker"
enum { MOST = 64, GRACE_MS = 50, PATIENCE_MS = 5000, MS = 1000000, SECOND = 1000000000 };

typedef struct handle {
  lac_worker *w;        /* NULL: closed */
  lac_message *current; /* being read */
} handle;

/* ---- time ---- */

static struct timespec after(double seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  if (seconds > 1e6) seconds = 1e6;
  const int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
  t.tv_sec += ns / SECOND;
  t.tv_nsec = ns % SECOND;
  return t;
}

/* ---- starting ---- */

static lac_worker *worker_new(void) {
  pthread_condattr_t monotonic;
  lac_worker *w = calloc(1, sizeof *w);
  if (w == NULL) return NULL;
  atomic_init(&w->ref, 1);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->to_thread, NULL);
  pthread_cond_init(&w->to_owner, &monotonic);
  pthread_condattr_destroy(&monotonic);
  lac_queue_init(&w->jobs);
  lac_queue_init(&w->results);
  return w;
}

/* A host like the caller's: settings that a stock interpreter leaves alone stay alone. */
static void describe_host(lac_worker *w, const lac_state *S) {
  static const char tail[] = "/accel/";
  const ac_host *h = S->host;
  const size_t n = strlen(S->lib_dir), k = sizeof tail - 1;
  w->options = (ac_host_options)AC_HOST_OPTIONS_INIT;
  if (h != NULL) w->options = h->o; /* with its rights, limits and output */
  w->options.n_threads = 1;
  w->options.seed = 0;
  w->options.memory_limit = 0;
  w->options.device = w->options.script = w->options.lua_dir = NULL;
  w->options.join = false;
  w->options.instructions = 0; /* of a call of the program */
  w->options.strict = h != NULL && h->o.strict;
  w->options.sorted_pairs = h != NULL && h->o.sorted_pairs;
  w->options.keep_gc = !S->gc->generational;
  if (n <= k + 1) return;
  memcpy(w->lua_dir, S->lib_dir + 1, n - 1 - k); /* "@DIR/accel/" */
  w->options.lua_dir = w->lua_dir;
}

/* package.path or cpath, malloc'ed. NULL if it is not a string. */
static char *path_of(lua_State *L, const char *name) {
  char *s = NULL;
  if (lua_getglobal(L, "package") == LUA_TTABLE && lua_getfield(L, -1, name) == LUA_TSTRING)
    s = strdup(lua_tostring(L, -1));
  return s;
}

/* The handle comes first: its finalizer frees a worker that is half made. From lac_worker_run on
 * the thread has one of two references and reads the description. If it could not start, the handle
 * owns everything again. */
static int start(lua_State *L) {
  static const char *const names[] = {"name", "most", NULL};
  lac_state *S = lac_get(L);
  const char *module = lac_check_string(L, S, 1, "module", NULL);
  luaL_checkany(L, 2);
  lac_args_end(L, S, 3);
  const lac_opts o = lac_opts_open(L, S, 3, names);
  const char *name = lac_opt_string(&o, "name", "accel-worker");
  const int64_t most = lac_opt_int(&o, "most", MOST);
  if (most < 1)
    return lac_argerror(L, S, AC_INVALID, NULL, 0, "most", "expected 1 or more, got %lld",
                        (long long)most);
  handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (handle){0};
  luaL_setmetatable(L, WORKER);
  const int at = lua_gettop(L);
  if ((h->w = worker_new()) == NULL) return lac_error(L, S, AC_OOM, "no memory for a worker");
  lac_worker *w = h->w;
  w->setup = lac_message_new(L, S, 2);
  w->most = (size_t)most;
  snprintf(w->name, sizeof w->name, "%s", name);
  describe_host(w, S);
  w->module = strdup(module);
  w->path = path_of(L, "path");
  w->cpath = path_of(L, "cpath");
  ac_err e;
  if (w->module == NULL) return lac_error(L, S, AC_OOM, "no memory for a worker");
  if (aci_ctx_flags_copy(S->ctx, w->flags, &e) != AC_OK) return lac_raise(L, S, &e);
  for (int i = 0; i < S->ctx->n_devices; i++)
    ac_device_retain(w->device[w->n_devices++] = S->ctx->device[i]);
  atomic_store(&w->ref, 2);
  if (lac_worker_run(w, &e) != AC_OK) {
    for (int i = 0; i < w->n_devices; i++) ac_device_release(w->device[i]);
    lac_message_free(w->setup);
    w->setup = NULL;
    w->n_devices = 0;
    atomic_store(&w->ref, 1);
    h->w = NULL;
    lac_worker_unref(w);
    return lac_raise(L, S, &e);
  }
  lua_settop(L, at);
  return 1;
}

/* ---- messages ---- */

static handle *self_of(lua_State *L, lac_state *S) {
  handle *h = luaL_checkudata(L, 1, WORKER);
  if (h->w == NULL) lac_error(L, S, AC_STATE, "the worker was closed");
  return h;
}

static int w_send(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_worker *w = self_of(L, S)->w;
  luaL_checkany(L, 2);
  lac_message *m = lac_message_new(L, S, 2);
  pthread_mutex_lock(&w->lock);
  const bool ended = w->ended, full = w->jobs.n >= w->most;
  if (!ended && !full) {
    lac_queue_add(&w->jobs, m);
    pthread_cond_signal(&w->to_thread);
    m = NULL;
  }
  pthread_mutex_unlock(&w->lock);
  lac_message_free(m);
  if (full && !ended)
    return lac_error(L, S, AC_STATE, "worker: %zu jobs are already waiting, which is the limit",
                     w->most);
  lua_pushboolean(L, !ended);
  return 1;
}

static int w_receive(lua_State *L) {
  lac_state *S = lac_get(L);
  handle *h = self_of(L, S);
  lac_worker *w = h->w;
  const double seconds = lua_isnoneornil(L, 2) ? 1e6 : lac_check_number(L, S, 2, "seconds");
  lac_message_free(h->current);
  h->current = NULL;
  pthread_mutex_lock(&w->lock);
  if (w->results.n == 0 && !w->ended && seconds > 0) {
    const struct timespec until = after(seconds);
    while (w->results.n == 0 && !w->ended &&
           pthread_cond_timedwait(&w->to_owner, &w->lock, &until) == 0) {
    }
  }
  if (w->results.n == w->most) pthread_cond_signal(&w->to_thread);
  h->current = lac_queue_take(&w->results);
  const bool ended = w->ended;
  pthread_mutex_unlock(&w->lock);
  if (h->current != NULL) {
    lua_pushboolean(L, 1);
    lac_message_push(L, S, h->current);
    lac_message_free(h->current);
    h->current = NULL;
    return 2;
  }
  if (ended) { /* from here on nobody else touches it */
    lua_pushnil(L);
    lua_pushstring(L, w->error);
    return 2;
  }
  ac_err e;
  if (S->ranks->world != NULL && ac_world_aborted(S->ranks->world, &e)) return lac_raise(L, S, &e);
  lua_pushboolean(L, 0);
  return 1;
}

static int w_clear(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_worker *w = self_of(L, S)->w;
  lac_queue old[2];
  pthread_mutex_lock(&w->lock);
  for (int i = 0; i < 2; i++) {
    lac_queue *q = i == 0 ? &w->jobs : &w->results;
    lac_queue_init(&old[i]);
    for (lac_message *m; (m = lac_queue_take(q)) != NULL;) lac_queue_add(&old[i], m);
  }
  pthread_cond_signal(&w->to_thread);
  pthread_mutex_unlock(&w->lock);
  for (int i = 0; i < 2; i++) lac_queue_clear(&old[i]);
  return 0;
}

/* ---- closing ---- */

static void ask_to_end(lac_worker *w) {
  pthread_mutex_lock(&w->lock);
  atomic_store(&w->stopping, true);
  pthread_cond_signal(&w->to_thread);
  pthread_mutex_unlock(&w->lock);
}

/* Under the lock. */
static bool ends_by(lac_worker *w, const struct timespec *until) {
  while (!w->ended)
    if (pthread_cond_timedwait(&w->to_owner, &w->lock, until) != 0) break;
  return w->ended;
}

/* Once it was asked to end. */
static void finish(handle *h, const struct timespec *grace) {
  lac_worker *w = h->w;
  h->w = NULL;
  pthread_mutex_lock(&w->lock);
  bool ended = ends_by(w, grace);
  if (!ended) {
    lac_worker_interrupt(w);
    const struct timespec patience = after(PATIENCE_MS / 1e3);
    ended = ends_by(w, &patience);
  }
  pthread_mutex_unlock(&w->lock);
  if (ended) {
    pthread_join(w->thread, NULL);
  } else {
    pthread_detach(w->thread);
    ac_log_write(AC_LOG_WARN, "worker",
                 "thread %s does not end: it is inside a C function and was abandoned", w->name);
  }
  lac_message_free(h->current);
  h->current = NULL;
  lac_worker_unref(w);
}

/* Was the thread started, and not closed so far? */
static bool runs(const handle *h) { return h->w != NULL && h->w->n_devices > 0; }

static void drop(handle *h) { /* one that start could not complete */
  lac_worker *w = h->w;
  h->w = NULL;
  if (w == NULL) return;
  lac_message_free(w->setup);
  w->setup = NULL;
  lac_worker_unref(w);
}

static int w_close(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, WORKER);
  if (!runs(h)) {
    drop(h);
    return 0;
  }
  const struct timespec grace = after(GRACE_MS / 1e3);
  ask_to_end(h->w);
  finish(h, &grace);
  return 0;
}

static int close_all(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  const struct timespec grace = after(GRACE_MS / 1e3);
  for (int round = 0; round < 2; round++) {
    for (lua_Integer i = 1; i <= n; i++) {
      lua_rawgeti(L, 1, i);
      handle *h = luaL_checkudata(L, -1, WORKER);
      if (runs(h) && round == 0) ask_to_end(h->w);
      else if (runs(h)) finish(h, &grace);
      lua_pop(L, 1);
    }
  }
  return 0;
}

LAC_OPEN("accel.worker", worker) {
  static const luaL_Reg funcs[] = {{"start", start}, {"close", close_all}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"send", w_send},
                                     {"receive", w_receive},
                                     {"clear", w_clear},
                                     {"close", w_close},
                                     {NULL, NULL}};
  /* w_close needs nothing that the end of the state takes away */
  static const luaL_Reg metas[] = {{"__gc", w_close}, {"__close", w_close}, {NULL, NULL}};
  lac_new_class(L, S, WORKER, metas, methods);
  lac_setfuncs(L, S, funcs);
}
