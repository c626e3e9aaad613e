/* What a debugger asks of the ops that a script runs and of its tensors, as the table
 * accel.console.look, for lua/repl.
 *
 *   look.nan(on)       the op that makes a NaN from arguments without one stops the script at the
 *                      next instruction of Lua: lua/repl/attached.lua, nan(text, arguments)
 *   look.sites(on)     from then on the lines that make tensors are noted
 *   look.quiet(on)     a prompt is open: its ops are its user's
 *   look.tensors() -> list of {bytes, dtype, shape (text), device, site or nil, graph (only a graph
 *                      holds it)}, one per storage
 *   look.graph(t) -> list of the nodes that t was computed by, t's own first: {name, edges (their
 *                      places in the list), site or nil, leaf (a tensor) or nil}
 *
 * Looking costs a pass over each result, so that it is off until somebody asks. Results on other
 * devices than the CPU, and those of accel.compile that no memory holds, are left out. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "autograd/op_node.h"
#include "bindings/core/chunk.h"
#include "bindings/core/lac.h"
#include "bindings/embed/interrupt.h"
#include "ops/core/ctx_impl.h"

enum { INPUTS = 6, NODES = 20000 };

typedef struct place {
  const ac_storage *storage;
  uint32_t site;
} place;

/* A state's part. */
typedef struct lac_look {
  bool nan, sites, quiet, observes;
  char text[200];        /* of the stop that is due. "": none */
  ac_tensor *in[INPUTS]; /* then: the op's tensors, retained */
  int n_in;
  place *place; /* by address, open addressing. A storage that has died may leave its entry */
  size_t cap, n;
} lac_look;

/* ---- values ---- */

