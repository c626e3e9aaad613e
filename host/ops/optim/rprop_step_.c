/* rprop_step_: one resilient-propagation update of a list of parameters in a single pass (Riedmiller and Braun,
   with PyTorch's arithmetic): a step size per element that grows while the sign of its gradient stays.
   step += 1,  g = -g when maximizing,  c = g q > 0 ? etaplus : g q < 0 ? etaminus : 1
   s = clamp(s c, step_size_min, step_size_max),  g = g q < 0 ? 0 : g,  p -= sign(g) s,  q = g
   params, grads, prevs (q, zeros at first), step_sizes (s, the learning rate at first): lists of equal length
   and shapes, any floats. step: one element. Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.rprop_step_({p}, {p * 2}, {p * 2}, {p * 0.1}, p * 0) return p --> { 0.88 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, PREVS, SIZES, STEP, MINUS, PLUS, LEAST, MOST, MAXIMIZE };

typedef struct factors {
  double minus, plus, least, most, sign;
} factors;

#define FORMULA(T)                                                                        \
  const T minus = (T)k->minus, plus = (T)k->plus, least = (T)k->least, most = (T)k->most; \
  const T sign = (T)k->sign;                                                              \
  for (int64_t i = 0; i < n; i++) {                                                       \
    T gi = g[i] * sign, turn = gi * q[i];                                                 \
    T si = s[i] * (turn > 0 ? plus : turn < 0 ? minus : (T)1);                            \
    si = si < least ? least : si;                                                         \
    si = si > most ? most : si;                                                           \
    gi = turn < 0 ? (T)0 : gi;                                                            \
    T to = gi > 0 ? (T)-1 : gi < 0 ? (T)1 : gi;                                           \
    p[i] = m_fma(to, si, p[i]);                                                           \
    q[i] = gi;                                                                            \
    s[i] = si;                                                                            \
  }
ACI_STEP4(rprop, FORMULA, p, g, q, s)

static ac_status shape(ac_frame *f, ac_err *e) {
  double minus = ARG_F(f, MINUS), plus = ARG_F(f, PLUS);
  AC_TRY(aci_step_shape(f, e));
  if (!(minus > 0 && minus < 1 && plus > 1))
    return AC_FAIL(e, INVALID, "needs 0 < etaminus < 1 < etaplus, got %g and %g", minus, plus);
  return aci_step_not_negative(f, LEAST, MOST, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  a->x[STEP] += 1;
  k->minus = a->x[MINUS];
  k->plus = a->x[PLUS];
  k->least = a->x[LEAST];
  k->most = a->x[MOST];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(rprop_step_, rprop, prepare)

AC_OP(
    rprop_step_,
    .sig =
        "rprop_step_(params!: tensors, grads: tensors, prevs!: tensors, step_sizes!: tensors, step!: tensor, "
        "etaminus: float = 0.5, etaplus: float = 1.2, step_size_min: float = 1e-6, "
        "step_size_max: float = 50, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_rprop_step_, .nondiff = true);
