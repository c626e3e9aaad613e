--- run_layer(stack, layer, cache, ...): one layer of a stack, as a checkpoint after
--- model:gradient_checkpointing_enable(). The loops over layers use it. A class with such a loop declares a field
--- gradient_checkpointing = false.
local accel = require "accel"

--- Outside training, and while keys and values are cached, layers simply run.
---@param stack accel.nn.Module whose field gradient_checkpointing holds the options, or false
---@param layer accel.nn.Module
---@param cache any the cache in use, if any
---@param ... any arguments of the layer
return function(stack, layer, cache, ...)
  local o = stack.gradient_checkpointing
  if not o or not stack.training or cache or not accel.is_grad_enabled() then return layer(...) end
  local some = stack.recomputed_layers -- a set: the others keep their tensors for backward
  if some and not some[layer] then return layer(...) end
  local args = table.pack(...)
  args[args.n + 1] = o
  return accel.checkpoint(layer, table.unpack(args, 1, args.n + 1))
end
