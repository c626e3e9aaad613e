/* foreach_lerp_: tensors of a list moved towards the tensors of another in a single pass. x = x + weight (y - x),
   exact for weights 0 and 1. With weight 1 - decay: an exponential moving average of parameters.
   tensors (x), others (y): lists of equal length and shapes, any floats. Computed in f32, in f64 if either is.
   gradient: none. Run it inside no_grad.
   example: local x = accel.zeros(2) accel.foreach_lerp_({x}, {accel.tensor {4.0, 8.0}}, 0.25) return x --> { 1, 2 } */
#include "ops/optim/step.h"

enum { TENSORS, OTHERS, WEIGHT };

typedef struct factors {
  double weight;
} factors;

#define FORMULA(T)          \
  const T w = (T)k->weight; \
  for (int64_t i = 0; i < n; i++) x[i] = ACI_LERP(x[i], y[i], w);
ACI_STEP2(lerp, FORMULA, x, y)

ACI_STEP_FACTORS void prepare(aci_step_args *a, factors *k) { k->weight = a->x[WEIGHT]; }
ACI_STEP_KERNEL(foreach_lerp_, lerp, prepare)

AC_OP(foreach_lerp_,
      .sig = "foreach_lerp_(tensors!: tensors, others: tensors, weight: float) -> ()",
      .shape = aci_step_shape, .cpu = aci_cpu_foreach_lerp_, .nondiff = true);
