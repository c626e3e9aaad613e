--- In-place forms of functions that are made of several ops: the function runs, and its result is copied into the tensor. Used by the
--- files of accel.functional.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- name_(x, ...) for fn(x, ...). A tensor inside a graph is cloned first, since the ops of fn may save it.
---@param name string
---@param fn function
---@return function
return function(name, fn)
  return function(x, ...)
    local y = fn(x.requires_grad and not x.is_leaf and x:clone() or x, ...)
    if not tensors.same_shape(x, y) then
      raise("%s: the result has shape %s but the tensor written in place has %s", name, tensors.shape_string(y), tensors.shape_string(x))
    end
    return x:copy_(y)
  end
end
