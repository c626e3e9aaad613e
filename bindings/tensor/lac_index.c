/* t[key] and t[key] = value for keys other than names.
 *
 *   t[2]                    the second slice of dim 1: a view. t[#t + 1] is nil, so that ipairs
 *                           ends
 *   t[{ {1, 3}, {}, -1 }]   one entry per dim, from the left. Dims that no entry reaches stay whole
 *     integer               one position. The dim is removed
 *     {}  {a}  {a, b}  {a, b, step}    all positions, from a on, a to b inclusive, every step-th of
 *         them
 *     tensor of i64 or i32  the positions that its values (from 0, negative ones from the end) name
 *     tensor of bool        the positions of its true elements, for as many dims as it has
 *     accel.newaxis         a new dim of extent 1
 *     "..."                 as many whole dims as are left
 *   t[tensor]               the same as t[{ tensor }]
 *
 * Without tensors in the key reading gives a view, one op (index_view). Positions and ranges are
 * taken first, then all tensors at once, as PyTorch does (index, masked_select). Assignment writes
 * in place (index_view_put_, index_put_, masked_fill_) into t itself, so that t keeps its place in
 * the graph. */
#include <stdio.h>
#include <string.h>

#include "bindings/core/key.h"
#include "bindings/core/op.h"
#include "ops/index/index_view.h"

enum { MAX_HELD = 64 };

static ac_value tensor_value(ac_tensor *t) { return (ac_value){.kind = AC_T_TENSOR, .tensor = t}; }
static ac_value ints_value(const int64_t *v, int n) {
  return (ac_value){.kind = AC_T_INTS, .n = n, .ints = v};
}
static ac_value shape_value(const int64_t *v, int n) {
  return (ac_value){.kind = AC_T_SHAPE, .n = n, .ints = v};
}

/* ---- calls ---- */

/* Calls an op. The list holds its result. Errors name indexing, not the op. */
static ac_tensor *run(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                      lac_list *hold) {
  ac_err e;
  ac_value r[AC_MAX_RESULTS];
  int n_results = 0;
  if (lac_try_op(L, S, name, args, n, NULL, r, &n_results, &e) != AC_OK) {
    lac_list_release(hold);
    snprintf(e.op, sizeof e.op, "index");
    lac_raise(L, S, &e);
  }
  if (!AC_HOLDS(n_results == 1 && hold->n < MAX_HELD)) {
    lac_list_release(hold);
    lac_error(L, S, AC_INTERNAL, "index: %d results of %s", n_results, name);
  }
  return hold->t[hold->n++] = r[0].tensor;
}

/* The key's tensors as index tensors of the view's dims: masks become the positions of their true
 * elements. Returns their number. */
static int indices(lua_State *L, lac_state *S, const lac_key *k, lac_list *hold, ac_tensor **list,
                   int64_t *dims) {
  int n = 0;
  for (int i = 0; i < k->n_parts; i++) {
    ac_tensor *p = k->part[i].t;
    if (p->dtype != AC_BOOL) {
      list[n] = p;
      dims[n++] = k->part[i].dim;
      continue;
    }
    const ac_value mask = tensor_value(p);
    ac_tensor *at = run(L, S, "nonzero", &mask, 1, hold);
    for (int d = 0; d < p->ndim; d++) {
      const ac_value v[3] = {
          tensor_value(at), {.kind = AC_T_DIM, .i = 1}, {.kind = AC_T_POS, .i = d}};
      list[n] = run(L, S, "select", v, 3, hold);
      dims[n++] = k->part[i].dim + d;
    }
  }
  return n;
}

static void retain_parts(const lac_key *k, lac_list *hold) {
  for (int i = 0; i < k->n_parts; i++) {
    ac_tensor_retain(k->part[i].t);
    hold->t[hold->n++] = k->part[i].t;
  }
}

static ac_tensor *view_of(lua_State *L, lac_state *S, const lac_key *k, ac_tensor *t,
                          lac_list *hold) {
  const ac_value v[2] = {tensor_value(t), ints_value(k->spec, k->n_spec)};
  return k->whole ? t : run(L, S, "index_view", v, 2, hold);
}

/* Only a mask, and it covers the whole view? */
static bool is_full_mask(const lac_key *k) {
  return k->n_parts == 1 && k->part[0].t->dtype == AC_BOOL && k->part[0].t->ndim == k->n_view;
}

/* ---- reading ---- */

