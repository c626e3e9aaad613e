/* cosine_similarity: the cosine of the angle between vectors: y = sum over dim of x1 / max(|x1|, eps) *
   x2 / max(|x2|, eps).
   x1, x2 (broadcast) -> y (without dim, the second by default). Dtypes: floats.
   gradient: as for its component ops.
   example: accel.tensor({ { 3.0, 4.0 } }):cosine_similarity(accel.tensor { { 1.0, 0.0 } }) --> { 0.6 } */
#include "ops/core/op.h"

static ac_tensor *unit(ac_expr *x, ac_tensor *t, int64_t dim, double eps) {
  const ac_operand least = F(eps);
  ac_tensor *norm = x_norm(x, t, aci_float(2), &dim, 1, true);
  return x_div(x, T(t), T(x_clamp(x, norm, &least, NULL)));
}

/* t with nd dims, and with the common extent along dim: before the norms, because an extent of 1
   counts there as often as it is repeated. */
static ac_tensor *aligned(ac_expr *x, ac_tensor *t, int nd, const int64_t *common, int64_t dim) {
  int64_t shape[AC_MAX_DIMS];
  const int lead = nd - t->ndim;
  const int64_t d = dim < 0 ? dim + nd : dim;
  for (int i = 0; i < nd; i++) shape[i] = i < lead ? 1 : t->shape[i - lead];
  if (d >= 0 && d < nd) shape[d] = common[d];
  return lead == 0 && memcmp(t->shape, shape, (size_t)nd * 8) == 0 ? t : x_expand(x, t, shape, nd);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *p = a[0].tensor, *q = a[1].tensor;
  int64_t shape[AC_MAX_DIMS], dim = a[2].i;
  int nd = p->ndim;
  const bool narrow =
      /* rounded once, at the end */
      p->dtype == q->dtype && (p->dtype == AC_BF16 || p->dtype == AC_F16);
  const ac_dtype dt = (ac_dtype)p->dtype;
  memcpy(shape, p->shape, (size_t)nd * 8);
  x->st = aci_broadcast(&nd, shape, q, x->e);
  if (x->st != AC_OK) return 0;
  if (narrow) {
    p = x_cast(x, p, AC_F32);
    q = x_cast(x, q, AC_F32);
  }
  if (x->st != AC_OK) return 0;
  p = aligned(x, p, nd, shape, dim);
  q = aligned(x, q, nd, shape, dim);
  ac_tensor *y = x_sum(x, x_mul(x, T(unit(x, p, dim, a[3].f)), T(unit(x, q, dim, a[3].f))), &dim, 1,
                       false, NULL);
  out[0] = narrow ? x_cast(x, y, dt) : y;
  return 1;
}

AC_OP(cosine_similarity,
      .sig = "cosine_similarity(x1: tensor, x2: tensor, dim: dim = 1, eps: float = 1e-8) -> tensor",
      .composed = composed);
