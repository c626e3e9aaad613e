--- get_scheduler(name, optimizer, {num_warmup_steps=, num_training_steps=, ...}): the schedules of Transformers
--- by name.
local GreedyLR = require "accel.optim.lr_scheduler.greedy_lr"
local LambdaLR = require "accel.optim.lr_scheduler.lambda_lr"
local ReduceLROnPlateau = require "accel.optim.lr_scheduler.reduce_lr_on_plateau"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- By name: its options in addition to the two counts, whether it needs num_training_steps, and its factor on the base
--- rate as a function of the step, made from the options and the optimizer's initial rate.
local schedules = {}

local function define(name, needs_total, declared, make)
  schedules[name] = { needs_total = needs_total, declared = declared, make = make }
end

--- Wraps the factor after the warm-up. It gets the step and the completed share of the remaining steps.
local function after_warmup(o, factor)
  return function(step)
    if step < o.num_warmup_steps then return step / math.max(1, o.num_warmup_steps) end
    local total = o.num_training_steps
    return factor(step, total and (step - o.num_warmup_steps) / math.max(1, total - o.num_warmup_steps))
  end
end

local function half_cosine(cycles, done) return 0.5 * (1 + math.cos(math.pi * cycles * 2 * done)) end

define("constant", false, {}, function() return function() return 1.0 end end)

define("constant_with_warmup", false, {}, function(o) return after_warmup(o, function() return 1.0 end) end)

define("linear", true, {}, function(o)
  return after_warmup(o, function(_, done) return math.max(0, 1 - done) end)
end)

define("cosine", true, { num_cycles = 0.5 }, function(o)
  return after_warmup(o, function(_, done) return math.max(0, half_cosine(o.num_cycles, done)) end)
end)

define("cosine_with_restarts", true, { num_cycles = 1 }, function(o)
  return after_warmup(o, function(_, done)
    if done >= 1 then return 0.0 end
    return math.max(0, 0.5 * (1 + math.cos(math.pi * (o.num_cycles * done % 1))))
  end)
end)

--- From the initial rate to lr_end along a power of the remaining share.
define("polynomial", true, { lr_end = 1e-7, power = 1.0 }, function(o, base)
  if o.lr_end >= base then
    raise("get_scheduler: lr_end %g must lie below the initial rate %g", o.lr_end, base)
  end
  return after_warmup(o, function(_, done)
    if done > 1 then return o.lr_end / base end
    return ((base - o.lr_end) * (1 - done) ^ o.power + o.lr_end) / base
  end)
end)

--- Falls as 1 / sqrt(step). timescale defaults to the warm-up steps.
define("inverse_sqrt", false, { timescale = options.none }, function(o)
  local warmup = o.num_warmup_steps
  local timescale = o.timescale or (warmup > 0 and warmup or 10000)
  return after_warmup(o, function(step) return 1 / math.sqrt((step + timescale - warmup) / timescale) end)
end)

--- The least rate as a share of the base rate.
local function least(o, base)
  if (o.min_lr == nil) == (o.min_lr_rate == nil) then raise "get_scheduler: give either min_lr or min_lr_rate" end
  return o.min_lr_rate or o.min_lr / base
end

define("cosine_with_min_lr", true, { num_cycles = 0.5, min_lr = options.none, min_lr_rate = options.none },
  function(o, base)
  local low = least(o, base)
  return after_warmup(o, function(_, done)
    return math.max(0, half_cosine(o.num_cycles, done) * (1 - low) + low)
  end)
end)

--- The warm-up counts from 1, or from warmup_lr_rate up to the base rate.
define("cosine_warmup_with_min_lr", true, {
  num_cycles = 0.5, min_lr = options.none, min_lr_rate = options.none, warmup_lr_rate = options.none,
}, function(o, base)
  local low, first, warmup = least(o, base), o.warmup_lr_rate, o.num_warmup_steps
  return function(step)
    if step < warmup then
      if not first then return (step + 1) / math.max(1, warmup) end
      return first + (1 - first) * step / math.max(1, warmup - 1)
    end
    local done = (step - warmup + 1) / math.max(1, o.num_training_steps - warmup)
    return math.max(0, half_cosine(o.num_cycles, done) * (1 - low) + low)
  end
end)

--- Rising factors, as functions of the completed share. Falling factors from 1 also get the cycles.
local rises = {
  linear = function(x) return x end, cosine = function(x) return 0.5 * (1 - math.cos(math.pi * x)) end,
  ["1-sqrt"] = function(x) return 1 - math.sqrt(1 - x) end,
}
local falls = {
  linear = function(x) return 1 - x end, cosine = function(x, cycles) return half_cosine(cycles, x) end,
  ["1-sqrt"] = function(x) return 1 - math.sqrt(x) end,
}

