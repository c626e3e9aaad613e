--- Kwargs handlers: values of Accelerator { kwargs_handlers = { ... } } that configure data parallelism, loss scaling,
--- autocast, joining the world and profiling. You can give at most one of each class. Its class decides on its use.
local Settings = require "accel.accelerator.settings"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local boolean, none = Settings.boolean, options.none

local function word(...)
  local words = { ... }
  return function(who, name, value) return check.word(who, name, value, words) end
end

--- Base class. A subclass declares `defaults` and is made from one table of values. to_kwargs() lists the fields that
--- differ from the defaults.
--- example: local K = accel.accelerator.KwargsHandler:extend("K") K.defaults = { a = 0, b = 3.0 } return
---   K { a = 2 }:to_kwargs() --> { a = 2 }
---@class accel.accelerator.KwargsHandler : accel.accelerator.Settings
M.KwargsHandler = Settings:extend("accel.accelerator.KwargsHandler")

local function handler(name, defaults, checks)
  local cls = M.KwargsHandler:extend("accel.accelerator." .. name)
  cls.defaults, cls.checks = defaults, checks or {}
  M[name] = cls
  return cls
end

--- How accelerator:autocast behaves: enabled = false turns mixed precision off for a block. cache_enabled has no
--- effect, which the Accelerator reports: converted weights are kept by version.
--- example: accel.accelerator.AutocastKwargs { enabled = false }:to_kwargs() --> { enabled = false }
---@class accel.accelerator.AutocastKwargs : accel.accelerator.KwargsHandler
---@field enabled boolean true
---@field cache_enabled boolean?
M.AutocastKwargs = handler("AutocastKwargs", { enabled = true, cache_enabled = none }, { cache_enabled = boolean })

--- Options of nn.parallel.DistributedDataParallel for prepared models, and the format of gradients in transit:
--- comm_hook "no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8", "int4". comm_wrapper "no", "fp16", "bf16".
--- comm_state_option holds the options of the hook's state. deterministic = "world": gradients with the same bits on
--- any number of ranks, with the Accelerator's micro_batches. gradient_as_bucket_view is true by default, because it
--- saves a copy. dim and check_reduction have no effect, which the Accelerator reports.
--- example: accel.accelerator.DistributedDataParallelKwargs { comm_hook = "bf16" }.comm_wrapper --> "no"
---@class accel.accelerator.DistributedDataParallelKwargs : accel.accelerator.KwargsHandler
M.DistributedDataParallelKwargs = handler("DistributedDataParallelKwargs", {
  dim = 1, broadcast_buffers = true, bucket_cap_mb = 25, find_unused_parameters = false, check_reduction = false,
  gradient_as_bucket_view = true, static_graph = false, deterministic = none,
  comm_hook = "no", comm_wrapper = "no", comm_state_option = {},
}, {
  bucket_cap_mb = function(who, name, value)
    check.number(who, name, value, 0)
    if value == math.huge then raise("%s: %s must be finite", who, name) end
    return value
  end,
  deterministic = word("world"),
  comm_hook = word("no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8", "int4"),
  comm_wrapper = word("no", "fp16", "bf16"),
})

--- Refused: the hook is named in the constructor.
function M.DistributedDataParallelKwargs.register_comm_hook(...) -- luacheck: no unused
  raise 'DistributedDataParallelKwargs:register_comm_hook is not in accel; name the hook in the constructor: { comm_hook = "bf16" }'
end

local function above(limit)
  return function(who, name, value)
    check.number(who, name, value)
    if value <= limit or value == math.huge then
      raise("%s: %s must be a finite number above %g, got %s", who, name, limit, check.shown(value))
    end
    return value
  end
end

