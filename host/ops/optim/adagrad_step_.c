/* adagrad_step_: one Adagrad update of a list of parameters in a single pass (Duchi, Hazan and Singer, with
   PyTorch's arithmetic).
   step += 1,  g = -g when maximizing,  g += weight_decay p,  s += g^2
   p -= lr / (1 + (step - 1) lr_decay) * g / (sqrt(s) + eps)
   params, grads, sums (s): lists of equal length and shapes, any floats. lr and step: one element each.
   Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adagrad_step_({p}, {p * 2}, {p * 0}, p * 0.1, p * 0) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, SUMS, LR, STEP, LR_DECAY, DECAY, EPS, MAXIMIZE };

typedef struct factors {
  double rate, decay, eps, sign;
} factors;

#define FORMULA(T)                                                                     \
  const T rate = (T)-k->rate, decay = (T)k->decay, eps = (T)k->eps, sign = (T)k->sign; \
  for (int64_t i = 0; i < n; i++) {                                                    \
    T gi = m_fma(decay, p[i], g[i] * sign), si = m_fma(gi, gi, s[i]);                  \
    p[i] = m_fma(rate, gi / (m_sqrt(si) + eps), p[i]);                                 \
    s[i] = si;                                                                         \
  }
ACI_STEP3(adagrad, FORMULA, p, g, s)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  return aci_step_not_negative(f, LR_DECAY, EPS, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double step = a->x[STEP] += 1;
  k->rate = a->x[LR] / (1 + (step - 1) * a->x[LR_DECAY]);
  k->decay = a->x[DECAY];
  k->eps = a->x[EPS];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(adagrad_step_, adagrad, prepare)

AC_OP(
    adagrad_step_,
    .sig =
        "adagrad_step_(params!: tensors, grads: tensors, sums!: tensors, lr: tensor, step!: tensor, "
        "lr_decay: float = 0, weight_decay: float = 0, eps: float = 1e-10, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_adagrad_step_, .nondiff = true);
