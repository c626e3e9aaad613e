/* adadelta_step_: one Adadelta update of a list of parameters in a single pass (Zeiler, with PyTorch's
   arithmetic).
   step += 1;  g = -g when maximizing;  g += weight_decay p;  v = rho v + (1 - rho) g^2
   d = sqrt(u + eps) / sqrt(v + eps) * g;  u = rho u + (1 - rho) d^2;  p -= lr d
   params, grads, square_avgs (v), acc_deltas (u): lists of equal length and shapes, any floats; lr and step:
   one element each. Computed in f32, in f64 where any list is f64.
   gradient: none; run it inside no_grad.
   example: local p = accel.ones(1) accel.adadelta_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 100, p * 0) return p --> { 0.68377 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, SQS, DELTAS, LR, STEP, RHO, EPS, DECAY, MAXIMIZE };

typedef struct factors {
  double lr, rho, fresh, eps, decay, sign;
} factors;

#define FORMULA(T)                                                                                    \
  const T lr = (T)-k->lr, rho = (T)k->rho, fresh = (T)k->fresh, eps = (T)k->eps, decay = (T)k->decay; \
  const T sign = (T)k->sign;                                                                          \
  for (int64_t i = 0; i < n; i++) {                                                                   \
    T gi = m_fma(decay, p[i], g[i] * sign), vi = m_fma(fresh * gi, gi, v[i] * rho);                   \
    T d = m_sqrt(u[i] + eps) / m_sqrt(vi + eps) * gi;                                                 \
    p[i] = m_fma(lr, d, p[i]);                                                                        \
    v[i] = vi;                                                                                        \
    u[i] = m_fma(fresh * d, d, u[i] * rho);                                                           \
  }
ACI_STEP4(adadelta, FORMULA, p, g, v, u)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  if (!(ARG_F(f, RHO) <= 1)) return AC_FAIL(e, INVALID, "rho must lie in [0, 1], got %g", ARG_F(f, RHO));
  return aci_step_not_negative(f, RHO, DECAY, e);
}

static ac_status cpu(ac_frame *f, ac_err *e) {
  double step = aci_step_count(f, STEP);
  factors k = {.lr = aci_number_get(ARG_T(f, LR)),
               .rho = ARG_F(f, RHO),
               .fresh = 1 - ARG_F(f, RHO),
               .eps = ARG_F(f, EPS),
               .decay = ARG_F(f, DECAY),
               .sign = ARG_B(f, MAXIMIZE) ? -1 : 1};
  aci_step s = {.n = 4,
                .lists = {f->args[PARAMS].tensors, f->args[GRADS].tensors, f->args[SQS].tensors,
                          f->args[DELTAS].tensors},
                .reads = ACI_STEP_GRADS,
                .k = &k,
                ACI_STEP_FNS(adadelta)};
  AC_TRY(aci_step_run(f, &s, e));
  aci_number_set(ARG_T(f, STEP), step);
  return AC_OK;
}

AC_OP(adadelta_step_,
      .sig = "adadelta_step_(params!: tensors, grads: tensors, square_avgs!: tensors, acc_deltas!: tensors, "
             "lr: tensor, step!: tensor, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0, "
             "maximize: bool = false) -> ()",
      .shape = shape, .cpu = cpu, .nondiff = true);
