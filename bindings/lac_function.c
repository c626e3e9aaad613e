/* accel.Function{name =, forward =, backward =}: functions with a gradient of their own, written in Lua.
 *
 *   local Cube = accel.Function{ name = "Cube",
 *     forward = function(ctx, x) ctx:save_for_backward(x) return x * x * x end,
 *     backward = function(ctx, dy) local x = ctx:saved_tensors() return dy * 3 * x * x end }
 *   y = Cube(x)
 *
 * forward runs without gradients; backward gets one gradient per result (zeros where none came) and
 * returns one per argument of forward, nil where there is none. What save_for_backward was given is held
 * by the graph, not by Lua, freed as backward consumes it and checked for changes in place; results among
 * them are saved without their history, so that no cycle arises. Other fields of ctx are the script's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "core/lac.h"

typedef struct out_meta {
  ac_dtype dtype;
  ac_device *device;
  int ndim;
  int64_t shape[AC_MAX_DIMS];
} out_meta;

/* The part of a callback that needs no Lua: freed on any thread. */
typedef struct node {
  lac_callback *cb; /* anchors {ctx, backward} */
  char name[40];
  int n_args, n_in, n_out, n_saved;
  bool freed;
  int *in_arg; /* argument of each input */
  out_meta *out;
  ac_tensor **saved; /* retained; NULL for nil */
  uint32_t *version;
  int *saved_out; /* which result a saved tensor is, or -1 */
  ac_node *self;  /* borrowed: the graph node that owns this */
} node;

static const char key_ctx;

/* What ctx holds under key_ctx: the node while its backward runs, else NULL. Anchored by the callback. */
typedef struct ctx_link {
  node *n;
  int running; /* backward of one node may nest in itself */
} ctx_link;

static void free_saved(node *n) {
  for (int i = 0; i < n->n_saved; i++) {
    ac_tensor_release(n->saved[i]);
    n->saved[i] = NULL;
  }
}

static void node_release_saved(void *user) {
  node *n = user;
  free_saved(n);
  n->freed = true;
}

static void node_free(void *user) {
  node *n = user;
  free_saved(n);
  free(n->in_arg);
  free(n->out);
  free(n->saved);
  free(n->version);
  free(n->saved_out);
  if (n->cb != NULL) lac_callback_free(n->cb);
  free(n);
}

/* ---- backward ---- */

typedef struct backward_call {
  node *n;
  ac_tensor *const *dout;
  ac_tensor **din;
  ctx_link *link; /* set once it names the node */
} backward_call;

