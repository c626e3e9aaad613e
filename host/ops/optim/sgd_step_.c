/* sgd_step_: one update of a list of parameters by stochastic gradient descent in a single pass, with
   PyTorch's arithmetic.
   g = -g when maximizing,  g += weight_decay p
   momentum: b = first ? g : momentum b + (1 - dampening) g,  g = nesterov ? g + momentum b : b
   p -= lr g
   params, grads, momentum_buffers (b, empty without momentum): lists of equal shapes, any floats. lr: one
   element. Computed in f32, in f64 if any list is f64.
   inv_scale (one element): multiplies the gradients, for scaled losses or clipping. found_inf (one
   element): other than 0, nothing is written.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.sgd_step_({p}, {p * 1}, {}, p * 0.1) return p --> { 0.9 } */
#include "ops/optim/step.h"

enum {
  PARAMS,
  GRADS,
  BUFFERS,
  LR,
  MOMENTUM,
  DAMPENING,
  DECAY,
  NESTEROV,
  MAXIMIZE,
  FIRST,
  INV_SCALE
};

static ac_status shape(ac_frame *f, ac_err *e) {
  double momentum = ARG_F(f, MOMENTUM);
  AC_TRY(aci_list_floats(f, PARAMS, e));
  AC_TRY(aci_list_match(f, GRADS, e));
  AC_TRY(aci_step_not_negative(f, MOMENTUM, MOMENTUM, e));
  if (momentum != 0 || f->args[BUFFERS].n != 0) AC_TRY(aci_list_match(f, BUFFERS, e));
  if (ARG_B(f, NESTEROV) && (momentum == 0 || ARG_F(f, DAMPENING) != 0))
    return AC_FAIL(e, INVALID,
                   "nesterov needs a momentum and no dampening, got momentum %g and dampening %g",
                   momentum, ARG_F(f, DAMPENING));
  for (int i = LR; i < f->n_args; i++)
    if (f->args[i].kind == AC_T_TENSOR) AC_TRY(aci_number_check(f, i, e));
  return AC_OK;
}

typedef struct factors {
  double lr, momentum, fresh, decay, sign;
  bool nesterov, first;
} factors;

#define LOOP(T, FIRST_STEP, NESTEROV_STEP)                          \
  for (int64_t i = 0; i < n; i++) {                                 \
    T gi = m_fma(decay, p[i], g[i] * sign);                         \
    T bi = FIRST_STEP ? gi : m_fma(fresh, gi, mu * b[i]);           \
    b[i] = bi;                                                      \
    p[i] = m_fma(lr, NESTEROV_STEP ? m_fma(mu, bi, gi) : bi, p[i]); \
  }
#define FORMULA(T)                                                                           \
  const T lr = (T)-k->lr, mu = (T)k->momentum, fresh = (T)k->fresh, decay = (T)k->decay;     \
  const T sign = (T)k->sign;                                                                 \
  if (b == NULL) {                                                                           \
    for (int64_t i = 0; i < n; i++) p[i] = m_fma(lr, m_fma(decay, p[i], g[i] * sign), p[i]); \
  } else if (k->first) {                                                                     \
    if (k->nesterov) LOOP(T, true, true)                                                     \
    else LOOP(T, true, false)                                                                \
  } else {                                                                                   \
    if (k->nesterov) LOOP(T, false, true)                                                    \
    else LOOP(T, false, false)                                                               \
  }
ACI_STEP3(sgd, FORMULA, p, g, b)

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) {
  k->lr = a->x[LR];
  k->momentum = a->x[MOMENTUM];
  k->fresh = 1 - a->x[DAMPENING];
  k->decay = a->x[DECAY];
  k->sign = (a->x[MAXIMIZE] != 0 ? -1 : 1) * ACI_STEP_SCALE(a, INV_SCALE);
  k->nesterov = a->x[NESTEROV] != 0;
  k->first = a->x[FIRST] != 0;
}
ACI_STEP_KERNEL_OPT(sgd_step_, sgd, prepare, 1 << 2, 1 << 2, MOMENTUM)

AC_OP(
    sgd_step_,
    .sig =
        "sgd_step_(params!: tensors, grads: tensors, momentum_buffers!: tensors, lr: tensor, momentum: "
        "float = 0, "
        "dampening: float = 0, weight_decay: float = 0, nesterov: bool = false, maximize: bool = false, "
        "first: bool = false, inv_scale: tensor?, found_inf: tensor?) -> ()",
    .shape = shape, .cpu = aci_cpu_sgd_step_, .nondiff = true, .on_complex = aci_complex_in_place);
