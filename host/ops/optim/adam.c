/* The update of Adam and AdamW: see adam.h. */
#include "ops/optim/adam.h"

#include "ops/optim/step.h"

enum { PARAMS, GRADS, AVGS, SQS, LR, STEP, BETA1, BETA2, EPS, DECAY, MAXIMIZE, MAX_SQS };

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

ac_status aci_adam_run(ac_frame *f, bool decoupled, ac_err *e) {
  double lr = aci_number_get(ARG_T(f, LR)), step = aci_step_count(f, STEP);
  double b1 = ARG_F(f, BETA1), b2 = ARG_F(f, BETA2), decay = ARG_F(f, DECAY);
  factors k = {.keep = decoupled ? 1 - lr * decay : 1,
               .decay = decoupled ? 0 : decay,
               .lerp = 1 - b1,
               .beta2 = b2,
               .square = 1 - b2,
               .step_size = lr / (1 - pow(b1, step)),
               .root = 1 / sqrt(1 - pow(b2, step)),
               .eps = ARG_F(f, EPS),
               .sign = ARG_B(f, MAXIMIZE) ? -1 : 1};
  aci_step s = {.n = 5,
                .lists = {f->args[PARAMS].tensors, f->args[GRADS].tensors, f->args[AVGS].tensors,
                          f->args[SQS].tensors, aci_step_list(f, MAX_SQS)},
                .reads = ACI_STEP_GRADS,
                .k = &k,
                ACI_STEP_FNS(adam)};
  AC_TRY(aci_step_run(f, &s, e));
  aci_number_set(ARG_T(f, STEP), step);
  return AC_OK;
}
