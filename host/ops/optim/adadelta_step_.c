/* adadelta_step_: one Adadelta update of a list of parameters in a single pass (Zeiler, with PyTorch's
   arithmetic).
   step += 1,  g = -g when maximizing,  g += weight_decay p,  v = rho v + (1 - rho) g^2
   d = sqrt(u + eps) / sqrt(v + eps) * g,  u = rho u + (1 - rho) d^2,  p -= lr d
   params, grads, square_avgs (v), acc_deltas (u): lists of equal length and shapes, any floats. lr and step:
   one element each. Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adadelta_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 100, p * 0) return p --> { 0.68377 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, SQS, DELTAS, LR, STEP, RHO, EPS, DECAY, MAXIMIZE };

typedef struct factors {
  double lr, rho, fresh, eps, decay, sign;
} factors;

#define FORMULA(T)                                                                  \
  const T lr = (T)-k->lr, rho = (T)k->rho, fresh = (T)k->fresh, eps = (T)k->eps,    \
          decay = (T)k->decay;                                                      \
  const T sign = (T)k->sign;                                                        \
  for (int64_t i = 0; i < n; i++) {                                                 \
    T gi = m_fma(decay, p[i], g[i] * sign), vi = m_fma(fresh * gi, gi, v[i] * rho); \
    T d = m_sqrt(u[i] + eps) / m_sqrt(vi + eps) * gi;                               \
    p[i] = m_fma(lr, d, p[i]);                                                      \
    v[i] = vi;                                                                      \
    u[i] = m_fma(fresh * d, d, u[i] * rho);                                         \
  }
ACI_STEP4(adadelta, FORMULA, p, g, v, u)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  if (!(ARG_F(f, RHO) <= 1))
    return AC_FAIL(e, INVALID, "rho must lie in [0, 1], got %g", ARG_F(f, RHO));
  return aci_step_not_negative(f, RHO, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  a->x[STEP] += 1;
  k->lr = a->x[LR];
  k->rho = a->x[RHO];
  k->fresh = 1 - k->rho;
  k->eps = a->x[EPS];
  k->decay = a->x[DECAY];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
}
ACI_STEP_KERNEL(adadelta_step_, adadelta, prepare)

AC_OP(
    adadelta_step_,
    .sig =
        "adadelta_step_(params!: tensors, grads: tensors, square_avgs!: tensors, acc_deltas!: tensors, "
        "lr: tensor, step!: tensor, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0, "
        "maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_adadelta_step_, .nondiff = true);