/* Pushes the view t[i]. One past the end: nil. */
static int get_item(lua_State *L, lac_state *S) {
  lac_box *b = lac_box_push(L, S); /* before t is read: the collector may run finalizers */
  ac_tensor *t = lac_check_tensor(L, S, 1, "self");
  if (t->ndim == 0)
    return lac_error(L, S, AC_INDEX,
                     "index: a tensor of rank 0 has no elements to index; use t:item()");
  if (lua_isinteger(L, 2) && lua_tointeger(L, 2) == t->shape[0] + 1) return 0;
  const ac_value v[3] = {tensor_value(t),
                         {.kind = AC_T_DIM, .i = 0},
                         {.kind = AC_T_POS, .i = lac_key_position(L, S, t, 0, 2)}};
  lac_call_op(L, S, "select", v, 3, b);
  return 1;
}

/* Stack: t, key, the empty box of the result, and, if the key has tensors, the list that holds t,
 * these tensors and intermediate results: ops may run hooks, which may release arguments. */
int lac_index_get(lua_State *L, lac_state *S) {
  const int type = lua_type(L, 2);
  lac_key k;
  if (type == LUA_TNUMBER) return get_item(L, S);
  if (type != LUA_TTABLE && lac_box_test(L, 2) == NULL) return lac_key_bad(L, S, 2);
  luaL_checkstack(L, 12, "index");
  lac_box *out = lac_box_push(L, S);
  lac_list *hold = lac_key_has_tensors(L) ? lac_list_new(L, MAX_HELD) : NULL;
  ac_tensor *t = lac_check_tensor(L, S, 1, "self");
  lac_key_parse(L, S, t, &k);
  if (hold == NULL) {
    ac_err e;
    ac_value r[AC_MAX_RESULTS], v[2] = {tensor_value(t), ints_value(k.spec, k.n_spec)};
    int n_results;
    if (lac_try_op(L, S, "index_view", v, 2, NULL, r, &n_results, &e) != AC_OK) {
      snprintf(e.op, sizeof e.op, "index");
      return lac_raise(L, S, &e);
    }
    lac_box_fill(S, out, r[0].tensor);
    return 1;
  }
  ac_tensor_retain(t);
  hold->t[hold->n++] = t;
  retain_parts(&k, hold);
  ac_tensor *view = view_of(L, S, &k, t, hold), *got;
  if (is_full_mask(&k)) {
    const ac_value v[2] = {tensor_value(view), tensor_value(k.part[0].t)};
    got = run(L, S, "masked_select", v, 2, hold);
  } else {
    ac_tensor *list[AC_MAX_DIMS];
    int64_t dims[AC_MAX_DIMS];
    const int n = indices(L, S, &k, hold, list, dims);
    const ac_value v[3] = {tensor_value(view),
                           {.kind = AC_T_TENSORS, .n = n, .tensors = list},
                           {.kind = AC_T_DIMS, .n = n, .ints = dims}};
    got = run(L, S, "index", v, 3, hold);
  }
  ac_tensor_retain(got);
  lac_box_fill(S, out, got);
  lac_charge(S, got);
  lac_list_release(hold);
  lua_settop(L, lua_gettop(L) - 1); /* hold */
  return 1;
}

/* ---- assignment ---- */

/* Calls an op that writes into its first argument. */
static void write_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     lac_list *hold) {
  ac_err e;
  ac_value r[AC_MAX_RESULTS];
  int n_results = 0;
  ac_status st = lac_try_op(L, S, name, args, n, NULL, r, &n_results, &e);
  for (int i = 0; st == AC_OK && i < n_results; i++) ac_tensor_release(r[i].tensor);
  if (st == AC_OK) return;
  const size_t said = strlen(e.msg);
  if (st == AC_GRAD && (args[0].tensor->flags & ACI_T_VIEW))
    snprintf(e.msg + said, sizeof e.msg - said,
             " (t[{ 2, 3 }] = v writes into t itself, t[2][3] = v into a view of it)");
  if (hold != NULL) lac_list_release(hold);
  snprintf(e.op, sizeof e.op, "index");
  lac_raise(L, S, &e);
}

static void put_view(lua_State *L, lac_state *S, const lac_key *k, ac_tensor *t, ac_value value,
                     lac_list *hold) {
  const ac_value v[3] = {tensor_value(t), value, ints_value(k->spec, k->n_spec)};
  write_op(L, S, "index_view_put_", v, 3, hold);
}

