--- nn.utils.spectral_norm, as older code calls it: <name>_orig is trained, <name> is it divided by its largest singular value, whose
--- vectors are the buffers <name>_u and <name>_v. parametrizations.spectral_norm is the newer form.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local weight_norm = require "accel.nn.utils.weight_norm"

local M = {}

local parse = arguments("spectral_norm", { "name", "weight" }, { "n_power_iterations", 1 }, { "eps", 1e-12 }, { "dim" })
local remove_arguments = arguments("remove_spectral_norm", { "name", "weight" })

local function matrix(weight, dim)
  if dim ~= 1 then weight = weight:transpose(1, dim) end
  return weight:reshape(weight:size(1), -1)
end

local function unit(x, eps) return x / accel.norm(x):clamp(eps, nil) end

local function compute(m, name, o, iterate)
  local weight, u, v = m[name .. "_orig"], m[name .. "_u"], m[name .. "_v"]
  local mat = matrix(weight, o.dim)
  if iterate then
    local _ <close> = accel.no_grad()
    local plain = mat:detach()
    for _ = 1, o.iterations do
      v:copy_(unit(plain:t():matmul(u), o.eps))
      u:copy_(unit(plain:matmul(v), o.eps))
    end
    u, v = u:clone(), v:clone() -- the next iteration writes to the buffers, which this graph still needs
  end
  return weight / (u * mat:matmul(v)):sum()
end

--- Divides a parameter by its largest singular value before every forward. n_power_iterations (1) follow it in training mode. Returns
--- the module.
--- example: accel.nn.utils.spectral_norm(accel.nn.Linear(3, 2)).weight_orig.shape --> { 2, 3 }
---@param module accel.nn.Module
---@param ... any name, n_power_iterations, eps, dim by position or in one table
---@return accel.nn.Module
function M.spectral_norm(module, ...)
  local who = "spectral_norm"
  local o = parse(...)
  if not Module.is_module(module) then raise("%s: %s", who, Module.not_a_module(module)) end
  local name = o.name
  local weight = module[name]
  if not tensors.is_tensor(weight) or not Parameter.is(weight) then raise("%s: the module has no parameter '%s'", who, tostring(name)) end
  if weight.ndim < 2 then raise("%s: '%s' must have at least two dims, got shape %s", who, name, tensors.shape_string(weight)) end
  local dim = o.dim or (getmetatable(module).__name:find "ConvTranspose" and 2 or 1)
  local settings = { dim = weight_norm.check_dim(who, check.integer(who, "dim", dim), weight.ndim), eps = o.eps,
    iterations = check.positive(who, "n_power_iterations", o.n_power_iterations) }
  local u, v
  do
    local _ <close> = accel.no_grad()
    local mat = matrix(weight:detach(), settings.dim)
    local function start(n) return unit(accel.empty(n, { dtype = weight.dtype, device = weight.device }):normal_(), o.eps) end
    u, v = start(mat:size(1)), start(mat:size(2))
  end
  module[name] = nil
  module:_unregister(name)
  module:register_parameter(name .. "_orig", weight)
  module:register_buffer(name .. "_u", u)
  module:register_buffer(name .. "_v", v)
  local all = rawget(module, "_spectral_norms") or {}
  all[name] = settings
  rawset(module, "_spectral_norms", all)
  module[name] = compute(module, name, settings, true)
  module:register_forward_pre_hook(function(m)
    local now = m._spectral_norms[name]
    if now then m[name] = compute(m, name, now, m.training) end
  end, { copied = true })
  return module
end

--- Makes the computed weight a parameter again.
--- example: local u = accel.nn.utils return u.remove_spectral_norm(u.spectral_norm(accel.nn.Linear(3, 2))).weight_orig --> nil
---@param module accel.nn.Module
---@param ... any name = "weight", by position or in a table
---@return accel.nn.Module
function M.remove_spectral_norm(module, ...)
  local name = remove_arguments(...).name
  local all = Module.is_module(module) and rawget(module, "_spectral_norms")
  local settings = all and all[name]
  if not settings then raise("remove_spectral_norm: '%s' of the module has no spectral norm", tostring(name)) end
  local _ <close> = accel.no_grad()
  local weight = compute(module, name, settings, false)
  all[name] = nil
  for _, key in ipairs { name, name .. "_orig", name .. "_u", name .. "_v" } do
    module[key] = nil
    module:_unregister(key)
  end
  module:register_parameter(name, Parameter(weight))
  return module
end

return M
