/* The buffers of a collective until it is done: its tensors, copies of tensors that are not
 * contiguous, and the destination of results. With async_op it is the work that scripts wait for.
 *
 * A work that is collected before it is done is let go of: the core keeps storages until then, and
 * its group stays until lac_works_drain finds it done. Copies lie in the memory that local ranks
 * map, so that the backend copies no second time. */
#include <stdlib.h>
#include <string.h>

#include "accel/ops.h"
#include "accel/profile.h"
#include "autograd/node.h"
#include "comm/comm_impl.h"
#include "bindings/core/gc.h"
#include "dist.h"
#include "bindings/profile/profile.h"

static const char work_meta[] = "accel.dist.Work";

static void drop_tensors(lac_work *w) {
  ac_tensor_release(w->send);
  ac_tensor_release(w->recv);
  ac_tensor_release(w->held);
  w->send = w->recv = w->held = NULL;
  for (int i = 0; i < w->n_out; i++) ac_tensor_release(w->out[i]);
  w->n_out = 0;
}

static int work_gc(lua_State *L) {
  lac_work *w = lua_touserdata(L, 1);
  lac_state *S = w->S;
  drop_tensors(w);
  if (w->work != NULL && S->ranks->world != NULL && !ac_work_done(w->work)) {
    *w->pending = (struct lac_pending){S->ranks->pending_works, w->work, w->own};
    S->ranks->pending_works = w->pending;
  } else {
    ac_work_release(w->work);
    free(w->pending);
    lac_group_release(S, w->own);
  }
  w->work = NULL;
  w->pending = NULL;
  w->own = NULL;
  return 0;
}

lac_work *lac_work_push(lua_State *L, lac_state *S, const lac_coll *k, int n_out) {
  lac_work *w = lua_newuserdatauv(L, sizeof *w + (size_t)n_out * sizeof w->out[0], 0);
  *w = (lac_work){.S = S, .own = k->own, .kind = k->c.kind};
  lac_group_retain(w->own);
  luaL_setmetatable(L, work_meta);
  return w;
}

/* ---- buffers ---- */

static void copy(lua_State *L, const lac_coll *k, lac_state *S, ac_tensor *dst, ac_tensor *src) {
  ac_err e;
  ac_tensor *o = NULL;
  const bool was = ac_ctx_set_grad_enabled(S->ctx, false);
  const ac_status st = ac_copy_(S->ctx, dst, src, &o, &e);
  ac_ctx_set_grad_enabled(S->ctx, was);
  if (st != AC_OK) lac_coll_raise(L, S, k, &e);
  ac_tensor_release(o);
}

/* w->held becomes a copy in *slot. */
static void copy_held(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot) {
  copy(L, k, w->S, *slot, w->held);
  ac_tensor_release(w->held);
  w->held = NULL;
}

static void stage(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot,
                  const ac_tensor *like, int ndim, const int64_t *shape) {
  ac_err e;
  ac_status st;
  ac_device *d = like->device;
  if (aci_is_accelerator(d) && d != k->c.device && ac_ctx_device(w->S->ctx, "cpu", &d, &e) != AC_OK)
    lac_coll_raise(L, w->S, k, &e);
  const ac_dtype dt = (ac_dtype)like->dtype;
  LAC_RETRY(L, w->S, st, ac_tensor_new_class(d, dt, ndim, shape, AC_MEM_PARAMETER, slot, &e));
  if (st != AC_OK) lac_coll_raise(L, w->S, k, &e);
}

