--- Distances as modules: CosineSimilarity, PairwiseDistance.
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"

local M = {}

--- x1 . x2 / (|x1| |x2|) along dim (default 2), each norm at least eps (1e-8).
--- example: accel.nn.CosineSimilarity()(accel.tensor { { 1.0, 0.0 } }, accel.tensor { { 1.0, 1.0 } }) --> { 0.707107 }
---@class accel.nn.CosineSimilarity : accel.nn.Module
M.CosineSimilarity = Module:extend("accel.nn.CosineSimilarity")

local cosine_arguments = arguments("CosineSimilarity", { "dim", 2 }, { "eps", 1e-8 })

---@param ... any dim, eps by position or in one table
function M.CosineSimilarity:init(...)
  local o = cosine_arguments(...)
  self.dim = check.integer("CosineSimilarity", "dim", o.dim)
  self.eps = check.number("CosineSimilarity", "eps", o.eps, 0)
end

function M.CosineSimilarity:forward(x1, x2) return F.cosine_similarity(x1, x2, self.dim, self.eps) end

function M.CosineSimilarity:extra_repr() return ("dim=%d, eps=%g"):format(self.dim, self.eps) end

--- Norm of order p (2) of x1 - x2 + eps (1e-6) along the last dimension.
--- example: accel.nn.PairwiseDistance()(accel.tensor { { 3.0, 4.0 } }, accel.zeros(1, 2)) --> { 5 }
---@class accel.nn.PairwiseDistance : accel.nn.Module
M.PairwiseDistance = Module:extend("accel.nn.PairwiseDistance")

local pairwise_arguments = arguments("PairwiseDistance", { "p", 2.0 }, { "eps", 1e-6 }, { "keepdim", false })

---@param ... any p, eps, keepdim by position or in one table
function M.PairwiseDistance:init(...)
  self.options = pairwise_arguments(...)
  check.number("PairwiseDistance", "p", self.options.p, 0)
end

function M.PairwiseDistance:forward(x1, x2) return F.pairwise_distance(x1, x2, self.options) end

function M.PairwiseDistance:extra_repr()
  local o = self.options
  return ("p=%g, eps=%g, keepdim=%s"):format(o.p, o.eps, o.keepdim)
end

return M
