/* muon_step_: the last part of a Muon update of a list of parameters, in a single pass (Jordan and others, with
   PyTorch's arithmetic): momentum and newton_schulz have made the updates.
   p = p (1 - lr weight_decay) - lr scale u
   params, updates (u): lists of equal length and shapes, any floats. scales: a number for each parameter, such as
   sqrt(max(1, rows / columns)). lr: one element. Computed in f32, in f64 if either list is f64.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.muon_step_({p}, {p * 1}, {2}, p * 0.1, 0.5) return p --> { 0.75 } */
#include "ops/optim/step.h"

enum { PARAMS, UPDATES, SCALES, LR, DECAY };

typedef struct factors {
  double keep, lr;
} factors;

#define FORMULA(T)                                       \
  const T keep = (T)k->keep, lr = (T) - (k->lr * scale); \
  for (int64_t i = 0; i < n; i++) p[i] = m_fma(lr, u[i], p[i] * keep);
ACI_STEP2(muon, FORMULA, p, u)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  if (f->args[SCALES].n != f->args[PARAMS].n)
    return AC_FAIL(e, INVALID, "%d scales for %d params", f->args[SCALES].n, f->args[PARAMS].n);
  return aci_step_not_negative(f, DECAY, DECAY, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  k->lr = a->x[LR];
  k->keep = 1 - k->lr * a->x[DECAY];
}
ACI_STEP_KERNEL(muon_step_, muon, prepare)

AC_OP(muon_step_,
      .sig = "muon_step_(params!: tensors, updates: tensors, scales: floats, lr: tensor, "
             "weight_decay: float = 0.1) -> ()",
      .shape = shape, .cpu = aci_cpu_muon_step_, .nondiff = true);
