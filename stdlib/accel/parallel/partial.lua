--- Parameters that see parts of the sequence: norms, and biases after layers with sharded inputs. The gradient of each is the sum over the
--- ranks. Those of one block are summed together, in one collective, when the last of them is available: a block's gradients are whole
--- before the next block's backward, as sharding and DDP require.
---
---   local scale = partial.whole_gradient(region, p)      p, whose gradient will be the whole sequence's
---   partial.scope(region, module)                        sums the requests during its forward together
---
--- Inside of a scope two functions with gradients work together. Inside a scope two functions with gradients work together. `Sums` leads
--- from one number to all parameters of the scope and does not use their values, which sharding may gather and free. `Use` is the
--- parameter on its way into an operation. Its backward keeps the gradient for `Sums`, whose backward runs after all uses. Outside a
--- scope each parameter has its own collective.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local coalesce = require "accel.dist.coalesce"
local collectives = require "accel.parallel.collectives"
local once_differentiable = require "accel.autograd.once_differentiable"

local M = {}

local Sums = accel.Function {
  name = "sum_partial_gradients",
  forward = function(ctx, scope, first)
    ctx.scope = scope
    return accel.zeros({ 1 }, { device = first.device })
  end,
  backward = once_differentiable(function(ctx)
    local scope, list, at, out = ctx.scope, {}, {}, {}
    local came = scope.came
    scope.came = {}
    for i, p in ipairs(scope.parameters) do
      if came[p] then list[#list + 1], at[#at + 1] = came[p], i + 1 end
    end
    for k, sum in ipairs(coalesce.sum(list, scope.axis.group)) do out[at[k]] = sum end
    return table.unpack(out, 1, 1 + #scope.parameters)
  end),
}

local Use = accel.Function {
  name = "use_partial_parameter",
  forward = function(ctx, token, scope, p)
    ctx.scope, ctx.p = scope, p
    local own = p:detach()
    return own:view(own.shape)
  end,
  backward = once_differentiable(function(ctx, dy)
    ctx.scope.came[ctx.p] = dy
    return accel.zeros({ 1 }, { device = dy.device })
  end),
}

--- The data of a scope's sum: the parameters found when it was made, and their gradients.
local function open(region, modules)
  local parameters, found = {}, {}
  for _, m in ipairs(modules) do
    for _, key in ipairs { "weight", "bias" } do
      local p = m.keys[key] and m.module[key]
      if p and p.requires_grad and not absent.is(p) and not found[p] then
        parameters[#parameters + 1], found[p] = p, true
      end
    end
  end
  return { axis = region.axis, parameters = parameters, came = {}, used = {} }
end

--- A module of whose parameters some, keys, are asked for by whole_gradient.
---@param region accel.parallel.Region
---@param module accel.nn.Module
---@param keys table<string, boolean> "weight", "bias"
function M.register(region, module, keys)
  region.partial = region.partial or {}
  region.partial[module] = keys
end

---@param region accel.parallel.Region
---@param p? accel.Tensor
---@return accel.Tensor? p unchanged if there is no gradient to be summed
function M.whole_gradient(region, p)
  if not p then return nil end
  local scope = region.scope
  if scope and p.requires_grad and accel.is_grad_enabled() and not absent.is(p) then
    if not scope.token then
      for _, q in ipairs(scope.parameters) do scope.used[q] = false end
      scope.token = #scope.parameters > 0 and Sums(scope, table.unpack(scope.parameters)) or nil
    end
    if scope.used[p] == false then
      scope.used[p] = true
      return Use(scope.token, scope, p)
    end
  end
  return collectives.copy(p, region.axis)
end

--- Sums the registered parameters of a module together. Inside another scope, they join that one's.
---@param region accel.parallel.Region
---@param module accel.nn.Module
function M.scope(region, module)
  local modules = {}
  for _, m in pairs(module:named_modules()) do
    local keys = region.partial and region.partial[m]
    if keys then modules[#modules + 1] = { module = m, keys = keys } end
  end
  if #modules == 0 then return end
  local forward, leave = module.forward, setmetatable({}, { __close = function() region.scope = nil end })
  rawset(module, "forward", function(...)
    if region.scope or not accel.is_grad_enabled() then return forward(...) end
    local _ <close> = leave
    region.scope = open(region, modules)
    return forward(...)
  end)
end

return M
