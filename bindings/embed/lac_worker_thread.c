/* The thread of a worker (worker.h): opens a host on its owner's devices, calls the module's
 * function with the value it was started with and an endpoint, and closes the host.
 *
 *   require(module)(value, endpoint)
 *     endpoint:receive() -> value       waits for the next job. No value once the worker is to end
 *     endpoint:send(value)              a result. Waits while the owner has `most` of them
 *
 * Its errors, and os.exit, end the worker: the owner learns the text. It takes no signals, runs its
 * kernels alone, and joins no world of ranks. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base_impl.h"
#include "bindings/comm/dist.h"
#include "host_impl.h"
#include "worker.h"

#define ENDPOINT "accel.worker.endpoint"

/* ---- memory ---- */

/* Lua's allocator of the thread. While the owner looks through its call frames
 * (lac_worker_interrupt) none is freed. */
static void *allocate(void *ud, void *p, size_t old, size_t n) {
  lac_worker *w = ud;
  if (p != NULL && n < old)
    while (atomic_load(&w->frozen)) sched_yield();
  return w->alloc(w->alloc_ud, p, old, n);
}

/* ---- interruption ---- */

/* Stays until the thread's code has given up, whatever it catches. */
static void stop_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  luaL_error(L, "the worker was stopped");
}

void lac_worker_interrupt(lac_worker *w) {
  static const struct timespec settle = {0, 2000000};
  if (w->L == NULL) return;
  atomic_store(&w->frozen, true);
  /* frames that are being freed are no longer reachable for lua_sethook */
  nanosleep(&settle, NULL);
  lua_sethook(w->L, stop_hook, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
  atomic_store(&w->frozen, false);
}

/* ---- the endpoint ---- */

static lac_worker *self_of(lua_State *L) {
  lac_worker **p = luaL_checkudata(L, 1, ENDPOINT);
  return *p;
}

static int endpoint_receive(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_worker *w = self_of(L);
  lac_message_free(w->current);
  w->current = NULL;
  pthread_mutex_lock(&w->lock);
  while (!atomic_load(&w->stopping) && w->jobs.n == 0) pthread_cond_wait(&w->to_thread, &w->lock);
  if (!atomic_load(&w->stopping)) w->current = lac_queue_take(&w->jobs);
  pthread_mutex_unlock(&w->lock);
  if (w->current == NULL) return 0;
  lac_message_push(L, S, w->current);
  lac_message_free(w->current);
  w->current = NULL;
  return 1;
}

static int endpoint_send(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_worker *w = self_of(L);
  luaL_checkany(L, 2);
  lac_message *m = lac_message_new(L, S, 2);
  pthread_mutex_lock(&w->lock);
  while (!atomic_load(&w->stopping) && w->results.n >= w->most)
    pthread_cond_wait(&w->to_thread, &w->lock);
  if (!atomic_load(&w->stopping)) {
    lac_queue_add(&w->results, m);
    m = NULL;
    pthread_cond_signal(&w->to_owner);
  }
  pthread_mutex_unlock(&w->lock);
  lac_message_free(m);
  return 0;
}

/* ---- running ---- */

static void set_path(lua_State *L, const char *name, const char *path) {
  if (path == NULL) return;
  lua_getglobal(L, "package");
  lua_pushstring(L, path);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

static int body(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"receive", endpoint_receive}, {"send", endpoint_send}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{NULL, NULL}};
  lac_worker *w = lua_touserdata(L, 1);
  lac_state *S = lac_state_of(L);
  set_path(L, "path", w->path);
  set_path(L, "cpath", w->cpath);
  lua_getglobal(L, "require");
  lua_pushstring(L, w->module);
  lua_call(L, 1, 1);
  lac_message_push(L, S, w->setup);
  lac_message_free(w->setup);
  w->setup = NULL;
  lac_worker **p = lua_newuserdatauv(L, sizeof *p, 0);
  *p = w;
  lac_new_class(L, S, ENDPOINT, metas, methods);
  luaL_setmetatable(L, ENDPOINT);
  lua_call(L, 2, 0);
  return 0;
}

/* The text of the error that ended it, malloc'ed. NULL: it ended normally. */
static char *run_host(lac_worker *w) {
  ac_err e;
  ac_host *h;
  int code;
  if (lac_host_open_on(&w->options, w->device, w->n_devices, &h, &e) != AC_OK) return strdup(e.msg);
  h->S->ranks->is_worker = true;
  aci_ctx_flags_take(h->S->ctx, w->flags);
  w->alloc = lua_getallocf(h->L, &w->alloc_ud);
  lua_setallocf(h->L, allocate, w);
  pthread_mutex_lock(&w->lock);
  w->L = h->L;
  const bool go = !atomic_load(&w->stopping);
  pthread_mutex_unlock(&w->lock);
  char *text = NULL;
  if (go && lac_host_protect(h, body, w, &e) != AC_OK) text = strdup(ac_host_error_text(h));
  if (ac_host_exit_code(h, &code) && (text = malloc(64)) != NULL)
    snprintf(text, 64, "os.exit(%d) was called", code);
  pthread_mutex_lock(&w->lock);
  w->L = NULL;
  pthread_mutex_unlock(&w->lock);
  lua_sethook(h->L, NULL, 0, 0);
  lac_message_free(w->current);
  w->current = NULL;
  ac_host_close(h);
  return text;
}

static void *run(void *arg) {
  lac_worker *w = arg;
  pthread_setname_np(pthread_self(), w->name);
  aci_team_alone();
  char *text = run_host(w);
  lac_message_free(w->setup);
  w->setup = NULL;
  for (int i = 0; i < w->n_devices; i++) ac_device_release(w->device[i]);
  pthread_mutex_lock(&w->lock);
  lac_queue_clear(&w->jobs);
  if (atomic_load(&w->stopping)) free(text);
  else w->error = text;
  w->ended = true;
  pthread_cond_broadcast(&w->to_owner);
  pthread_mutex_unlock(&w->lock);
  lac_worker_unref(w);
  return NULL;
}

ac_status lac_worker_run(lac_worker *w, ac_err *e) {
  sigset_t blocked, old;
  aci_worker_signals(&blocked);
  pthread_sigmask(SIG_SETMASK, &blocked, &old);
  const int rc = pthread_create(&w->thread, NULL, run, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (rc != 0) return AC_FAIL(e, STATE, "a thread could not be started: %s", strerror(rc));
  return AC_OK;
}

void lac_worker_unref(lac_worker *w) {
  if (atomic_fetch_sub(&w->ref, 1) != 1) return;
  lac_queue_clear(&w->jobs);
  lac_queue_clear(&w->results);
  pthread_cond_destroy(&w->to_thread);
  pthread_cond_destroy(&w->to_owner);
  pthread_mutex_destroy(&w->lock);
  free(w->error);
  free(w->module);
  free(w->path);
  free(w->cpath);
  for (int i = 0; i < AC_DEV_KINDS; i++) free(w->flags[i]);
  free(w);
}
