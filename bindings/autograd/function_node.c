/* The two moments of a call of accel.Function after its forward: its ctx (save_for_backward,
 * saved_tensors and the marks), and the backward of its node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "accel/ops.h"
#include "bindings/core/callback.h"
#include "bindings/core/op.h"
#include "function.h"
#include "ops/core/ctx_impl.h"

static const char key_ctx, key_link;

/* ---- saved values ---- */

static void free_saved(lac_fn_node *n) {
  const int count = n->n_saved;
  n->n_saved = 0;
  for (int i = 0; i < count; i++) aci_saved_drop(&n->saved[i]);
}

void lac_fn_release_saved(void *user) {
  lac_fn_node *n = user;
  n->release = true;
  if (n->running == 0) free_saved(n);
}

void lac_fn_free(void *user) {
  lac_fn_node *n = user;
  free_saved(n);
  free(n->in_arg);
  free(n->out);
  free(n->saved);
  free(n->saved_out);
  if (n->cb != NULL) lac_callback_free(n->cb);
  free(n);
}

static bool has_gradients(ac_dtype d) { return ac_dtype_is_float(d) || ac_dtype_is_complex(d); }

ac_status lac_fn_take_saved(lua_State *L, lac_fn_node *n, int ctx, int first_out, int n_out,
                            ac_err *e) {
  lac_state *S = n->cb->state;
  lua_pushliteral(L, "_to_save");
  if (lua_rawget(L, ctx) != LUA_TTABLE) {
    lua_pop(L, 1);
    return AC_OK;
  }
  lua_getfield(L, -1, "n");
  int count = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  n->saved = calloc((size_t)count + 1, sizeof *n->saved);
  n->saved_out = calloc((size_t)count + 1, sizeof *n->saved_out);
  if (n->saved == NULL || n->saved_out == NULL)
    return AC_FAIL(e, OOM, "no memory for a gradient node");
  lua_State *was = lac_enter(L, S); /* hooks on saved tensors may run */
  ac_status st = AC_OK;
  for (int i = 0; i < count && st == AC_OK; i++) {
    lua_rawgeti(L, -1, i + 1);
    const lac_box *b = lac_box_test(L, -1);
    ac_tensor *t = b != NULL ? b->t : NULL;
    int which = -1;
    for (int k = 0, nr = 0; k < n_out && t != NULL && which < 0; k++) {
      const lac_box *o = lac_box_test(L, first_out + k);
      if (o == NULL || o->t == NULL) continue;
      if (o->t == t) which = nr;
      nr++;
    }
    n->saved_out[i] = t != NULL && has_gradients((ac_dtype)t->dtype) ? which : -1;
    if (t != NULL) ac_tensor_retain(t);
    st = aci_save(S->ctx, t, which >= 0, &n->saved[i], e);
    ac_tensor_release(t);
    n->n_saved = i + 1;
    lua_pop(L, 1);
  }
  lac_leave(S, was);
  lua_pop(L, 1);
  lua_pushliteral(L, "_to_save");
  lua_pushnil(L);
  lua_rawset(L, ctx);
  return st;
}

/* ---- backward ---- */

typedef struct backward_call {
  lac_fn_node *n;
  ac_tensor *const *dout;
  ac_tensor **din;
  lac_fn_link *link; /* set once it names the node */
} backward_call;

