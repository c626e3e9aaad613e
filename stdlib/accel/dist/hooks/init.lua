--- accel.dist.hooks: replacements of the plain all-reduce for DistributedDataParallel:register_comm_hook, to send fewer
--- bytes. Names come from torch.distributed.algorithms.ddp_comm_hooks, loaded on first use.
---
---   model:register_comm_hook(nil, hooks.bf16_compress_hook)
---   model:register_comm_hook(hooks.PowerSGDState { matrix_approximation_rank = 2 }, hooks.powerSGD_hook)
return require "accel.util.lazy" ("accel.dist.hooks", {
  Future = "future", by_name = "by_name",
  allreduce_hook = "default", fp16_compress_hook = "default", bf16_compress_hook = "default",
  fp16_compress_wrapper = "default", bf16_compress_wrapper = "default",
  PowerSGDState = "power_sgd", powerSGD_hook = "power_sgd", batched_powerSGD_hook = "batched_power_sgd",
  QuantizedState = "quantized", int8_all_gather_hook = "quantized", int4_reduce_scatter_hook = "quantized",
})
