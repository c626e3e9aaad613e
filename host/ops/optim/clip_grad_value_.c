/* clip_grad_value_: every element of a list of gradients limited to -clip_value .. clip_value in a single pass.
   NaN stays NaN.
   grads: a list of floats of any shapes.
   gradient: none. Run it inside no_grad.
   example: local g = accel.tensor {-3.0, 0.25, 2.0} accel.clip_grad_value_({g}, 1) return g --> { -1, 0.25, 1 } */
#include "ops/optim/step.h"

enum { GRADS, LIMIT };

typedef struct factors {
  double limit;
} factors;

#define FORMULA(T)                   \
  const T top = (T)k->limit;         \
  for (int64_t i = 0; i < n; i++) {  \
    T x = g[i] < -top ? -top : g[i]; \
    g[i] = x > top ? top : x;        \
  }
ACI_STEP1(clip, FORMULA, g)

static ac_status shape(ac_frame *f, ac_err *e) {
  AC_TRY(aci_step_shape(f, e));
  AC_TRY(aci_list_gradients(f, GRADS, e));
  return aci_step_not_negative(f, LIMIT, LIMIT, e);
}

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) { k->limit = a->x[LIMIT]; }
ACI_STEP_KERNEL(clip_grad_value_, clip, prepare)

AC_OP(clip_grad_value_, .sig = "clip_grad_value_(grads!: tensors, clip_value: float) -> ()",
      .shape = shape, .cpu = aci_cpu_clip_grad_value_, .nondiff = true);
