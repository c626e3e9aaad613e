/* Calls of ops by the bindings themselves: op.c. */
#ifndef LAC_OP_H
#define LAC_OP_H
#include "accel/opdef.h"
#include "bindings/core/gc.h"

/* Pushes the function of an op: call.c. */
void lac_push_op(lua_State *L, lac_state *S, const ac_op *op);
/* Names of the ops that are methods of tensors, at most `most` of them. Returns how many. */
int lac_op_methods(lac_state *S, const char **names, int most);
/* Every op as a function of the table at funcs and a method in the table at methods: lac_ops.c. */
void lac_open_ops(lua_State *L, lac_state *S, int funcs, int methods);
/* ac_call for scripts. While hooks on saved tensors or anomaly mode are on, arguments are held and
 * callbacks run on L. */
ac_status lac_call(lua_State *L, lac_state *S, const ac_op *op, const ac_value *v,
                   ac_value *results, int *n_results, ac_err *e);

/* Calls a built-in op by name with ready values. Parameters after them take their defaults. Results
 * are owned. Raises only if the op does not exist. Collects and tries again when memory is short:
 * tensors inside lists must be retained. */
ac_status lac_try_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     ac_generator *g, ac_value *results, int *n_results, ac_err *e);
/* Calls a built-in op by name with ready values. Raises on failure. Results are put into b (one
 * result), or dropped when it is args[0]. */
void lac_call_op(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                 lac_box *b);
/* The same with a generator in place of the context's own (NULL). */
void lac_call_random(lua_State *L, lac_state *S, const char *name, const ac_value *args, int n,
                     ac_generator *g, lac_box *b);

/* Pushes a new tensor of undefined contents. Collects and tries again when memory is short, and
 * raises if that did not help. Making the box may run finalizers. lac_new_cpu: on the CPU, an
 * activation. */
ac_tensor *lac_new_tensor(lua_State *L, lac_state *S, ac_device *d, ac_dtype dt, int ndim,
                          const int64_t *shape, ac_mem_class c);
ac_tensor *lac_new_cpu(lua_State *L, lac_state *S, ac_dtype dt, int ndim, const int64_t *shape);

#endif
