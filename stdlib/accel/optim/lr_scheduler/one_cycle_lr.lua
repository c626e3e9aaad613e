--- OneCycleLR: one rise and one fall of the rate.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local per_group = require "accel.optim.lr_scheduler.per_group"
local raise = require "accel.util.raise"

--- OneCycleLR(optimizer, max_lr, {total_steps =}): from max_lr / div_factor up to max_lr in the first pct_start of the
--- steps, then down to 1 / final_div_factor of the initial rate. Momentum (or the first beta) moves in the opposite
--- direction, between max_momentum and base_momentum. three_phase: down as it went up, then to the end.
--- anneal_strategy: "cos" or "linear". epochs and steps_per_epoch may replace total_steps.
--- example: accel.optim.lr_scheduler.OneCycleLR(accel.optim.SGD(accel.ones(1), {lr = 2}), 1.0, 41):get_last_lr() --> { 0.04 }
---@class accel.optim.OneCycleLR : accel.optim.LRScheduler
local OneCycleLR = LRScheduler:extend("accel.optim.OneCycleLR")

local parse = arguments("OneCycleLR", { "max_lr", list = true }, { "total_steps" }, { "epochs" }, { "steps_per_epoch" },
  { "pct_start", 0.3 }, { "anneal_strategy", "cos" }, { "cycle_momentum", true },
  { "base_momentum", 0.85, list = true }, { "max_momentum", 0.95, list = true }, { "div_factor", 25.0 },
  { "final_div_factor", 1e4 }, { "three_phase", false }, { "last_epoch", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any max_lr, total_steps, ..., or a table of them
function OneCycleLR:init(optimizer, ...)
  local o = parse(...)
  if o.total_steps then
    self.total_steps = check.positive("OneCycleLR", "total_steps", o.total_steps)
    for _, name in ipairs { "epochs", "steps_per_epoch" } do
      if o[name] ~= nil then warn(("OneCycleLR: %s has no effect with total_steps; give one or the other"):format(name)) end
    end
  elseif o.epochs and o.steps_per_epoch then
    self.total_steps = check.positive("OneCycleLR", "epochs", o.epochs)
      * check.positive("OneCycleLR", "steps_per_epoch", o.steps_per_epoch)
  else
    raise "OneCycleLR: needs total_steps, or epochs and steps_per_epoch"
  end
  check.number("OneCycleLR", "pct_start", o.pct_start, 0, 1)
  for _, name in ipairs { "div_factor", "final_div_factor" } do
    if o[name] <= 0 then raise("OneCycleLR: %s must be above 0, got %s", name, tostring(o[name])) end
  end
  check.word("OneCycleLR", "anneal_strategy", o.anneal_strategy, { "cos", "linear" })
  self:_attach(optimizer)
  local groups = #optimizer.param_groups
  self.options = o
  self.max_lr = per_group("OneCycleLR", "max_lr", o.max_lr, groups)
  if o.cycle_momentum then
    self:_expect_momentum()
    self.base_momentum = per_group("OneCycleLR", "base_momentum", o.base_momentum, groups)
    self.max_momentum = per_group("OneCycleLR", "max_momentum", o.max_momentum, groups)
  end
  for i, group in ipairs(optimizer.param_groups) do group.initial_lr = self.max_lr(i) / o.div_factor end
  LRScheduler.init(self, optimizer, o.last_epoch)
end

--- A value at a step, given those at the ends of the phases: low (start), high, low or the last of all.
local function value_at(self, step, first, top, last)
  local o, total = self.options, self.total_steps
  if step > total then raise("OneCycleLR: step %d lies beyond total_steps = %d", step, total) end
  local phases = { { o.pct_start * total - 1, first, top } }
  if o.three_phase then phases[2] = { 2 * o.pct_start * total - 2, top, first } end
  phases[#phases + 1] = { total - 1, o.three_phase and first or top, last }
  local from = 0
  for i, phase in ipairs(phases) do
    local till, a, b = phase[1], phase[2], phase[3]
    if step <= till or i == #phases then
      local done = (step - from) / (till - from)
      if o.anneal_strategy == "linear" then return (b - a) * done + a end
      return b + (a - b) / 2 * (math.cos(math.pi * done) + 1)
    end
    from = till
  end
end

function OneCycleLR:rate(step, _, group)
  local o, most = self.options, self.max_lr(group)
  return value_at(self, step, most / o.div_factor, most, most / o.div_factor / o.final_div_factor)
end

function OneCycleLR:momentum(step, group)
  if not self.options.cycle_momentum then return nil end
  local most = self.max_momentum(group)
  return value_at(self, step, most, self.base_momentum(group), most)
end

return OneCycleLR
