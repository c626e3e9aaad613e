/* asgd_step_: one update of a list of parameters by averaged stochastic gradient descent in a single pass
   (Polyak and Juditsky, with PyTorch's arithmetic).
   step += 1,  g = -g when maximizing,  g += weight_decay p
   p = p (1 - lambd eta) - eta g,  a += mu (p - a)
   then eta = lr / (1 + lambd lr step)^alpha,  mu = 1 / max(1, step - t0)
   params, grads, axs (a, the averages): lists of equal length and shapes, any floats. lr, step, eta (the learning
   rate at first) and mu (1 at first): one element each. Computed in f32, in f64 if any list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.asgd_step_({p}, {p * 1}, {p * 0}, p * 0.1, p * 0, p * 0.1, p * 1) return p --> { 0.89999 } */
#include "ops/optim/step.h"

enum { PARAMS, GRADS, AXS, LR, STEP, ETA, MU, LAMBD, ALPHA, T0, DECAY, MAXIMIZE };

typedef struct factors {
  double keep, eta, mu, decay, sign;
} factors;

#define FORMULA(T)                                                                 \
  const T keep = (T)k->keep, eta = (T)-k->eta, mu = (T)k->mu, decay = (T)k->decay, \
          sign = (T)k->sign;                                                       \
  for (int64_t i = 0; i < n; i++) {                                                \
    T gi = m_fma(decay, p[i], g[i] * sign), pi = m_fma(eta, gi, p[i] * keep);      \
    a[i] = mu == 1 ? pi : m_fma(mu, pi - a[i], a[i]);                              \
    p[i] = pi;                                                                     \
  }
ACI_STEP3(asgd, FORMULA, p, g, a)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_step_not_negative(f, LAMBD, ALPHA, e));
  return aci_step_not_negative(f, DECAY, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  const double lr = a->x[LR], step = a->x[STEP] += 1, eta = a->x[ETA];
  const double lambd = a->x[LAMBD], late = step - a->x[T0];
  k->keep = 1 - lambd * eta;
  k->eta = eta;
  k->mu = a->x[MU];
  k->decay = a->x[DECAY];
  k->sign = a->x[MAXIMIZE] != 0 ? -1 : 1;
  a->x[ETA] = lr / pow(1 + lambd * lr * step, a->x[ALPHA]);
  a->x[MU] = 1 / (late > 1 ? late : 1);
}
ACI_STEP_KERNEL(asgd_step_, asgd, prepare)

AC_OP(
    asgd_step_,
    .sig =
        "asgd_step_(params!: tensors, grads: tensors, axs!: tensors, lr: tensor, step!: tensor, eta!: "
        "tensor, "
        "mu!: tensor, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6, weight_decay: float = 0, "
        "maximize: bool = false) -> ()",
    .shape = shape, .cpu = aci_cpu_asgd_step_, .nondiff = true);
