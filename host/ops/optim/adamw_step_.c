/* adamw_step_: one AdamW update of a list of parameters in a single pass (Loshchilov and Hutter, with
   PyTorch's arithmetic).
   step += 1,  g = -g when maximizing,  p *= 1 - lr weight_decay
   m += (1 - beta1) (g - m),  v = beta2 v + (1 - beta2) g^2,  with AMSGrad v' = max(v', v), else v' = v
   p -= lr / (1 - beta1^step) * m / (sqrt(v') / sqrt(1 - beta2^step) + eps)
   params, grads, exp_avgs (m), exp_avg_sqs (v), max_exp_avg_sqs (v', none: no AMSGrad): lists of equal length
   and shapes, any floats. lr and step: one element each. Computed in f32, in f64 if any list is f64.
   inv_scale (one element): multiplies the gradients, for scaled losses or clipping. found_inf (one
   element): other than 0, nothing is written.
   gradient: none. Run it inside no_grad.
   example: local p = accel.ones(1) accel.adamw_step_({p}, {p * 1}, {p * 0}, {p * 0}, p * 0.1, p * 0) return p --> { 0.899 } */
#include "ops/optim/adam.h"

AC_OP(
    adamw_step_,
    .sig =
        "adamw_step_(params!: tensors, grads: tensors, exp_avgs!: tensors, exp_avg_sqs!: tensors, "
        "lr: tensor, step!: tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, "
        "weight_decay: float = 0.01, maximize: bool = false, max_exp_avg_sqs!: tensors?, inv_scale: tensor?, found_inf: "
        "tensor?) -> ()",
    .shape = aci_adam_shape, .cpu = aci_cpu_adamw_step_, .nondiff = true,
    .on_complex = aci_complex_in_place);
