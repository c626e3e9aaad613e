-- Dropout on parts of a tensor draws what the whole tensor does there, for any dim, two dims, rows of the global batch, attention
-- weights of some heads, queries or keys, and again in backward; what does not fit is an error.
--   accel-run tests/stdlib/parallel/dropout_test.lua
-- tier: every change, memory
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local core = require "accel.parallel.core"

local function seeded(row0)
  accel.manual_seed(11)
  accel.micro_batch(row0 or 0)
end

local whole = accel.randn(6, 5, 7, 9)
for row0 = 0, 3, 3 do
  seeded(row0)
  local want = accel.dropout(whole, 0.4)
  for dim = 1, 4 do
    for at = 0, whole.shape[dim] - 2 do
      local n = 2
      local x = whole:narrow(dim, at + 1, n):clone():requires_grad_(true)
      seeded(row0)
      core.random_range(dim, at, whole.shape[dim])
      local y = accel.dropout(x, 0.4)
      core.random_range()
      ranks.same(y:detach(), want:narrow(dim, at + 1, n):contiguous(), ("dim %d from %d"):format(dim, at))
      y:backward(x:detach())
      ranks.same(x.grad, y:detach(), "the mask of backward")
    end
  end
  seeded(row0)
  core.random_range(2, 1, 5, 4, 3, 9)
  local y = accel.dropout(whole:narrow(2, 2, 3):narrow(4, 4, 5):contiguous(), 0.4)
  core.random_range()
  ranks.same(y, want:narrow(2, 2, 3):narrow(4, 4, 5):contiguous(), "two dims")
end

-- long rows cross the pieces that are drawn at a time
do
  local long = accel.ones(3, 5000)
  seeded()
  local want = accel.dropout(long, 0.5)
  seeded()
  core.random_range(2, 1234, 5000)
  local y = accel.dropout(accel.ones(3, 2345), 0.5)
  core.random_range()
  ranks.same(y, want:narrow(2, 1235, 2345):contiguous(), "long rows")
end

-- attention: heads, queries; keys through values that are zero outside of a part
do
  local function randn(...) return accel.randn(..., { generator = accel.Generator(3) }) end
  local q, k, v = randn { 2, 4, 6, 8 }, randn { 2, 4, 6, 8 } * 0.7, randn { 2, 4, 6, 8 } * 1.3
  local attention = accel.scaled_dot_product_attention
  seeded(2)
  local want = attention(q, k, v, { dropout_p = 0.3 })
  for h = 0, 3 do
    seeded(2)
    core.random_range(2, h, 4)
    local y = attention(q:narrow(2, h + 1, 1), k:narrow(2, h + 1, 1), v:narrow(2, h + 1, 1), { dropout_p = 0.3 })
    core.random_range()
    ranks.close(y, want:narrow(2, h + 1, 1), "head " .. h, 1e-6)
  end
  for at = 0, 4, 2 do
    seeded(2)
    core.random_range(3, at, 6)
    local y = attention(q:narrow(3, at + 1, 2), k, v, { dropout_p = 0.3 })
    core.random_range()
    ranks.close(y, want:narrow(3, at + 1, 2), "queries from " .. at, 1e-6)
  end
end

core.random_range(3, 0, 4)
ranks.fails("a random range of dim 3, but there are 2 dims", accel.dropout, accel.ones(2, 2), 0.5)
core.random_range(2, 3, 4)
ranks.fails("positions 3 .. 5 of dim 2 do not lie in the 4 of the whole", accel.dropout, accel.ones(2, 2), 0.5)
core.random_range()
accel.dropout(accel.ones(2, 2), 0.5)

-- meta absorbs what has bytes, where that is asked for, and nothing is written from it
do
  local x, m = accel.ones(2, 3), accel.empty(2, 3, { device = "meta" })
  ranks.fails("tensors are on different devices", function() return x + m end)
  assert(core.meta_absorbs(true) == false)
  local y = accel.cat({ x + m, x }, 1)
  assert(y.device == "meta" and y.shape[1] == 4 and (x + x).device == "cpu")
  ranks.fails("cannot be written from one on meta", function() x:add_(m) end)
  assert(core.meta_absorbs(false) == true)
end

-- a parameter that becomes another keeps what belongs to it
do
  local p = accel.nn.Parameter(accel.ones(4, 2))
  local fired = 0
  p:register_hook(function() fired = fired + 1 end)
  core.replace(p, accel.full({ 1, 2 }, 3.0))
  p:sum():backward()
  assert(p.shape[1] == 1 and p.grad.shape[1] == 1 and fired == 1 and accel.nn.Parameter ~= nil)
  ranks.fails("dtype and rank stay", core.replace, accel.nn.Parameter(accel.ones(4, 2)), accel.ones(4))
  ranks.fails("has a gradient", core.replace, p, accel.ones(4, 2))
end
