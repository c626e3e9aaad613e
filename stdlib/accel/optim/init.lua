--- accel.optim: optimizers and learning-rate schedules, loaded on first use.
return require "accel.util.lazy" ("accel.optim", {
  Optimizer = "optimizer", SGD = "sgd", Adam = "adam", AdamW = "adamw", Adagrad = "adagrad", RMSprop = "rmsprop",
  Adamax = "adamax", NAdam = "nadam", RAdam = "radam", Lion = "lion", Adafactor = "adafactor", Muon = "muon",
  Adadelta = "adadelta", Rprop = "rprop", ASGD = "asgd", AdamWScheduleFree = "adamw_schedule_free",
  ScheduleFreeAdamW = "adamw_schedule_free", SGDScheduleFree = "sgd_schedule_free",
  ScheduleFreeSGD = "sgd_schedule_free", lr_scheduler = "lr_scheduler",
})
