/* accel.Function{name =, forward =, backward =}: functions with a gradient of their own, written in
 * Lua.
 *
 *   local Cube = accel.Function{ name = "Cube",
 *     forward = function(ctx, x) ctx:save_for_backward(x) return x * x * x end, backward =
 *     function(ctx, dy) local x = ctx:saved_tensors() return dy * 3 * x * x end }
 *   y = Cube(x)     -- or Cube.apply(x)
 *
 * forward runs without gradients. backward gets one gradient per result (zeros for missing ones,
 * unless ctx:set_materialize_grads(false)) and returns one per argument of forward, nil for none.
 * With setup_context(ctx, inputs, output) forward gets no ctx: setup_context saves the values for
 * backward. The graph, not Lua, holds the arguments of save_for_backward, frees them as backward
 * consumes them, and checks them for changes in place. Results among them are saved without their
 * history, so that no cycle arises. An argument that forward writes must be passed to
 * ctx:mark_dirty and returned. Results without a gradient must be passed to
 * ctx:mark_non_differentiable. Other fields of ctx are the script's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accel/autograd.h"
#include "autograd/op_node.h"
#include "bindings/core/callback.h"
#include "bindings/core/guard.h"
#include "function.h"

static const char key_function;

/* Everything that a call has on the stack: arguments from 1, then these, then the results. */
typedef struct call {
  lua_State *L;
  lac_state *S;
  int def;   /* the definition */
  int first; /* argument */
  int n_args, ctx, results, n_res;
  bool grad, *constant; /* constant: per result, marked as non-differentiable */
} call;

static lac_box *arg_box(const call *c, int i) { return lac_box_test(c->L, c->first + i); }

/* A result that is an input, an earlier result, or has a history, becomes a view of its own of the
 * same bytes. */