static void push_zeros(lua_State *L, lac_state *S, const out_meta *m) {
  ac_err e;
  ac_tensor *t = NULL;
  lac_box *b = lac_box_new(L, S);
  if (ac_tensor_new(m->device, m->dtype, m->ndim, m->shape, &t, &e) != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  const ac_value v[2] = {{.kind = AC_T_TENSOR, .tensor = t},
                         {.kind = AC_T_SCALAR, .scalar = {.kind = AC_SCALAR_INT}}};
  lac_call_op(L, S, "fill_", v, 2, NULL);
}

static int backward_body(lua_State *L) {
  backward_call *c = lua_touserdata(L, 1);
  node *n = c->n;
  lac_state *S = n->cb->state;
  luaL_checkstack(L, n->n_out + n->n_args + 10, "backward");
  lua_rawgeti(L, LUA_REGISTRYINDEX, n->cb->ref); /* 2: {ctx, backward, link} */
  lua_rawgeti(L, 2, 1);                          /* 3: ctx */
  lua_rawgeti(L, 2, 3);
  c->link = lua_touserdata(L, -1);
  c->link->n = n;
  c->link->running++;
  lua_pop(L, 1);
  lua_rawgeti(L, 2, 2);
  lua_pushvalue(L, 3);
  for (int i = 0; i < n->n_out; i++) {
    if (c->dout[i] != NULL) lac_push_tensor(L, S, c->dout[i]);
    else if (ac_dtype_is_float(n->out[i].dtype)) push_zeros(L, S, &n->out[i]);
    else lua_pushnil(L);
  }
  lua_call(L, n->n_out + 1, LUA_MULTRET);
  int n_res = lua_gettop(L) - 3;
  if (n_res > n->n_args)
    return lac_error(L, S, AC_GRAD, "%s: backward returned %d gradients for %d arguments of forward", n->name,
                     n_res, n->n_args);
  /* everything is checked before the first reference is handed out */
  for (int pass = 0; pass < 2; pass++) {
    for (int k = 0; k < n_res; k++) {
      int in = 0;
      while (in < n->n_in && n->in_arg[in] != k) in++;
      if (lua_isnil(L, 4 + k)) continue;
      lac_box *b = lac_box_test(L, 4 + k);
      if (b == NULL || b->t == NULL || in == n->n_in)
        return lac_error(L, S, AC_GRAD, "%s: backward returned %s as gradient of argument %d, which is %s",
                         n->name, b != NULL ? "a tensor" : luaL_typename(L, 4 + k), k + 1,
                         in == n->n_in ? "no tensor" : "a tensor");
      if (pass == 1) {
        ac_tensor_retain(b->t);
        c->din[in] = b->t;
      }
    }
  }
  return 0;
}

static ac_status node_backward(void *user, ac_ctx *ctx, int n_out, ac_tensor *const *dout, int n_in,
                               ac_tensor **din, ac_err *e) {
  backward_call c = {user, dout, din, NULL};
  ac_status st = lac_protect(c.n->cb->state, backward_body, &c, e);
  if (c.link != NULL && --c.link->running == 0) c.link->n = NULL; /* ctx may outlive the node */
  return st;
}

/* ---- ctx ---- */

static int save_for_backward(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  int n = lua_gettop(L) - 1;
  char buf[96];
  for (int i = 2; i <= n + 1; i++)
    if (!lua_isnil(L, i) && lac_box_test(L, i) == NULL)
      return lac_argerror(L, S, AC_INVALID, "save_for_backward", i, "t",
                          "expected tensor or nil, got %s (other values: fields of ctx)",
                          lac_typename(L, i, buf, sizeof buf));
  lua_createtable(L, n, 1);
  lua_insert(L, 2);
  for (int i = n; i >= 1; i--) lua_rawseti(L, 2, i);
  lua_pushinteger(L, n);
  lua_setfield(L, 2, "n");
  lua_pushliteral(L, "_to_save");
  lua_insert(L, 2);
  lua_rawset(L, 1);
  return 0;
}

static int saved_tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_rawgetp(L, 1, &key_ctx);
  const ctx_link *k = lua_type(L, -1) == LUA_TUSERDATA ? lua_touserdata(L, -1) : NULL;
  node *n = k != NULL ? k->n : NULL;
  if (n == NULL) return lac_error(L, S, AC_GRAD, "saved_tensors: only inside backward");
  luaL_checkstack(L, n->n_saved + 4, "saved_tensors");
  for (int i = 0; i < n->n_saved; i++) {
    ac_tensor *t = n->saved[i];
    if (t != NULL && ac_storage_version(t->storage) != n->version[i])
      return lac_error(L, S, AC_VERSION,
                       "%s: saved tensor %d was changed in place after forward (version %d, expected %d)",
                       n->name, i + 1, (int)ac_storage_version(t->storage), (int)n->version[i]);
    if (t == NULL || n->saved_out[i] < 0 || !ac_ctx_grad_enabled(S->ctx)) {
      lac_push_tensor(L, S, t);
      continue;
    }
    /* a saved result gets its history back for the second derivative */
    ac_tensor *alias = NULL;
    ac_err e;
    lac_box *b = lac_box_new(L, S);
    t = n->saved[i]; /* making the box may have run a finalizer that freed what was saved */
    if (t == NULL) return lac_error(L, S, AC_GRAD, "%s: what it saved is freed", n->name);
    if (ac_tensor_detach(t, &alias, &e) != AC_OK) return lac_raise(L, S, &e);
    alias->grad_fn = n->self;
    alias->out_nr = n->saved_out[i];
    alias->view_version = alias->storage->graph_version;
    aci_node_retain(n->self);
    lac_box_fill(S, b, alias);
  }
  return n->n_saved;
}

/* ---- forward ---- */

/* Moves what forward saved from ctx (at idx) into the node. */
static ac_status take_saved(lua_State *L, node *n, int ctx, int first_out, int n_out, ac_err *e) {
  lua_pushliteral(L, "_to_save");
  if (lua_rawget(L, ctx) != LUA_TTABLE) {
    lua_pop(L, 1);
    return AC_OK;
  }
  lua_getfield(L, -1, "n");
  int count = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  n->saved = calloc((size_t)count + 1, sizeof *n->saved);
  n->version = calloc((size_t)count + 1, sizeof *n->version);
  n->saved_out = calloc((size_t)count + 1, sizeof *n->saved_out);
  if (n->saved == NULL || n->version == NULL || n->saved_out == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, -1, i + 1);
    lac_box *b = lac_box_test(L, -1);
    ac_tensor *t = b != NULL ? b->t : NULL;
    int which = -1;
    for (int k = 0, nr = 0; k < n_out && t != NULL && which < 0; k++) {
      const lac_box *o = lac_box_test(L, first_out + k);
      if (o == NULL || o->t == NULL) continue;
      if (o->t == t) which = nr;
      nr++;
    }
    lua_pop(L, 1);
    n->saved_out[i] = t != NULL && ac_dtype_is_float((ac_dtype)t->dtype) ? which : -1;
    if (which >= 0) AC_TRY(ac_tensor_detach(t, &n->saved[i], e));
    else if (t != NULL) {
      ac_tensor_retain(t);
      n->saved[i] = t;
    }
    n->n_saved = i + 1;
    if (t != NULL) n->version[i] = ac_storage_version(t->storage);
  }
  lua_pop(L, 1);
  lua_pushliteral(L, "_to_save");
  lua_pushnil(L);
  lua_rawset(L, ctx);
  return AC_OK;
}