static bool is_nan16(uint16_t h, bool brain) {
  return brain ? (h & 0x7f80) == 0x7f80 && (h & 0x7f) != 0
               : (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;
}

/* Position of the first NaN in a tensor of the CPU. -1: none. */
static int64_t first_nan(const ac_tensor *t) {
  const ac_storage *s = t->storage;
  ac_scalar v;
  ac_err e;
  if (!ac_dtype_is_float((ac_dtype)t->dtype) || s == NULL || s->ptr == NULL || s->layout != NULL ||
      t->device->kind != AC_DEV_CPU)
    return -1;
  const bool dense = ac_tensor_is_contiguous(t);
  const void *p = dense ? ac_tensor_data(t) : NULL;
  for (int64_t i = 0; i < t->numel; i++) {
    bool nan;
    if (dense && t->dtype == AC_F32) nan = isnan(((const float *)p)[i]);
    else if (dense && t->dtype == AC_F64) nan = isnan(((const double *)p)[i]);
    else if (dense && (t->dtype == AC_F16 || t->dtype == AC_BF16))
      nan = is_nan16(((const uint16_t *)p)[i], t->dtype == AC_BF16);
    else if (ac_tensor_item(t, i, &v, &e) == AC_OK) nan = isnan(v.f);
    else return -1;
    if (nan) return i;
  }
  return -1;
}

/* ---- the observer ---- */

static lua_State *running(const lac_state *S) {
  const lac_running *r = S->attach->running;
  return r != NULL ? r->L : S->main;
}

static void forget_inputs(lac_look *k) {
  for (int i = 0; i < k->n_in; i++) ac_tensor_release(k->in[i]);
  k->n_in = 0;
}

/* At the next instruction of a script or of the library: outside of any op. */
static void stop_hook(lua_State *L, lua_Debug *ar) {
  lac_state *S = lac_state_of(L);
  if (S == NULL) return; /* the state closes */
  lac_look *k = S->look;
  lua_getinfo(L, "S", ar);
  if (ar->what[0] == 'C' || strncmp(ar->source, "=lua/", 5) == 0) return;
  lac_host_rehook(L);
  if (k->text[0] == 0) return;
  const int top = lua_gettop(L);
  luaL_checkstack(L, 8, "nan");
  lac_chunk(L, S, "repl/attached");
  lua_getfield(L, -1, "nan");
  lua_pushstring(L, k->text);
  lua_createtable(L, k->n_in, 0);
  for (int i = 0; i < k->n_in; i++) {
    lac_push_tensor(L, S, k->in[i]);
    lua_rawseti(L, -2, i + 1);
  }
  k->text[0] = 0;
  forget_inputs(k);
  lua_call(L, 2, 0);
  lua_settop(L, top);
}

/* The tensors among the arguments: kept in k->in. False: one of them has a NaN already. */
static bool keep_inputs(lac_look *k, const ac_frame *f) {
  k->n_in = 0;
  for (int i = 0; i < f->n_args; i++) {
    const ac_value *a = &f->args[i];
    const int n = a->kind == AC_T_TENSORS ? a->n : a->kind == AC_T_TENSOR ? 1 : 0;
    for (int j = 0; j < n; j++) {
      ac_tensor *t = a->kind == AC_T_TENSORS ? a->tensors[j] : a->tensor;
      bool written = false; /* what it was is gone */
      for (int r = 0; t != NULL && r < f->n_out; r++) written |= f->out[r]->storage == t->storage;
      if (t == NULL) continue;
      if (!written && first_nan(t) >= 0) {
        k->n_in = 0;
        return false;
      }
      if (k->n_in < INPUTS) k->in[k->n_in++] = t;
    }
  }
  return k->n_in > 0; /* else it is memory that nobody has written so far */
}

static void look_for_nan(lac_state *S, const ac_frame *f) {
  lac_look *k = S->look;
  for (int r = 0; r < f->n_out; r++) {
    const int64_t at = f->out[r] != NULL ? first_nan(f->out[r]) : -1;
    if (at < 0 || !keep_inputs(k, f)) continue;
    for (int i = 0; i < k->n_in; i++) ac_tensor_retain(k->in[i]);
    char site[LAC_SITE];
    snprintf(k->text, sizeof k->text, "%s makes the first NaN%s at %s, element %lld", f->op->name,
             f->ctx->in_backward > 0 ? ", in the backward" : "", lac_site(running(S), S, 0, site),
             (long long)ac_frame_show(f, at));
    lua_sethook(running(S), stop_hook, LUA_MASKCOUNT, 1);
    return;
  }
}

static size_t slot_of(const lac_look *k, const ac_storage *s) {
  size_t i = ((uintptr_t)s >> 4) * 0x9e3779b97f4a7c15u >> 20 & (k->cap - 1);
  while (k->place[i].storage != NULL && k->place[i].storage != s) i = (i + 1) & (k->cap - 1);
  return i;
}

static void put(lac_look *k, const ac_storage *s, uint32_t site) {
  if (2 * k->n >= k->cap) {
    lac_look more = *k;
    more.cap = k->cap > 0 ? 2 * k->cap : 4096;
    more.place = calloc(more.cap, sizeof *more.place);
    if (more.place == NULL) return;
    for (size_t i = 0; i < k->cap; i++)
      if (k->place[i].storage != NULL)
        more.place[slot_of(&more, k->place[i].storage)] = k->place[i];
    free(k->place);
    *k = more;
  }
  place *p = &k->place[slot_of(k, s)];
  if (p->storage == NULL) k->n++;
  *p = (place){s, site};
}

static void after(void *user, const ac_frame *f, ac_status st) {
  lac_state *S = user;
  lac_look *k = S->look;
  if (st != AC_OK || k->quiet) return;
  if (k->nan && k->text[0] == 0) look_for_nan(S, f);
  const uint32_t site = k->sites && f->n_out > 0 ? lac_site_here(running(S), S) : 0;
  for (int r = 0; r < f->n_out && site != 0; r++)
    if (f->out[r] != NULL && f->out[r]->storage != NULL && !(f->out[r]->flags & ACI_T_VIEW) &&
        !f->inplace)
      put(k, f->out[r]->storage, site);
}

static void observe(lua_State *L, lac_state *S) {
  lac_look *k = S->look;
  const bool wanted = k->nan || k->sites;
  ac_err e;
  if (wanted == k->observes) return;
  if (!wanted) aci_ctx_remove_observer(S->ctx, S);
  else if (aci_ctx_add_observer(S->ctx, (aci_observer){NULL, after, S}, &e) != AC_OK)
    lac_raise(L, S, &e);
  k->observes = wanted;
}

static int nan_(lua_State *L) {
  lac_state *S = lac_get(L);
  S->look->nan = lua_toboolean(L, 1);
  observe(L, S);
  return 0;
}

static int sites(lua_State *L) {
  lac_state *S = lac_get(L);
  S->look->sites = lua_toboolean(L, 1);
  observe(L, S);
  return 0;
}

static int quiet(lua_State *L) {
  lac_get(L)->look->quiet = lua_toboolean(L, 1);
  return 0;
}

/* ---- live tensors ---- */

/* Adds a row to the list at index 1, unless the set at index 2 has its storage. */
static void add(lua_State *L, const lac_state *S, const ac_tensor *t, bool graph) {
  const lac_look *k = S->look;
  char shape[128];
  size_t n = 0;
  if (t == NULL || t->storage == NULL) return;
  if (lua_rawgetp(L, 2, t->storage) != LUA_TNIL) {
    lua_pop(L, 1);
    return;
  }
  lua_pop(L, 1);
  lua_pushboolean(L, 1);
  lua_rawsetp(L, 2, t->storage);
  for (int i = 0; i < t->ndim && n < sizeof shape; i++)
    n += (size_t)snprintf(shape + n, sizeof shape - n, i > 0 ? ", %lld" : "%lld",
                          (long long)ac_tensor_shape(t)[i]);
  lua_createtable(L, 0, 6);
  lua_pushinteger(L, (lua_Integer)t->storage->bytes), lua_setfield(L, -2, "bytes");
  lua_pushstring(L, ac_dtype_name((ac_dtype)t->dtype)), lua_setfield(L, -2, "dtype");
  lua_pushstring(L, n > 0 ? shape : ""), lua_setfield(L, -2, "shape");
  lua_pushboolean(L, graph), lua_setfield(L, -2, "graph");
  const uint32_t site = k->cap > 0 ? k->place[slot_of(k, t->storage)].site : 0;
  if (site != 0) lac_site_push(L, site), lua_setfield(L, -2, "site");
  lua_rawseti(L, 1, (lua_Integer)lua_rawlen(L, 1) + 1);
}

/* The tensors that a node of an op keeps, and the nodes before it, once each (set at index 3, list
 * of nodes to visit at index 4). */
static void visit(lua_State *L, const lac_state *S, const ac_node *n) {
  if (n->cls == &aci_op_class) {
    const aci_op_node *o = (const aci_op_node *)n;
    for (int i = 0; i < o->n_args; i++) {
      const ac_value *a = &o->args[i];
      if (a->kind == AC_T_TENSOR) add(L, S, a->tensor, true);
      for (int j = 0; a->kind == AC_T_TENSORS && j < a->n; j++) add(L, S, a->tensors[j], true);
    }
    for (int i = 0; i < n->n_out && o->out != NULL; i++) add(L, S, o->out[i], true);
  }
  for (int i = 0; i < n->n_edges; i++) {
    if (n->edge[i].node == NULL) continue;
    const bool known = lua_rawgetp(L, 3, n->edge[i].node) != LUA_TNIL;
    lua_pop(L, 1);
    if (known) continue;
    lua_pushboolean(L, 1);
    lua_rawsetp(L, 3, n->edge[i].node);
    lua_pushlightuserdata(L, n->edge[i].node);
    lua_rawseti(L, 4, (lua_Integer)lua_rawlen(L, 4) + 1);
  }
}

static int all_tensors(lua_State *L) {
  lac_state *S = lua_touserdata(L, 1);
  lua_settop(L, 0);
  for (int i = 0; i < 4; i++) lua_newtable(L);
  for (uint32_t i = 1; i < S->boxes->n_slots; i++) {
    const uintptr_t v = S->boxes->slots[i];
    if (v == 0 || (v & 1) != 0) continue;
    const ac_tensor *t = (const ac_tensor *)v;
    add(L, S, t, false);
    add(L, S, t->grad, false);
    if (t->grad_fn != NULL) {
      lua_pushlightuserdata(L, t->grad_fn);
      lua_rawseti(L, 4, (lua_Integer)lua_rawlen(L, 4) + 1);
    }
  }
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 4); i++) {
    lua_rawgeti(L, 4, i);
    const ac_node *n = lua_touserdata(L, -1);
    lua_pop(L, 1);
    visit(L, S, n);
  }
  lua_settop(L, 1);
  return 1;
}

