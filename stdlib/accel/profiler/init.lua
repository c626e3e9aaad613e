--- accel.profiler: records a part of a run, op by op, with the names of torch.profiler.
---
---   local prof <close> = accel.profiler.profile { record_shapes = true, profile_memory = true }
---   ...
---   print(prof:key_averages():table { sort_by = "self_cpu_time_total", row_limit = 10 })
---
--- accelerator:profile() makes one of a ProfileKwargs, and `accel-run --profile FILE script.lua` traces a whole script.
local lazy = require "accel.util.lazy"

return lazy("accel.profiler", { profile = "profile", Profile = "profile", record_function = "record", schedule = "schedule",
  ProfilerAction = "schedule", tensorboard_trace_handler = "handlers", ProfilerActivity = "handlers" })
