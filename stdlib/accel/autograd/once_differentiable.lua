--- once_differentiable(backward): for an accel.Function whose backward cannot be differentiated again.
local accel = require "accel.core"
local check = require "accel.util.check"
local tensors = require "accel.util.tensors"

--- Passes gradients on. Its own backward raises.
local Stop = accel.Function {
  name = "OnceDifferentiable",
  forward = function(_, _, ...) return ... end,
  backward = function()
    error("a function whose backward is once_differentiable was differentiated twice; write its backward in operations"
      .. " that record (no detach, no tolist), without once_differentiable", 0)
  end,
}

--- backward unchanged, run without recording. A second derivative through it is an error instead of a wrong number.
--- example: local once = accel.autograd.once_differentiable local Sq = accel.Function { forward = function(c, x)
---   c:save_for_backward(x) return x * x end, backward = once(function(c, g) return g * 2 * c:saved_tensors() end) }
---   local x = accel.tensor({ 3.0 }, { requires_grad = true }) return accel.grad(Sq(x), x) --> { 6 }
---@param backward function
---@return function
return function(backward)
  check.callable("once_differentiable", "backward", backward)
  return function(ctx, ...)
    local recording = accel.is_grad_enabled()
    local given = table.pack(...)
    local results = table.pack(accel.no_grad(function() return backward(ctx, table.unpack(given, 1, given.n)) end))
    local depends
    for i = 1, given.n do
      local t = given[i]
      if tensors.is_tensor(t) and t.requires_grad then depends = t end
    end
    local saved = recording and { ctx:saved_tensors() } or {}
    for _, t in next, saved do depends = depends or (t.requires_grad and t) or nil end
    if not (recording and depends) then return table.unpack(results, 1, results.n) end
    for i = 1, results.n do
      if tensors.is_tensor(results[i]) then results[i] = Stop(depends, results[i]) end
    end
    return table.unpack(results, 1, results.n)
  end
end