/* No box is made or released meanwhile, and nothing runs the collector's finalizers. */
static int tensors(lua_State *L) {
  lac_state *S = lac_get(L);
  const bool ran = lua_gc(L, LUA_GCISRUNNING) != 0;
  lua_pushcfunction(L, all_tensors);
  lua_pushlightuserdata(L, S);
  lua_gc(L, LUA_GCSTOP);
  const int st = lua_pcall(L, 1, 1, 0);
  if (ran) lua_gc(L, LUA_GCRESTART);
  return st == LUA_OK ? 1 : lua_error(L);
}

/* ---- a graph ---- */

/* The number of a node in the list at index 2, which it joins. 0: the list is full. Index 3: numbers
 * by node. */
static lua_Integer number_of(lua_State *L, ac_node *n) {
  if (lua_rawgetp(L, 3, n) != LUA_TNIL) {
    const lua_Integer known = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return known;
  }
  lua_pop(L, 1);
  const lua_Integer next = (lua_Integer)lua_rawlen(L, 2) + 1;
  if (next > NODES) return 0;
  lua_createtable(L, 0, 4);
  lua_pushlightuserdata(L, n), lua_setfield(L, -2, "node");
  lua_rawseti(L, 2, next);
  lua_pushinteger(L, next), lua_rawsetp(L, 3, n);
  return next;
}

