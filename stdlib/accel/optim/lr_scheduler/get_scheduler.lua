--- get_scheduler(name, optimizer, {num_warmup_steps=, num_training_steps=, ...}): the schedules of
--- Transformers by name, each a LambdaLR with a linear warm-up from zero.
local LambdaLR = require "accel.optim.lr_scheduler.lambda_lr"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local makers = {}

--- Wraps the factor after the warm-up; it gets the step and the share of the remaining steps that is done.
local function after_warmup(o, factor)
  return function(step)
    if step < o.num_warmup_steps then return step / math.max(1, o.num_warmup_steps) end
    local total = o.num_training_steps
    return factor(step, total and (step - o.num_warmup_steps) / math.max(1, total - o.num_warmup_steps))
  end
end

function makers.constant() return function() return 1.0 end end

function makers.constant_with_warmup(o) return after_warmup(o, function() return 1.0 end) end

function makers.linear(o) return after_warmup(o, function(_, done) return math.max(0, 1 - done) end) end

function makers.cosine(o)
  local cycles = o.num_cycles or 0.5
  return after_warmup(o, function(_, done)
    return math.max(0, 0.5 * (1 + math.cos(math.pi * cycles * 2 * done)))
  end)
end

function makers.cosine_with_restarts(o)
  local cycles = o.num_cycles or 1
  return after_warmup(o, function(_, done)
    if done >= 1 then return 0.0 end
    return math.max(0, 0.5 * (1 + math.cos(math.pi * (cycles * done % 1))))
  end)
end

--- From the initial rate to lr_end along a power of what is left.
function makers.polynomial(o, optimizer)
  local power, lr_end, base = o.power or 1.0, o.lr_end or 1e-7, optimizer.param_groups[1].lr
  if lr_end >= base then
    raise("get_scheduler: lr_end %g must lie below the initial rate %g", lr_end, base)
  end
  return after_warmup(o, function(_, done)
    if done > 1 then return lr_end / base end
    return ((base - lr_end) * (1 - done) ^ power + lr_end) / base
  end)
end

--- Falls as 1 / sqrt(step); timescale defaults to the warm-up steps.
function makers.inverse_sqrt(o)
  local warmup = o.num_warmup_steps
  local timescale = o.timescale or (warmup > 0 and warmup or 10000)
  return after_warmup(o, function(step) return 1 / math.sqrt((step + timescale - warmup) / timescale) end)
end

local needs_total = { linear = true, cosine = true, cosine_with_restarts = true, polynomial = true }

---@param name string
---@param optimizer accel.optim.Optimizer
---@param opts? table num_warmup_steps, num_training_steps, num_cycles, power, lr_end, timescale
---@return accel.optim.LambdaLR
return function(name, optimizer, opts)
  local maker = makers[name]
  if not maker then
    local near = nearest(tostring(name), makers)
    raise("get_scheduler: no schedule '%s'%s", tostring(name), near
      and ("; did you mean '%s'?"):format(near) or "")
  end
  local o = options("get_scheduler", opts, {
    num_warmup_steps = 0, num_training_steps = options.none, num_cycles = options.none, power = options.none,
    lr_end = options.none, timescale = options.none,
  })
  if needs_total[name] and not o.num_training_steps then
    raise("get_scheduler: '%s' needs num_training_steps", name)
  end
  return LambdaLR(optimizer, maker(o, optimizer))
end
