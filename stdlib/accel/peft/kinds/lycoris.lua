--- The common part of LoHa and LoKr: ranks by pattern, rows and steps that are left out in training, and factors with a kernel.
local accel = require "accel"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local targets = require "accel.peft.targets"

local M = {}

M.bases = { linear = true, conv1d = true, conv2d = true }

--- The fields of both types.
---@param own table
---@return table
function M.fields(own)
  local all = { r = 8, alpha = 8, rank_dropout = 0, module_dropout = 0, use_effective_conv2d = false, init_weights = true, rank_pattern = {},
    alpha_pattern = {} }
  for key, value in next, own do all[key] = value end
  return configs.targets(all, "bias")
end

--- Raises for values that no adapter can have.
---@param name string
function M.validate(self, name)
  configs.common(self, name)
  check.positive(name, "r", self.r)
  check.number(name, "alpha", self.alpha)
  check.number(name, "rank_dropout", self.rank_dropout, 0, 1)
  check.number(name, "module_dropout", self.module_dropout, 0, 1)
end

function M.rank(self, at) return targets.by_pattern(at.full, self.rank_pattern, self.r) end

function M.scaling(self, at) return targets.by_pattern(at.full, self.alpha_pattern, self.alpha) / M.rank(self, at) end

--- Whether a layer's weight has a kernel of more than one value.
function M.has_kernel(at)
  for _, n in ipairs(at.kernel or {}) do
    if n ~= 1 then return true end
  end
  return false
end

--- t [r, r, kernel], a [r, out], b [r, in] -> [out, in, kernel].
function M.with_kernel(t, a, b)
  return accel.einsum("ijkl,ip,jq->pqkl", { t, a, b })
end

--- Whether this step leaves the update out.
function M.skips(self, at)
  return at.training and self.module_dropout > 0 and accel.rand(1):item() <= self.module_dropout
end

--- Rows of an update [out, n] that this step leaves out are zero. scaled: the others are larger by their share.
function M.drop_rows(self, at, delta, scaled)
  if not at.training or self.rank_dropout == 0 then return delta end
  local keep = accel.rand(delta.shape[1], { device = delta.device }):gt(self.rank_dropout):to(delta.dtype)
  if scaled then keep = keep / keep:mean() end
  return delta * keep:unsqueeze(2)
end

return M
