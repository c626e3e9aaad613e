-- nn.Buffer: a tensor that assigning registers as a buffer.
local accel = require "accel"
local nn = accel.nn

local Net = nn.Module:extend "Net"
function Net:init()
  self.weight = nn.Parameter(accel.ones(2))
  self.mean = nn.Buffer(accel.zeros(2))
  self.seen = nn.Buffer(accel.ones(1), { persistent = false })
end
local net = Net()
local names = {}
for name in net:named_buffers() do names[#names + 1] = name end
assert(table.concat(names, " ") == "mean seen")
local state = net:state_dict()
assert(state.mean and state.weight and state.seen == nil)
assert(#net:parameters() == 1)
net.mean = accel.ones(2) -- a plain tensor replaces the value under its name
assert(net:state_dict().mean:equal(accel.ones(2)))
net.mean = nn.Buffer(accel.full({ 2 }, 3.0))
assert(net:state_dict().mean:equal(accel.full({ 2 }, 3.0)))
net:to "f64"
assert(net.mean.dtype == "f64" and net.seen.dtype == "f64")
local learns = accel.ones(1, { requires_grad = true })
assert(not nn.Buffer(learns).requires_grad and nn.Buffer(learns, false) ~= nil)
for part, fn in accel.pairs {
  ["expected a tensor, got number"] = function() nn.Buffer(1) end,
  ["unknown option 'persist'"] = function() nn.Buffer(accel.ones(1), { persist = true }) end,
  ["cannot assign a plain tensor to parameter 'weight'"] = function() net.weight = nn.Buffer(accel.ones(2)) end,
} do
  local ok, err = pcall(fn)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end
