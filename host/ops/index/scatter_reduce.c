/* scatter_reduce: x with the elements of src joined to the positions that index names along dim: their sum, product, mean, largest
   or smallest one, together with the element of x unless include_self is false.
   x (a, n, b), dim 2, index (a', m, b'), src at least as large as index -> y (shape of x). Joined in the order of index.
   gradient: sum: dx = dy, dsrc = dy at its positions. mean: divided by the number of elements. prod: dy y / src, without the factor
   itself if it is 0. amax, amin: dy shared equally by the elements that equal y.
   example: accel.zeros(3):scatter_reduce(1, accel.tensor { 0, 2, 0 }, accel.tensor { 1.0, 2, 3 }, "sum") --> { 4, 0, 2 }
   example: local y, at = accel.tensor { 9.0, 8 }, accel.tensor { 0, 0 }
     return y:scatter_reduce(1, at, accel.tensor { 1.0, 3 }, "mean", { include_self = false }) --> { 2, 8 } */
#include <math.h>

#include "ops/index/gather_scatter.h"

enum { SUM, PROD, MEAN, AMAX, AMIN };

/* What x is where it does not belong: the join's neutral element. */
static ac_operand neutral(ac_dtype dt, int64_t reduce) {
  const bool lowest = reduce == AMAX;
  if (reduce == SUM || reduce == MEAN) return ac_operand_int(0);
  if (reduce == PROD) return ac_operand_int(1);
  switch (dt) {
    case AC_BOOL: return ac_operand_int(!lowest);
    case AC_U8: return ac_operand_int(lowest ? 0 : UINT8_MAX);
    case AC_I8: return ac_operand_int(lowest ? INT8_MIN : INT8_MAX);
    case AC_I16: return ac_operand_int(lowest ? INT16_MIN : INT16_MAX);
    case AC_I32: return ac_operand_int(lowest ? INT32_MIN : INT32_MAX);
    case AC_I64: return ac_operand_int(lowest ? INT64_MIN : INT64_MAX);
    default: return ac_operand_float(lowest ? -INFINITY : INFINITY);
  }
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *t = a[0].tensor, *index = a[2].tensor, *src = a[3].tensor;
  const int64_t d = a[1].i, reduce = a[4].i;
  const ac_dtype dt = (ac_dtype)t->dtype, whole = AC_I64;
  if (reduce == MEAN && dt == AC_BOOL) {
    x->st = AC_FAIL(x->e, DTYPE, "truth values have no mean; cast x and src first");
    return 0;
  }
  ac_tensor *base = a[5].b ? t : x_scatter(x, t, d, index, neutral(dt, reduce));
  if (reduce != SUM && reduce != MEAN) {
    const int64_t join = reduce == PROD   ? ACI_SCATTER_PROD
                         : reduce == AMAX ? ACI_SCATTER_MAX
                                          : ACI_SCATTER_MIN;
    out[0] = x_scatter_join(x, base, d, index, src, join);
    return 1;
  }
  ac_tensor *y = x_scatter_add(x, base, d, index, src);
  if (reduce == MEAN) {
    ac_tensor *n = a[5].b ? x_ones_like(x, t, &whole, NULL) : x_zeros_like(x, t, &whole, NULL);
    const ac_operand least = ac_operand_int(1);
    n = x_scatter_add(x, n, d, index, x_ones_like(x, src, &whole, NULL));
    n = x_clamp(x, n, &least, NULL);
    y = ac_dtype_is_float(dt) ? x_div(x, T(y), T(n)) : x_cast(x, x_floor_divide(x, T(y), T(n)), dt);
  }
  out[0] = y;
  return 1;
}

/* ---- scatter_join: join 1 the product, 2 the larger, 3 the smaller one (aci_scatter_join) ---- */
static ac_status shape(ac_frame *f, ac_err *e) {
  const ac_tensor *x = ARG_T(f, 0);
  AC_TRY(aci_scatter_check(f, e));
  return ac_frame_out(f, (ac_dtype)x->dtype, x->ndim, x->shape, e);
}
static ac_status cpu(ac_frame *f, ac_err *e) {
  return aci_scatter_join_cpu(f, (aci_scatter_join)ARG_I(f, 4), e);
}

