--- accel.deepspeed: DeepSpeed's other names besides accel.DeepSpeedPlugin, loaded on first use.
---   keys           every key of a DeepSpeed configuration and its effect here        keys.lua
---   prepare        accelerator:prepare's additions under a DeepSpeedPlugin           prepare.lua, auto.lua
---   optimizers     optimizers and schedules of the configuration                    optimizers.lua, lr_schedules.lua
---   loss_scaler    the fp16 block                                                   loss_scaler.lua
---   engine         clip, step, schedule and zero_grad at the end of a backward      engine.lua
---   zero           zero.Init, zero.GatheredParameters                               zero.lua
---   plugins        which of several plugins is active                               plugins.lua
return require "accel.util.lazy" ("accel.deepspeed", {
  WarmupLR = "lr_schedules", WarmupDecayLR = "lr_schedules", WarmupCosineLR = "lr_schedules", OneCycle = "lr_schedules",
  LRRangeTest = "lr_schedules", lr_schedules = "lr_schedules", DynamicLossScaler = "loss_scaler",
  DummyOptim = "dummies", DummyScheduler = "dummies", zero = "zero", GatheredParameters = "zero",
})
