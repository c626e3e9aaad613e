-- A module's call refuses arguments that forward would drop, with the names of its parameters: in scripts and in the library, through
-- wrappers, hooks, and a forward that a class or an instance gets later.
--   accel-run tests/stdlib/nn/module_call_test.lua
local accel = require "accel"
local is_plain = require "accel.nn.is_plain"
local nn = accel.nn
local x = accel.ones(2, 3)

local function refused(text, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(text, 1, true), tostring(why))
  return tostring(why)
end

-- ---- layers ----
local linear = nn.Linear(3, 3)
assert(refused("Linear: unexpected argument 2, a table with 'bias'; forward takes ", linear, x, { bias = false }):find "module_call_test%.lua:")
refused("Linear: unexpected argument 2, a tensor of shape (", linear, x, x)
refused("Linear: unexpected argument 3, true; forward takes", linear, x, nil, true)
refused("ReLU: unexpected argument 2, a table with 'inplace'", nn.ReLU(), x, { inplace = true })
assert(accel.equal(linear(x, nil, nil), linear(x))) -- nothing is lost with nil

-- Initial states in a list: two, and nothing else in it.
local lstm, states = nn.LSTM(3, 2), { accel.zeros(1, 2), accel.zeros(1, 2) }
assert(accel.equal(lstm(x, states), lstm(x, states[1], states[2])))
refused("LSTM: the initial states must be a list of two tensors, found the key 'batch_first'", lstm, x, { batch_first = true })
refused("LSTM: the list of initial states must have two tensors", lstm, x, { states[1] })
refused("LSTM: the initial states are given twice", lstm, x, states, states[2])
refused("LSTMCell: the initial states must be a list of two tensors, found the key 'h'", nn.LSTMCell(3, 2), x, { h = states[1] })

-- ---- a script's own modules ----
local Net = nn.Module:extend "Net"
function Net:init() self.fc = nn.Linear(3, 3) end
function Net:forward(a, scale) return self.fc(a) * (scale or 1) end
local net = Net()
assert(accel.equal(net(x, 2), net(x) * 2))
refused("Net: unexpected argument 3, string 'twice'; forward takes a, scale", net, x, 2, "twice")
local Open = nn.Module:extend "Open"
function Open.forward(_, ...) return select("#", ...) end -- luacheck: ignore 212
assert(Open()(1, nil, 3) == 3 and Open()() == 0)
local None = nn.Module:extend "None"
function None.forward() return 7 end
assert(None()() == 7)
refused("None: unexpected argument 1, integer 1; forward takes no arguments", None(), 1)

-- A module inside another one, and in a container.
local Outer = nn.Module:extend "Outer"
function Outer:init() self.net = Net() end
function Outer:forward(a) return self.net(a, 1, "lost") end
refused("Net: unexpected argument 3, string 'lost'", Outer(), x)
refused("Linear: unexpected argument 2", nn.parallel.DistributedDataParallel(nn.Linear(3, 3)), x, { bias = false })

-- ---- prepared models, whose forward is wrapped ----
local a = accel.Accelerator { mixed_precision = "bf16" }
local prepared = a:prepare(nn.Linear(3, 3))
assert(prepared(x).shape[2] == 3)
refused("Linear: unexpected argument 2, a table with 'labels'", prepared, x, { labels = x })

-- ---- a forward that changes: a class below, a class's own, an instance's ----
local Twice = Net:extend "Twice"
function Twice:forward(a, b, c) return self.fc(a) * b * c end -- after Net was called
local twice = Twice()
assert(accel.equal(twice(x, 2, 3), twice.fc(x) * 6))
refused("Twice: unexpected argument 4, integer 4; forward takes a, b, c", twice, x, 2, 3, 4)
local kept = Net.forward
Net.forward = function(_, one, two, three) return one, two, three end
assert(select(3, net(1, 2, 3)) == 3 and select("#", net(1)) == 3)
refused("Net: unexpected argument 4, integer 4; forward takes one, two, three", net, 1, 2, 3, 4)
Net.forward = kept
refused("forward takes a, scale", net, x, 2, 3)
rawset(net, "forward", function(self, ...) return kept(self, ...) end)
assert(accel.equal(net(x, 2), net.fc(x) * 2))
refused("Net: unexpected argument 3, integer 3; forward takes a, scale", net, x, 2, 3)
rawset(net, "forward", function(_, one, two, three) return three end)
assert(net(1, 2, 3) == 3)
refused("forward takes one, two, three", net, 1, 2, 3, 4)
rawset(net, "forward", nil)
assert(accel.equal(net(x), net.fc(x)))

-- ---- hooks ----
local seen
local hooked = Net()
local handle = hooked:register_forward_pre_hook(function(_, args) seen = args.n end)
assert(hooked(x, 2) and seen == 2)
refused("Net: unexpected argument 3, integer 3", hooked, x, 2, 3)
handle:remove()
hooked:register_forward_pre_hook(function(_, args) return { args[1], 1, "lost" } end)
refused("Net: unexpected argument 3, string 'lost'", hooked, x)

-- ---- the quick ways of several modules as one op are still taken ----
local plain = nn.Linear(3, 3)
assert(is_plain(plain, nn.Linear.forward))
plain(x)
assert(is_plain(plain, nn.Linear.forward) and not is_plain(hooked, kept))
local Own = nn.Linear:extend "Own"
Own.__call = function() return 1 end
assert(not is_plain(Own(3, 3), nn.Linear.forward) and Own(3, 3)() == 1)
