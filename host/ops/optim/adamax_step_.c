/* adamax_step_: one Adamax update of a list of parameters in a single pass (Kingma and Ba: Adam in the
   infinity norm, with PyTorch's arithmetic).
   step += 1,  g = -g when maximizing,  g += weight_decay p
   m += (1 - beta1) (g - m),  u = max(beta2 u, |g| + eps),  p -= lr / (1 - beta1^step) * m / u
   params, grads, exp_avgs (m), exp_infs (u): lists of equal length and shapes, any floats. lr and step: one
   element each. Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adamax_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 0.1, p * 0) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, AVGS, INFS, LR, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE };

typedef struct factors {
  double rate, lerp, beta2, eps, decay, sign;
} factors;

#define FORMULA(T)                                                                     \
  const T rate = (T)-k->rate, lerp = (T)k->lerp, beta2 = (T)k->beta2, eps = (T)k->eps; \
  const T decay = (T)k->decay, sign = (T)k->sign;                                      \
  for (int64_t i = 0; i < n; i++) {                                                    \
    T gi = m_fma(decay, p[i], g[i] * sign), mi = m_fma(lerp, gi - m[i], m[i]);         \
    T ui = m_max(u[i] * beta2, m_abs(gi) + eps);                                       \
    p[i] = m_fma(rate, mi / ui, p[i]);                                                 \
    m[i] = mi;                                                                         \
    u[i] = ui;                                                                         \
  }
ACI_STEP4(adamax, FORMULA, p, g, m, u)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_betas(f, BETA1, e));
  return aci_step_not_negative(f, EPS, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double step = a->x[STEP] += 1, b1 = a->x[BETA1];
  k->rate = a->x[LR] / (1 - pow(b1, step));
  k->lerp = 1 - b1;
  k->beta2 = a->x[BETA2];
  k->eps = a->x[EPS];
  k->decay = a->x[DECAY];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(adamax_step_, adamax, prepare)

AC_OP(
    adamax_step_,
    .sig =
        "adamax_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, exp_infs!: tensors, lr: tensor, "
        "step!: tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, "
        "weight_decay: float = 0, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_adamax_step_, .nondiff = true);
