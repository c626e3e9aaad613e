/* lion_step_: one Lion update of a list of parameters in a single pass (Chen and others, "Symbolic Discovery of
   Optimization Algorithms"): the sign of an interpolated momentum, decoupled weight decay.
   g = -g when maximizing,  p *= 1 - lr weight_decay
   p -= lr sign(beta1 m + (1 - beta1) g),  m = beta2 m + (1 - beta2) g
   params, grads, exp_avgs (m): lists of equal length and shapes, any floats. lr: one element. Computed in f32,
   in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.lion_step_({p}, {p * 3}, {p * 0}, p * 0.1) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, AVGS, LR, BETA1, BETA2, DECAY, MAXIMIZE };

typedef struct factors {
  double lr, keep, beta1, fresh1, beta2, fresh2, sign;
} factors;

/* A NaN stays one. */
#define FORMULA(T)                                                                       \
  const T lr = (T)-k->lr, keep = (T)k->keep, beta1 = (T)k->beta1, fresh1 = (T)k->fresh1; \
  const T beta2 = (T)k->beta2, fresh2 = (T)k->fresh2, sign = (T)k->sign;                 \
  for (int64_t i = 0; i < n; i++) {                                                      \
    T gi = g[i] * sign, u = m_fma(beta1, m[i], fresh1 * gi);                             \
    T s = u > 0 ? (T)1 : u < 0 ? (T)-1 : u;                                              \
    p[i] = m_fma(lr, s, p[i] * keep);                                                    \
    m[i] = m_fma(beta2, m[i], fresh2 * gi);                                              \
  }
ACI_STEP3(lion, FORMULA, p, g, m)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  return aci_step_betas(f, BETA1, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double lr = a->x[LR], b1 = a->x[BETA1], b2 = a->x[BETA2];
  k->lr = lr;
  k->keep = 1 - lr * a->x[DECAY];
  k->beta1 = b1;
  k->fresh1 = 1 - b1;
  k->beta2 = b2;
  k->fresh2 = 1 - b2;
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(lion_step_, lion, prepare)

AC_OP(
    lion_step_,
    .sig =
        "lion_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, lr: tensor, beta1: float = 0.9, "
        "beta2: float = 0.99, weight_decay: float = 0, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_lion_step_, .nondiff = true);
