/* binary_cross_entropy: l = -weight * (target ln input + (1 - target) ln(1 - input)) of probabilities, logarithms
   no less than -100. Averaged
   over all elements, added up (sum) or kept (none). For logits use binary_cross_entropy_with_logits, which is
   exact.
   input, target (any shape, the same for both, floats in 0 .. 1), weight (broadcast to it) -> () | that shape with
   reduction = none
   gradient: dinput = dl (input - target) / max(input (1 - input), 1e-12), without weight in one pass.
   example: accel.binary_cross_entropy(accel.tensor { 0.5, 0.9 }, accel.tensor { 1.0, 1.0 }) --> 0.399254 */
#include "ops/index/index.h"
#include "ops/loss/elementwise.h"

#define LEAST(T, x) ((x) < (T)-100 ? (T)-100 : (x))
#define FWD(T, p, x, t) (((t)-1) * LEAST(T, m_log1p(-(x))) - (t)*LEAST(T, m_log(x)))
#define SPREAD(T, x) ((1 - (x)) * (x) < (T)1e-12 ? (T)1e-12 : (1 - (x)) * (x))
#define BWD(T, p, dy, x, t) ((dy)*p[1] * ((x) - (t)) / SPREAD(T, x))
ACI_LOSS(bce, FWD)

enum { INPUT, TARGET, WEIGHT, REDUCTION };

static ac_tensor *log_of(ac_expr *x, ac_tensor *t) {
  const ac_operand least = F(-100);
  return x_clamp(x, t, &least, NULL);
}
static ac_tensor *elements(ac_expr *x, ac_tensor *in, ac_tensor *t) {
  ac_scalar one = aci_float(1);
  ac_tensor *no = x_mul(x, T(x_sub(x, T(t), F(1), one)), T(log_of(x, x_log1p(x, x_neg(x, in)))));
  return x_sub(x, T(no), T(x_mul(x, T(t), T(log_of(x, x_log(x, in))))), one);
}

static void grad(ac_grad *g) {
  ac_expr *x = &g->x;
  ac_tensor *in = ARG_T(g, 0), *t = ARG_T(g, 1), *dy = g->dout[0];
  double scale = aci_elementwise_loss_scale(g);
  if (ac_grad_needs(g, 0))
    ac_grad_set(g, 0,
                ac_grad_reduce_to(g, 0, x_bce_backward(x, dy, in, t, (int)ARG_I(g, 2), scale)));
  if (ac_grad_needs(g, 1)) {
    ac_tensor *slope =
        x_sub(x, T(log_of(x, x_log1p(x, x_neg(x, in)))), T(log_of(x, x_log(x, in))), aci_float(1));
    ac_grad_set(g, 1, ac_grad_reduce_to(g, 1, x_mul(x, T(x_mul(x, T(slope), F(scale))), T(dy))));
  }
}
/* Logarithms of values that are not probabilities are NaN: the input is only checked when the
 * result is NaN. */
static ac_status cpu(ac_frame *f, ac_err *e) {
  AC_TRY(aci_elementwise_loss_cpu(f, e));
  const ac_tensor *in = ARG_T(f, 0), *out = f->out[0];
  double row[256];
  bool nan = false;
  for (int64_t at = 0; at < out->numel && !nan; at += 256) {
    int64_t n = out->numel - at < 256 ? out->numel - at : 256;
    aci_elems_load(out, ACI_C_F64, at, n, row);
    for (int64_t i = 0; i < n; i++) nan |= row[i] != row[i];
  }
  for (int64_t at = 0; nan && at < in->numel; at += 256) {
    int64_t n = in->numel - at < 256 ? in->numel - at : 256;
    aci_elems_load(in, ACI_C_F64, at, n, row);
    for (int64_t i = 0; i < n; i++)
      if (row[i] < 0 || row[i] > 1)
        return AC_FAIL(
            e, INVALID,
            "input holds %g, but probabilities lie in 0 .. 1 (for logits there is another op)",
            row[i]);
  }
  return AC_OK;
}
static int plain(ac_expr *x, const ac_value *a, ac_tensor **out) {
  out[0] = aci_loss_reduce(x, elements(x, a[0].tensor, a[1].tensor), a[2].i);
  return 1;
}
static int composed(ac_expr *x, const ac_value *a, ac_tensor **out) {
  if (aci_loss_same(x, &a[INPUT], &a[TARGET], "input", "target") != AC_OK) return 1;
  if (a[WEIGHT].kind != AC_T_TENSOR) {
    out[0] = x_bce(x, a[INPUT].tensor, a[TARGET].tensor, (int)a[REDUCTION].i);
    return 1;
  }
  ac_tensor *l = x_bce(x, a[INPUT].tensor, a[TARGET].tensor, ACI_LOSS_NONE);
  out[0] = aci_loss_reduce(x, x_mul(x, T(l), T(a[WEIGHT].tensor)), a[REDUCTION].i);
  return 1;
}

AC_OP(
    binary_cross_entropy,
    .sig =
        "binary_cross_entropy(input: tensor, target: tensor, weight: tensor?, reduction: enum(none|mean|sum) = mean) -> tensor",
    .composed = composed, .autocast = AC_CAST_F32);
AC_OP(bce, .sig = "bce(input: tensor, target: tensor, reduction: enum(none|mean|sum)) -> tensor",
      .shape = aci_elementwise_loss_shape, .cpu = cpu, .data = &bce_map, .grad = grad,
      .composed = plain, .save = AC_SAVE_IN(0) | AC_SAVE_IN(1), .hidden = true,
      .flops_per_element = 20);
AC_MAP3(
    bce_backward, BWD,
    .sig =
        "bce_backward(dy: tensor, input: tensor, target: tensor, reduction: enum(none|mean|sum), scale: float) -> tensor",
    .hidden = true);
