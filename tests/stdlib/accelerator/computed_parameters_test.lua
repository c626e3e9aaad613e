-- Parameters that are computed from others (prune, parametrize, weight_norm, spectral_norm, orthogonal), and lazy layers: prepared for data
-- parallelism and sharded they train as on one rank. Checkpoints and copies keep them.
--   accel-run tests/stdlib/accelerator/computed_parameters_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, utils = accel.nn, accel.nn.utils

if ranks.start { 1, 2 } then return end
local R, P = ranks.rank, ranks.size

local Symmetric = nn.Module:extend "Symmetric"
function Symmetric.forward(_, x) return x:triu() + x:triu(1):t() end

local kinds = {
  prune = function(m)
    utils.prune.l1_unstructured(m[1], "weight", 0.5)
    utils.prune.ln_structured(m[3], "weight", { amount = 1, n = 2, dim = 1 })
  end,
  parametrize = function(m) utils.parametrize.register_parametrization(m[1], "weight", Symmetric()) end,
  weight_norm = function(m) utils.weight_norm(m[1]) end,
  weight_norms = function(m) utils.parametrizations.weight_norm(m[3]) end,
  spectral = function(m) utils.parametrizations.spectral_norm(m[1]) end,
  spectral_norm = function(m) utils.spectral_norm(m[1]) end,
  orthogonal = function(m) utils.parametrizations.orthogonal(m[1]) end,
  lazy = function(m)
    m[1] = nn.LazyLinear(6)
    accel.manual_seed(4)
    m(accel.ones(1, 6))
  end,
}

local function net(change)
  accel.manual_seed(3)
  local m = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))
  accel.manual_seed(9)
  change(m)
  return m
end

local function batch(step)
  accel.manual_seed(100 + step)
  return accel.randn(8, 6), accel.randn(8, 4)
end

local function trained(change)
  local m = net(change)
  local sgd = accel.optim.SGD(m:parameters(), { lr = 0.2 })
  for step = 1, 4 do
    local x, y = batch(step)
    sgd:zero_grad();
    (m(x) - y):square():mean():backward()
    sgd:step()
  end
  return m
end

local function check(got, want, what)
  for name, t in accel.pairs(want) do
    assert(got[name], what .. ": no " .. name)
    ranks.close(got[name], t, what .. ", " .. name, 1e-5 * math.max(t:abs():max():item(), 1))
  end
end

for kind, change in accel.pairs(kinds) do
  local reference = trained(change)
  local want = reference:state_dict()
  for plan, options in accel.pairs {
    data_parallel = {}, fsdp = { fsdp_plugin = accel.FullyShardedDataParallelPlugin { auto_wrap_policy = "no_wrap" } },
  } do
    local what = kind .. ", " .. plan
    local accelerator = accel.Accelerator(options)
    local m = net(change)
    local sgd = accel.optim.SGD(m:parameters(), { lr = 0.2 })
    m, sgd = accelerator:prepare(m, sgd)
    local n = 8 // P
    for step = 1, 4 do
      local x, y = batch(step)
      sgd:zero_grad()
      local loss = (m(x:narrow(1, R * n + 1, n)) - y:narrow(1, R * n + 1, n)):square():mean()
      accelerator:backward(loss)
      sgd:step()
    end
    check(accelerator:get_state_dict(m), want, what)
    accelerator:free_memory()
  end
  -- copies compute from parameters of their own
  local copy = accel.deepcopy(reference)
  check(copy:state_dict(), want, kind .. ", copied")
  local x = batch(9)
  reference:eval()
  copy:eval()
  ranks.close(copy(x), reference(x), kind .. ", copied, result", 1e-6)
  accel.no_grad(function()
    for _, p in ipairs(reference:parameters()) do p:zero_() end
  end)
  check(copy:state_dict(), accel.deepcopy(copy:state_dict()), kind)
  assert(copy(x):abs():sum():item() > 0, kind .. ": the copy computes from the other's parameters")
end

-- adapters on a computed weight train, but cannot be merged into it
for kind, change in accel.pairs(kinds) do
  local m = accel.peft.get_peft_model(net(change), accel.peft.LoraConfig { target_modules = { "0", "2" }, r = 2 })
  m(accel.ones(1, 6)):sum():backward()
  local ok, why = pcall(m.merge_and_unload, m)
  assert(ok == (kind == "lazy"), kind)
  assert(ok or tostring(why):find("computes its weight", 1, true), why)
end

-- a lazy layer without sizes is refused wherever its parameters would be missed
do
  local accelerator = accel.Accelerator {}
  local m = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
  for what, fn in accel.pairs {
    parameters = function() m:parameters() end, state_dict = function() m:state_dict() end,
    prepare = function() accelerator:prepare(m) end,
    optimizer = function() accel.optim.SGD(m:parameters(), { lr = 1 }) end,
    ddp = function() nn.parallel.DistributedDataParallel(m) end,
    prune = function() utils.prune.l1_unstructured(m[1], "weight", 1) end,
  } do
    local ok, why = pcall(fn)
    local told = what == "prune" or tostring(why):find "LazyLinear .0. has no tensors before its first batch; call the model"
    assert(not ok and told, what .. ": " .. tostring(why))
  end
end
