--- The first part of accelerator:prepare under a DeepSpeedPlugin: it replaces "auto" values of the configuration from its
--- arguments, and dummies by the real optimizer and schedule. Called by accelerator/prepare.lua.
local Engine = require "accel.deepspeed.engine"
local auto = require "accel.deepspeed.auto"
local class = require "accel.util.class"
local dummies = require "accel.deepspeed.dummies"
local optimizers = require "accel.deepspeed.optimizers"
local raise = require "accel.util.raise"

local M = {}

--- Whether x stands for an optimizer, "optimizer", or a schedule, "scheduler", of a configuration.
---@param x any
---@return string?
function M.dummy_kind(x)
  if class.isinstance(x, dummies.DummyOptim) then return "optimizer" end
  if class.isinstance(x, dummies.DummyScheduler) then return "scheduler" end
end

--- Positions by kind, of dummies and of real ones.
local function sort(given, kinds)
  local at = { loaders = {} }
  for i = 1, given.n do
    local kind = kinds[i]
    if kind == "loader" then at.loaders[#at.loaders + 1] = given[i]
    elseif kind == "skipped" then at.loaders[#at.loaders + 1] = given[i].loader
    elseif kind then at[kind] = at[kind] or i end
  end
  return at
end

--- Exactly one of the configuration and the script must define the optimizer, and the schedule.
local function check_sources(plugin, optimizer, scheduler)
  local config = plugin.deepspeed_config
  local dummy, dummy_schedule = M.dummy_kind(optimizer) ~= nil, M.dummy_kind(scheduler) ~= nil
  if optimizer ~= nil and config.optimizer ~= nil and not dummy then
    raise("prepare: the DeepSpeed configuration and the script both define an optimizer; remove it from the configuration, or give an"
      .. " accel.DummyOptim")
  elseif dummy and config.optimizer == nil then
    raise "prepare: a DummyOptim stands for the optimizer of the DeepSpeed configuration, which has none"
  end
  if scheduler ~= nil and config.scheduler ~= nil and not dummy_schedule then
    raise("prepare: the DeepSpeed configuration and the script both define a schedule; remove it from the configuration, or give an"
      .. " accel.DummyScheduler")
  elseif dummy_schedule and config.scheduler == nil and scheduler.lr_scheduler_callable == nil then
    raise("prepare: a DummyScheduler stands for the schedule of the DeepSpeed configuration, which has none; define it there, or"
      .. " lr_scheduler_callable")
  end
  if dummy and scheduler ~= nil and not dummy_schedule then
    raise "prepare: with a DummyOptim the schedule must be a DummyScheduler, because a real one would drive another optimizer"
  end
end

--- The optimizer that replaced a dummy in an earlier call.
local made = setmetatable({}, { __mode = "k" })

local function real_optimizer(plugin, dummy)
  made[dummy] = made[dummy] or optimizers.optimizer(plugin.deepspeed_config.optimizer, dummy.params)
  return made[dummy]
end

local function real_scheduler(plugin, dummy)
  local optimizer = dummy.optimizer
  if M.dummy_kind(optimizer) then
    if not made[optimizer] then raise "prepare: give the DummyOptim of a DummyScheduler before it, or with it" end
    optimizer = made[optimizer]
  end
  optimizer = rawget(optimizer, "optimizer") or optimizer -- a prepared one
  if dummy.lr_scheduler_callable then return dummy.lr_scheduler_callable(optimizer) end
  return optimizers.scheduler(plugin.deepspeed_config.scheduler, optimizer)
end

--- activation_checkpointing.cpu_checkpointing: tensors kept by the model's checkpoints stay in host memory.
local function offload_checkpoints(model)
  local any
  for _, module in ipairs(model:modules()) do
    local o = rawget(module, "gradient_checkpointing")
    if o then
      local copy = { offload = "host" }
      for key, value in next, o do copy[key] = key ~= "offload" and value or copy[key] end
      module.gradient_checkpointing, any = copy, true
    end
  end
  if not any then
    warn("DeepSpeed's configuration: activation_checkpointing.cpu_checkpointing has no effect: the model has no checkpoints; call"
      .. " model:gradient_checkpointing_enable() before prepare, or accel.checkpoint(fn, ..., { offload = 'host' })")
  end
end

--- Prepares the arguments of prepare: in `given`, real objects replace dummies.
---@param accelerator accel.Accelerator
---@param given table packed arguments
---@param kinds (string|false)[]
function M.before(accelerator, given, kinds)
  local plugin, at = accelerator.deepspeed_plugin, sort(given, kinds)
  local optimizer, scheduler = at.optimizer and given[at.optimizer], at.scheduler and given[at.scheduler]
  check_sources(plugin, optimizer, scheduler)
  if at.model then
    for _, loader in ipairs(accelerator._prepared.dataloaders) do at.loaders[#at.loaders + 1] = loader end
    auto.fill(accelerator, plugin, {
      model = given[at.model], loaders = at.loaders, optimizer = M.dummy_kind(optimizer) and optimizer or nil,
      scheduler = M.dummy_kind(scheduler) and scheduler or nil,
    })
  end
  if at.model and plugin:get_value "activation_checkpointing.cpu_checkpointing" == true then offload_checkpoints(given[at.model]) end
  local engine = Engine.of(accelerator, plugin)
  for i = 1, given.n do
    if M.dummy_kind(given[i]) == "optimizer" then given[i] = real_optimizer(plugin, given[i]) end
  end
  for i = 1, given.n do
    if M.dummy_kind(given[i]) == "scheduler" then
      given[i] = real_scheduler(plugin, given[i])
      engine:owns(given[i])
    end
  end
end

return M
