/* Gradients: t:backward, accel.backward, accel.grad, gradient modes, hooks, and the methods around
 * requires_grad. Hooks are Lua functions anchored with the graph, not with a handle in Lua.
 * Removing one, or losing the graph, releases it. */
#include <string.h>

#include "accel/autograd.h"
#include "bindings/core/callback.h"
#include "bindings/core/gc.h"
#include "bindings/core/guard.h"
#include "bindings/core/lac.h"

static const char *const backward_names[] = {"retain_graph", "create_graph", "inputs",
                                             "grad_tensors", NULL};

static ac_tensor *self_of(lua_State *L, lac_state *S) { return lac_check_tensor(L, S, 1, "self"); }

static ac_backward_options read_options(const lac_opts *o) {
  ac_backward_options b = {.struct_size = sizeof b};
  b.create_graph = lac_opt_bool(o, "create_graph", false);
  b.retain_graph = lac_opt_bool(o, "retain_graph", b.create_graph);
  return b;
}

/* backward(outputs, cotangents or nil, options) */
static int run_backward(lua_State *L, lac_state *S, int outputs, int grads, int opts) {
  lac_opts o = lac_opts_open(L, S, opts, backward_names);
  ac_backward_options b = read_options(&o);
  lac_list *out = lac_check_list(L, S, outputs, "tensors", false), *g = NULL, *in = NULL;
  int at = lac_opt_push(&o, "grad_tensors");
  if (at == 0 && !lua_isnoneornil(L, grads)) at = grads;
  if (at != 0) {
    g = lac_check_list(L, S, at, "gradient", true);
    if (g->n > out->n || (lac_box_test(L, at) != NULL && out->n != 1))
      return lac_error(L, S, AC_INVALID, "backward: %d gradients for %d outputs", g->n, out->n);
  }
  if ((at = lac_opt_push(&o, "inputs")) != 0) in = lac_check_list(L, S, at, "inputs", false);
  /* a list of gradients may be shorter than the outputs: the rest are ones */
  ac_tensor **cot = NULL;
  if (g != NULL) {
    cot = lua_newuserdatauv(L, sizeof *cot * (size_t)(out->n + 1), 0);
    for (int i = 0; i < out->n; i++) cot[i] = i < g->n ? g->t[i] : NULL;
  }
  ac_err e;
  /* the lists hold the needed tensors. A large gradient may take the place of garbage */
  lac_gc_due(L, S);
  lua_State *was = lac_enter(L, S);
  ac_status st = ac_backward(S->ctx, out->n, out->t, cot, in != NULL ? in->n : 0,
                             in != NULL ? in->t : NULL, &b, &e);
  lac_leave(S, was);
  lac_list_release(out);
  if (g != NULL) lac_list_release(g);
  if (in != NULL) lac_list_release(in);
  if (st != AC_OK) return lac_raise(L, S, &e);
  lac_gc_check(L, S);
  return 0;
}

/* t:backward([gradient] [, options]) */
static int backward(lua_State *L) {
  lac_state *S = lac_get(L);
  self_of(L, S);
  bool opts_second = lac_is_opts(L, 2) || (lua_istable(L, 2) && lua_rawlen(L, 2) == 0);
  lac_args_end(L, S, opts_second ? 2 : 3);
  lua_settop(L, 3);
  if (opts_second) lua_insert(L, 2); /* nil before the options */
  if (!lua_isnil(L, 2)) lac_check_tensor(L, S, 2, "gradient");
  return run_backward(L, S, 1, 2, 3);
}

/* accel.backward(outputs [, gradients] [, options]) */
static int backward_many(lua_State *L) {
  lac_state *S = lac_get(L);
  bool opts_second = lac_is_opts(L, 2);
  lac_args_end(L, S, opts_second ? 2 : 3);
  lua_settop(L, 3);
  if (opts_second) lua_insert(L, 2);
  return run_backward(L, S, 1, 2, 3);
}

