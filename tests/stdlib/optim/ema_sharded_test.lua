-- An exponential moving average of a sharded model: on every number of ranks and in every way of sharding it is PyTorch's of the whole model
-- (reference/optim_more.json), each rank keeps its part of it, and saving, loading and generation see whole averages.
--   accel-run tests/stdlib/optim/ema_sharded_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, W = accel.nn, accel.optim.swa_utils

if ranks.start { 1, 2 } then return end

local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/optim_more.json"))
local want = accel.json.decode(file:read "a").sharded_ema
file:close()
local R, P <const> = ranks.rank, ranks.size

local function same(what, got, numbers)
  for i, w in ipairs(numbers) do
    assert(math.abs(got[i] - w) <= 1e-10, ("%s on %d: number %d is %.17g, wanted %.17g"):format(what, P, i, got[i], w))
  end
end
local function flat(t) return t:detach():reshape(-1):tolist() end
local function x(s) return (accel.arange(8):to "f64" * 0.9 + s):sin():reshape(4, 2) end
local function net()
  local m = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)):to "f64"
  local _ <close> = accel.no_grad()
  for k, p in ipairs(m:parameters()) do p:copy_((accel.arange(p:numel()):to "f64" * 1.3 + (k - 1)):cos():view_as(p)) end
  return m
end
local function average(model) return W.AveragedModel(model, { multi_avg_fn = W.get_ema_multi_avg_fn(0.75) }) end

for _, way in ipairs { {}, { zero_stage = 1 }, { sharding_strategy = "SHARD_GRAD_OP" }, { share_memory = false } } do
  local model = nn.parallel.FullyShardedDataParallel(net(), way)
  local a, o = average(model), accel.optim.AdamW(model:parameters(), { lr = 0.05 })
  for step = 0, 4 do
    o:zero_grad();
    (model(x(step):narrow(1, R * (4 // P) + 1, 4 // P)) ^ 2):mean():backward()
    o:step()
    a:update_parameters(model)
    if step == 2 then -- saved whole, loaded into a new average
      local state = a:state_dict()
      a = average(model)
      a:load_state_dict(state)
    end
  end
  local n, kept = 0, 0
  for key, t in pairs(a:state_dict()) do
    same(key, flat(t:to "f64"), want.state[key])
    n = n + 1
  end
  assert(n == 5)
  for _, t in ipairs(rawget(a, "_sharded").averages) do kept = kept + t:numel() end
  local all = accel.tensor { kept }
  accel.dist.all_reduce(all)
  assert(all:item() == 13, "each element is on one rank")
  same("average", flat(a(x(20))), want.y)
  same("model", flat(model(x(20))), want.model)
  do
    local _ <close> = a:exchange()
    same("exchanged", flat(model(x(20))), want.y)
    ranks.fails("close the result of exchange first", function() a:update_parameters(model) end)
  end
  same("put back", flat(model(x(20))), want.model)
  ranks.fails("the model is sharded, the average is not", function() W.AveragedModel(net()):update_parameters(model) end)
end
