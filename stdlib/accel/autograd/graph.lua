--- accel.autograd.graph: tensors kept by the graph.
local core = require "accel.autograd.core"
local guard = require "accel.util.guard"

---@class accel.autograd.graph
local M = {}

--- Until the block ends, `local _ <close> = accel.autograd.graph.saved_tensors_hooks(pack, unpack)`, or while fn(...)
--- runs, operations keep pack(t) in place of a tensor t that their gradients need: a smaller copy, a place on disk, any
--- value. Backward gets unpack(value), which must have t's shape, dtype and device. pack runs without recording and
--- must not write t. Packed values are not checked for changes in place. The innermost hooks count.
--- example: local x, n = accel.tensor({ 3.0 }, { requires_grad = true }), 0 local y =
---   accel.autograd.graph.saved_tensors_hooks(function(t) n = n + 1 return t:to "f16" end,
---   function(h) return h:to "f32" end, function() return x * x end) y:backward() return n, x.grad --> 2, { 6 }
---@param pack_hook fun(t: accel.Tensor): any
---@param unpack_hook fun(value: any): accel.Tensor
---@param fn? function
---@param ... any its arguments
function M.saved_tensors_hooks(pack_hook, unpack_hook, fn, ...)
  local hooks = core.hooks(pack_hook, unpack_hook)
  return guard(function() hooks:close() end, fn, ...)
end

return M
