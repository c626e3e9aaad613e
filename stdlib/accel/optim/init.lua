--- accel.optim: optimizers and learning-rate schedules, loaded on first use.
return require "accel.util.lazy" ("accel.optim", {
  Optimizer = "optimizer", SGD = "sgd", Adam = "adam", AdamW = "adamw", Adagrad = "adagrad", RMSprop = "rmsprop",
  Adamax = "adamax", NAdam = "nadam", RAdam = "radam", Lion = "lion", Adafactor = "adafactor", Muon = "muon",
  Lamb = "lamb", Adan = "adan", Adadelta = "adadelta", Rprop = "rprop", ASGD = "asgd", AdamWScheduleFree = "adamw_schedule_free",
  ScheduleFreeAdamW = "adamw_schedule_free", SGDScheduleFree = "sgd_schedule_free",
  ScheduleFreeSGD = "sgd_schedule_free",
  Adam8bit = "adam_8bit", AdamW8bit = "adam_8bit", Adam32bit = "adam_8bit", AdamW32bit = "adam_8bit",
  PagedAdam8bit = "adam_8bit", PagedAdamW8bit = "adam_8bit", PagedAdam32bit = "adam_8bit", PagedAdamW32bit = "adam_8bit",
  Lion8bit = "lion_8bit", Lion32bit = "lion_8bit", PagedLion8bit = "lion_8bit", PagedLion32bit = "lion_8bit",
  SGD8bit = "sgd_8bit", SGD32bit = "sgd_8bit", RMSprop8bit = "sgd_8bit", RMSprop32bit = "sgd_8bit",
  Adagrad8bit = "sgd_8bit", Adagrad32bit = "sgd_8bit",
  AdEMAMix8bit = "ademamix_8bit", AdEMAMix32bit = "ademamix_8bit", PagedAdEMAMix8bit = "ademamix_8bit",
  PagedAdEMAMix32bit = "ademamix_8bit", PagedAdEMAMix = "ademamix_8bit", PagedAdam = "adam_8bit", PagedAdamW = "adam_8bit",
  PagedLion = "lion_8bit", LBFGS = "lbfgs", SparseAdam = "sparse_adam", lr_scheduler = "lr_scheduler", swa_utils = "swa_utils",
})
