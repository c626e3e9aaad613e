/* rmsprop_step_: one RMSprop update of a list of parameters in a single pass (Hinton, with PyTorch's
   arithmetic).
   step += 1,  g = -g when maximizing,  g += weight_decay p,  v = alpha v + (1 - alpha) g^2
   centered: a += (1 - alpha) (g - a), d = sqrt(v - a^2) + eps,  else d = sqrt(v) + eps
   momentum: b = momentum b + g / d, p -= lr b,  else p -= lr g / d
   params, grads, square_avgs (v), momentum_buffers (b, none: no momentum), grad_avgs (a, none: not centered):
   lists of equal length and shapes, any floats. lr and step: one element each. Computed in f32, in f64 if
   any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.rmsprop_step_({p}, {p * 1}, {p * 0}, p * 0.01, p * 0) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, SQS, LR, STEP, ALPHA, EPS, DECAY, MOMENTUM, MAXIMIZE, BUFFERS, AVGS };

typedef struct factors {
  double lr, alpha, fresh, eps, decay, momentum, sign;
} factors;

#define LOOP(T, CENTERED, MOMENTUM_STEP)                  \
  for (int64_t i = 0; i < n; i++) {                       \
    T gi = m_fma(decay, p[i], g[i] * sign);               \
    T vi = m_fma(fresh * gi, gi, v[i] * alpha), var = vi; \
    if (CENTERED) {                                       \
      T ai = m_fma(fresh, gi - a[i], a[i]);               \
      a[i] = ai;                                          \
      var = m_fma(-ai, ai, vi);                           \
    }                                                     \
    T d = gi / (m_sqrt(var) + eps);                       \
    if (MOMENTUM_STEP) b[i] = d = m_fma(mu, b[i], d);     \
    p[i] = m_fma(lr, d, p[i]);                            \
    v[i] = vi;                                            \
  }
#define FORMULA(T)                                                                   \
  const T lr = (T)-k->lr, alpha = (T)k->alpha, fresh = (T)k->fresh, eps = (T)k->eps, \
          decay = (T)k->decay;                                                       \
  const T mu = (T)k->momentum, sign = (T)k->sign;                                    \
  if (a == NULL) {                                                                   \
    if (b == NULL) LOOP(T, false, false)                                             \
    else LOOP(T, false, true)                                                        \
  } else {                                                                           \
    if (b == NULL) LOOP(T, true, false)                                              \
    else LOOP(T, true, true)                                                         \
  }
ACI_STEP5(rmsprop, FORMULA, p, g, v, b, a)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_not_negative(f, ALPHA, MOMENTUM, e));
  if (ARG_F(f, MOMENTUM) != 0 && ARG_NONE(f, BUFFERS))
    return AC_FAIL(e, INVALID, "momentum %g needs momentum_buffers", ARG_F(f, MOMENTUM));
  return AC_OK;
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  a->x[STEP] += 1;
  k->lr = a->x[LR];
  k->alpha = a->x[ALPHA];
  k->fresh = 1 - k->alpha;
  k->eps = a->x[EPS];
  k->decay = a->x[DECAY];
  k->momentum = a->x[MOMENTUM];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL_OPT(rmsprop_step_, rmsprop, prepare, 1 << 3 | 1 << 4, 1 << 3, MOMENTUM)

AC_OP(
    rmsprop_step_,
    .sig =
        "rmsprop_step_(params!: tensors, grads: tensors, square_avgs!: tensors, lr: tensor, step!: tensor, "
        "alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0, momentum: float = 0, "
        "maximize: bool = false, momentum_buffers!: tensors?, grad_avgs!: tensors?) -> ()",
    .shape = shape, .cpu = aci_cpu_rmsprop_step_, .nondiff = true);
