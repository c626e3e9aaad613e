--- Sums gradients of micro-batches in the order of a binary counter: ((g1 + g2) + (g3 + g4)) + ... The sum of an aligned
--- block of 2^k micro-batches is the same subtree wherever it is computed, so that ranks which sum blocks, and then add
--- up the blocks of all ranks in the order of the tree (accel.dist.blocks), do the very additions of a single rank. 16-bit
--- gradients are summed in f32, as the all-reduce does, whose partial sums are not rounded either. Used by the reducer for
--- deterministic = "world".
local accel = require "accel"
local class = require "accel.util.class"
local flat = require "accel.dist.flat"

---@class accel.dist.Counter
---@field n integer micro-batches so far
---@field first integer position of this rank's first micro-batch in the update
---@field wide table<string, accel.Tensor> sums of 16-bit dtypes
local Counter = class("accel.dist.Counter")

---@param flats table<string, accel.Tensor> flat tensors, by name, that receive each micro-batch's gradients
---@param first? integer [0]
function Counter:init(flats, first)
  self.flats, self.sums, self.spare, self.n, self.wide, self.first = flats, {}, {}, 0, {}, first or 0
  for kind, t in accel.pairs(flats) do
    if t:element_size() == 2 then
      self.wide[kind] = accel.unscoped(flat, t:numel(), "f32", tostring(t.device))
      self.wide[kind]:zero_()
    end
  end
end

--- Whether the block of `size` micro-batches that begins at `at` is the second half of one whose first half is `sum`.
local function follows(sum, at, size) return sum ~= nil and sum.size == size and sum.at + size == at and sum.at % (2 * size) == 0 end

--- Takes the values of the flat tensors as the next micro-batch. They may be overwritten afterwards.
function Counter:add()
  local at, size, now, sums = self.first + self.n, 1, {}, self.sums
  for kind, t in next, self.flats do now[kind] = self.wide[kind] and self.wide[kind]:copy_(t) or t end
  while follows(sums[#sums], at, size) do -- carry
    local sum = table.remove(sums)
    for kind, t in next, now do t:add_(sum.of[kind]) end
    self.spare[#self.spare + 1] = sum
    at, size = sum.at, 2 * size
  end
  local sum = table.remove(self.spare) or { of = {} }
  sum.at, sum.size = at, size
  for kind, t in next, now do
    sum.of[kind] = sum.of[kind] or accel.unscoped(accel.empty_like, t)
    sum.of[kind]:copy_(t)
  end
  sums[#sums + 1] = sum
  self.n = self.n + 1
end

--- The sum of all micro-batches in a part of a flat tensor, which holds the last one's: in its own place, or in f32. With
--- `apart` it covers the last block only, and the blocks before it follow in a list, in order.
---@param kind string
---@param offset integer from 0
---@param part accel.Tensor
---@param apart? boolean
---@return accel.Tensor
---@return accel.Tensor[] before
function Counter:finish(kind, offset, part, apart)
  local at, size, before = self.first + self.n, 1, {}
  if self.wide[kind] then part = self.wide[kind]:narrow(1, offset + 1, part:numel()):copy_(part) end
  for i = #self.sums, 1, -1 do
    local sum = self.sums[i]
    local place = sum.of[kind]:narrow(1, offset + 1, part:numel())
    if follows(sum, at, size) then at, size = sum.at, 2 * size
    elseif apart then
      for k = 1, i do before[k] = self.sums[k].of[kind]:narrow(1, offset + 1, part:numel()) end
      break
    end
    part:add_(place)
  end
  return part, before
end

--- Drops the micro-batches. The memory is kept for the next ones.
function Counter:reset()
  for i = #self.sums, 1, -1 do self.spare[#self.spare + 1] = table.remove(self.sums) end
  self.n = 0
end

--- Whether 2^k micro-batches with the one to come have been counted.
function Counter:is_power() return self.n & (self.n + 1) == 0 end

return Counter
