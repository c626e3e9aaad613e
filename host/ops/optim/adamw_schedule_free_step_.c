/* adamw_schedule_free_step_: one schedule-free AdamW update of a list of parameters in a single pass (Defazio
   and others, "The Road Less Scheduled"). The parameters hold y, at which gradients are taken. z are the base
   iterates. Their weighted average is x = y + (1 - 1 / beta1) (z - y), see foreach_lerp_.
   step += 1,  lr rises to its value over warmup_steps,  v = beta2 v + (1 - beta2) g^2
   d = g / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay y
   lr_max = max(lr_max, lr),  w = step^r lr_max^weight_lr_power,  weight_sum += w,  c = w / weight_sum
   y = y + c (z - y) - lr (1 - beta1 (1 - c)) d,  z -= lr d
   params (y), grads, zs (copies of the parameters at first), exp_avg_sqs (v): lists of equal length and shapes,
   any floats. lr, step, weight_sum and lr_max (0 at first): one element each. Computed in f32, in f64 if any
   list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adamw_schedule_free_step_({p}, {p*1}, {p*1}, {p*0}, p/10, p*0, p*0, p*0) return p --> { 0.9 } */
#include "ops/optim/schedule_free.h"
#include "ops/optim/step.h"

enum {
  PARAMS,
  GRADS,
  ZS,
  SQS,
  LR,
  STEP,
  WEIGHT_SUM,
  LR_MAX,
  BETA1,
  BETA2,
  EPS,
  DECAY,
  WARMUP,
  R,
  POWER
};

typedef struct factors {
  double c, back, lr, beta2, square, root, eps, decay;
} factors;

#define FORMULA(T)                                                                        \
  const T c = (T)k->c, back = (T)-k->back, lr = (T)-k->lr, beta2 = (T)k->beta2;           \
  const T square = (T)k->square, root = (T)k->root, eps = (T)k->eps, decay = (T)k->decay; \
  for (int64_t i = 0; i < n; i++) {                                                       \
    T vi = m_fma(square * g[i], g[i], v[i] * beta2);                                      \
    T d = m_fma(decay, y[i], g[i] / m_fma(m_sqrt(vi), root, eps));                        \
    y[i] = m_fma(back, d, ACI_LERP(y[i], z[i], c));                                       \
    z[i] = m_fma(lr, d, z[i]);                                                            \
    v[i] = vi;                                                                            \
  }
ACI_STEP4(free_adamw, FORMULA, y, g, z, v)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_not_negative(f, WARMUP, WARMUP, e));
  AC_TRY(aci_step_betas(f, BETA1, e));
  return aci_step_not_negative(f, EPS, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const aci_free_step now = aci_free_now(a, LR, WARMUP);
  const double b1 = a->x[BETA1], b2 = a->x[BETA2];
  k->c = now.c;
  k->back = now.lr * (1 - b1 * (1 - now.c));
  k->lr = now.lr;
  k->beta2 = b2;
  k->square = 1 - b2;
  k->root = 1 / sqrt(1 - pow(b2, now.count));
  k->eps = a->x[EPS];
  k->decay = a->x[DECAY];
}
ACI_STEP_KERNEL(adamw_schedule_free_step_, free_adamw, prepare)

AC_OP(
    adamw_schedule_free_step_,
    .sig =
        "adamw_schedule_free_step_(params!: tensors, grads: tensors, zs!: tensors, exp_avg_sqs!: tensors, "
        "lr: tensor, step!: tensor, weight_sum!: tensor, lr_max!: tensor, beta1: float = 0.9, "
        "beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0, warmup_steps: int = 0, "
        "r: float = 0, weight_lr_power: float = 2) -> ()",
    .shape = shape, .cpu = aci_cpu_adamw_schedule_free_step_, .nondiff = true);