/* Between t and the part of the buffer, in t's shape, that begins at an element. */
static void copy_part(lua_State *L, const lac_coll *k, lac_state *S, const ac_tensor *buffer,
                      ac_tensor *t, int64_t at, bool in) {
  ac_err e;
  int64_t stride[AC_MAX_DIMS];
  aci_contiguous_strides(t->ndim, t->shape, stride);
  ac_tensor *o = NULL,
            *v = aci_tensor_alias(buffer, t->ndim, t->shape, stride, buffer->offset + at);
  if (v == NULL) lac_coll_bad(L, S, k, AC_OOM, "no memory for a view");
  const bool was = ac_ctx_set_grad_enabled(S->ctx, false);
  const ac_status st = ac_copy_(S->ctx, in ? v : t, in ? t : v, &o, &e);
  ac_ctx_set_grad_enabled(S->ctx, was);
  ac_tensor_release(v);
  if (st != AC_OK) lac_coll_raise(L, S, k, &e);
  ac_tensor_release(o);
}

void lac_work_take(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot, ac_tensor *t,
                   unsigned how) {
  const bool direct = lac_coll_direct(k, t);
  ac_tensor_retain(t);
  if (how & LAC_WRITE) {
    w->out[w->n_out++] = t;
    w->staged = !direct;
  }
  if (direct) {
    *slot = t;
    if (how & LAC_WRITE) ac_tensor_retain(t);
    return;
  }
  if (!(how & LAC_WRITE)) w->held = t;
  stage(L, k, w, slot, t, t->ndim, t->shape);
  if (how & LAC_WRITE) {
    if (how & LAC_READ) copy(L, k, w->S, *slot, t);
  } else {
    copy_held(L, k, w, slot);
  }
}

/* Whether they lie one after the other in one storage. */
static bool in_a_row(const lac_coll *k, const lac_list *l) {
  int64_t at = 0;
  const ac_storage *s = NULL;
  for (int i = 0; i < l->n; i++) {
    const ac_tensor *t = l->t[i];
    if (!lac_coll_direct(k, t)) return false;
    if (s != NULL && (t->storage != s || t->offset != at)) return false;
    s = t->storage;
    at = t->offset + t->numel;
  }
  return l->n > 0;
}

void lac_work_take_list(lua_State *L, const lac_coll *k, lac_work *w, ac_tensor **slot,
                        const lac_list *l, unsigned how) {
  static const int64_t one = 1;
  int64_t total = 0, at = 0;
  const bool row = in_a_row(k, l);
  for (int i = 0; i < l->n; i++) {
    total += l->t[i]->numel;
    if (!(how & LAC_WRITE)) continue;
    ac_tensor_retain(l->t[i]);
    w->out[w->n_out++] = l->t[i];
  }
  if (how & LAC_WRITE) w->staged = !row;
  if (row) {
    if ((*slot = aci_tensor_alias(l->t[0], 1, &total, &one, l->t[0]->offset)) == NULL)
      lac_coll_bad(L, w->S, k, AC_OOM, "no memory for a view");
    return;
  }
  stage(L, k, w, slot, l->t[0], 1, &total);
  for (int i = 0; (how & LAC_READ) && i < l->n; i++) {
    copy_part(L, k, w->S, *slot, l->t[i], at, true);
    at += l->t[i]->numel;
  }
}

bool lac_work_clash(const lac_coll *k, const ac_tensor *s, const ac_tensor *r) {
  const char *sp = aci_data(s), *rp = aci_data(r);
  const size_t size = aci_dsize((ac_dtype)s->dtype), sn = (size_t)s->numel * size,
               rn = (size_t)r->numel * size;
  if (sp == NULL || rp == NULL || sp + sn <= rp || rp + rn <= sp) return false;
  const size_t own = (size_t)aci_part_at(&k->c, ac_group_rank(k->g)) * size;
  switch (k->c.kind) {
    case AC_COLL_ALL_REDUCE:
    case AC_COLL_REDUCE: return sp != rp;
    case AC_COLL_ALL_GATHER:
    case AC_COLL_GATHER: return sp != rp + own;
    case AC_COLL_SCATTER:
    case AC_COLL_REDUCE_SCATTER: return rp != sp + own;
    default: return true;
  }
}

/* ---- running ---- */

