--- Positions of x.shape: as those of tensors, from 1 or from -1. And names that a tensor lacks: the error names what to use.
local accel = require "accel"
local x = accel.ones(2, 3, 5)
assert(x.shape[1] == 2 and x.shape[-1] == 5 and x.shape[-3] == 2 and x.shape[4] == nil and #x.shape == 3)
for _, i in ipairs { 0, -4 } do
  local ok, message = pcall(function() return x.shape[i] end)
  assert(not ok and message:find("positions count from 1 (or from -1, the last)", 1, true), tostring(message))
end
local seen = 0
for i, n in ipairs(x.shape) do seen = seen + i * n end
assert(seen == 2 + 2 * 3 + 3 * 5 and select("#", table.unpack(x.shape)) == 3)

local ok, message = pcall(function() return x:cuda() end)
assert(not ok and message:find('x:to "cuda:0"', 1, true), tostring(message))
ok, message = pcall(function() return x:reshap(6, 5) end)
assert(not ok and message:find("did you mean 'reshape'", 1, true), tostring(message))
