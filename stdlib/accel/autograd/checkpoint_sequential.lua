--- accel.checkpoint_sequential: a chain of modules in checkpointed pieces.
local check = require "accel.util.check"
local checkpoint = require "accel.autograd.checkpoint"
local raise = require "accel.util.raise"

local function chain(functions, first, last)
  return function(x)
    for i = first, last do x = functions[i](x) end
    return x
  end
end

--- The output of a chain of functions or modules, each given what the one before returned, cut into `segments` pieces
--- of which all but the last are checkpoints. Options: those of accel.checkpoint.
--- example: local net = accel.nn.Sequential(accel.nn.Linear(3, 3), accel.nn.Tanh(), accel.nn.Linear(3, 2))
---   local x = accel.ones(4, 3)
---   return accel.equal(accel.checkpoint_sequential(net, 2, x), net(x)) --> true
---@param functions accel.nn.Sequential|function[]
---@param segments integer
---@param x any input of the first
---@param opts? table
return function(functions, segments, x, opts)
  if type(functions) ~= "table" then
    raise("checkpoint_sequential: functions must be a Sequential or a list, got %s", check.shown(functions))
  end
  segments = check.positive("checkpoint_sequential", "segments", segments)
  local n = rawlen(functions)
  if segments > n then
    raise("checkpoint_sequential: %d segments for %d functions; at most one each", segments, n)
  end
  for i = 1, n do check.callable("checkpoint_sequential", ("functions[%d]"):format(i), functions[i]) end
  local size = n // segments
  for s = 1, segments - 1 do
    local piece = chain(functions, (s - 1) * size + 1, s * size)
    if opts == nil then x = checkpoint(piece, x) else x = checkpoint(piece, x, opts) end
  end
  return chain(functions, (segments - 1) * size + 1, n)(x)
end