/* accel.grad(outputs, inputs [, options]): one gradient, or a list. With allow_unused, missing
 * gradients are nil. The lists hold the engine's tensors, since hooks and finalizers may release
 * them. Stack, before the engine runs: arguments, lists, arrays, the table of results, one empty
 * box for each input. The results go from res, owned, into their boxes at once. */
static int grad(lua_State *L) {
  static const char *const names[] = {"grad_outputs", "retain_graph", "create_graph",
                                      "allow_unused", NULL};
  lac_state *S = lac_get(L);
  lac_args_end(L, S, 3);
  lac_opts o = lac_opts_open(L, S, 3, names);
  ac_backward_options b = read_options(&o);
  bool allow_unused = lac_opt_bool(&o, "allow_unused", false), single = lac_box_test(L, 2) != NULL;
  lac_list *out = lac_check_list(L, S, 1, "outputs", false),
           *in = lac_check_list(L, S, 2, "inputs", false), *g = NULL;
  ac_tensor **cot = NULL;
  int at = lac_opt_push(&o, "grad_outputs");
  if (at != 0) {
    g = lac_check_list(L, S, at, "grad_outputs", true);
    if (g->n > out->n)
      return lac_error(L, S, AC_INVALID, "grad: %d grad_outputs for %d outputs", g->n, out->n);
    cot = lua_newuserdatauv(L, sizeof *cot * (size_t)(out->n + 1), 0);
    for (int i = 0; i < out->n; i++) cot[i] = i < g->n ? g->t[i] : NULL;
  }
  ac_tensor **res = lua_newuserdatauv(L, sizeof *res * (size_t)(in->n + 1), 0);
  memset(res, 0, sizeof *res * (size_t)(in->n + 1));
  int n = in->n;
  lua_createtable(L, n, 0);
  luaL_checkstack(L, n + 8, "grad");
  int boxes = lua_gettop(L);
  for (int i = 0; i < n; i++) lac_box_push(L, S);
  ac_err e;
  lac_gc_due(L, S);
  lua_State *was = lac_enter(L, S);
  ac_status st = ac_gradients(S->ctx, out->n, out->t, cot, n, in->t, allow_unused, &b, res, &e);
  lac_leave(S, was);
  lac_list_release(out);
  lac_list_release(in);
  if (g != NULL) lac_list_release(g);
  if (st != AC_OK) return lac_raise(L, S, &e);
  for (int i = 0; i < n; i++)
    if (res[i] != NULL) {
      lac_box_fill(S, lua_touserdata(L, boxes + 1 + i), res[i]);
      lac_charge(S, res[i]);
    }
  for (int i = n; i >= 1; i--) {
    if (res[i - 1] == NULL) lua_pop(L, 1), lua_pushnil(L);
    lua_rawseti(L, boxes, i);
  }
  lac_gc_check(L, S);
  if (single) lua_rawgeti(L, boxes, 1);
  return 1;
}

/* ---- modes ---- */

static void restore_grad(lua_State *L, lac_state *S, lac_guard *g) {
  ac_ctx_set_grad_enabled(S->ctx, g->was.b);
}

static int grad_mode(lua_State *L, const char *name, bool on, int fn) {
  lac_state *S = lac_get(L);
  if (!lua_isnoneornil(L, fn)) lac_check_function(L, S, fn, "f");
  lac_guard *g = lac_guard_push(L, S, name, restore_grad);
  g->was.b = ac_ctx_set_grad_enabled(S->ctx, on);
  g->done = false;
  return lac_guard_finish(L, fn);
}

static int no_grad(lua_State *L) { return grad_mode(L, "no_grad", false, 1); }
static int enable_grad(lua_State *L) { return grad_mode(L, "enable_grad", true, 1); }
static int set_grad_enabled(lua_State *L) {
  return grad_mode(L, "set_grad_enabled", lac_check_bool(L, lac_get(L), 1, "mode"), 2);
}