define("warmup_stable_decay", false, {
  num_decay_steps = options.none, num_stable_steps = options.none, warmup_type = "linear", decay_type = "cosine",
  min_lr_ratio = 0, num_cycles = 0.5,
}, function(o)
  local ways = { "linear", "cosine", "1-sqrt" }
  local rise = rises[check.word("get_scheduler", "warmup_type", o.warmup_type, ways)]
  local fall = falls[check.word("get_scheduler", "decay_type", o.decay_type, ways)]
  if not o.num_decay_steps then raise "get_scheduler: 'warmup_stable_decay' needs num_decay_steps" end
  local warmup, stable, low = o.num_warmup_steps, o.num_stable_steps, o.min_lr_ratio
  if stable and o.num_training_steps then
    warn "get_scheduler: num_training_steps has no effect with num_stable_steps; give one or the other"
  end
  if not stable then
    if not o.num_training_steps then
      raise "get_scheduler: 'warmup_stable_decay' needs num_training_steps or num_stable_steps"
    end
    stable = o.num_training_steps - warmup - o.num_decay_steps
  end
  local function between(x) return math.max(0, x * (1 - low) + low) end
  return function(step)
    if step < warmup then return between(rise(step / math.max(1, warmup))) end
    if step < warmup + stable then return 1.0 end
    local done = (step - warmup - stable) / math.max(1, o.num_decay_steps)
    return done < 1 and between(fall(done, o.num_cycles)) or low
  end
end)

--- These take every option of their class, and no counts.
local classes = { reduce_lr_on_plateau = ReduceLROnPlateau, greedy = GreedyLR }

--- A schedule of Transformers by its name: a LambdaLR with a warm-up, a ReduceLROnPlateau or a GreedyLR. Names, with
--- their own options: "constant", "constant_with_warmup", "linear", "cosine" and "cosine_with_restarts" (num_cycles),
--- "polynomial" (lr_end, power), "inverse_sqrt" (timescale), "cosine_with_min_lr" (num_cycles, min_lr or min_lr_rate),
--- "cosine_warmup_with_min_lr" (these and warmup_lr_rate), "warmup_stable_decay" (num_decay_steps, num_stable_steps,
--- warmup_type, decay_type, min_lr_ratio, num_cycles), "reduce_lr_on_plateau" and "greedy" (the options of
--- ReduceLROnPlateau and GreedyLR).
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 1 })
---   local s = accel.optim.lr_scheduler.get_scheduler("linear", o, { num_warmup_steps = 2, num_training_steps = 10 })
---   o:step() s:step() return s:get_last_lr() --> { 0.5 }
---@param name string
---@param optimizer accel.optim.Optimizer
---@param opts? table also takes the schedule's own options
---  num_warmup_steps integer = 0: steps in which the rate rises from 0
---  last_epoch integer = -1: the last step that is done, of a run that continues
---  num_training_steps integer: steps of the whole run. "constant", "constant_with_warmup" and "inverse_sqrt" need none
---@return accel.optim.LRScheduler
return function(name, optimizer, opts, ...)
  check.surplus("get_scheduler", ...)
  if type(opts) == "table" then no_effect("accel.optim.lr_scheduler.get_scheduler." .. tostring(name), opts) end
  local class, schedule = classes[name], schedules[name]
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    raise("get_scheduler: expected an optimizer, got %s", check.shown(optimizer))
  end
  if class then
    local own = {}
    for key, value in next, opts or {} do
      if key ~= "num_warmup_steps" and key ~= "num_training_steps" then own[key] = value end
    end
    return class(optimizer, own)
  elseif not schedule then
    local near = nearest(tostring(name), schedules) or nearest(tostring(name), classes)
    raise("get_scheduler: no schedule '%s'%s", tostring(name), near
      and ("; did you mean '%s'?"):format(near) or "")
  end
  local declared = { num_warmup_steps = 0, num_training_steps = options.none, last_epoch = -1 }
  for key, value in next, schedule.declared do declared[key] = value end
  local o = options("get_scheduler", opts, declared)
  if schedule.needs_total and not o.num_training_steps then
    raise("get_scheduler: '%s' needs num_training_steps", name)
  end
  local base = (optimizer.options or optimizer.param_groups[1]).lr
  return LambdaLR(optimizer, schedule.make(o, base), o.last_epoch)
end
