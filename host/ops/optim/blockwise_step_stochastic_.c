/* blockwise_step_stochastic_: blockwise_step_ for parameters of bf16 without copies in f32: each is rounded to one of its two neighbours in
   bf16, to the nearer one the more often, so that steps smaller than a spacing of bf16 count on average. Parameters of other dtypes
   are rounded to nearest. Arguments as blockwise_step_'s. Draws from the generator. first: elements of parameters,
   in whole blocks, that came before in a list that is stepped on in several calls with the generator as it was.
   gradient: none. Run it inside no_grad.
   example: local p = accel.full({ 4096 }, 256, { dtype = "bf16" })
   local q, m = accel.zeros(4096, { dtype = "u8" }), accel.zeros(16)
   accel.blockwise_step_stochastic_({ p }, { p }, { q }, { m }, accel.tensor { 1 / 512 }, accel.zeros(1), { rule = "momentum" })
   local mean = p:float():mean():item() return mean > 255.4 and mean < 255.6 --> true */
#include "ops/optim/blockwise.h"

AC_OP(
    blockwise_step_stochastic_,
    .sig =
        "blockwise_step_stochastic_(params!: tensors, grads: tensors, state1!: tensors, absmax1!: tensors, lr: tensor, "
        "step!: tensor, rule: enum(adam|momentum|lion|rmsprop|adagrad|ademamix) = adam, beta1: float = 0.9, "
        "beta2: float = 0.999, beta3: float = 0, alpha: float = 0, eps: float = 1e-8, weight_decay: float = 0, "
        "state2!: tensors?, absmax2!: tensors?, state3!: tensors?, absmax3!: tensors?, generator: generator?, "
        "first: int = 0) -> ()",
    .shape = aci_blockwise_shape, .cpu = aci_cpu_blockwise_step_stochastic_, .by_vtable = true,
    .nondiff = true);
