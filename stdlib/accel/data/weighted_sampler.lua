--- data.WeightedRandomSampler(weights, num_samples, {replacement = true, seed = ...}): positions drawn with
--- probabilities in proportion to their weights, for classes of unequal size.
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Sampler = require("accel.data.samplers").Sampler
local tensors = require "accel.util.tensors"

--- example: accel.data.WeightedRandomSampler({ 0, 2.5, 0 }, 4):order(0) --> { 2, 2, 2, 2 }
---@class accel.data.WeightedRandomSampler : accel.data.Sampler
---@field num_samples integer
local WeightedRandomSampler = Sampler:extend("accel.data.WeightedRandomSampler")

---@param weights number[]|accel.Tensor one for each sample, not negative
---@param num_samples integer draws in a pass
---@param opts? {replacement: boolean?, seed: integer?}
function WeightedRandomSampler:init(weights, num_samples, opts)
  local o = options("WeightedRandomSampler", opts, { replacement = true, seed = options.none })
  if tensors.is_tensor(weights) then
    if #weights.shape ~= 1 then
      raise("WeightedRandomSampler: weights have one dimension, got shape %s", tensors.shape_string(weights))
    end
    weights = weights:tolist()
  elseif type(weights) ~= "table" then
    raise("WeightedRandomSampler: weights must be a list or a tensor, got %s", check.shown(weights))
  end
  local drawable, total = 0, 0
  for i, w in ipairs(weights) do
    check.number("WeightedRandomSampler", ("weights[%d]"):format(i), w, 0)
    drawable, total = drawable + (w > 0 and 1 or 0), total + w
  end
  if drawable == 0 or total == math.huge then
    raise "WeightedRandomSampler: weights must be finite and not all zero"
  end
  self.num_samples = check.positive("WeightedRandomSampler", "num_samples", num_samples)
  if not o.replacement and num_samples > drawable then
    raise("WeightedRandomSampler: %d draws without replacement from %d samples of positive weight",
      num_samples, drawable)
  end
  self.weights, self.replacement = weights, o.replacement
  self:set_seed(o.seed)
end

function WeightedRandomSampler:len() return self.num_samples end

--- A binary tree of sums over a power of two of leaves, leaf i at [width + i - 1]. A sum is always computed from its
--- two parts, never by subtraction, so that removed weights leave exactly zero.
local function tree_of(weights)
  local width = 1
  while width < #weights do width = 2 * width end
  local sums = {}
  for i = 1, width do sums[width + i - 1] = (weights[i] or 0) + 0.0 end
  for k = width - 1, 1, -1 do sums[k] = sums[2 * k] + sums[2 * k + 1] end
  return sums, width
end

function WeightedRandomSampler:order(epoch, seed)
  local random, order = self:random(epoch, seed), {}
  local sums, width = tree_of(self.weights)
  for n = 1, self.num_samples do
    local u, k = random:uniform() * sums[1], 1
    while k < width do
      k = 2 * k
      if sums[k + 1] > 0 and u >= sums[k] then
        u, k = u - sums[k], k + 1
      end
    end
    order[n] = k - width + 1
    if not self.replacement then
      sums[k] = 0.0
      while k > 1 do
        k = k // 2
        sums[k] = sums[2 * k] + sums[2 * k + 1]
      end
    end
  end
  return order
end

return WeightedRandomSampler