static int is_grad_enabled(lua_State *L) {
  lua_pushboolean(L, ac_ctx_grad_enabled(lac_get(L)->ctx));
  return 1;
}

/* ---- methods ---- */

static int detach(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_box *b = lac_box_push(L, S); /* before t is read: the collector may run finalizers */
  ac_tensor *t = self_of(L, S), *out = NULL;
  ac_err e;
  if (ac_tensor_detach(t, &out, &e) != AC_OK) return lac_raise(L, S, &e);
  lac_box_fill(S, b, out);
  return 1;
}

/* The tensor leaves its graph: of a leaf, gradients end. */
static int detach_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_err e;
  lac_check_last(L, S, 1);
  if (aci_is_leaf(t)) {
    if (ac_tensor_set_requires_grad(t, false, &e) != AC_OK) return lac_raise(L, S, &e);
  } else {
    detach(L);
    lac_box_swap(L, S, 1, 2);
  }
  lua_settop(L, 1);
  return 1;
}

static int requires_grad_(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  ac_err e;
  lac_check_last(L, S, 2);
  bool on = lua_isnoneornil(L, 2) || lac_check_bool(L, S, 2, "requires_grad");
  if (ac_tensor_set_requires_grad(t, on, &e) != AC_OK) return lac_raise(L, S, &e);
  if (on && aci_is_leaf(t) && !t->ext) lac_box_canonical(L, S, 1);
  lua_settop(L, 1);
  return 1;
}

static int retain_grad(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  if (ac_tensor_retain_grad(self_of(L, S), &e) != AC_OK) return lac_raise(L, S, &e);
  lua_settop(L, 1);
  return 1;
}

/* t:set_grad_slot_(place): gradients of the leaf are added up in place, a float tensor of its shape
 * (nil: no more) */
static int set_grad_slot(lua_State *L) {
  lac_state *S = lac_get(L);
  ac_err e;
  ac_tensor *t = self_of(L, S), *place = NULL;
  if (!lua_isnil(L, 2)) place = lac_check_tensor(L, S, 2, "place");
  if (ac_tensor_set_grad_slot(t, place, &e) != AC_OK) return lac_raise(L, S, &e);
  lua_settop(L, 1);
  return 1;
}

/* ---- hooks ---- */

/* Data for remove(). Holds the tensor, so that the hook can be found. */
typedef struct hook_handle {
  ac_tensor *t;
  uint64_t id;
} hook_handle;

static int handle_drop(lua_State *L) {
  hook_handle *h = lua_touserdata(L, 1);
  ac_tensor *t = h->t;
  h->t = NULL;
  ac_tensor_release(t);
  return 0;
}

static int handle_remove(lua_State *L) {
  lac_state *S = lac_get(L);
  hook_handle *h = luaL_testudata(L, 1, "accel.hook");
  if (h == NULL)
    return lac_argerror(L, S, AC_INVALID, "remove", 1, "handle", "expected hook handle, got %s",
                        luaL_typename(L, 1));
  if (h->t != NULL) ac_tensor_remove_hook(h->t, h->id);
  handle_drop(L);
  lac_callbacks_drain(L, S);
  return 0;
}

typedef struct hook_call {
  lac_callback *cb;
  ac_tensor *t, *replace;
  bool post;
} hook_call;

static int hook_body(lua_State *L) {
  hook_call *h = lua_touserdata(L, 1);
  lac_state *S = h->cb->state;
  lua_rawgeti(L, LUA_REGISTRYINDEX, h->cb->ref);
  lac_push_tensor(L, S, h->t);
  lua_call(L, 1, 1);
  if (h->post || lua_isnil(L, -1)) return 0;
  lac_box *b = lac_box_test(L, -1);
  if (b == NULL || b->t == NULL)
    return lac_error(L, S, AC_GRAD, "a gradient hook must return a tensor or nothing, got %s",
                     luaL_typename(L, -1));
  if (b->t == h->t) return 0;
  ac_tensor_retain(b->t);
  h->replace = b->t;
  return 0;
}