/* Number under a mask: through masked_fill, whose mask gets a dim for each one after its own. */
static void put_mask(lua_State *L, lac_state *S, const lac_key *k, ac_tensor *t, ac_tensor *view,
                     ac_value value, bool within, lac_list *hold) {
  int64_t shape[AC_MAX_DIMS];
  ac_tensor *mask = k->part[0].t;
  const int rest = k->n_view - k->part[0].dim;
  if (rest > mask->ndim) {
    for (int d = 0; d < rest; d++) shape[d] = d < mask->ndim ? mask->shape[d] : 1;
    const ac_value v[2] = {tensor_value(mask), shape_value(shape, rest)};
    mask = run(L, S, "reshape", v, 2, hold);
  }
  const ac_value v[3] = {tensor_value(view), tensor_value(mask), value};
  if (within) put_view(L, S, k, t, tensor_value(run(L, S, "masked_fill", v, 3, hold)), hold);
  else write_op(L, S, "masked_fill_", v, 3, hold);
}

static void put_at(lua_State *L, lac_state *S, const lac_key *k, ac_tensor *t, ac_tensor *view,
                   ac_value value, bool within, lac_list *hold) {
  ac_tensor *list[AC_MAX_DIMS];
  int64_t dims[AC_MAX_DIMS];
  const int n = indices(L, S, k, hold, list, dims);
  if (value.kind == AC_T_TENSOR && value.tensor->dtype != t->dtype) {
    const ac_value v[2] = {value, {.kind = AC_T_DTYPE, .dtype = (ac_dtype)t->dtype}};
    value = tensor_value(run(L, S, "to", v, 2, hold));
  }
  const ac_value v[5] = {tensor_value(view),
                         {.kind = AC_T_TENSORS, .n = n, .tensors = list},
                         value,
                         {.kind = AC_T_BOOL, .b = false},
                         {.kind = AC_T_DIMS, .n = n, .ints = dims}};
  if (within) put_view(L, S, k, t, tensor_value(run(L, S, "index_put", v, 5, hold)), hold);
  else write_op(L, S, "index_put_", v, 5, hold);
}

/* Stack: t, key, value, and the same list as in lac_index_get. Every way ends in an op that writes
 * into t itself. */
int lac_index_set(lua_State *L, lac_state *S) {
  const int type = lua_type(L, 2);
  const bool listed = type != LUA_TNUMBER;
  lac_key k;
  ac_scalar x;
  char buf[96];
  if (listed && type != LUA_TTABLE && lac_box_test(L, 2) == NULL) return lac_key_bad(L, S, 2);
  const bool number = lac_is_scalar(L, 3, &x);
  if (!number && lac_box_test(L, 3) == NULL)
    return lac_error(L, S, AC_INVALID, "index: expected tensor or number to assign, got %s",
                     lac_typename(L, 3, buf, sizeof buf));
  luaL_checkstack(L, 12, "index");
  lac_list *hold = listed && lac_key_has_tensors(L) ? lac_list_new(L, MAX_HELD) : NULL;
  ac_tensor *t = lac_check_tensor(L, S, 1, "self"),
            *src = number ? NULL : lac_check_tensor(L, S, 3, "value");
  const ac_value value = number ? (ac_value){.kind = AC_T_SCALAR, .scalar = x} : tensor_value(src);
  if (!listed) {
    if (t->ndim == 0)
      return lac_error(L, S, AC_INDEX,
                       "index: a tensor of rank 0 has no elements to index; use t:fill_(value)");
    k.n_spec = 3;
    k.spec[0] = lac_key_position(L, S, t, 0, 2);
    k.spec[1] = ACI_VIEW_SELECT;
    k.spec[2] = 0;
  } else {
    lac_key_parse(L, S, t, &k);
  }
  if (hold == NULL) {
    put_view(L, S, &k, t, value, NULL);
    return 0;
  }
  ac_tensor_retain(t);
  hold->t[hold->n++] = t;
  if (src != NULL) {
    ac_tensor_retain(src);
    hold->t[hold->n++] = src;
  }
  retain_parts(&k, hold);
  /* A view must not be written while a graph is recorded: its new value is made separately and put
   * into t. */
  const bool recorded = ac_ctx_grad_enabled(S->ctx) &&
                        (aci_requires_grad(t) || (src != NULL && aci_requires_grad(src)));
  ac_tensor *view = view_of(L, S, &k, t, hold);
  if (number && k.n_parts == 1 && k.part[0].t->dtype == AC_BOOL)
    put_mask(L, S, &k, t, view, value, recorded && !k.whole, hold);
  else put_at(L, S, &k, t, view, value, recorded && !k.whole, hold);
  lac_list_release(hold);
  return 0;
}

LAC_OPEN("accel", index) {
  lua_pushliteral(L, LAC_NEWAXIS);
  lua_setfield(L, -2, "newaxis");
}
