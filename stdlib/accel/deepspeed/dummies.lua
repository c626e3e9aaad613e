--- DummyOptim and DummyScheduler: placeholders for accelerator:prepare if the DeepSpeed configuration defines the
--- optimizer and the schedule. prepare returns the real ones in their place.
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- A last table of named arguments, after positional ones. Undeclared ones are kept without effect, as in Accelerate.
local function named(who, order, declared, instead, ...)
  local args, given, rest = table.pack(...), {}, {}
  local last = args[args.n]
  if args.n > 0 and type(last) == "table" and getmetatable(last) == nil and #last == 0 and next(last) ~= nil then
    for key, value in next, last do
      if declared[key] ~= nil or nearest(tostring(key), declared) then -- options() names the nearest
        given[key] = value
      else
        rest[key] = value
        no_effect.once(who, tostring(key), instead)
      end
    end
    args.n = args.n - 1
  end
  if args.n > #order then raise("%s: at most %d arguments, then options", who, #order + 1) end
  for i = 1, args.n do
    if args[i] ~= nil then given[order[i]] = args[i] end
  end
  local set = {}
  for key in next, given do set[key] = true end
  return options(who, given, declared), rest, set
end

--- DummyOptim(params, lr = 0.001, weight_decay = 0, { ... }): stands for the optimizer of the configuration. It
--- provides lr and weight_decay if the configuration sets them to "auto".
--- example: accel.accelerator.DummyOptim({ accel.ones(1) }, { lr = 0.1 }).lr --> 0.1
---@class accel.deepspeed.DummyOptim
---@field params accel.ParamList
---@field lr number
---@field weight_decay number
---@field kwargs table other options, kept unchanged. Each one warns that it has no effect
local DummyOptim = class "accel.deepspeed.DummyOptim"
M.DummyOptim = DummyOptim

---@param params accel.ParamList parameters, or groups of them with separate options
---@param ... any lr, weight_decay, or a table of them
function DummyOptim:init(params, ...)
  if type(params) ~= "table" then raise("DummyOptim: expected a list of parameters, got %s", check.shown(params)) end
  local o, rest, set = named("DummyOptim", { "lr", "weight_decay" }, { lr = 0.001, weight_decay = 0 },
    "because the DeepSpeed configuration makes the optimizer; set it in optimizer.params there", ...)
  self.params, self.lr, self.weight_decay, self.kwargs, self._set = params, o.lr, o.weight_decay, rest, set
end

--- DummyScheduler(optimizer, total_num_steps, warmup_num_steps = 0, lr_scheduler_callable): stands for the schedule of the
--- configuration, or for the one that lr_scheduler_callable makes of the real optimizer.
--- example: accel.accelerator.DummyScheduler(accel.accelerator.DummyOptim { accel.ones(1) }, 100).total_num_steps --> 100
---@class accel.deepspeed.DummyScheduler
---@field optimizer accel.deepspeed.DummyOptim|accel.optim.Optimizer
---@field total_num_steps integer? steps of one process alone
---@field warmup_num_steps integer
---@field lr_scheduler_callable (fun(optimizer: accel.optim.Optimizer): accel.optim.LRScheduler)?
---@field kwargs table other options, kept unchanged. Each one warns that it has no effect
local DummyScheduler = class "accel.deepspeed.DummyScheduler"
M.DummyScheduler = DummyScheduler

---@param optimizer accel.deepspeed.DummyOptim|accel.optim.Optimizer
---@param ... any total_num_steps, warmup_num_steps, lr_scheduler_callable, or a table of them
function DummyScheduler:init(optimizer, ...)
  local o, rest, set = named("DummyScheduler", { "total_num_steps", "warmup_num_steps", "lr_scheduler_callable" },
    { total_num_steps = options.none, warmup_num_steps = 0, lr_scheduler_callable = options.none },
    "because the DeepSpeed configuration or lr_scheduler_callable makes the schedule; set it there", ...)
  if type(optimizer) ~= "table" then raise("DummyScheduler: expected an optimizer, got %s", check.shown(optimizer)) end
  self.optimizer, self.total_num_steps, self.warmup_num_steps = optimizer, o.total_num_steps, o.warmup_num_steps
  self.lr_scheduler_callable, self.kwargs, self._set = o.lr_scheduler_callable, rest, set
end

return M