static ac_status grad_hook(void *user, ac_tensor *g, ac_tensor **replace, ac_err *e) {
  lac_callback *cb = user;
  hook_call h = {.cb = cb, .t = g};
  AC_TRY(lac_protect(cb->state, hook_body, &h, e));
  if (h.replace != NULL) *replace = h.replace;
  return AC_OK;
}

static ac_status post_hook(void *user, ac_tensor *leaf, ac_err *e) {
  lac_callback *cb = user;
  hook_call h = {.cb = cb, .t = leaf, .post = true};
  return lac_protect(cb->state, hook_body, &h, e);
}

static int add_hook(lua_State *L, bool post) {
  lac_state *S = lac_get(L);
  ac_tensor *t = self_of(L, S);
  lac_check_function(L, S, 2, "hook");
  ac_err e;
  hook_handle *h = lua_newuserdatauv(L, sizeof *h, 0);
  h->t = NULL;
  luaL_setmetatable(L, "accel.hook");
  lac_callback *cb = lac_callback_new(L, S, 2);
  t = ((lac_box *)lua_touserdata(L, 1))->t; /* the collector may have run finalizers */
  if (t == NULL) {
    lac_callback_free(cb);
    self_of(L, S);
  }
  ac_status st = post ? ac_tensor_add_post_hook(t, post_hook, cb, lac_callback_free, &h->id, &e)
                      : ac_tensor_add_hook(t, grad_hook, cb, lac_callback_free, &h->id, &e);
  if (st != AC_OK) {
    lac_callback_free(cb);
    return lac_raise(L, S, &e);
  }
  ac_tensor_retain(t);
  h->t = t;
  return 1;
}

static int end_body(lua_State *L) {
  const lac_callback *cb = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, cb->ref);
  lua_call(L, 0, 0);
  return 0;
}

static ac_status end_hook(void *user, ac_err *e) {
  lac_callback *cb = user;
  return lac_protect(cb->state, end_body, cb, e);
}

/* accel.queue_callback(fn): for hooks, fn() runs when the backward they are part of has done its
 * work */
static int queue_callback(lua_State *L) {
  lac_state *S = lac_get(L);
  lac_check_function(L, S, 1, "fn");
  ac_err e;
  lac_callback *cb = lac_callback_new(L, S, 1);
  if (ac_backward_queue(S->ctx, end_hook, cb, lac_callback_free, &e) != AC_OK) {
    lac_callback_free(cb);
    return lac_raise(L, S, &e);
  }
  return 0;
}

static int register_hook(lua_State *L) { return add_hook(L, false); }
static int register_post_accumulate_grad_hook(lua_State *L) { return add_hook(L, true); }

LAC_OPEN("accel", autograd) {
  static const luaL_Reg funcs[] = {{"backward", backward_many},
                                   {"detach", detach},
                                   {"detach_", detach_},
                                   {"grad", grad},
                                   {"no_grad", no_grad},
                                   {"enable_grad", enable_grad},
                                   {"set_grad_enabled", set_grad_enabled},
                                   {"is_grad_enabled", is_grad_enabled},
                                   {"queue_callback", queue_callback},
                                   {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"backward", backward},
      {"detach", detach},
      {"detach_", detach_},
      {"requires_grad_", requires_grad_},
      {"retain_grad", retain_grad},
      {"set_grad_slot_", set_grad_slot},
      {"register_hook", register_hook},
      {"register_post_accumulate_grad_hook", register_post_accumulate_grad_hook},
      {NULL, NULL}};
  static const luaL_Reg hook_metas[] = {{"__gc", handle_drop}, {NULL, NULL}};
  static const luaL_Reg hook_methods[] = {{"remove", handle_remove}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_getfield(L, -1, "Tensor");
  lac_setfuncs(L, S, methods);
  lua_pop(L, 1);
  lac_new_class(L, S, "accel.hook", hook_metas, hook_methods);
}
