--- accel.parallel: one model over many ranks. accelerator:prepare applies it by a ParallelismConfig or a MegatronLMPlugin. You can
--- also use its parts separately.
---
---   mesh.lua            DeviceMesh: ranks as a grid with named dimensions
---   tensor_parallel.lua parallelize_module: plans that are data. styles.lua implements each style
---   placements.lua      which part of a parameter a rank has
---   collectives.lua     collectives with gradients
---   pipeline/           nn.parallel.PipelineParallel: stages, schedules, transfers between them
---   context.lua         parts of sequences: attention by a ring or by exchanged heads (ring.lua)
---   experts.lua         experts of mixtures on different ranks, tokens that travel to them
---   checkpoint.lua      ranges of whole tensors. clip.lua: norms over a mesh. holders.lua: the representative of shared tensors
---   cross_entropy.lua   losses of logits that no rank has all of
return require "accel.util.lazy"("accel.parallel", {
  DeviceMesh = "mesh", init_device_mesh = "mesh", parallelize_module = "tensor_parallel",
  parallel_cross_entropy = "cross_entropy",
})
