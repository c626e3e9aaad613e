--- Weight normalisation (Salimans and Kingma 2016): weight = g v / |v|, computed before every forward.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- |v| over every dimension except dim, or over all without dim.
---@param v accel.Tensor
---@param dim integer|false
---@return accel.Tensor
function M.norm_except_dim(v, dim)
  if not dim then return accel.norm(v) end
  local dims = {}
  for i = 1, v.ndim do
    if i ~= dim then dims[#dims + 1] = i end
  end
  if #dims == 0 then return v:abs() end
  return accel.norm(v, 2, dims, true)
end

local function compute(g, v, dim) return v * (g / M.norm_except_dim(v, dim)) end

local remove_arguments = arguments("remove_weight_norm", { "name", "weight" })
local parse = arguments("weight_norm", { "name", "weight" }, { "dim", 1, any = true })

--- The dimension counted from the front, or false.
---@param dim integer|false
---@param ndim integer
function M.check_dim(who, dim, ndim)
  if dim == false then return false end
  dim = check.integer(who, "dim", dim)
  if dim < 0 then dim = ndim + 1 + dim end
  if dim < 1 or dim > ndim then raise("%s: dim %d is out of range for %d dimensions", who, dim, ndim) end
  return dim
end

--- Splits a parameter of module into its length and direction: <name>_g and <name>_v are trained, and <name> is
--- computed from them before every forward. Each entry of dimension dim (1) has its own length. false means one length
--- in all. Returns the module.
--- example: accel.nn.utils.weight_norm(accel.nn.Linear(3, 2)).weight_g.shape --> { 2, 1 }
---@param module accel.nn.Module
---@param ... any name, dim by position or in one table
---@return accel.nn.Module
function M.weight_norm(module, ...)
  local o = parse(...)
  if not Module.is_module(module) then raise("weight_norm: %s", Module.not_a_module(module)) end
  local name = o.name
  local weight = module[name]
  if not tensors.is_tensor(weight) or not Parameter.is(weight) then
    raise("weight_norm: the module has no parameter '%s'", tostring(name))
  end
  local dim = M.check_dim("weight_norm", o.dim, weight.ndim)
  local _ <close> = accel.no_grad()
  local g, v = Parameter(M.norm_except_dim(weight:detach(), dim)), Parameter(weight:detach())
  module[name] = nil
  module:_unregister(name)
  module:register_parameter(name .. "_g", g)
  module:register_parameter(name .. "_v", v)
  module[name] = compute(g, v, dim)
  local normed = rawget(module, "_weight_norms") or {}
  normed[name] = dim
  rawset(module, "_weight_norms", normed)
  module:register_forward_pre_hook(function(m)
    local now = rawget(m, "_weight_norms")[name]
    if now ~= nil then m[name] = compute(m[name .. "_g"], m[name .. "_v"], now) end
  end, { copied = true })
  return module
end

--- Makes the computed weight a parameter again and drops its components.
--- example: local u = accel.nn.utils return u.remove_weight_norm(u.weight_norm(accel.nn.Linear(3, 2))).weight_g --> nil
---@param module accel.nn.Module
---@param ... any name = "weight", by position or in a table
---@return accel.nn.Module
function M.remove_weight_norm(module, ...)
  local name = remove_arguments(...).name
  local normed = Module.is_module(module) and rawget(module, "_weight_norms")
  local dim = normed and normed[name]
  if dim == nil then
    raise("remove_weight_norm: '%s' of the module has no weight norm", tostring(name))
  end
  local _ <close> = accel.no_grad()
  local weight = compute(module[name .. "_g"], module[name .. "_v"], dim)
  normed[name] = nil
  for _, key in ipairs { name, name .. "_g", name .. "_v" } do
    module[key] = nil
    module:_unregister(key)
  end
  module:register_parameter(name, Parameter(weight))
  return module
end

return M