static void own_result(const call *c, int idx) {
  lua_State *L = c->L;
  lac_state *S = c->S;
  lac_box *b = lac_box_test(L, idx);
  if (b == NULL) return;
  if (b->t == NULL) lac_error(L, S, AC_RELEASED, "forward returned a released tensor");
  bool same = aci_requires_grad(b->t);
  for (int i = 0; i < c->n_args && !same; i++) {
    const lac_box *a = arg_box(c, i);
    same = a != NULL && a->t == b->t;
  }
  for (int i = c->results; i < idx && !same; i++) {
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

/* t was written by the call whose result `made` is: it has that history from now on. */
static ac_status take_history(ac_tensor *t, const ac_tensor *made, ac_err *e) {
  ac_node *old = t->grad_fn;
  if (made->grad_fn == NULL) return AC_OK;
  AC_TRY(aci_detach_saved(t, e)); /* the new history may lead to a node that keeps t */
  t->storage->graph_version++;
  t->view_version = t->storage->graph_version;
  aci_retained_grad_move(t, made->grad_fn);
  t->grad_fn = made->grad_fn;
  t->out_nr = made->out_nr;
  aci_node_retain(t->grad_fn);
  aci_node_release(old);
  return AC_OK;
}

/* Everything that can raise happened: makes the node. in has room for all arguments. out and dirty,
 * owned, for all results. */
static ac_status record(const call *c, lac_fn_node *n, ac_tensor **in, ac_tensor **out,
                        ac_tensor **dirty, ac_err *e) {
  lua_State *L = c->L;
  n->in_arg = calloc((size_t)c->n_args + 1, sizeof *n->in_arg);
  n->out = calloc((size_t)c->n_res + 1, sizeof *n->out);
  if (n->in_arg == NULL || n->out == NULL) return AC_FAIL(e, OOM, "no memory for a gradient node");
  n->n_args = c->n_args;
  /* first: from here on nothing runs the collector, whose finalizers could release an input */
  AC_TRY(lac_fn_take_saved(L, n, c->ctx, c->results, c->n_res, e));
  for (int i = 0; i < c->n_args; i++) {
    const lac_box *b = arg_box(c, i);
    if (b == NULL || b->t == NULL) continue;
    n->in_arg[n->n_in] = i;
    in[n->n_in++] = b->t;
  }
  for (int i = 0; i < c->n_res; i++) {
    const lac_box *b = lac_box_test(L, c->results + i);
    if (b == NULL || b->t == NULL) continue;
    ac_tensor *t = b->t;
    lac_fn_out *m = &n->out[n->n_out];
    *m = (lac_fn_out){.dtype = (ac_dtype)t->dtype, .device = t->device, .ndim = t->ndim};
    memcpy(m->shape, t->shape, (size_t)t->ndim * sizeof m->shape[0]);
    const int k = n->n_out++;
    /* t still has the history of before */
    if (dirty[i] != NULL) AC_TRY(ac_tensor_detach(t, &out[k], e));
    else if (!c->constant[i]) ac_tensor_retain(out[k] = t);
  }
  lac_fn_forget_marks(L, c->ctx);
  const ac_callback_node cb = {.struct_size = sizeof cb,
                               .name = n->name,
                               .backward = lac_fn_backward,
                               .release_saved = lac_fn_release_saved,
                               .free = lac_fn_free,
                               .user = n};
  bool recorded;
  const int n_out = n->n_out;
  AC_TRY(ac_node_callback(c->S->ctx, &cb, n->n_in, in, n_out, out, &recorded, e));
  /* n is gone when nothing was recorded, or no result can have a gradient */
  for (int i = 0; i < n_out; i++)
    if (recorded && out[i] != NULL && out[i]->grad_fn != NULL) n->self = out[i]->grad_fn;
  for (int i = 0, k = 0; i < c->n_res && recorded; i++) {
    const lac_box *b = lac_box_test(L, c->results + i);
    if (b == NULL || b->t == NULL) continue;
    if (dirty[i] != NULL && out[k] != NULL) AC_TRY(take_history(dirty[i], out[k], e));
    k++;
  }
  return AC_OK;
}

/* Its history matters to somebody. */
static bool is_tracked(const lac_box *b) {
  return b != NULL && b->t != NULL && b->t->storage != NULL &&
         (aci_requires_grad(b->t) || (b->t->flags & ACI_T_LEAF_VIEW));
}
/* A leaf that requires gradients, or a view of one: forward may not write it. */
static bool is_guarded(const ac_tensor *t) {
  return (aci_is_leaf(t) && aci_requires_grad(t)) || (t->flags & ACI_T_LEAF_VIEW);
}

/* Arguments that forward wrote must be named, and must allow writes. */
static void check_written(const call *c, const uint32_t *version) {
  bool any = false;
  for (int i = 0; i < c->n_args; i++) any |= is_tracked(arg_box(c, i));
  if (!any) return;
  for (int i = 0; i < c->n_args && c->grad; i++) {
    const lac_box *b = arg_box(c, i);
    if (b == NULL || b->t == NULL) continue;
    const bool dirty = lac_fn_is_marked(c->L, c->ctx, "_dirty", b);
    if (!dirty && !(is_tracked(b) && ac_storage_version(b->t->storage) != version[i])) continue;
    if (is_guarded(b->t))
      lac_error(
          c->L, c->S, AC_GRAD,
          "forward wrote argument %d in place, a leaf that requires gradients or a view of one",
          i + 1);
    if (!dirty)
      lac_error(c->L, c->S, AC_GRAD,
                "forward wrote argument %d in place; call ctx:mark_dirty(it) and return it", i + 1);
    if (b->t->flags & ACI_T_VIEW)
      lac_error(
          c->L, c->S, AC_GRAD,
          "forward wrote argument %d in place, a view: its base would keep the old history; clone it first",
          i + 1);
    bool returned = false;
    for (int k = 0; k < c->n_res && !returned; k++) {
      const lac_box *r = lac_box_test(c->L, c->results + k);
      returned = r != NULL && r->t == b->t;
    }
    if (!returned)
      lac_error(c->L, c->S, AC_GRAD, "argument %d was marked dirty, but is not among the results",
                i + 1);
  }
}

/* forward(ctx, ...), or forward(...), then setup_context(ctx, {...}, results). Leaves the results
 * on the stack. */
static int run_forward(lua_State *L) {
  const int def = 1, ctx = 2, n = lua_gettop(L) - 2;
  const bool apart = lua_getfield(L, def, "setup_context") == LUA_TFUNCTION;
  lua_pop(L, 1);
  lua_getfield(L, def, "forward");
  if (!apart) {
    lua_replace(L, def); /* forward, ctx, arguments */
    lua_call(L, n + 1, LUA_MULTRET);
    return lua_gettop(L);
  }
  for (int i = 1; i <= n; i++) lua_pushvalue(L, ctx + i);
  lua_call(L, n, LUA_MULTRET);
  const int first = ctx + n + 1, n_res = lua_gettop(L) - first + 1;
  luaL_checkstack(L, n_res + 8, "results");
  lua_getfield(L, def, "setup_context");
  lua_pushvalue(L, ctx);
  lua_createtable(L, n, 1);
  for (int i = 1; i <= n; i++) {
    lua_pushvalue(L, ctx + i);
    lua_rawseti(L, -2, i);
  }
  lua_pushinteger(L, n);
  lua_setfield(L, -2, "n");
  if (n_res == 1) {
    lua_pushvalue(L, first);
  } else {
    lua_createtable(L, n_res, 0);
    for (int i = 0; i < n_res; i++) {
      lua_pushvalue(L, first + i);
      lua_rawseti(L, -2, i + 1);
    }
  }
  lua_call(L, 3, 0);
  return n_res;
}

static void push_needs(const call *c) {
  lua_createtable(c->L, c->n_args, 0);
  for (int i = 0; i < c->n_args; i++) {
    const lac_box *b = arg_box(c, i);
    lua_pushboolean(c->L, b != NULL && aci_requires_grad(b->t) && c->grad);
    lua_rawseti(c->L, -2, i + 1);
  }
}

/* Pushes the callback's anchored values: {ctx, backward, link}. */
static void push_anchor(const call *c) {
  lua_State *L = c->L;
  lua_createtable(L, 3, 0);
  lua_pushvalue(L, c->ctx);
  lua_rawseti(L, -2, 1);
  lua_getfield(L, c->def, "backward");
  lua_rawseti(L, -2, 2);
  lac_fn_link *k = lua_newuserdatauv(L, sizeof *k, 0);
  *k = (lac_fn_link){0};
  lua_pushvalue(L, -1);
  lua_rawseti(L, -3, 3);
  lac_fn_link_ctx(L, c->ctx);
}

static lac_fn_node *new_node(const call *c, int anchor) {
  lua_State *L = c->L;
  lac_callback *cb = lac_callback_new(L, c->S, anchor);
  lac_fn_node *n = calloc(1, sizeof *n);
  if (n == NULL) {
    lac_callback_free(cb);
    lac_error(L, c->S, AC_OOM, "no memory for a gradient node");
    return NULL;
  }
  n->cb = cb;
  lua_getfield(L, c->def, "name");
  snprintf(n->name, sizeof n->name, "%s", lua_tostring(L, -1));
  lua_pushliteral(L, "_sparse");
  lua_rawget(L, c->ctx);
  n->materialize = !lua_toboolean(L, -1);
  lua_pop(L, 2);
  return n;
}

static void restore_grad(lua_State *L, lac_state *S, lac_guard *g) {
  (void)L;
  ac_ctx_set_grad_enabled(S->ctx, g->was.b);
}

static int run(lua_State *L, lac_state *S, int def, int first) {
  call c = {.L = L, .S = S, .def = def, .first = first, .n_args = lua_gettop(L) - first + 1};
  c.ctx = first + c.n_args;
  c.grad = ac_ctx_grad_enabled(S->ctx);
  luaL_checkstack(L, 2 * c.n_args + 24, "arguments");
  for (int i = 0; i < c.n_args; i++)
    if (arg_box(&c, i) != NULL) lac_check_tensor(L, S, first + i, "argument");
  lac_fn_push_ctx(L);
  push_needs(&c);
  lua_setfield(L, c.ctx, "needs_input_grad");
  push_anchor(&c); /* ctx + 1 */
  const size_t n = (size_t)c.n_args + 1;
  uint32_t *version = lua_newuserdatauv(L, sizeof *version * n, 0); /* ctx + 2 */
  /* all of it: the allocator reads memory of a box's size */
  memset(version, 0, sizeof *version * n);
  for (int i = 0; i < c.n_args; i++) {
    const lac_box *b = arg_box(&c, i);
    if (b != NULL) version[i] = ac_storage_version(b->t->storage);
  }
  ac_tensor **in = lua_newuserdatauv(L, sizeof *in * n, 0); /* ctx + 3 */
  memset(in, 0, sizeof *in * n);

  /* not by pcall: whoever handles an error of forward sees the frames that raised it */
  lac_guard *mode = lac_guard_push(L, S, "Function", restore_grad); /* ctx + 4 */
  mode->was.b = c.grad;
  mode->done = false;
  lua_toclose(L, -1);
  ac_ctx_set_grad_enabled(S->ctx, false);
  lua_pushcfunction(L, run_forward);
  lua_pushvalue(L, def);
  lua_pushvalue(L, c.ctx);
  for (int i = 0; i < c.n_args; i++) lua_pushvalue(L, first + i);
  lua_call(L, c.n_args + 2, LUA_MULTRET);
  lua_closeslot(L, c.ctx + 4);

  c.results = c.ctx + 5;
  c.n_res = lua_gettop(L) - c.results + 1;
  luaL_checkstack(L, 12, "results");
  check_written(&c, version);
  /* retained: out, dirty */
  lac_list *hold = lac_list_new(L, 2 * (size_t)c.n_res + 1);
  memset(hold->t, 0, sizeof hold->t[0] * (2 * (size_t)c.n_res + 1));
  hold->n = 2 * c.n_res;
  c.constant = lua_newuserdatauv(L, (size_t)c.n_res + 1, 0);
  lua_rotate(L, c.results, 2);
  c.results += 2;
  for (int i = 0; i < c.n_res; i++) {
    const lac_box *b = lac_box_test(L, c.results + i);
    const bool tensor = b != NULL && b->t != NULL;
    c.constant[i] = tensor && lac_fn_is_marked(L, c.ctx, "_constant", b);
    if (!tensor || !lac_fn_is_marked(L, c.ctx, "_dirty", b)) own_result(&c, c.results + i);
    else ac_tensor_retain(hold->t[c.n_res + i] = b->t);
  }
  lac_fn_node *node = new_node(&c, c.ctx + 1);
  ac_err e;
  ac_status rec = record(&c, node, in, hold->t, hold->t + c.n_res, &e);
  lac_list_release(hold);
  if (rec != AC_OK) {
    lac_fn_free(node);
    return lac_raise(L, S, &e);
  }
  return c.n_res;
}

/* Cube.apply(...): upvalue 3 is the definition. */
static int apply(lua_State *L) {
  lac_state *S = lac_get(L);
  lua_pushvalue(L, lua_upvalueindex(3));
  lua_insert(L, 1);
  return run(L, S, 1, 2);
}

/* Cube(...) */
static int call_function(lua_State *L) {
  lac_state *S = lac_get(L);
  bool ok = lua_istable(L, 1) && lua_getmetatable(L, 1);
  if (ok) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &key_function);
    ok = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
  }
  if (!ok)
    return lac_argerror(L, S, AC_INVALID, "Function", 1, "self", "expected accel.Function, got %s",
                        luaL_typename(L, 1));
  lua_rawgetp(L, 1, &key_function);
  lua_replace(L, 1);
  return run(L, S, 1, 2);
}

