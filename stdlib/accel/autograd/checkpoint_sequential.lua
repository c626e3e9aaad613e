--- accel.checkpoint_sequential: a chain of modules in checkpointed pieces.
local check = require "accel.util.check"
local checkpoint = require "accel.autograd.checkpoint"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local recompute = require "accel.autograd.recompute"

local function chain(functions, first, last)
  return function(x)
    for i = first, last do x = functions[i](x) end
    return x
  end
end

--- The output of a chain of functions or modules, each called with the previous one's results. The chain is cut into
--- `segments` pieces, and all but the last are checkpoints. Options: accel.checkpoint's.
--- example: local net = accel.nn.Sequential(accel.nn.Linear(3, 3), accel.nn.Tanh(), accel.nn.Linear(3, 2))
---   local x = accel.ones(4, 3)
---   return accel.equal(accel.checkpoint_sequential(net, 2, x), net(x)) --> true
---@param functions accel.nn.Sequential|function[]
---@param segments integer
---@param x any input of the first
---@param opts? table
---  preserve_rng_state boolean = true
---  determinism_check string = "default"
---  early_stop boolean = true
---  use_reentrant boolean = false
---  offload string = "none"
return function(functions, segments, x, opts, ...)
  opts = options("checkpoint_sequential", opts, recompute.options, ...)
  if type(functions) ~= "table" then
    raise("checkpoint_sequential: functions must be a Sequential or a list, got %s", check.shown(functions))
  end
  segments = check.positive("checkpoint_sequential", "segments", segments)
  local n = rawlen(functions)
  if segments > n then
    raise("checkpoint_sequential: %d segments for %d functions; give at most as many segments as functions", segments, n)
  end
  for i = 1, n do check.callable("checkpoint_sequential", ("functions[%d]"):format(i), functions[i]) end
  local size = n // segments
  for s = 1, segments - 1 do
    local piece = chain(functions, (s - 1) * size + 1, s * size)
    x = checkpoint(piece, x, opts)
  end
  return chain(functions, (segments - 1) * size + 1, n)(x)
end