/* The product without a factor of 0 is needed where it is the only one. */
static void grad_prod(ac_grad *g, ac_tensor *x, int64_t d, ac_tensor *index, ac_tensor *src) {
  ac_expr *e = &g->x;
  ac_tensor *dy = g->dout[0], *y = g->out[0];
  if (ac_grad_needs(g, 0)) {
    ac_tensor *own = x_masked_fill(e, x, x_eq(e, T(x), F(0)), F(1));
    ac_tensor *rest = x_div(e, T(x_scatter_join(e, own, d, index, src, ACI_SCATTER_PROD)), T(own));
    ac_grad_set(g, 0, x_mul(e, T(dy), T(rest)));
  }
  if (!ac_grad_needs(g, 3)) return;
  const ac_dtype dt = (ac_dtype)src->dtype;
  ac_tensor *zero = x_eq(e, T(src), F(0)), *n = x_zeros_like(e, x, NULL, NULL);
  n = x_scatter_add(e, n, d, index, x_cast(e, zero, dt));
  ac_tensor *single = x_logical_and(e, T(zero), T(x_eq(e, T(x_gather(e, n, d, index)), F(1))));
  ac_tensor *others =
      x_scatter_join(e, x, d, index, x_masked_fill(e, src, single, F(1)), ACI_SCATTER_PROD);
  ac_tensor *plain = x_gather(e, x_mul(e, T(dy), T(y)), d, index);
  plain = x_div(e, T(plain), T(x_masked_fill(e, src, zero, F(1))));
  ac_tensor *left = x_gather(e, x_mul(e, T(dy), T(others)), d, index);
  ac_grad_set(g, 3, aci_scatter_source_grad(g, x_where(e, single, T(left), T(plain))));
}

static void grad_extreme(ac_grad *g, ac_tensor *x, int64_t d, ac_tensor *index, ac_tensor *src) {
  ac_expr *e = &g->x;
  ac_tensor *y = g->out[0];
  const ac_dtype dt = (ac_dtype)x->dtype;
  ac_tensor *own = x_cast(e, x_eq(e, T(x), T(y)), dt);
  ac_tensor *its = x_cast(e, x_eq(e, T(src), T(x_gather(e, y, d, index))), dt);
  ac_tensor *share = x_div(e, T(g->dout[0]), T(x_scatter_add(e, own, d, index, its)));
  if (ac_grad_needs(g, 0)) ac_grad_set(g, 0, x_mul(e, T(own), T(share)));
  if (!ac_grad_needs(g, 3)) return;
  ac_tensor *dsrc = x_mul(e, T(its), T(x_gather(e, share, d, index)));
  ac_grad_set(g, 3, aci_scatter_source_grad(g, dsrc));
}

/* Of src only the part that index covers is joined. */
static void grad(ac_grad *g) {
  ac_tensor *x = ARG_T(g, 0), *index = ARG_T(g, 2), *src = ARG_T(g, 3);
  const int64_t d = ARG_I(g, 1);
  for (int i = 0; src != NULL && i < src->ndim; i++)
    if (src->shape[i] != index->shape[i]) src = x_narrow(&g->x, src, i, 0, index->shape[i]);
  if (src == NULL) return;
  if (ARG_I(g, 4) == ACI_SCATTER_PROD) grad_prod(g, x, d, index, src);
  else grad_extreme(g, x, d, index, src);
}

AC_OP(scatter_reduce,
      .sig = "scatter_reduce(x: tensor, dim: dim, index: tensor, src: tensor, "
             "reduce: enum(sum|prod|mean|amax|amin), include_self: bool = true) -> tensor",
      .composed = composed);
AC_OP(scatter_join,
      .sig = "scatter_join(x: tensor, dim: dim, index: tensor, src: tensor, join: int) -> tensor",
      .shape = shape, .cpu = cpu, .grad = grad,
      .save = AC_SAVE_IN(0) | AC_SAVE_IN(2) | AC_SAVE_IN(3) | AC_SAVE_OUT(0), .hidden = true);
