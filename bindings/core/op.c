/* Calls of ops by the bindings themselves: by name with ready values, and new tensors. Each
 * collects and tries again when memory is short. */
#include "bindings/core/op.h"

#include "bindings/core/gc.h"
#include "bindings/core/lac.h"
#include "ops/core/ctx_impl.h"

/* Hooks are scripts: they may release this call's arguments. */
static ac_status call_watched(lua_State *L, lac_state *S, const ac_op *op, const ac_value *v,
                              ac_value *results, int *n_results, ac_err *e) {
  AC_TRY(aci_op_parse(op, e));
  const int n = op->n_params;
  ac_tensor *kept[AC_MAX_ARGS];
  int n_kept = 0;
  for (int i = 0; i < n; i++) {
    if (v[i].kind == AC_T_TENSOR && v[i].tensor != NULL)
      ac_tensor_retain(kept[n_kept++] = v[i].tensor);
    for (int j = 0; v[i].kind == AC_T_TENSORS && j < v[i].n; j++) ac_tensor_retain(v[i].tensors[j]);
  }
  lua_State *was = lac_enter(L, S);
  ac_status st = ac_call(S->ctx, op, v, results, n_results, e);
  lac_leave(S, was);
  for (int i = 0; i < n_kept; i++) ac_tensor_release(kept[i]);
  for (int i = 0; i < n; i++)
    for (int j = 0; v[i].kind == AC_T_TENSORS && j < v[i].n; j++)
      ac_tensor_release(v[i].tensors[j]);
  return st;
}

ac_status lac_call(lua_State *L, lac_state *S, const ac_op *op, const ac_value *v,
                   ac_value *results, int *n_results, ac_err *e) {
  if (__builtin_expect(S->ctx->record_more, 0))
    return call_watched(L, S, op, v, results, n_results, e);
  return ac_call(S->ctx, op, v, results, n_results, e);
}

ac_status lac_try_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     ac_generator *g, ac_value *results, int *n_results, ac_err *e) {
  ac_value v[AC_MAX_ARGS];
  *n_results = 0;
  const ac_op *op = ac_op_find(S->ctx, name);
  if (op == NULL) lac_error(L, S, AC_UNSUPPORTED, "this build has no op '%s'", name);
  AC_TRY(aci_op_parse(op, e));
  const aci_sig *sig = aci_op_sig(op);
  AC_CHECK(n <= sig->n_params, e);
  for (int i = 0; i < sig->n_params; i++) {
    const aci_param *p = &sig->param[i];
    v[i] = i < n ? args[i] : p->has_default ? p->dflt : (ac_value){.kind = AC_T_NONE};
  }
  if (g != NULL && op->rng_arg >= 0)
    v[op->rng_arg] = (ac_value){.kind = AC_T_GENERATOR, .generator = g};
  ac_status st = lac_call(L, S, op, v, results, n_results, e);
  if (st == AC_OOM) { /* the collector may run finalizers that release tensors */
    for (int i = 0; i < n; i++)
      if (v[i].kind == AC_T_TENSOR) ac_tensor_retain(v[i].tensor);
    if (lac_gc_oom(L, S)) st = lac_call(L, S, op, v, results, n_results, e);
    for (int i = 0; i < n; i++)
      if (v[i].kind == AC_T_TENSOR) ac_tensor_release(v[i].tensor);
  }
  return st;
}

void lac_call_random(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     ac_generator *g, lac_box *b) {
  ac_err e;
  ac_value r[AC_MAX_RESULTS];
  int n_results = 0;
  if (lac_try_op(L, S, name, args, n, g, r, &n_results, &e) != AC_OK) lac_raise(L, S, &e);
  for (int i = b != NULL ? 1 : 0; i < n_results; i++) ac_tensor_release(r[i].tensor);
  if (b != NULL) {
    lac_box_fill(S, b, r[0].tensor);
    lac_charge(S, r[0].tensor);
  }
}

void lac_call_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                 lac_box *b) {
  lac_call_random(L, S, name, args, n, NULL, b);
}

ac_tensor *lac_new_tensor(lua_State *L, lac_state *S, ac_device *d, ac_dtype dt, int ndim,
                          const int64_t *shape, ac_mem_class c) {
  ac_err e;
  ac_tensor *t = NULL;
  ac_status st;
  lac_box *b = lac_box_push(L, S);
  LAC_RETRY(L, S, st, ac_tensor_new_class(d, dt, ndim, shape, c, &t, &e));
  if (st != AC_OK) lac_raise(L, S, &e);
  lac_box_fill(S, b, t);
  lac_charge(S, t);
  return t;
}

ac_tensor *lac_new_cpu(lua_State *L, lac_state *S, ac_dtype dt, int ndim, const int64_t *shape) {
  ac_err e;
  ac_device *cpu = NULL;
  if (ac_ctx_device(S->ctx, "cpu", &cpu, &e) != AC_OK) lac_raise(L, S, &e);
  return lac_new_tensor(L, S, cpu, dt, ndim, shape, AC_MEM_ACTIVATION);
}
