/* sgd_schedule_free_step_: one schedule-free SGD update of a list of parameters in a single pass (Defazio and
   others, "The Road Less Scheduled"). The parameters hold y, at which gradients are taken. z are the base iterates.
   their weighted average is x = y + (1 - 1 / momentum) (z - y), see foreach_lerp_.
   step += 1,  lr rises to its value over warmup_steps,  d = g + weight_decay y
   lr_max = max(lr_max, lr),  w = step^r lr_max^weight_lr_power,  weight_sum += w,  c = w / weight_sum
   y = y + c (z - y) - lr (1 - momentum (1 - c)) d,  z -= lr d
   params (y), grads, zs (copies of the parameters at first): lists of equal length and shapes, any floats. lr,
   step, weight_sum and lr_max (0 at first): one element each. Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.sgd_schedule_free_step_({p}, {p * 1}, {p * 1}, p / 10, p * 0, p * 0, p * 0) return p --> { 0.9 } */
#include "ops/optim/schedule_free.h"
#include "ops/optim/step.h"

enum { PARAMS, GRADS, ZS, LR, STEP, WEIGHT_SUM, LR_MAX, MOMENTUM, DECAY, WARMUP, R, POWER };

typedef struct factors {
  double c, back, lr, decay;
} factors;

#define FORMULA(T)                                                              \
  const T c = (T)k->c, back = (T)-k->back, lr = (T)-k->lr, decay = (T)k->decay; \
  for (int64_t i = 0; i < n; i++) {                                             \
    T d = m_fma(decay, y[i], g[i]);                                             \
    y[i] = m_fma(back, d, ACI_LERP(y[i], z[i], c));                             \
    z[i] = m_fma(lr, d, z[i]);                                                  \
  }
ACI_STEP3(free_sgd, FORMULA, y, g, z)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_not_negative(f, WARMUP, WARMUP, e));
  if (!(ARG_F(f, MOMENTUM) > 0 && ARG_F(f, MOMENTUM) < 1))
    return AC_FAIL(e, INVALID, "momentum must lie between 0 and 1, got %g", ARG_F(f, MOMENTUM));
  return aci_step_not_negative(f, DECAY, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const aci_free_step now = aci_free_now(a, LR, WARMUP);
  k->c = now.c;
  k->back = now.lr * (1 - a->x[MOMENTUM] * (1 - now.c));
  k->lr = now.lr;
  k->decay = a->x[DECAY];
}
ACI_STEP_KERNEL(sgd_schedule_free_step_, free_sgd, prepare)

AC_OP(
    sgd_schedule_free_step_,
    .sig =
        "sgd_schedule_free_step_(params!: tensors, grads: tensors, zs!: tensors, lr: tensor, step!: tensor, "
        "weight_sum!: tensor, lr_max!: tensor, momentum: float = 0.9, weight_decay: float = 0, "
        "warmup_steps: int = 0, r: float = 0, weight_lr_power: float = 2) -> ()",
    .shape = shape, .cpu = aci_cpu_sgd_schedule_free_step_, .nondiff = true);