static void push_zeros(lua_State *L, lac_state *S, const lac_fn_out *m) {
  ac_err e;
  ac_tensor *t = NULL;
  lac_box *b = lac_box_new(L, S);
  if (ac_tensor_new(m->device, m->dtype, m->ndim, m->shape, &t, &e) != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  const ac_value v[2] = {{.kind = AC_T_TENSOR, .tensor = t},
                         {.kind = AC_T_SCALAR, .scalar = {.kind = AC_SCALAR_INT}}};
  lac_call_op(L, S, "fill_", v, 2, NULL);
}

/* The gradient in b, at idx, is for input `in`: one that broadcasting made larger is summed to its
 * shape. */
static void sum_to_input(lua_State *L, lac_state *S, const lac_fn_node *n, int in, int idx) {
  ac_tensor *g = lac_box_test(L, idx)->t;
  const aci_meta *m = n->self != NULL ? &n->self->meta[in] : NULL;
  if (m == NULL || (g->ndim == m->ndim && memcmp(g->shape, m->shape, 8 * (size_t)m->ndim) == 0))
    return;
  int64_t dim[AC_MAX_DIMS];
  int n_dim = 0;
  const int lead = g->ndim - m->ndim;
  for (int i = 0; i < g->ndim; i++) {
    if (i >= lead && m->shape[i - lead] == g->shape[i]) continue;
    /* the engine reports the fault */
    if (lead < 0 || (i >= lead && m->shape[i - lead] != 1)) return;
    dim[n_dim++] = i;
  }
  ac_err e;
  lac_box *b = lac_box_new(L, S), *whole = lac_box_new(L, S);
  ac_tensor *sum = NULL, *fit = NULL;
  g = lac_box_test(L, idx)->t; /* making boxes may have run a finalizer that released it */
  if (g == NULL) lac_error(L, S, AC_RELEASED, "%s: backward returned a released tensor", n->name);
  if (ac_sum(S->ctx, g, dim, n_dim, true, NULL, &sum, &e) != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, sum);
  if (ac_reshape(S->ctx, sum, m->shape, m->ndim, &fit, &e) != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, whole, fit);
  lua_replace(L, idx);
  lua_pop(L, 1);
}

static int backward_body(lua_State *L) {
  backward_call *c = lua_touserdata(L, 1);
  lac_fn_node *n = c->n;
  lac_state *S = n->cb->state;
  luaL_checkstack(L, n->n_out + n->n_args + 10, "backward");
  lua_rawgeti(L, LUA_REGISTRYINDEX, n->cb->ref); /* 2: {ctx, backward, link} */
  lua_rawgeti(L, 2, 1);                          /* 3: ctx */
  lua_rawgeti(L, 2, 3);
  c->link = lua_touserdata(L, -1);
  c->link->n = n;
  lua_pop(L, 1);
  lua_rawgeti(L, 2, 2);
  lua_pushvalue(L, 3);
  for (int i = 0; i < n->n_out; i++) {
    if (c->dout[i] != NULL) lac_push_tensor(L, S, c->dout[i]);
    else if (n->materialize && has_gradients(n->out[i].dtype)) push_zeros(L, S, &n->out[i]);
    else lua_pushnil(L);
  }
  lua_call(L, n->n_out + 1, LUA_MULTRET);
  int n_res = lua_gettop(L) - 3;
  while (n_res > n->n_args && lua_isnil(L, 3 + n_res)) n_res--;
  luaL_checkstack(L, 8, "gradients");
  if (n_res > n->n_args)
    return lac_error(L, S, AC_GRAD,
                     "%s: backward returned %d gradients for %d arguments of forward", n->name,
                     n_res, n->n_args);
  /* everything is checked before the first reference is handed out */
  for (int pass = 0; pass < 2; pass++) {
    for (int k = 0; k < n_res; k++) {
      int in = 0;
      while (in < n->n_in && n->in_arg[in] != k) in++;
      if (lua_isnil(L, 4 + k)) continue;
      lac_box *b = lac_box_test(L, 4 + k);
      if (b == NULL || b->t == NULL || in == n->n_in)
        return lac_error(L, S, AC_GRAD,
                         "%s: backward returned %s as gradient of argument %d, which is %s",
                         n->name, b != NULL ? "a tensor" : luaL_typename(L, 4 + k), k + 1,
                         in == n->n_in ? "no tensor" : "a tensor");
      if (pass == 0) {
        sum_to_input(L, S, n, in, 4 + k);
      } else {
        ac_tensor_retain(b->t);
        c->din[in] = b->t;
      }
    }
  }
  return 0;
}

/* In anomaly mode the kept error of a backward names the line of the forward, as errors of the core
 * do. An object of the script's own stays as it is. */
static int name_line(lua_State *L) {
  lac_fn_node *n = lua_touserdata(L, 1);
  lac_state *S = n->cb->state;
  const ac_sites *s = S->ctx->sites;
  const char *line = s != NULL ? s->text(s->user, n->self->site) : NULL;
  if (line == NULL || lua_rawgeti(L, LUA_REGISTRYINDEX, S->errors->pending) != LUA_TTABLE) return 0;
  const int err = lua_gettop(L);
  lua_pushliteral(L, "traceback");
  lua_pushliteral(L, "message");
  if (lua_rawget(L, err) != LUA_TSTRING) return 0;
  lua_insert(L, -2);
  if (lua_rawget(L, err) != LUA_TSTRING) return 0;
  lua_pop(L, 1);
  lua_pushfstring(L, "%s (backward of %s, called at %s)", lua_tostring(L, -1), n->name, line);
  lua_setfield(L, err, "message");
  return 0;
}

ac_status lac_fn_backward(void *user, ac_ctx *ctx, int n_out, ac_tensor *const *dout, int n_in,
                          ac_tensor **din, ac_err *e) {
  backward_call c = {user, dout, din, NULL};
  lac_fn_node *n = user;
  n->running++;
  ac_status st = lac_protect(n->cb->state, backward_body, &c, e);
  lac_state *S = n->cb->state;
  if (st == AC_CALLBACK && ac_ctx_anomaly(ctx, NULL) && n->self != NULL && n->self->site != 0 &&
      S->errors->pending != LUA_NOREF && S->errors->pending != S->errors->stop) {
    ac_err more;
    (void)lac_protect(S, name_line, n, &more);
  }
  if (--n->running > 0) return st;
  if (c.link != NULL) c.link->n = NULL; /* ctx may outlive the node */
  for (int i = 0; n->unpacked != NULL && i < n->n_saved; i++) ac_tensor_release(n->unpacked[i]);
  free(n->unpacked);
  n->unpacked = NULL;
  if (n->release) free_saved(n);
  return st;
}

/* ---- ctx ---- */

static void check_ctx(lua_State *L, const char *fn) {
  bool ok = lua_istable(L, 1) && lua_getmetatable(L, 1);
  if (ok) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_ctx);
    ok = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!ok)
    lac_argerror(L, lac_get(L), AC_INVALID, fn, 1, "ctx",
                 "expected ctx of an accel.Function, got %s", luaL_typename(L, 1));
}

