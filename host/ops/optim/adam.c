/* The update of Adam and AdamW: see adam.h. */
#include "ops/optim/adam.h"

#include "ops/optim/step.h"

enum { PARAMS, GRADS, AVGS, SQS, LR, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE, MAX_SQS, INV_SCALE };

typedef struct factors {
  double keep, decay, lerp, beta2, square, step_size, root, eps, sign;
} factors;

#define LOOP(T, AMSGRAD)                         \
  for (int64_t i = 0; i < n; i++) {              \
    T gi = m_fma(decay, p[i], g[i] * sign);      \
    T mi = m_fma(lerp, gi - m[i], m[i]);         \
    T vi = m_fma(square * gi, gi, v[i] * beta2); \
    T top = AMSGRAD ? m_max(w[i], vi) : vi;      \
    T denom = m_fma(m_sqrt(top), root, eps);     \
    p[i] = m_fma(size, mi / denom, p[i] * keep); \
    m[i] = mi;                                   \
    v[i] = vi;                                   \
    if (AMSGRAD) w[i] = top;                     \
  }
#define FORMULA(T)                                                                            \
  const T keep = (T)k->keep, decay = (T)k->decay, lerp = (T)k->lerp, beta2 = (T)k->beta2;     \
  const T square = (T)k->square, size = (T)-k->step_size, root = (T)k->root, eps = (T)k->eps; \
  const T sign = (T)k->sign;                                                                  \
  if (w == NULL) LOOP(T, false)                                                               \
  else LOOP(T, true)
ACI_STEP5(adam, FORMULA, p, g, m, v, w)

ac_status aci_adam_shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_betas(f, BETA1, e));
  return aci_step_not_negative(f, EPS, EPS, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, bool decoupled, factors *k) {
  const double lr = a->x[LR], step = a->x[STEP] += 1, b1 = a->x[BETA1], b2 = a->x[BETA2];
  k->keep = decoupled ? 1 - lr * a->x[DECAY] : 1;
  k->decay = decoupled ? 0 : a->x[DECAY];
  k->lerp = 1 - b1;
  k->beta2 = b2;
  k->square = 1 - b2;
  k->step_size = lr / (1 - pow(b1, step));
  k->root = 1 / sqrt(1 - pow(b2, step));
  k->eps = a->x[EPS];
  k->sign = (a->x[MAXIMIZE] != 0 ? -1 : 1) * ACI_STEP_SCALE(a, INV_SCALE);
}
ACI_STEP_FACTORS void coupled(aci_step_args *a, factors *k) { prepare(a, false, k); }
ACI_STEP_FACTORS void decoupled(aci_step_args *a, factors *k) { prepare(a, true, k); }
ACI_STEP_KERNEL_OPT(adam_step_, adam, coupled, 1 << 4, 0, 0)
ACI_STEP_KERNEL_OPT(adamw_step_, adam, decoupled, 1 << 4, 0, 0)