static int graph(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "t");
  lua_settop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  if (t->grad_fn != NULL) number_of(L, t->grad_fn);
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, 2) && i <= NODES; i++) {
    lua_rawgeti(L, 2, i);
    lua_getfield(L, 4, "node");
    const ac_node *n = lua_touserdata(L, -1);
    lua_pop(L, 1);
    lua_pushnil(L), lua_setfield(L, 4, "node");
    lua_pushstring(L, n->name != NULL ? n->name : "?"), lua_setfield(L, 4, "name");
    if (n->site != 0) lac_site_push(L, n->site), lua_setfield(L, 4, "site");
    if (n->cls == &aci_acc_class && ((const aci_acc_node *)n)->leaf != NULL)
      lac_push_tensor(L, S, ((const aci_acc_node *)n)->leaf), lua_setfield(L, 4, "leaf");
    lua_createtable(L, n->n_edges, 0);
    for (int k = 0, m = 0; k < n->n_edges; k++) {
      const lua_Integer to = n->edge[k].node != NULL ? number_of(L, n->edge[k].node) : 0;
      if (to == 0) continue;
      lua_pushinteger(L, to);
      lua_rawseti(L, 5, ++m);
    }
    lua_setfield(L, 4, "edges");
    lua_settop(L, 3);
  }
  lua_settop(L, 2);
  return 1;
}

static void close_look(lua_State *L, lac_state *S) {
  (void)L;
  forget_inputs(S->look);
  free(S->look->place);
  S->look->place = NULL;
  S->look->cap = S->look->n = 0;
}

LAC_OPEN("accel.console", look) {
  static const luaL_Reg funcs[] = {{"nan", nan_},        {"sites", sites}, {"quiet", quiet},
                                   {"tensors", tensors}, {"graph", graph}, {NULL, NULL}};
  S->look = lac_state_part(L, sizeof *S->look);
  lua_newtable(L);
  lac_setfuncs(L, S, funcs);
  lua_setfield(L, -2, "look");
  lac_at_close(S, close_look);
}