/* Moves received data to its place. */
static void finish(lua_State *L, const lac_coll *k, lac_work *w) {
  int64_t at = 0;
  for (int i = 0; i < w->n_out; i++) {
    ac_tensor *t = w->out[i];
    if (w->staged) copy_part(L, k, w->S, w->recv, t, at, false);
    at += t->numel;
    aci_write_done(w->S->ctx, t);
  }
  w->finished = true;
  drop_tensors(w);
}

static void separate(lua_State *L, const lac_coll *k, lac_work *w) {
  if (w->send == NULL || w->recv == NULL || w->send == w->recv ||
      !lac_work_clash(k, w->send, w->recv))
    return;
  w->held = w->send;
  w->send = NULL;
  stage(L, k, w, &w->send, w->held, w->held->ndim, w->held->shape);
  copy_held(L, k, w, &w->send);
}

int lac_work_run(lua_State *L, lac_coll *k, lac_work *w) {
  ac_err e;
  separate(L, k, w);
  k->c.send = w->send != NULL ? aci_data(w->send) : NULL;
  k->c.recv = w->recv != NULL ? aci_data(w->recv) : NULL;
  if (!k->async) {
    if (ac_collective(k->g, &k->c, &e) != AC_OK) return lac_coll_raise(L, w->S, k, &e);
    finish(L, k, w);
    return 0;
  }
  lac_works_drain(w->S, false);
  w->pending = malloc(sizeof *w->pending);
  if (w->pending == NULL) return lac_coll_bad(L, w->S, k, AC_OOM, "no memory for a work");
  ac_storage *keep[2];
  int n = 0;
  if (w->send != NULL) keep[n++] = w->send->storage;
  if (w->recv != NULL) keep[n++] = w->recv->storage;
  if (ac_collective_start(k->g, &k->c, n, keep, &w->work, &e) != AC_OK)
    return lac_coll_raise(L, w->S, k, &e);
  return 1;
}

/* ---- works in Lua ---- */

static lac_work *self_of(lua_State *L, lac_state *S) {
  lac_work *w = luaL_testudata(L, 1, work_meta);
  if (w == NULL)
    lac_argerror(L, S, AC_INVALID, NULL, 1, "self", "expected work of a collective, got %s",
                 luaL_typename(L, 1));
  return w;
}

/* work:wait(): true. Raises the collective's error, on every call */
static int wait_(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lac_work *w = self_of(L, S);
  ac_err e;
  const lac_coll k = {.name = ac_coll_name(w->kind), .c = {.kind = w->kind}};
  ac_profile *p = S->profiling != NULL && !ac_work_done(w->work) ? S->profiling->running : NULL;
  lua_State *was = lac_enter(L, S);
  const int64_t span = p != NULL ? ac_profile_begin(p, AC_SPAN_FUNCTION, "comm::wait") : -1;
  const ac_status st = ac_work_wait(w->work, &e);
  if (p != NULL) ac_profile_end(p, span);
  lac_leave(S, was);
  if (st != AC_OK) return lac_coll_raise(L, S, &k, &e);
  if (!w->finished) finish(L, &k, w);
  lua_pushboolean(L, true);
  return 1;
}

static int is_completed(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 1);
  lua_pushboolean(L, ac_work_done(self_of(L, S)->work));
  return 1;
}

static int work_tostring(lua_State *L) {
  lac_state *S = lac_get(L);
  const lac_work *w = self_of(L, S);
  lua_pushfstring(L, "Work(%s, %s)", ac_coll_name(w->kind),
                  ac_work_done(w->work) ? "done" : "under way");
  return 1;
}

LAC_OPEN("accel.dist.core", works) {
  static const luaL_Reg methods[] = {{"wait", wait_}, {"is_completed", is_completed}, {NULL, NULL}};
  static const luaL_Reg metas[] = {{"__gc", work_gc}, {"__tostring", work_tostring}, {NULL, NULL}};
  lac_new_class(L, S, work_meta, metas, methods);
}