--- How mixed_precision = "fp16" scales the loss: accel.amp.GradScaler's options.
--- example: accel.accelerator.GradScalerKwargs { init_scale = 1024 }:to_kwargs() --> { init_scale = 1024 }
---@class accel.accelerator.GradScalerKwargs : accel.accelerator.KwargsHandler
---@field init_scale number 65536
---@field growth_factor number 2
---@field backoff_factor number 0.5
---@field growth_interval integer 2000
---@field enabled boolean true
M.GradScalerKwargs = handler("GradScalerKwargs", {
  init_scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000, enabled = true,
}, {
  init_scale = above(0), growth_factor = above(1), growth_interval = check.positive,
  backoff_factor = function(who, name, value)
    check.number(who, name, value)
    if value <= 0 or value >= 1 then raise("%s: %s must lie between 0 and 1, got %g", who, name, value) end
    return value
  end,
})

--- How ranks join: backend ("shm", "tcp", "mpi", or "gloo" for the best available one) and timeout, seconds of every
--- wait for another rank. init_method may be "env://": ranks find each other by the launcher's variables.
--- example: accel.accelerator.InitProcessGroupKwargs { timeout = 1800 }.timeout --> 1800
---@class accel.accelerator.InitProcessGroupKwargs : accel.accelerator.KwargsHandler
---@field backend string?
---@field init_method string?
---@field timeout number?
M.InitProcessGroupKwargs = handler("InitProcessGroupKwargs", { backend = none, init_method = none, timeout = none }, {
  backend = Settings.text, timeout = above(0),
  init_method = function(who, name, value)
    if value ~= "env://" then
      raise("%s: %s must be 'env://', got %s; accel-run sets the rendezvous", who, name, check.shown(value))
    end
    return value
  end,
})

local parts = { wait = true, warmup = true, active = true, ["repeat"] = true, skip_first = true,
  skip_first_wait = true }

--- Settings of accelerator:profile: schedule_option holds wait, warmup, active, ["repeat"], skip_first and
--- skip_first_wait. on_trace_ready(prof) is called when a recording is complete. At the end, every rank writes its trace
--- into output_trace_dir. It also takes accel.profiler.profile's options.
--- example: accel.accelerator.ProfileKwargs { schedule_option = { wait = 1, active = 2 } }.record_shapes --> false
---@class accel.accelerator.ProfileKwargs : accel.accelerator.KwargsHandler
---@field activities string[]?
---@field schedule_option table?
---@field on_trace_ready fun(prof: accel.profiler.Profile)?
---@field record_shapes boolean
---@field profile_memory boolean
---@field with_stack boolean
---@field with_flops boolean
---@field with_modules boolean
---@field output_trace_dir string?
M.ProfileKwargs = handler("ProfileKwargs", {
  activities = none, schedule_option = none, on_trace_ready = none, record_shapes = false, profile_memory = false,
  with_stack = false, with_flops = false, with_modules = false, output_trace_dir = none,
}, {
  on_trace_ready = check.callable, output_trace_dir = Settings.text,
  activities = function(who, name, value)
    if type(value) ~= "table" then raise("%s: %s must be a list of devices, got %s", who, name, check.shown(value)) end
    for i, device in ipairs(value) do
      check.word(who, ("%s[%d]"):format(name, i), device, { "cpu", "cuda", "xpu", "mtia", "hpu" })
    end
    return value
  end,
  schedule_option = function(who, name, value)
    local declared = {}
    for part in next, parts do declared[part] = none end
    local given = options(who .. "." .. name, value, declared)
    for part, n in next, given do check.count(who, name .. "." .. part, n) end
    return given
  end,
})

--- The profile that these options describe, not yet started: prof:start(), prof:step() after each step, prof:stop().
--- example: accel.accelerator.ProfileKwargs { record_shapes = true }:build().step_num --> 0
---@return accel.profiler.Profile
function M.ProfileKwargs:build()
  local profiler = require "accel.profiler"
  return profiler.Profile {
    activities = self.activities, on_trace_ready = self.on_trace_ready, record_shapes = self.record_shapes,
    profile_memory = self.profile_memory, with_stack = self.with_stack, with_flops = self.with_flops,
    with_modules = self.with_modules, schedule = self.schedule_option and profiler.schedule(self.schedule_option) or nil,
  }
end

return M
