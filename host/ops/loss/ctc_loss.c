/* ctc_loss: minus the logarithm of the probability that a row of log_probs spells its target, over all alignments
   with blanks (Graves et al. 2006). mean divides each row by the length of its target first. A target that does not
   fit has an infinite loss and no gradient, with zero_infinity a loss of 0.
   log_probs (T, N, C) floats, targets (N, S) i64, input_lengths, target_lengths (N) i64 -> () | (N) with reduction =
   none, f32 under autocast. nn.functional.ctc_loss takes lists, and targets one after the other.
   gradient: dlog_probs = minus dl times the probability of the class at that time among the alignments.
   example: accel.log_softmax(accel.zeros(4, 1, 3), 3):ctc_loss(accel.tensor { { 1, 2 } }, accel.tensor { 4 }, accel.tensor { 2 }) --> 0.843200 */
#include "ops/loss/elementwise.h"

#include <math.h>

enum { LENGTHS = 3, BLANK, REDUCTION, ZERO };

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *l = x_ctc_loss_rows(x, a[0].tensor, a[1].tensor, a[2].tensor, a[LENGTHS].tensor,
                                 a[BLANK].i, NULL);
  if (a[ZERO].b) l = x_masked_fill(x, l, l == NULL ? NULL : x_eq(x, T(l), F(INFINITY)), F(0));
  if (l != NULL && a[REDUCTION].i == ACI_LOSS_MEAN) {
    const ac_operand one = F(1);
    ac_tensor *by = x_cast(x, a[LENGTHS].tensor, (ac_dtype)l->dtype);
    l = x_div(x, T(l), T(x_clamp(x, by, &one, NULL)));
  }
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(
    ctc_loss,
    .sig =
        "ctc_loss(log_probs: tensor, targets: tensor, input_lengths: tensor, target_lengths: tensor, blank: int = 0, "
        "reduction: enum(none|mean|sum) = mean, zero_infinity: bool = false) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
