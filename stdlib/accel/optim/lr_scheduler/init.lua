--- accel.optim.lr_scheduler: learning rates by step, loaded on first use.
return require "accel.util.lazy" ("accel.optim.lr_scheduler", {
  LRScheduler = "scheduler", LambdaLR = "lambda_lr", ConstantLR = "constant_lr", LinearLR = "linear_lr",
  CosineAnnealingLR = "cosine_annealing_lr", SequentialLR = "sequential_lr", get_scheduler = "get_scheduler",
})
