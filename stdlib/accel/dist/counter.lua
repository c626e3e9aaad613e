--- Sums gradients of micro-batches in the order of a binary counter: ((g1 + g2) + (g3 + g4)) + ... The sum of 2^k
--- micro-batches is the same subtree wherever they are taken together, so that ranks which sum a power of two each,
--- and then sum over ranks in pairs, do the very additions of a single rank, in the same order. 16-bit gradients are
--- summed in f32, as the all-reduce does, whose partial sums are not rounded either. Used by the reducer for
--- deterministic = "world".
local accel = require "accel"
local class = require "accel.util.class"
local flat = require "accel.dist.flat"

---@class accel.dist.Counter
---@field n integer micro-batches so far
---@field wide table<string, accel.Tensor> sums of 16-bit dtypes
local Counter = class("accel.dist.Counter")

---@param flats table<string, accel.Tensor> flat tensors, by name, that receive each micro-batch's gradients
function Counter:init(flats)
  self.flats, self.levels, self.spare, self.n, self.wide = flats, {}, {}, 0, {}
  for kind, t in accel.pairs(flats) do
    if t:element_size() == 2 then
      self.wide[kind] = accel.unscoped(flat, t:numel(), "f32", tostring(t.device))
      self.wide[kind]:zero_()
    end
  end
end

--- Takes the values of the flat tensors as the next micro-batch. They may be overwritten afterwards.
function Counter:add()
  local level, now = 1, {}
  for kind, t in next, self.flats do now[kind] = self.wide[kind] and self.wide[kind]:copy_(t) or t end
  while self.levels[level] do -- carry
    local sum = self.levels[level]
    for kind, t in next, now do t:add_(sum[kind]) end
    self.levels[level], self.spare[#self.spare + 1] = nil, sum
    level = level + 1
  end
  local sum = table.remove(self.spare)
  if not sum then
    sum = {}
    for kind, t in next, now do sum[kind] = accel.unscoped(accel.empty_like, t) end
  end
  for kind, t in next, now do sum[kind]:copy_(t) end
  self.levels[level] = sum
  self.n = self.n + 1
end

--- The sum of all micro-batches in a part of a flat tensor, which holds the last one's: in its own place, or in f32.
---@param kind string
---@param offset integer from 0
---@param part accel.Tensor
---@return accel.Tensor
function Counter:finish(kind, offset, part)
  local level, n = 1, self.n
  if self.wide[kind] then part = self.wide[kind]:narrow(1, offset + 1, part:numel()):copy_(part) end
  while n > 0 do
    local sum = self.levels[level]
    if sum then part:add_(sum[kind]:narrow(1, offset + 1, part:numel())) end
    level, n = level + 1, n >> 1
  end
  return part
end

--- Drops the micro-batches. The memory is kept for the next ones.
function Counter:reset()
  for level, sum in accel.pairs(self.levels) do
    self.levels[level], self.spare[#self.spare + 1] = nil, sum
  end
  self.n = 0
end

--- Whether 2^k micro-batches with the one to come have been counted.
function Counter:is_power() return self.n & (self.n + 1) == 0 end

return Counter
