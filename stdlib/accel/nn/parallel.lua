--- nn.parallel: models on several ranks, loaded on first use from nn/parallel/.
return require "accel.util.lazy" ("accel.nn.parallel", {
  DistributedDataParallel = "distributed", FullyShardedDataParallel = "fully_sharded",
  PipelineParallel = "accel.parallel.pipeline.runner",
})