/* ctx[field] = the arguments after ctx as a list with n: tensors, or nil if that is allowed. */
static int keep_list(lua_State *L, const char *fn, const char *field, bool nils, const char *hint) {
  lac_state *S = lac_get(L);
  check_ctx(L, fn);
  int n = lua_gettop(L) - 1;
  char buf[96];
  for (int i = 2; i <= n + 1; i++)
    if (!(nils && lua_isnil(L, i)) && lac_box_test(L, i) == NULL)
      return lac_argerror(L, S, AC_INVALID, fn, i, "t", "expected tensor%s, got %s%s",
                          nils ? " or nil" : "", lac_typename(L, i, buf, sizeof buf), hint);
  lua_createtable(L, n, 1);
  lua_insert(L, 2);
  for (int i = n; i >= 1; i--) lua_rawseti(L, 2, i);
  lua_pushinteger(L, n);
  lua_setfield(L, 2, "n");
  lua_pushstring(L, field);
  lua_insert(L, 2);
  lua_rawset(L, 1);
  return 0;
}

static int save_for_backward(lua_State *L) {
  return keep_list(L, "save_for_backward", "_to_save", true, " (other values: fields of ctx)");
}
static int mark_dirty(lua_State *L) { return keep_list(L, "mark_dirty", "_dirty", false, ""); }
static int mark_non_differentiable(lua_State *L) {
  return keep_list(L, "mark_non_differentiable", "_constant", false, "");
}

static int set_materialize_grads(lua_State *L) {
  check_ctx(L, "set_materialize_grads");
  bool on = lac_check_bool(L, lac_get(L), 2, "value");
  lua_pushliteral(L, "_sparse");
  lua_pushboolean(L, !on);
  lua_rawset(L, 1);
  return 0;
}

