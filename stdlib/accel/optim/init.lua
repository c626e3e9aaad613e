--- accel.optim: optimizers and learning-rate schedules, loaded on first use.
return require "accel.util.lazy" ("accel.optim", {
  Optimizer = "optimizer", SGD = "sgd", AdamW = "adamw", lr_scheduler = "lr_scheduler",
})