static int function_tostring(lua_State *L) {
  lua_settop(L, 1);
  if (lua_istable(L, 1)) {
    lua_pushliteral(L, "name");
    lua_rawget(L, 1);
  }
  lua_pushfstring(L, "accel.Function %s",
                  lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?");
  return 1;
}

static int function_new(lua_State *L) {
  static const char *const names[] = {"name", "forward", "backward", "setup_context", NULL};
  lac_state *S = lac_get(L);
  if (!lua_istable(L, 1))
    return lac_argerror(L, S, AC_INVALID, "Function", 1, "definition",
                        "expected table {name=, forward=, backward=}, got %s", luaL_typename(L, 1));
  lac_opts o = lac_opts_open(L, S, 1, names);
  lua_createtable(L, 0, 4);
  const int def = lua_gettop(L);
  lua_pushstring(L, lac_opt_string(&o, "name", "Function"));
  lua_setfield(L, def, "name");
  for (int i = 1; i <= 3; i++) {
    const int type = lua_getfield(L, 1, names[i]);
    if (type == LUA_TNIL && i == 3) break;
    if (type != LUA_TFUNCTION)
      return lac_argerror(L, S, AC_INVALID, "Function", 0, names[i], "expected function, got %s",
                          luaL_typename(L, -1));
    lua_setfield(L, def, names[i]);
  }
  lua_newtable(L); /* the table for scripts, which refers to the definition */
  lua_getfield(L, def, "name");
  lua_setfield(L, -2, "name");
  lua_pushvalue(L, def);
  lua_rawsetp(L, -2, &key_function);
  lac_push_upvalues(L);
  lua_pushvalue(L, def);
  lua_pushcclosure(L, apply, 3);
  lua_setfield(L, -2, "apply");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &key_function);
  lua_setmetatable(L, -2);
  return 1;
}

LAC_OPEN("accel", function) {
  static const luaL_Reg funcs[] = {{"Function", function_new}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
  lua_newtable(L);
  lac_pushfunction(L, S, call_function);
  lua_setfield(L, -2, "__call");
  lac_pushfunction(L, S, function_tostring);
  lua_setfield(L, -2, "__tostring");
  lua_pushliteral(L, "accel.Function");
  lua_setfield(L, -2, "__name");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &key_function);
  lac_fn_open_ctx(L, S);
}
