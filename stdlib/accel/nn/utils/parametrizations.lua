--- Ready-made parametrisations: weight_norm, spectral_norm, orthogonal.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local parametrize = require "accel.nn.utils.parametrize"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local weight_norm = require "accel.nn.utils.weight_norm"

local M = {}

local WeightNorm = Module:extend("accel.nn.utils.WeightNorm")

function WeightNorm:init(dim) self.dim = dim end

function WeightNorm:forward(g, v) return v * (g / weight_norm.norm_except_dim(v, self.dim)) end

function WeightNorm:right_inverse(weight) return weight_norm.norm_except_dim(weight, self.dim), weight end

local function need(who, module, name)
  if not Module.is_module(module) then raise("%s: %s", who, Module.not_a_module(module)) end
  local weight = module[name]
  if not tensors.is_tensor(weight) then raise("%s: the module has no parameter '%s'", who, tostring(name)) end
  return weight
end

local norm_arguments = arguments("weight_norm", { "name", "weight" }, { "dim", 1, any = true })

--- weight = g v / |v| with |v| over every dimension except dim (1, or false: over all). original0 is g, original1 v.
--- example: local m = accel.nn.utils.parametrizations.weight_norm(accel.nn.Linear(3, 2)) return #m:parameters() --> 3
---@param module accel.nn.Module
---@param ... any name, dim by position or in one table
---@return accel.nn.Module
function M.weight_norm(module, ...)
  local o = norm_arguments(...)
  local weight = need("weight_norm", module, o.name)
  return parametrize.register_parametrization(module, o.name,
    WeightNorm(weight_norm.check_dim("weight_norm", o.dim, weight.ndim)))
end

local SpectralNorm = Module:extend("accel.nn.utils.SpectralNorm")

--- The weight as a matrix whose rows are the entries of dim.
local function matrix(self, weight)
  if self.dim ~= 1 then weight = weight:transpose(1, self.dim) end
  return weight:reshape(weight:size(1), -1)
end

local function unit(x, eps) return x / accel.norm(x):clamp(eps, nil) end

--- Power iterations towards the largest singular value's vectors.
local function iterate(self, mat, n)
  local _ <close> = accel.no_grad()
  mat = mat:detach()
  for _ = 1, n do
    self._u:copy_(unit(mat:matmul(self._v), self.eps))
    self._v:copy_(unit(mat:t():matmul(self._u), self.eps))
  end
end

function SpectralNorm:init(weight, iterations, dim, eps)
  self.dim, self.eps, self.iterations = dim, eps, iterations
  if weight.ndim < 2 then return end
  local _ <close> = accel.no_grad()
  local mat = matrix(self, weight:detach())
  local function start(n)
    return unit(accel.empty(n, { dtype = weight.dtype, device = weight.device }):normal_(), eps)
  end
  self:register_buffer("_u", start(mat:size(1)))
  self:register_buffer("_v", start(mat:size(2)))
  iterate(self, mat, 15)
end

function SpectralNorm:forward(weight)
  if not self._u then return unit(weight, self.eps) end
  local mat = matrix(self, weight)
  if self.training then iterate(self, mat, self.iterations) end
  -- copies: the next iteration writes to the buffers, which this graph still needs
  local u, v = self._u:clone(), self._v:clone()
  return weight / (u * mat:matmul(v)):sum()
end

function SpectralNorm.right_inverse(_, weight) return weight end

local spectral_arguments = arguments("spectral_norm", { "name", "weight" }, { "n_power_iterations", 1 },
  { "eps", 1e-12 }, { "dim" })

--- weight divided by its largest singular value, which n_power_iterations (1) per forward in training mode
--- follow (Miyato et al. 2018). dim: the outputs' dimension, 1 or for transposed convolutions 2.
--- example: local m = accel.nn.utils.parametrizations.spectral_norm(accel.nn.Linear(3, 2)) return #m:buffers() --> 2
---@param module accel.nn.Module
---@param ... any name, n_power_iterations, eps, dim by position or in one table
---@return accel.nn.Module
function M.spectral_norm(module, ...)
  local o = spectral_arguments(...)
  local weight = need("spectral_norm", module, o.name)
  local dim = o.dim
  if dim == nil then
    dim = getmetatable(module).__name:find "ConvTranspose" and 2 or 1
  end
  dim = weight_norm.check_dim("spectral_norm", check.integer("spectral_norm", "dim", dim), weight.ndim)
  local n = check.positive("spectral_norm", "n_power_iterations", o.n_power_iterations)
  return parametrize.register_parametrization(module, o.name, SpectralNorm(weight, n, dim, o.eps))
end

M.orthogonal = require("accel.nn.utils.orthogonal").orthogonal

return M
