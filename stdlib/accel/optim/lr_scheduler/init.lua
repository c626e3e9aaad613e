--- accel.optim.lr_scheduler: learning rates by step, loaded on first use.
return require "accel.util.lazy" ("accel.optim.lr_scheduler", {
  LRScheduler = "scheduler", LambdaLR = "lambda_lr", MultiplicativeLR = "multiplicative_lr", StepLR = "step_lr",
  MultiStepLR = "multi_step_lr", ExponentialLR = "exponential_lr", ConstantLR = "constant_lr",
  LinearLR = "linear_lr", PolynomialLR = "polynomial_lr", CosineAnnealingLR = "cosine_annealing_lr",
  CosineAnnealingWarmRestarts = "cosine_annealing_warm_restarts", OneCycleLR = "one_cycle_lr",
  CyclicLR = "cyclic_lr", ReduceLROnPlateau = "reduce_lr_on_plateau", ChainedScheduler = "chained_scheduler",
  GreedyLR = "greedy_lr", SequentialLR = "sequential_lr", get_scheduler = "get_scheduler",
  get_constant_schedule = "schedules", get_constant_schedule_with_warmup = "schedules", get_linear_schedule_with_warmup = "schedules",
  get_cosine_schedule_with_warmup = "schedules", get_cosine_with_hard_restarts_schedule_with_warmup = "schedules",
  get_polynomial_decay_schedule_with_warmup = "schedules", get_inverse_sqrt_schedule = "schedules",
  get_cosine_with_min_lr_schedule_with_warmup = "schedules", get_cosine_with_min_lr_schedule_with_warmup_lr_rate = "schedules",
  get_wsd_schedule = "schedules", get_reduce_on_plateau_schedule = "schedules",
})
