/* nadam_step_: one NAdam update of a list of parameters in a single pass (Dozat: Adam with Nesterov's
   momentum, with PyTorch's arithmetic).
   step += 1,  g = -g when maximizing,  decoupled: p *= 1 - lr weight_decay, else g += weight_decay p
   mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2),  mu_product *= mu(step)
   m += (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g^2,  d = sqrt(v / (1 - beta2^step)) + eps
   p -= lr (1 - mu(step)) / (1 - mu_product) * g / d
      + lr mu(step + 1) / (1 - mu_product mu(step + 1)) * m / d
   params, grads, exp_avgs (m), exp_avg_sqs (v): lists of equal length and shapes, any floats. lr, step and
   mu_product (1 before the first step, f32 for PyTorch's numbers): one element each. Computed in f32, in f64 if
   any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.nadam_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 1, p * 0.1, p * 0) return p --> { 0.8944 } */
#include "ops/optim/step.h"

enum {
  PARAMS,
  GRADS,
  AVGS,
  SQS,
  MU_PRODUCT,
  LR,
  STEP,
  BETA1,
  BETA2,
  EPS,
  DECAY,
  MOMENTUM_DECAY,
  DECOUPLED,
  MAXIMIZE
};

typedef struct factors {
  double keep, decay, lerp, beta2, square, fresh, avg, root, eps, sign;
} factors;

#define FORMULA(T)                                                                          \
  const T keep = (T)k->keep, decay = (T)k->decay, lerp = (T)k->lerp, beta2 = (T)k->beta2;   \
  const T square = (T)k->square, fresh = (T)-k->fresh, avg = (T)-k->avg, root = (T)k->root; \
  const T eps = (T)k->eps, sign = (T)k->sign;                                               \
  for (int64_t i = 0; i < n; i++) {                                                         \
    T gi = m_fma(decay, p[i], g[i] * sign), mi = m_fma(lerp, gi - m[i], m[i]);              \
    T vi = m_fma(square * gi, gi, v[i] * beta2);                                            \
    T d = m_fma(m_sqrt(vi), root, eps);                                                     \
    p[i] = m_fma(p[i], keep, m_fma(fresh, gi, avg * mi) / d);                               \
    m[i] = mi;                                                                              \
    v[i] = vi;                                                                              \
  }
ACI_STEP4(nadam, FORMULA, p, g, m, v)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_betas(f, BETA1, e));
  return aci_step_not_negative(f, EPS, MOMENTUM_DECAY, e);
}

ACI_VM double momentum(double beta1, double t, double decay) {
  return beta1 * (1 - 0.5 * pow(0.96, t * decay));
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double lr = a->x[LR], step = a->x[STEP] += 1, decay = a->x[DECAY];
  const double b1 = a->x[BETA1], b2 = a->x[BETA2], slow = a->x[MOMENTUM_DECAY];
  const double mu = momentum(b1, step, slow), next = momentum(b1, step + 1, slow);
  /* in the arithmetic of the tensor: this step uses the stored value */
  const double before = a->x[MU_PRODUCT];
  const double product =
      a->wide >> MU_PRODUCT & 1 ? before * mu : (double)((float)before * (float)mu);
  const bool decoupled = a->x[DECOUPLED] != 0;
  a->x[MU_PRODUCT] = product;
  k->keep = decoupled ? 1 - lr * decay : 1;
  k->decay = decoupled ? 0 : decay;
  k->lerp = 1 - b1;
  k->beta2 = b2;
  k->square = 1 - b2;
  k->fresh = lr * (1 - mu) / (1 - product);
  k->avg = lr * next / (1 - product * next);
  k->root = 1 / sqrt(1 - pow(b2, step));
  k->eps = a->x[EPS];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(nadam_step_, nadam, prepare)

AC_OP(
    nadam_step_,
    .sig =
        "nadam_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, exp_avg_sqs!: tensors, "
        "mu_product!: tensor, lr: tensor, step!: tensor, beta1: float = 0.9, beta2: float = 0.999, "
        "eps: float = 1e-8, weight_decay: float = 0, momentum_decay: float = 0.004, "
        "decoupled_weight_decay: bool = false, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_nadam_step_, .nondiff = true);
