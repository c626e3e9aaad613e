/* accel.offload.core, the native part of accel.offload: stores, windows, and tensors whose home is
 * elsewhere. The Lua files of accel/offload are its only users.
 *
 *   host(limit) -> store                     host memory outside the pools of devices. limit 0:
 *   none
 *   create(path, limit, keep) -> store       a file of our own, or nil, message, code
 *   open(path) -> store                      a read-only file, or nil, message, code
 *   window(device, budget, ahead) -> window  0: chosen
 *   memory(store, shape, dtype) -> tensor    in a host store, there for good
 *   phantom(tier, limit) -> store            of the meta device: bytes are counted alone
 *   pages(shape, dtype, device) -> tensor    on the CPU (or meta), from the beginning of a page on
 *   home(t) -> tensor                        the bytes of t's home in host memory, unconverted. t
 *   is not resident then tier(t) -> "host" or "file", resident, path. nil: an ordinary tensor
 *   move(write, t, at, memory) -> transfer   between elements of t's home, a flat range from `at`
 *   (from 0), and a tensor of
 *                                            the CPU
 *
 *   store:tier() path() used() stats()       window:tensor(store, shape, dtype) at(store, offset,
 *   shape, dtype) pass(in_order)
 *   transfer:wait()                                 empty() flush() stats() device()
 */
#include <stdlib.h>

#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "bindings/core/op.h"
#include "offload/offload.h"
#include "ops/core/ctx_impl.h"
#include "bindings/profile/profile.h"
#include "profile/profile_impl.h"

#define STORE "accel.offload.Store"
#define WINDOW "accel.offload.Window"
#define TRANSFER "accel.offload.Transfer"

typedef struct lac_offload {
  aci_io_queue *queue;
} lac_offload;

void lac_offload_watch(lac_state *S, const ac_profile *p) {
  if (S->offload != NULL && S->offload->queue != NULL)
    aci_io_queue_watch(S->offload->queue, p != NULL ? aci_profile_io_watch(p) : NULL);
}

static void close_offload(lua_State *L, lac_state *S) {
  aci_io_queue *q = S->offload->queue;
  S->offload->queue = NULL;
  S->gc->reclaim = NULL;
  aci_io_queue_watch(q, NULL);
  aci_io_queue_release(q);
}

static bool reclaim(lac_state *S) {
  bool freed = false;
  for (int i = 0; i < S->ctx->n_devices; i++)
    freed |= aci_io_queue_reclaim(S->offload->queue, S->ctx->device[i]);
  return freed;
}

/* The state's one I/O thread. */
static aci_io_queue *queue_of(lua_State *L, lac_state *S) {
  ac_err e;
  if (S->offload == NULL) {
    S->offload = lac_state_part(L, sizeof *S->offload);
    lac_at_close(S, close_offload);
  }
  if (S->offload->queue == NULL && aci_io_queue_new(&S->offload->queue, &e) != AC_OK)
    lac_raise(L, S, &e);
  if (S->profiling != NULL && S->profiling->running != NULL)
    lac_offload_watch(S, S->profiling->running);
  S->gc->reclaim = reclaim;
  return S->offload->queue;
}

/* ---- stores ---- */

static int store_gc(lua_State *L) {
  aci_store **s = luaL_checkudata(L, 1, STORE);
  aci_store_release(*s);
  *s = NULL;
  return 0;
}

static aci_store *store_at(lua_State *L, lac_state *S, int idx) {
  aci_store **s = luaL_testudata(L, idx, STORE);
  if (s == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, idx, "store", "expected a store, got %s",
                 luaL_typename(L, idx));
  return *s;
}

static aci_store **push_store(lua_State *L) {
  aci_store **s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = NULL;
  luaL_setmetatable(L, STORE);
  return s;
}