/* A result that is an input, an earlier result, or has a history, becomes a view of its own of the same bytes. */
static void own_result(lua_State *L, lac_state *S, int idx, int first, int n_args) {
  lac_box *b = lac_box_test(L, idx);
  if (b == NULL) return;
  if (b->t == NULL) lac_error(L, S, AC_RELEASED, "forward returned a released tensor");
  bool same = aci_requires_grad(b->t);
  for (int i = 1; i <= n_args && !same; i++) {
    const lac_box *a = lac_box_test(L, i);
    same = a != NULL && a->t == b->t;
  }
  for (int i = first; i < idx && !same; i++) {
    const lac_box *r = lac_box_test(L, i);
    same = r != NULL && r->t == b->t;
  }
  if (!same) return;
  ac_tensor *t = NULL;
  ac_err e;
  lac_box *d = lac_box_push(L, S);
  ac_tensor *from = b->t; /* the box may have been released while d was made */
  if (from == NULL) lac_error(L, S, AC_RELEASED, "forward returned a released tensor");
  if (ac_tensor_detach(from, &t, &e) != AC_OK) lac_raise(L, S, &e);
  t->flags |= ACI_T_VIEW;
  if ((aci_is_leaf(from) && aci_requires_grad(from)) || (from->flags & ACI_T_LEAF_VIEW))
    t->flags |= ACI_T_LEAF_VIEW;
  if (t->storage != NULL) t->view_version = t->storage->graph_version;
  lac_box_fill(S, d, t);
  lua_replace(L, idx);
}

