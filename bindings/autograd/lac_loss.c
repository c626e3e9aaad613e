/* accel.autograd.core: facts about a loss from the call that made it. Used by accel.autograd.means,
 * which gives a mean its count. */
#include <string.h>

#include "accel/autograd.h"
#include "autograd/op_node.h"
#include "bindings/core/lac.h"
#include "ops/loss/linear_cross_entropy_args.h"
#include "tensor/tensor_impl.h"

enum { REDUCTION_MEAN = 1 }; /* enum(none|mean|sum) */

/* Positions of the arguments of a mean over classes. 0: not such an op. */
typedef struct averaged_op {
  const char *name;
  int target, weight, ignore, reduction;
} averaged_op;

static const averaged_op ops[] = {
    {"cross_entropy", 1, 2, 3, 4},
    {"linear_cross_entropy_tiles", ACI_LCE_TARGET, ACI_LCE_WEIGHT, ACI_LCE_IGNORE,
     ACI_LCE_REDUCTION},
};

/* The node of a call, looking through views and casts of its result. */
static const aci_op_node *call_of(const ac_node *n, const averaged_op **found) {
  while (n != NULL && n->cls == &aci_op_class) {
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
      if (strcmp(n->name, ops[i].name) == 0) {
        *found = &ops[i];
        return (const aci_op_node *)n;
      }
    if (n->n_edges != 1 || (strcmp(n->name, "view") != 0 && strcmp(n->name, "reshape") != 0 &&
                            strcmp(n->name, "cast") != 0))
      return NULL;
    n = n->edge[0].node;
  }
  return NULL;
}

static void push(lua_State *L, lac_state *S, ac_tensor *t) {
  lac_box *b = lac_box_push(L, S);
  ac_tensor_retain(t);
  lac_box_fill(S, b, t);
}

/* averaged(loss) -> target, ignore_index, weight (or nil): of the cross entropy whose mean the loss
 * is. nil: it is not such a mean, or the tensors for its gradient are gone. */
static int averaged(lua_State *L) {
  lac_state *S = lac_get(L);
  const ac_tensor *t = lac_check_tensor(L, S, 1, "loss");
  const averaged_op *op = NULL;
  const aci_op_node *n = call_of(t->grad_fn, &op);
  if (n == NULL || n->base.saved_freed || n->packed != NULL ||
      n->args[op->reduction].i != REDUCTION_MEAN || n->args[op->target].tensor == NULL ||
      ac_dtype_is_float((ac_dtype)n->args[op->target].tensor->dtype)) {
    lua_pushnil(L);
    return 1;
  }
  push(L, S, n->args[op->target].tensor);
  lua_pushinteger(L, (lua_Integer)n->args[op->ignore].i);
  const ac_value *weight = &n->args[op->weight];
  if (weight->kind == AC_T_NONE || weight->tensor == NULL) return 2;
  push(L, S, weight->tensor);
  return 3;
}

LAC_OPEN("accel.autograd.core", loss) {
  static const luaL_Reg funcs[] = {{"averaged", averaged}, {NULL, NULL}};
  lac_setfuncs(L, S, funcs);
}
