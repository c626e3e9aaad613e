/* triplet_margin_loss: l = max(0, |anchor - positive + eps|_p - |anchor - negative + eps|_p + margin), norms over
   the last dim. With swap the second distance is the smaller of anchor to negative and positive to negative.
   anchor, positive, negative (..., D), one shape -> () | (...) with reduction = none
   gradient: through the norms, any number of times.
   example: accel.triplet_margin_loss(accel.zeros(1, 2), accel.ones(1, 2), accel.full({ 1, 2 }, 3.0), { margin = 4 }) --> 1.171573 */
#include "ops/loss/elementwise.h"

enum { ANCHOR, POSITIVE, NEGATIVE, MARGIN, P, EPS, SWAP, REDUCTION };

static ac_tensor *distance(ac_expr *x, const ac_value *a, int i, int k) {
  int64_t last = -1;
  ac_scalar one = aci_float(1);
  ac_tensor *d = x_sub(x, T(a[i].tensor), T(a[k].tensor), one);
  return x_norm(x, x_add(x, T(d), F(a[EPS].f), one), aci_float(a[P].f), &last, 1, false);
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_scalar one = aci_float(1);
  if (!(a[MARGIN].f > 0)) {
    x->st = AC_FAIL(x->e, INVALID, "margin must be greater than 0, got %g", a[MARGIN].f);
    return 1;
  }
  if (aci_loss_same(x, &a[ANCHOR], &a[POSITIVE], "anchor", "positive") != AC_OK) return 1;
  if (aci_loss_same(x, &a[ANCHOR], &a[NEGATIVE], "anchor", "negative") != AC_OK) return 1;
  ac_tensor *far = distance(x, a, ANCHOR, NEGATIVE), *l;
  if (a[SWAP].b) far = x_minimum(x, T(far), T(distance(x, a, POSITIVE, NEGATIVE)));
  l = x_sub(x, T(distance(x, a, ANCHOR, POSITIVE)), T(far), one);
  out[0] = aci_loss_reduce(x, x_relu(x, x_add(x, T(l), F(a[MARGIN].f), one)), a[REDUCTION].i);
  return 1;
}

AC_OP(
    triplet_margin_loss,
    .sig =
        "triplet_margin_loss(anchor: tensor, positive: tensor, negative: tensor, margin: float = 1.0, p: float = 2.0, "
        "eps: float = 1e-6, swap: bool = false, reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
