/* Expressions: calls chained without a check after each, for gradient rules and composed ops. The
 * first failure sticks. All intermediate results are released together at the end. */
#include <stdlib.h>

#include "ops/core/op.h"
#include "ops/core/ctx_impl.h"

void ac_expr_init(ac_expr *x, ac_ctx *c, ac_err *e) {
  x->ctx = c;
  x->e = e;
  x->st = AC_OK;
  x->n_tmp = 0;
  x->cap_tmp = (int)(sizeof x->small / sizeof *x->small);
  x->tmp = NULL; /* small, until it overflows */
  x->lists = NULL;
}

ac_tensor **aci_expr_list(ac_expr *x, int n) {
  void **block = malloc(sizeof *block + (size_t)n * sizeof(ac_tensor *));
  if (block == NULL) return NULL;
  *block = x->lists;
  x->lists = block;
  return (ac_tensor **)(void *)(block + 1);
}

void ac_expr_end(ac_expr *x) {
  ac_tensor **t = x->tmp != NULL ? x->tmp : x->small;
  for (int i = x->n_tmp - 1; i >= 0; i--) ac_tensor_release(t[i]);
  free(x->tmp);
  for (void **b = x->lists, **next; b != NULL; b = next) {
    next = *b;
    free(b);
  }
  x->lists = NULL;
  x->tmp = NULL;
  x->n_tmp = 0;
}

ac_tensor *ac_expr_own(ac_expr *x, ac_tensor *t) {
  if (t == NULL) return NULL;
  if (x->n_tmp == x->cap_tmp) {
    int cap = x->cap_tmp * 2;
    ac_tensor **v = realloc(x->tmp, (size_t)cap * sizeof *v);
    if (v == NULL) {
      ac_tensor_release(t);
      if (x->st == AC_OK) x->st = AC_FAIL(x->e, OOM, "no memory for an expression");
      return NULL;
    }
    if (x->tmp == NULL) memcpy(v, x->small, sizeof x->small);
    x->tmp = v;
    x->cap_tmp = cap;
  }
  (x->tmp != NULL ? x->tmp : x->small)[x->n_tmp++] = t;
  return t;
}

ac_tensor *ac_expr_call(ac_expr *x, const ac_op *op, const ac_value *args, ac_tensor **more,
                        int n_more) {
  ac_value results[AC_MAX_RESULTS];
  int n = 0;
  for (int i = 0; i < n_more; i++) more[i] = NULL;
  if (x->st != AC_OK) return NULL;
  x->st = aci_op_parse(op, x->e);
  if (x->st != AC_OK) return NULL;
  for (int i = 0; i < op->n_params; i++)
    if ((args[i].kind == AC_T_TENSOR && args[i].tensor == NULL) ||
        (args[i].kind == AC_T_SCALAR && args[i].scalar.kind == AC_SCALAR_NONE)) {
      x->st =
          AC_FAIL(x->e, INTERNAL, "%s: argument %d was not saved or is missing", op->name, i + 1);
      return NULL;
    }
  x->st = ac_call(x->ctx, op, args, results, &n, x->e);
  if (x->st != AC_OK) return NULL;
  for (int i = 1; i < n; i++) {
    ac_tensor *t = ac_expr_own(x, results[i].tensor);
    if (i - 1 < n_more) more[i - 1] = t;
  }
  return n > 0 ? ac_expr_own(x, results[0].tensor) : NULL;
}

ac_operand ac_operand_tensor(ac_tensor *t) {
  return (ac_operand){.tensor = t, .scalar = {.kind = AC_SCALAR_NONE}};
}
ac_operand ac_operand_float(double f) {
  return (ac_operand){.tensor = NULL, .scalar = {.kind = AC_SCALAR_FLOAT, .f = f}};
}
ac_operand ac_operand_int(int64_t i) {
  return (ac_operand){.tensor = NULL, .scalar = {.kind = AC_SCALAR_INT, .i = i}};
}
