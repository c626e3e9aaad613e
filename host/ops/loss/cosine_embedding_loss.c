/* cosine_embedding_loss: l = 1 - cos(x1, x2) if target is 1, max(0, cos(x1, x2) - margin) if it is -1.
   x1, x2 (N, D) | (D), target (N) | () of 1 and -1 -> () | like target with reduction = none
   gradient: through the cosine, x1 x2 / sqrt((|x1|^2 + e) (|x2|^2 + e)) with e = 1e-12, any number of times.
   example: accel.cosine_embedding_loss(accel.tensor { { 1.0, 0.0 } }, accel.tensor { { 1.0, 1.0 } }, accel.tensor { 1.0 }) --> 0.292893 */
#include "ops/loss/elementwise.h"

static ac_tensor *dot(ac_expr *x, ac_tensor *a, ac_tensor *b) {
  int64_t last = -1;
  return x_sum(x, x_mul(x, T(a), T(b)), &last, 1, false, NULL);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *p = a[0].tensor, *q = a[1].tensor, *t = a[2].tensor;
  ac_scalar one = aci_float(1);
  if (aci_loss_same(x, &a[0], &a[1], "x1", "x2") != AC_OK) return 1;
  bool fits = p->ndim == t->ndim + 1;
  for (int i = 0; fits && i < t->ndim; i++) fits = t->shape[i] == p->shape[i];
  if (!fits) {
    char s[128], u[128];
    x->st = AC_FAIL(x->e, SHAPE, "target %s has to have the shape of x1 %s without its last dim",
                    aci_shape_str(t->ndim, t->shape, s, sizeof s),
                    aci_shape_str(p->ndim, p->shape, u, sizeof u));
    return 1;
  }
  ac_tensor *np = x_add(x, T(dot(x, p, p)), F(1e-12), one),
            *nq = x_add(x, T(dot(x, q, q)), F(1e-12), one);
  ac_tensor *cos = x_div(x, T(dot(x, p, q)), T(x_sqrt(x, x_mul(x, T(np), T(nq)))));
  ac_tensor *alike = x_sub(x, F(1), T(cos), one),
            *apart = x_relu(x, x_sub(x, T(cos), F(a[3].f), one));
  ac_tensor *l = x_where(x, x_eq(x, T(t), F(1)), T(alike), F(0));
  l = x_add(x, T(l), T(x_where(x, x_eq(x, T(t), F(-1)), T(apart), F(0))), one);
  out[0] = aci_loss_reduce(x, l, a[4].i);
  return 1;
}

AC_OP(
    cosine_embedding_loss,
    .sig =
        "cosine_embedding_loss(x1: tensor, x2: tensor, target: tensor, margin: float = 0.0, reduction: enum(none|mean|sum) = mean) "
        "-> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
