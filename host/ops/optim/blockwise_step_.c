/* blockwise_step_: one update of a list of parameters by an optimizer whose states are 8-bit codes (quantize_dynamic's, in blocks of 256),
   as bitsandbytes does it (Dettmers and others, "8-bit Optimizers via Block-wise Quantization"): states are decoded, stepped in f32,
   and encoded again after the parameter took the exact values.
   adam: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, p *= 1 - lr weight_decay, p -= lr m^ / (sqrt(v^) + eps)
   momentum: m = beta1 m + g (first step: g),  p -= lr m            lion: p -= lr sign(beta1 m + (1 - beta1) g), m = beta2 m + (1 - beta2) g
   rmsprop: v = beta1 v + (1 - beta1) g^2. adagrad: v += g^2.       p -= lr g / (sqrt(v) + eps)
   ademamix: adam with m^ + alpha m3, m3 = beta3 m3 + (1 - beta3) g, for m^
   weight_decay shrinks p by lr weight_decay in adam, ademamix and lion, and joins g in the others.
   params, grads: lists of equal length and shapes, any floats. state1 (m, or v of rmsprop and adagrad), state2 (v), state3: codes, u8, or
   values, f32, of as many elements. absmax<i>: f32, one a block, or anything for states of f32. lr, step: one element.
   gradient: none. Run it inside no_grad.
   example: local p, q, m = accel.ones(1), accel.zeros(1, { dtype = "u8" }), accel.zeros(1)
     accel.blockwise_step_({ p }, { p * 3 }, { q }, { m }, p * 0.1, p * 0, { rule = "momentum" }) return p, q, m --> { 0.7 }, { 255 }, { 3 } */
#include "ops/optim/blockwise.h"

AC_OP(
    blockwise_step_,
    .sig =
        "blockwise_step_(params!: tensors, grads: tensors, state1!: tensors, absmax1!: tensors, lr: tensor, step!: tensor, "
        "rule: enum(adam|momentum|lion|rmsprop|adagrad|ademamix) = adam, beta1: float = 0.9, beta2: float = 0.999, "
        "beta3: float = 0, alpha: float = 0, eps: float = 1e-8, weight_decay: float = 0, state2!: tensors?, "
        "absmax2!: tensors?, state3!: tensors?, absmax3!: tensors?) -> ()",
    .shape = aci_blockwise_shape, .cpu = aci_cpu_blockwise_step_, .by_vtable = true,
    .nondiff = true);
