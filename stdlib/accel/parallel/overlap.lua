--- Overlaps communication of tensor parallelism with products (enable_async_tp). The gradients of weights are needed last: while the
--- ranks sum the gradient of the layers' input, these products are computed. Layers with sharded outputs defer them, and the input's
--- backward starts its collective, computes them, and waits. The products, sums and bits are the same. The gradient of the output and the
--- input of a layer stay in memory until then. Backward runs once for each forward: deferred products are not kept. accel.grad and
--- backward with `inputs` defer nothing: they return gradients of weights as well, and leave other leaves' gradients unchanged.
---
---   local x = overlap.enter(x, axis, dim)      as collectives.copy, or with dim as collectives.gather
---   local y = overlap.columns(x, forward, module)
---
--- After Shoeybi et al. 2019, section 3, in the order of Narayanan et al. 2021: gradients of inputs, then of weights.
local accel = require "accel"
local collectives = require "accel.parallel.collectives"
local core = require "accel.parallel.core"
local once_differentiable = require "accel.autograd.once_differentiable"

local M = {}

--- By results of `enter`: the backwards deferred by its layers.
local late = setmetatable({}, { __mode = "k" })

local Enter = accel.Function {
  name = "enter_overlapped",
  forward = function(ctx, x, axis, dim, list, begun, work)
    ctx.axis, ctx.dim, ctx.list = axis, dim, list
    if begun then
      work:wait()
      return begun
    end
    local y = dim and collectives.all_parts(x, axis, dim) or x
    return y == x and x:view(x.shape) or y
  end,
  backward = once_differentiable(function(ctx, dy)
    local list = ctx.list
    local dx, work = collectives.start_sum(dy, ctx.axis, ctx.dim)
    for i = 1, #list do
      local deferred = list[i]
      list[i] = nil
      deferred:run()
    end
    work:wait()
    return dx
  end),
}

local Columns = accel.Function {
  name = "columns_overlapped",
  -- weight and bias are the module's: named here, so that the graph reaches them if a backward asks only for theirs
  forward = function(ctx, x, list, forward, module, weight, bias)
    local _ <close> = accel.enable_grad()
    local own = x:detach():requires_grad_(true)
    local y = forward(module, own)
    ctx.own, ctx.y, ctx.list, ctx.weight, ctx.bias = own, y, list, weight, bias
    return y:detach()
  end,
  backward = once_differentiable(function(ctx, dy)
    local own, y, list = ctx.own, ctx.y, ctx.list
    if y and core.only_inputs() then
      local asked, at, needs = { own }, { 1 }, ctx.needs_input_grad
      for i, t in ipairs { ctx.weight or false, ctx.bias or false } do
        if t and needs[4 + i] then asked[#asked + 1], at[#at + 1] = t, 4 + i end
      end
      local got, out = accel.grad({ y }, asked, { grad_outputs = { dy }, retain_graph = true }), {}
      for k, i in ipairs(at) do out[i] = got[k] end
      return table.unpack(out, 1, 6)
    end
    ctx.own, ctx.y, ctx.weight, ctx.bias = nil, nil, nil, nil
    if not y then
      error("enable_async_tp: backward went through a layer twice, but its deferred products are computed once; leave retain_graph out", 0)
    end
    list[#list + 1] = core.backward_inputs({ y }, { dy })
    return own.grad
  end),
}

--- Whether the current code has a backward in which a product could be deferred.
---@param x accel.Tensor
---@param axis accel.parallel.Axis
---@return boolean
function M.applies(x, axis)
  return axis.size > 1 and x.requires_grad and x.device ~= "meta" and accel.is_grad_enabled() and not require "accel.parallel.absent".is(x)
end

--- x before layers with sharded outputs, all of which take the result. With dim, x is a part along dim, and the result is the
--- whole.
---@param x accel.Tensor
---@param axis accel.parallel.Axis
---@param dim? integer
---@param begun? accel.Tensor the future result, valid when `work` has ended
---@param work? table
---@return accel.Tensor
function M.enter(x, axis, dim, begun, work)
  local list = {}
  local y = Enter(x, axis, dim, list, begun, work)
  late[y] = list
  return y
end

--- forward(module, x). If x is a result of `enter`, gradients of weights are computed while the gradient of x is
--- summed.
---@param x accel.Tensor
---@param forward function
---@param module accel.nn.Module
---@return accel.Tensor
function M.columns(x, forward, module)
  local list = late[x]
  if not list then return forward(module, x) end
  return Columns(x, list, forward, module, module.weight, module.bias)
end

return M
