/* radam_step_: one RAdam update of a list of parameters in a single pass (Liu and others: Adam whose first
 * steps are rectified, with PyTorch's arithmetic).
 * step += 1,  g = -g when maximizing,  decoupled: p *= 1 - lr weight_decay, else g += weight_decay p
 * m += (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g^2,  h = m / (1 - beta1^step)
 * r = 2 / (1 - beta2) - 1,  rho = r - 2 step beta2^step / (1 - beta2^step)
 * rho > 5: p -= lr h sqrt(1 - beta2^step) / (sqrt(v) + eps)
 * sqrt((rho - 4) (rho - 2) r / ((r - 4) (r - 2) rho)),  else p -= lr h
 * params, grads, exp_avgs (m), exp_avg_sqs (v): lists of equal length and shapes, any floats. lr and step:
 * one element each. Computed in f32, in f64 if any list is f64.
 * gradient: none. Run it inside no_grad.
 * example: local p = accel.ones(1) accel.radam_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 0.1, p * 0) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, AVGS, SQS, LR, STEP, BETA1, BETA2, EPS, DECAY, DECOUPLED, MAXIMIZE };

typedef struct factors {
  double keep, decay, lerp, beta2, square, rate, eps, sign;
  bool rectified;
} factors;

#define LOOP(T, RECTIFIED)                                                     \
  for (int64_t i = 0; i < n; i++) {                                            \
    T gi = m_fma(decay, p[i], g[i] * sign), mi = m_fma(lerp, gi - m[i], m[i]); \
    T vi = m_fma(square * gi, gi, v[i] * beta2);                               \
    p[i] = m_fma(rate, RECTIFIED ? mi / (m_sqrt(vi) + eps) : mi, p[i] * keep); \
    m[i] = mi;                                                                 \
    v[i] = vi;                                                                 \
  }
#define FORMULA(T)                                                                        \
  const T keep = (T)k->keep, decay = (T)k->decay, lerp = (T)k->lerp, beta2 = (T)k->beta2; \
  const T square = (T)k->square, rate = (T)-k->rate, eps = (T)k->eps, sign = (T)k->sign;  \
  if (k->rectified) LOOP(T, true)                                                         \
  else LOOP(T, false)
ACI_STEP4(radam, FORMULA, p, g, m, v)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_betas(f, BETA1, e));
  return aci_step_not_negative(f, EPS, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double lr = a->x[LR], step = a->x[STEP] += 1, decay = a->x[DECAY];
  const double b1 = a->x[BETA1], b2 = a->x[BETA2];
  const double rest = 1 - pow(b2, step), r = 2 / (1 - b2) - 1,
               rho = r - 2 * step * pow(b2, step) / rest;
  const bool decoupled = a->x[DECOUPLED] != 0;
  k->rectified = rho > 5;
  k->rate = lr / (1 - pow(b1, step));
  if (k->rectified)
    k->rate *= sqrt(rest) * sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho));
  k->keep = decoupled ? 1 - lr * decay : 1;
  k->decay = decoupled ? 0 : decay;
  k->lerp = 1 - b1;
  k->beta2 = b2;
  k->square = 1 - b2;
  k->eps = a->x[EPS];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(radam_step_, radam, prepare)

AC_OP(
    radam_step_,
    .sig =
        "radam_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, exp_avg_sqs!: tensors, "
        "lr: tensor, step!: tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, "
        "weight_decay: float = 0, decoupled_weight_decay: bool = false, maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_radam_step_, .nondiff = true);
