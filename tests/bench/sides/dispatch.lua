-- Time of small calls from Lua. Prints one JSON object; ns per call unless the name says otherwise.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim
local clock = accel.clock

local function per_call(n, fn)
  fn(n // 10)
  local best = math.huge
  for _ = 1, 5 do
    local t = clock()
    fn(n)
    best = math.min(best, (clock() - t) / n)
  end
  return best * 1e9
end

local r = {}
local a, b = accel.ones(1), accel.ones(1)
local add = a.add
r.add = per_call(200000, function(n) for _ = 1, n do local _ = a + b end end)
local g = accel.ones(1, { requires_grad = true })
r.add_grad = per_call(200000, function(n) for _ = 1, n do local _ = g + b end end)
local x8, y8 = accel.randn(8, 8), accel.randn(8, 8)
r.mm8 = per_call(100000, function(n) for _ = 1, n do local _ = x8:matmul(y8) end end)
local lin = nn.Linear(8, 8)
r.linear8 = per_call(50000, function(n) for _ = 1, n do local _ = lin(x8) end end)
r.chain = per_call(20000, function(n)
  for _ = 1, n do
    local z = ((g * b + b) * g)
    z:backward()
    g.grad = nil
  end
end)

local function mlp(make)
  accel.manual_seed(1)
  local model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
  local opt = make(model:parameters())
  local x, y = accel.randn(32, 784), accel.randint(0, 10, { 32 })
  return per_call(1000, function(n)
    for _ = 1, n do
      local loss = accel.cross_entropy(model(x), y)
      loss:backward()
      opt:step()
      opt:zero_grad()
    end
  end) / 1000
end
r.mlp_sgd = mlp(function(p) return optim.SGD(p, { lr = 0.01, momentum = 0.9 }) end)
r.mlp_adamw = mlp(function(p) return optim.AdamW(p, { lr = 0.001 }) end)
print(accel.json.encode(r))
