--- The norms of decoders, by the description's `norm`: {kind, eps}. Kinds: "rms", "rms_1" (weight is stored minus one, as in Gemma),
--- "layer" (weight and bias), "layer_weight" (without bias), "layer_1" (weight stored minus one, and a bias, as in Nemotron) and "plain" (a
--- LayerNorm without parameters).
local accel = require "accel"
local Parameter = require "accel.nn.parameter"
local nn = require "accel.nn"
local raise = require "accel.util.raise"

local M = {}

--- A norm whose weight is stored minus one.
---@class accel.models.OffsetNorm : accel.nn.Module
---@field offset number added to the stored weight
local OffsetNorm = nn.Module:extend("OffsetNorm")
OffsetNorm.offset = 1.0

function OffsetNorm:init(size, eps, bias)
  self.size, self.options, self.mean = size, { eps = eps }, bias
  self.weight = Parameter(accel.zeros(size))
  if bias then self.bias = Parameter(accel.zeros(size)) end
end

function OffsetNorm:forward(x)
  local weight = self.weight + self.offset
  if self.mean then return accel.layer_norm(x, self.size, weight, self.bias, self.options) end
  return accel.rms_norm(x, self.size, weight, self.options)
end

--- A LayerNorm over the width of a head, with a weight for each head: x [..., heads, head_dim].
---@class accel.models.HeadNorm : accel.nn.Module
local HeadNorm = nn.Module:extend("HeadNorm")

function HeadNorm:init(heads, head_dim, eps)
  self.width, self.options = head_dim, { eps = eps }
  self.weight = Parameter(accel.ones(heads, head_dim))
end

function HeadNorm:forward(x) return accel.layer_norm(x, self.width, nil, nil, self.options) * self.weight end

--- The same with the weights of each head in a separate module, as StableLM stores them.
---@class accel.models.HeadNorms : accel.nn.Module
local HeadNorms = nn.Module:extend("HeadNorms")

function HeadNorms:init(heads, head_dim, eps)
  self.norms = nn.ModuleList()
  for _ = 1, heads do self.norms:append(nn.LayerNorm(head_dim, { eps = eps, bias = false })) end
end

function HeadNorms:forward(x)
  local rows = {}
  for i, norm in ipairs(self.norms) do rows[i] = norm(x:select(3, i)) end
  return accel.stack(rows, 3)
end

--- An RMS norm without a weight.
---@class accel.models.L2Norm : accel.nn.Module
local L2Norm = nn.Module:extend("L2Norm")

function L2Norm:init(head_dim, eps) self.width, self.options = head_dim, { eps = eps } end

function L2Norm:forward(x) return accel.rms_norm(x, self.width, nil, self.options) end

local makers = {
  rms = function(size, eps) return nn.RMSNorm(size, { eps = eps }) end,
  rms_1 = function(size, eps) return OffsetNorm(size, eps, false) end,
  layer = function(size, eps) return nn.LayerNorm(size, { eps = eps }) end,
  layer_weight = function(size, eps) return nn.LayerNorm(size, { eps = eps, bias = false }) end,
  layer_1 = function(size, eps) return OffsetNorm(size, eps, true) end,
  plain = function(size, eps) return nn.LayerNorm(size, { eps = eps, elementwise_affine = false }) end,
}

--- A norm over the last dim.
---@param norm {kind: string, eps: number}
---@param size integer
---@return accel.nn.Module
function M.make(norm, size)
  local maker = makers[norm.kind] or raise("decoder: no norm of kind '%s'", tostring(norm.kind))
  return maker(size, norm.eps)
end

M.HeadNorm, M.HeadNorms, M.L2Norm = HeadNorm, HeadNorms, L2Norm

return M