/* Everything that can raise happened: makes the node over the results first_out .. top. */
static ac_status record(lua_State *L, lac_state *S, node *n, int ctx, int first_out, ac_tensor **in,
                        ac_tensor **out, ac_err *e) {
  int n_res = lua_gettop(L) - first_out + 1, n_args = ctx - 1;
  n->in_arg = calloc((size_t)n_args + 1, sizeof *n->in_arg);
  n->out = calloc((size_t)n_res + 1, sizeof *n->out);
  if (n->in_arg == NULL || n->out == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
  n->n_args = n_args;
  /* first: from here on nothing runs the collector, whose finalizers could release an input */
  AC_TRY(take_saved(L, n, ctx, first_out, n_res, e));
  for (int i = 0; i < n_args; i++) {
    const lac_box *b = lac_box_test(L, i + 1);
    if (b == NULL || b->t == NULL) continue;
    n->in_arg[n->n_in] = i;
    in[n->n_in++] = b->t;
  }
  for (int i = 0; i < n_res; i++) {
    const lac_box *b = lac_box_test(L, first_out + i);
    if (b == NULL || b->t == NULL) continue;
    out_meta *m = &n->out[n->n_out];
    *m = (out_meta){.dtype = (ac_dtype)b->t->dtype, .device = b->t->device, .ndim = b->t->ndim};
    memcpy(m->shape, b->t->shape, (size_t)b->t->ndim * sizeof m->shape[0]);
    out[n->n_out++] = b->t;
  }
  const ac_callback_node cb = {.struct_size = sizeof cb,
                               .name = n->name,
                               .backward = node_backward,
                               .release_saved = node_release_saved,
                               .free = node_free,
                               .user = n};
  bool recorded;
  int n_out = n->n_out;
  AC_TRY(ac_node_callback(S->ctx, &cb, n->n_in, in, n_out, out, &recorded, e));
  /* n is gone when nothing was recorded, or no result can have a gradient */
  for (int i = 0; i < n_out; i++)
    if (recorded && out[i]->grad_fn != NULL) n->self = out[i]->grad_fn;
  return AC_OK;
}

/* A leaf that requires gradients, or a view of one: forward may not write it. */
static bool is_guarded(const lac_box *b) {
  return b != NULL && b->t != NULL && b->t->storage != NULL &&
         ((aci_is_leaf(b->t) && aci_requires_grad(b->t)) || (b->t->flags & ACI_T_LEAF_VIEW));
}

static int forward_body(lua_State *L) {
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* Upvalue 3: the definition. Stack: arguments; then ctx, {ctx, backward, link}, versions, inputs, results. */
static int apply(lua_State *L) {
  lac_state *S = lac_get(L);
  int n_args = lua_gettop(L), ctx = n_args + 1;
  luaL_checkstack(L, n_args + 20, "arguments");
  for (int i = 1; i <= n_args; i++)
    if (lac_box_test(L, i) != NULL) lac_check_tensor(L, S, i, "argument");
  lua_newtable(L); /* ctx */
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_ctx);
  lua_setmetatable(L, -2);
  lua_createtable(L, n_args, 0);
  for (int i = 1; i <= n_args; i++) {
    const lac_box *b = lac_box_test(L, i);
    lua_pushboolean(L, b != NULL && aci_requires_grad(b->t) && ac_ctx_grad_enabled(S->ctx));
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, ctx, "needs_input_grad");
  lua_createtable(L, 2, 0); /* what the callback anchors */
  lua_pushvalue(L, ctx);
  lua_rawseti(L, -2, 1);
  lua_getfield(L, lua_upvalueindex(3), "backward");
  lua_rawseti(L, -2, 2);
  ctx_link *k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = (ctx_link){0};
  lua_pushvalue(L, -1);
  lua_rawseti(L, -3, 3);
  lua_rawsetp(L, ctx, &key_ctx);
  uint32_t *version = lua_newuserdatauv(L, sizeof *version * (size_t)(n_args + 1), 0);
  for (int i = 1; i <= n_args; i++) {
    const lac_box *b = lac_box_test(L, i);
    if (is_guarded(b)) version[i] = ac_storage_version(b->t->storage);
  }
  ac_tensor **in = lua_newuserdatauv(L, sizeof *in * (size_t)(n_args + 1), 0);

  bool grad = ac_ctx_set_grad_enabled(S->ctx, false);
  lua_pushcfunction(L, forward_body);
  lua_getfield(L, lua_upvalueindex(3), "forward");
  lua_pushvalue(L, ctx);
  for (int i = 1; i <= n_args; i++) lua_pushvalue(L, i);
  int st = lua_pcall(L, n_args + 2, LUA_MULTRET, 0);
  ac_ctx_set_grad_enabled(S->ctx, grad);
  if (st != LUA_OK) return lua_error(L);

  for (int i = 1; i <= n_args && grad; i++) {
    const lac_box *b = lac_box_test(L, i);
    if (is_guarded(b) && ac_storage_version(b->t->storage) != version[i])
      return lac_error(L, S, AC_GRAD,
                       "forward wrote argument %d in place, a leaf that requires gradients or a view of one", i);
  }
  int first = ctx + 4, n_res = lua_gettop(L) - first + 1;
  for (int i = 0; i < n_res; i++) own_result(L, S, first + i, first, n_args);
  ac_tensor **out = lua_newuserdatauv(L, sizeof *out * (size_t)(n_res + 1), 0);
  lua_insert(L, first);
  first++;
  luaL_checkstack(L, 10, "results");
  lac_callback *cb = lac_callback_new(L, S, ctx + 1);
  node *n = calloc(1, sizeof *n);
  ac_err e;
  if (n == NULL) {
    lac_callback_free(cb);
    return lac_error(L, S, AC_OOM, "no memory for a gradient node");
  }
  n->cb = cb;
  lua_getfield(L, lua_upvalueindex(3), "name");
  snprintf(n->name, sizeof n->name, "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
  ac_status rec = record(L, S, n, ctx, first, in, out, &e);
  if (rec != AC_OK) {
    node_free(n);
    return lac_raise(L, S, &e);
  }
  return n_res;
}

static int function_new(lua_State *L) {
  static const char *const names[] = {"name", "forward", "backward", NULL};
  lac_state *S = lac_get(L);
  if (!lua_istable(L, 1))
    return lac_argerror(L, S, AC_INVALID, "Function", 1, "definition",
                        "expected table {name=, forward=, backward=}, got %s", luaL_typename(L, 1));
  lac_opts o = lac_opts_open(L, S, 1, names);
  lua_createtable(L, 0, 3);
  lua_pushstring(L, lac_opt_string(&o, "name", "Function"));
  lua_setfield(L, 2, "name");
  for (int i = 1; i <= 2; i++) {
    if (lua_getfield(L, 1, names[i]) != LUA_TFUNCTION)
      return lac_argerror(L, S, AC_INVALID, "Function", 0, names[i], "expected function, got %s",
                          luaL_typename(L, -1));
    lua_setfield(L, 2, names[i]);
  }
  lac_push_upvalues(L);
  lua_pushvalue(L, 2);
  lua_pushcclosure(L, apply, 3);
  return 1;
}

void lac_open_function(lua_State *L, lac_state *S) {
  static const luaL_Reg funcs[] = {{"Function", function_new}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"save_for_backward", save_for_backward}, {"saved_tensors", saved_tensors}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_newtable(L);
  lua_newtable(L);
  lac_setfuncs(L, S, methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "accel.ctx");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_ctx);
}
