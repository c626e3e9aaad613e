--- nn.parallel: models on several ranks, loaded on first use from nn/parallel/. The root adds FullyShardedDataParallel and PipelineParallel,
--- which stand on higher layers.
return require "accel.util.lazy" ("accel.nn.parallel", { DistributedDataParallel = "distributed" })