bool lac_fn_is_marked(lua_State *L, int ctx, const char *list, const lac_box *b) {
  bool found = false;
  lua_pushstring(L, list);
  if (lua_rawget(L, ctx) == LUA_TTABLE) {
    const int n = (int)lua_rawlen(L, -1);
    for (int i = 1; i <= n && !found; i++) {
      lua_rawgeti(L, -1, i);
      const lac_box *m = lac_box_test(L, -1);
      found = m != NULL && m->t != NULL && m->t == b->t;
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
  return found;
}

void lac_fn_forget_marks(lua_State *L, int ctx) {
  static const char *const lists[] = {"_dirty", "_constant"};
  for (int i = 0; i < 2; i++) {
    lua_pushstring(L, lists[i]);
    lua_pushnil(L);
    lua_rawset(L, ctx);
  }
}

/* A saved result with its history back, for the second derivative. */
static int push_own(lua_State *L, lac_state *S, lac_fn_node *n, int i, ac_tensor *t) {
  ac_tensor *alias = NULL;
  ac_err e;
  ac_tensor_retain(t); /* making the box may run a finalizer that frees the saved values */
  lac_box *b = lac_box_new(L, S);
  ac_status st = ac_tensor_detach(t, &alias, &e);
  ac_tensor_release(t);
  if (st != AC_OK) return lac_raise(L, S, &e);
  alias->grad_fn = n->self;
  alias->out_nr = n->saved_out[i];
  alias->view_version = alias->storage->graph_version;
  aci_node_retain(n->self);
  lac_box_fill(S, b, alias);
  return 1;
}

static int saved_tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  check_ctx(L, "saved_tensors");
  lua_rawgetp(L, 1, &key_link);
  const lac_fn_link *k = lua_type(L, -1) == LUA_TUSERDATA ? lua_touserdata(L, -1) : NULL;
  lac_fn_node *n = k != NULL ? k->n : NULL;
  if (n == NULL) return lac_error(L, S, AC_GRAD, "saved_tensors: only inside backward");
  luaL_checkstack(L, n->n_saved + 6, "saved_tensors");
  char what[64];
  ac_err e;
  snprintf(what, sizeof what, "%s: saved tensor", n->name);
  if (n->unpacked == NULL) n->unpacked = calloc((size_t)n->n_saved + 1, sizeof *n->unpacked);
  if (n->unpacked == NULL) return lac_error(L, S, AC_OOM, "no memory for saved tensors");
  /* held while backward runs. The versions are checked every time */
  for (int i = 0; i < n->n_saved; i++) {
    ac_tensor *t = NULL;
    if (n->unpacked[i] != NULL && n->saved[i].packed != NULL) continue;
    lua_State *was = lac_enter(L, S); /* hooks may run */
    ac_status st = aci_saved_get(S->ctx, &n->saved[i], what, i, &t, &e);
    lac_leave(S, was);
    if (st != AC_OK) return lac_raise(L, S, &e);
    ac_tensor_release(n->unpacked[i]);
    n->unpacked[i] = t;
  }
  for (int i = 0; i < n->n_saved; i++) {
    ac_tensor *t = n->unpacked[i];
    if (t == NULL || n->saved_out[i] < 0 || !ac_ctx_grad_enabled(S->ctx)) lac_push_tensor(L, S, t);
    else push_own(L, S, n, i, t);
  }
  return n->n_saved;
}

void lac_fn_push_ctx(lua_State *L) {
  lua_newtable(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_ctx);
  lua_setmetatable(L, -2);
}

void lac_fn_link_ctx(lua_State *L, int idx) { lua_rawsetp(L, idx, &key_link); }

void lac_fn_open_ctx(lua_State *L, lac_state *S) {
  static const luaL_Reg methods[] = {{"save_for_backward", save_for_backward},
                                     {"saved_tensors", saved_tensors},
                                     {"mark_dirty", mark_dirty},
                                     {"mark_non_differentiable", mark_non_differentiable},
                                     {"set_materialize_grads", set_materialize_grads},
                                     {NULL, NULL}};
  lua_newtable(L);
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "accel.ctx");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_ctx);
}