static size_t check_bytes(lua_State *L, lac_state *S, int idx, const char *name) {
  const int64_t n = lua_isnoneornil(L, idx) ? 0 : lac_check_int(L, S, idx, name);
  if (n < 0)
    lac_argerror(L, S, AC_INVALID, NULL, idx, name, "expected bytes, got %lld", (long long)n);
  return (size_t)n;
}

static int host(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const size_t limit = check_bytes(L, S, 1, "limit");
  aci_store **s = push_store(L);
  return aci_store_host(limit, s, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int phantom(lua_State *L) {
  static const char *const words[] = {"host", "file", NULL};
  lac_state *S = lac_get(L);
  ac_err e;
  const aci_tier tier = (aci_tier)luaL_checkoption(L, 1, NULL, words);
  const size_t limit = check_bytes(L, S, 2, "limit");
  aci_store **s = push_store(L);
  return aci_store_phantom(tier, limit, s, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int create(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  const size_t limit = check_bytes(L, S, 2, "limit");
  const bool keep = lua_toboolean(L, 3);
  aci_store **s = push_store(L);
  return aci_store_create(path, limit, keep, s, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static int open_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const char *path = lac_check_path(L, S, 1, "path", NULL);
  aci_store **s = push_store(L);
  return aci_store_open(path, s, &e) == AC_OK ? 1 : lac_fail(L, &e);
}

static int store_tier(lua_State *L) {
  lua_pushstring(L, aci_tier_name(store_at(L, lac_get(L), 1)->tier));
  return 1;
}

static int store_path(lua_State *L) {
  lua_pushstring(L, store_at(L, lac_get(L), 1)->path);
  return 1;
}

static int store_used(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)aci_store_used(store_at(L, lac_get(L), 1)));
  return 1;
}

static void set_count(lua_State *L, const char *field, uint64_t n) {
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, field);
}

static int store_stats(lua_State *L) {
  lac_state *S = lac_get(L);
  const aci_store *s = store_at(L, S, 1);
  aci_io_queue *q = queue_of(L, S);
  lua_createtable(L, 0, 6);
  pthread_mutex_lock(&q->lock);
  const aci_store now = *s;
  pthread_mutex_unlock(&q->lock);
  set_count(L, "mapped_bytes", now.mapped);
  set_count(L, "read_bytes", now.bytes[0]);
  set_count(L, "reads", now.calls[0]);
  set_count(L, "written_bytes", now.bytes[1]);
  set_count(L, "writes", now.calls[1]);
  lua_pushnumber(L, (double)now.busy_ns * 1e-9);
  lua_setfield(L, -2, "busy_seconds");
  return 1;
}

/* ---- windows ---- */

static int window_gc(lua_State *L) {
  aci_window **w = luaL_checkudata(L, 1, WINDOW);
  aci_window_release(*w);
  *w = NULL;
  return 0;
}

static aci_window *window_at(lua_State *L, lac_state *S) {
  aci_window **w = luaL_testudata(L, 1, WINDOW);
  if (w == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a window, got %s",
                 luaL_typename(L, 1));
  return *w;
}

static int window(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_device *d = lac_check_device(L, S, 1, "device");
  const size_t budget = check_bytes(L, S, 2, "budget"), ahead = check_bytes(L, S, 3, "ahead");
  aci_io_queue *q = queue_of(L, S);
  aci_window **w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = NULL;
  luaL_setmetatable(L, WINDOW);
  return aci_window_new(q, d, budget, ahead, w, &e) == AC_OK ? 1 : lac_raise(L, S, &e);
}

static size_t bytes_of(int ndim, const int64_t *shape, ac_dtype dt) {
  size_t n = ac_dtype_bytes(dt);
  for (int i = 0; i < ndim; i++) n *= (size_t)shape[i];
  return n;
}

/* Fills the box with a contiguous tensor of the storage, whose reference is taken. */
static ac_status fill(lac_state *S, lac_box *b, ac_storage *s, ac_dtype dt, int ndim,
                      const int64_t *shape, int64_t offset, ac_err *e) {
  ac_tensor *t = NULL;
  const ac_status st = ac_tensor_view(s, dt, ndim, shape, NULL, offset, &t, e);
  ac_storage_release(s);
  if (st == AC_OK) lac_box_fill(S, b, t);
  return st;
}

static int window_tensor(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  int64_t shape[AC_MAX_DIMS];
  int next;
  aci_window *w = window_at(L, S);
  aci_store *store = store_at(L, S, 2);
  const int ndim = lac_check_shape(L, S, 3, 3, "shape", shape, &next);
  const ac_dtype dt = lac_check_dtype(L, S, 4, "dtype");
  lac_box *b = lac_box_push(L, S);
  ac_storage *s;
  ac_status st;
  LAC_RETRY(L, S, st, aci_tiered_new(w, store, bytes_of(ndim, shape, dt), &s, &e));
  if (st == AC_OK) st = fill(S, b, s, dt, ndim, shape, 0, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int window_open(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  int64_t shape[AC_MAX_DIMS];
  int next;
  aci_window *w = window_at(L, S);
  aci_store *store = store_at(L, S, 2);
  const int64_t at = lac_check_int(L, S, 3, "offset");
  const int ndim = lac_check_shape(L, S, 4, 4, "shape", shape, &next);
  const ac_dtype dt = lac_check_dtype(L, S, 5, "dtype");
  if (at < 0)
    lac_argerror(L, S, AC_INVALID, NULL, 3, "offset", "%lld is before the file", (long long)at);
  lac_box *b = lac_box_push(L, S);
  ac_storage *s;
  ac_status st = aci_tiered_open(w, store, (uint64_t)at, bytes_of(ndim, shape, dt), &s, &e);
  if (st == AC_OK) st = fill(S, b, s, dt, ndim, shape, 0, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int window_pass(lua_State *L) {
  aci_window_pass(window_at(L, lac_get(L)), lua_toboolean(L, 2));
  return 0;
}

static int give_up(lua_State *L, bool flush) {
  lac_state *S = lac_get(L);
  ac_err e;
  return aci_window_empty(window_at(L, S), flush, &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}
static int window_empty(lua_State *L) { return give_up(L, false); }
static int window_flush(lua_State *L) { return give_up(L, true); }

static int window_device(lua_State *L) {
  lua_pushstring(L, window_at(L, lac_get(L))->device->name);
  return 1;
}

static int window_stats(lua_State *L) {
  aci_window_stats s;
  aci_window_stats_get(window_at(L, lac_get(L)), &s);
  lua_createtable(L, 0, 8);
  set_count(L, "hits", s.hits);
  set_count(L, "misses", s.misses);
  set_count(L, "prefetched", s.prefetched);
  set_count(L, "evicted", s.evicted);
  set_count(L, "resident_bytes", s.resident_bytes);
  set_count(L, "peak_bytes", s.peak_bytes);
  set_count(L, "budget_bytes", s.budget_bytes);
  lua_pushnumber(L, (double)s.wait_ns * 1e-9);
  lua_setfield(L, -2, "wait_seconds");
  return 1;
}

/* ---- tensors ---- */

static int memory(lua_State *L) {
  lac_state *S = lac_get(L);
  int64_t shape[AC_MAX_DIMS];
  int next;
  aci_store *store = store_at(L, S, 1);
  const int ndim = lac_check_shape(L, S, 2, 2, "shape", shape, &next);
  const ac_dtype dt = lac_check_dtype(L, S, 3, "dtype");
  if (store->tier != ACI_TIER_HOST)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "store", "expected host memory");
  lac_new_tensor(L, S, store->memory, dt, ndim, shape, AC_MEM_PINNED);
  return 1;
}

static void free_block(void *block) { ac_block_free(block); }

static int pages(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  int64_t shape[AC_MAX_DIMS];
  int next;
  const int ndim = lac_check_shape(L, S, 1, 1, "shape", shape, &next);
  const ac_dtype dt = lac_check_dtype(L, S, 2, "dtype");
  lua_settop(L, 3);
  if (lua_isnil(L, 3)) {
    lua_pushliteral(L, "cpu");
    lua_replace(L, 3);
  }
  ac_device *cpu = lac_check_device(L, S, 3, "device");
  lac_box *b = lac_box_push(L, S);
  const size_t bytes = bytes_of(ndim, shape, dt);
  ac_storage *s;
  ac_block *block;
  ac_status st;
  LAC_RETRY(L, S, st,
            ac_block_alloc(cpu, bytes + ACI_OFFLOAD_PAGE, AC_MEM_ACTIVATION, NULL, &block, &e));
  if (st == AC_OK) {
    char *at = ac_block_ptr(block);
    if (at != NULL) at += -(uintptr_t)at & (ACI_OFFLOAD_PAGE - 1); /* meta has no addresses */
    /* its first byte is the first element: a unit may lie there */
    st = ac_storage_wrap(cpu, at, bytes, free_block, block, &s, &e);
    if (st != AC_OK) ac_block_free(block);
  }
  if (st == AC_OK) st = fill(S, b, s, dt, ndim, shape, 0, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

static int tier(lua_State *L) {
  const ac_tensor *t = lac_check_tensor(L, lac_get(L), 1, "t");
  aci_tiered *x = aci_tiered_of(t->storage);
  if (x == NULL) return 0;
  lua_pushstring(L, aci_tier_name(x->home.store->tier));
  pthread_mutex_lock(&x->window->queue->lock);
  const bool there = x->state == ACI_IN;
  pthread_mutex_unlock(&x->window->queue->lock);
  lua_pushboolean(L, there);
  lua_pushstring(L, x->home.store->path);
  return 3;
}

static void release_storage(void *s) { ac_storage_release(s); }

static int home(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_tensor *t = lac_check_tensor(L, S, 1, "t");
  aci_tiered *x = aci_tiered_of(t->storage);
  if (x == NULL || x->home.block == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "t", "expected a tensor in host memory");
  lac_box *b = lac_box_push(L, S);
  pthread_mutex_lock(&x->window->queue->lock);
  ac_status st = aci_window_out(x->window, x, &e);
  pthread_mutex_unlock(&x->window->queue->lock);
  ac_storage *s = NULL, *of = t->storage;
  if (st == AC_OK) {
    ac_storage_retain(of);
    st = ac_storage_wrap(x->home.store->memory, ac_block_ptr(x->home.block), x->home.bytes,
                         release_storage, of, &s, &e);
    if (st != AC_OK) ac_storage_release(of);
  }
  if (st == AC_OK) st = fill(S, b, s, (ac_dtype)t->dtype, t->ndim, t->shape, t->offset, &e);
  return st == AC_OK ? 1 : lac_raise(L, S, &e);
}

/* ---- transfers ---- */

typedef struct transfer {
  aci_transfer x;
  aci_io_queue *queue; /* retained. NULL: over */
  ac_storage *of;      /* retained: its home */
  ac_tensor *memory;   /* retained */
} transfer;

static ac_status end(transfer *m, ac_err *e) {
  if (m->queue == NULL) return AC_OK;
  pthread_mutex_lock(&m->queue->lock);
  aci_io_queue_hurry(m->queue, &m->x);
  aci_io_queue_wait(m->queue, &m->x);
  const ac_status st = m->x.st;
  if (st != AC_OK && e != NULL) *e = m->x.err;
  pthread_mutex_unlock(&m->queue->lock);
  ac_storage_release(m->of);
  ac_tensor_release(m->memory);
  aci_io_queue_release(m->queue);
  m->queue = NULL;
  return st;
}

static int transfer_gc(lua_State *L) {
  end(luaL_checkudata(L, 1, TRANSFER), NULL);
  return 0;
}

static int transfer_wait(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  transfer *m = luaL_testudata(L, 1, TRANSFER);
  if (m == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected a transfer, got %s",
                 luaL_typename(L, 1));
  return end(m, &e) == AC_OK ? 0 : lac_raise(L, S, &e);
}

static int move(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  const bool write = lac_check_bool(L, S, 1, "write");
  ac_tensor *t = lac_check_tensor(L, S, 2, "t"), *p = lac_check_tensor(L, S, 4, "memory");
  const int64_t at = lac_check_int(L, S, 3, "at");
  aci_tiered *x = aci_tiered_of(t->storage);
  if (x == NULL || !aci_is_contiguous(t))
    lac_argerror(L, S, AC_INVALID, NULL, 2, "t", "expected a tensor of a window");
  const ac_device_kind kind = x->home.store->phantom ? AC_DEV_META : AC_DEV_CPU;
  if (p->device->kind != kind || p->storage->provider != NULL || !aci_is_contiguous(p) ||
      p->dtype != t->dtype)
    lac_argerror(L, S, AC_INVALID, NULL, 4, "memory", "expected contiguous %s memory of the CPU",
                 ac_dtype_name((ac_dtype)t->dtype));
  if (at < 0 || at + p->numel > t->numel)
    lac_argerror(L, S, AC_INVALID, NULL, 3, "at", "elements %lld .. %lld of %lld", (long long)at,
                 (long long)(at + p->numel), (long long)t->numel);
  const size_t size = aci_dsize((ac_dtype)t->dtype);
  aci_io_queue *q = queue_of(L, S);
  transfer *m = lua_newuserdatauv(L, sizeof *m, 0);
  m->queue = NULL;
  luaL_setmetatable(L, TRANSFER);
  if (aci_tiered_move(x, write, (size_t)(t->offset + at) * size, (size_t)p->numel * size,
                      aci_data(p), &m->x, &e) != AC_OK)
    return lac_raise(L, S, &e);
  m->queue = q;
  aci_io_queue_retain(q);
  m->of = t->storage;
  ac_storage_retain(m->of);
  m->memory = p;
  ac_tensor_retain(p);
  if (write) atomic_fetch_add_explicit(&t->storage->version, 1, memory_order_relaxed);
  else atomic_fetch_add_explicit(&p->storage->version, 1, memory_order_relaxed);
  return 1;
}

LAC_OPEN("accel.offload.core", offload) {
  static const luaL_Reg funcs[] = {{"host", host},   {"create", create}, {"phantom", phantom},
                                   {"open", open_},  {"window", window}, {"memory", memory},
                                   {"pages", pages}, {"tier", tier},     {"move", move},
                                   {"home", home},   {NULL, NULL}};
  static const luaL_Reg store_metas[] = {{"__gc", store_gc}, {NULL, NULL}};
  static const luaL_Reg store_methods[] = {{"tier", store_tier},
                                           {"path", store_path},
                                           {"used", store_used},
                                           {"stats", store_stats},
                                           {NULL, NULL}};
  static const luaL_Reg window_metas[] = {{"__gc", window_gc}, {NULL, NULL}};
  static const luaL_Reg window_methods[] = {{"tensor", window_tensor}, {"at", window_open},
                                            {"pass", window_pass},     {"empty", window_empty},
                                            {"flush", window_flush},   {"stats", window_stats},
                                            {"device", window_device}, {NULL, NULL}};
  static const luaL_Reg transfer_metas[] = {
      {"__gc", transfer_gc}, {"__close", transfer_gc}, {NULL, NULL}};
  static const luaL_Reg transfer_methods[] = {{"wait", transfer_wait}, {NULL, NULL}};
  lac_new_class(L, S, STORE, store_metas, store_methods);
  lac_new_class(L, S, WINDOW, window_metas, window_methods);
  lac_new_class(L, S, TRANSFER, transfer_metas, transfer_methods);
  lac_setfuncs(L, S, funcs);
}
