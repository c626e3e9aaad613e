/* binary_cross_entropy_with_logits: l = weight * ((1 - target) input + (1 + (pos_weight - 1) target) ln(1 + e^-input)), which is
   -(target ln s + (1 - target) ln(1 - s)) for s = sigmoid(input) without weights. Averaged over all elements,
   added up (sum) or kept (none).
   input, target (any shape, the same for both, floats), weight and pos_weight (broadcast to it) -> () | that shape
   with reduction = none, f32 under autocast
   gradient: dinput = dl (s - target), dtarget = -dl input, without weights in one pass.
   example: accel.binary_cross_entropy_with_logits(accel.tensor { 0.0, 2.0 }, accel.tensor { 1.0, 1.0 }) --> 0.410038 */
#include "ops/loss/elementwise.h"

#define FWD(T, p, x, t) (((x) > 0 ? (x) * (1 - (t)) : -(x) * (t)) + m_log1p(m_exp(-m_abs(x))))
#define BWD(T, p, dy, x, t) ((dy)*p[1] * (m_sigmoid(x) - (t)))
ACI_LOSS(bce_logits, FWD)

enum { INPUT, TARGET, WEIGHT, REDUCTION, POS_WEIGHT };

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  double scale = aci_elementwise_loss_scale(g);
  ac_tensor *in = ARG_T(g, 0), *t = ARG_T(g, 1), *dy = g->dout[0];
  if (ac_grad_needs(g, 0))
    ac_grad_set(
        g, 0,
        ac_grad_reduce_to(g, 0, x_bce_logits_backward(x, dy, in, t, (int)ARG_I(g, 2), scale)));
  if (ac_grad_needs(g, 1))
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_mul(x, T(x_mul(x, T(in), F(-scale))), T(dy))));
}

/* (1 - t) x - (1 + (pos_weight - 1) t) ln sigmoid(x) */
static ac_tensor *elements(ac_expr *x, ac_tensor *in, ac_tensor *t, ac_tensor *pos_weight) {
  ac_scalar one = aci_float(1);
  ac_tensor *log = x_logsigmoid(x, in), *rest = x_mul(x, T(x_sub(x, F(1), T(t), one)), T(in));
  if (pos_weight != NULL) {
    ac_tensor *more = x_mul(x, T(x_sub(x, T(pos_weight), F(1), one)), T(t));
    log = x_mul(x, T(log), T(x_add(x, T(more), F(1), one)));
  }
  return x_sub(x, T(rest), T(log), one);
}

static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_loss_reduce(x, elements(x, a[0].tensor, a[1].tensor, NULL), a[2].i);
  return 1;
}

static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  ac_tensor *in = a[INPUT].tensor, *t = a[TARGET].tensor;
  bool weighed = a[WEIGHT].kind == AC_T_TENSOR, pos = a[POS_WEIGHT].kind == AC_T_TENSOR;
  if (aci_loss_same(x, &a[INPUT], &a[TARGET], "input", "target") != AC_OK) return 1;
  if (!weighed && !pos) {
    out[0] = x_bce_logits(x, in, t, (int)a[REDUCTION].i);
    return 1;
  }
  ac_tensor *l = elements(x, in, t, pos ? a[POS_WEIGHT].tensor : NULL);
  if (weighed) l = x_mul(x, T(l), T(a[WEIGHT].tensor));
  out[0] = aci_loss_reduce(x, l, a[REDUCTION].i);
  return 1;
}

AC_OP(
    binary_cross_entropy_with_logits,
    .sig =
        "binary_cross_entropy_with_logits(input: tensor, target: tensor, weight: tensor?, reduction: enum(none|mean|sum) = mean, "
        "pos_weight: tensor?) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
AC_OP(bce_logits,
      .sig = "bce_logits(input: tensor, target: tensor, reduction: enum(none|mean|sum)) -> tensor",
      .shape = aci_elementwise_loss_shape, .cpu = aci_elementwise_loss_cpu, .data = &bce_logits_map,
      .grad = grad, .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .hidden = true,
      .flops_per_element = 20);
AC_MAP3(
    bce_logits_backward, BWD,
    .sig =
        "bce_logits_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum), scale: float) -> "
        "tensor",
    .hidden = true);
