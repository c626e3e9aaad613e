-- Bytes that a rank holds between two steps, by the allocator's count: within 1 % of ZeRO's formulas for f32 parameters and AdamW,
-- and what the plan foretells from shapes alone; parameters that lie once count once over all ranks of a machine.
--   accel-run tests/stdlib/shard/bytes_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local core = require "accel.shard.core"
local plan = require "accel.shard.plan"
local policies = require "accel.shard.policy"
local precision = require "accel.shard.precision"
local nn = accel.nn

if ranks.start { 1, 2, 4 } then return end
local P <const> = ranks.size

local function allocated()
  collectgarbage()
  collectgarbage()
  return accel.mem_stats("cpu").live_bytes
end

local wrap = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }
for stage = 1, 3 do
  for _, share in ipairs { false, true } do
    allocated()
    accel.dist.barrier() -- all let go of what was shared before; owners give it back with the next
    for r = 0, P > 1 and P - 1 or -1 do core.shared(nil, 256, "f32", r):release() end
    local before = allocated()
    local net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512))
    local n = 0
    for _, p in ipairs(net:parameters()) do n = n + p:numel() end
    local foretold = plan.estimate(policies.flat(net, wrap), P,
      { parameters = stage == 3, gradients = stage >= 2, optimizer = true })
    local model = nn.parallel.FullyShardedDataParallel(net, { zero_stage = stage, auto_wrap_policy = wrap, share_memory = share })
    local adamw = accel.optim.AdamW(model:parameters())
    for _ = 1, 2 do
      adamw:zero_grad()
      model(accel.ones(1, 512)):pow(2):mean():backward()
      adamw:step()
    end
    local bytes = allocated() - before
    local sum = accel.full({ 1 }, bytes, { dtype = "f64" })
    accel.dist.all_reduce(sum)
    local parts = { parameters = stage == 3 and 4 * n / P or 4 * n, gradients = stage >= 2 and 4 * n / P or 4 * n,
      optimizer = 8 * n / P }
    for key, want in accel.pairs(parts) do
      assert(math.abs(foretold[key] - want) <= 0.01 * want, ("stage %d: %s %d, not %d"):format(stage, key, foretold[key], want))
    end
    local want = parts.parameters + parts.gradients + parts.optimizer
    if share and P > 1 then -- over all ranks, parameters once
      bytes, want = sum:item(), 4 * n + P * (parts.gradients + parts.optimizer)
    end
    assert(math.abs(bytes - want) <= 0.01 * want, ("stage %d on %d ranks%s: %d bytes, not %d: %.2f %%"):format(stage, P,
      share and ", shared" or "", bytes // 1, want // 1, 100 * (bytes / want - 1)))
    model, adamw, net = nil, nil, nil -- luacheck: ignore
    accel.dist.barrier()
  end
end

-- In a backward no more than two units' gradients are whole, and what an op made of a third: also if the collector never runs.
do
  local list = {}
  for i = 1, 10 do list[i] = nn.Linear(256, 256) end
  local unit = 257 * 256 * 4
  local model = nn.parallel.FullyShardedDataParallel(nn.Sequential(table.unpack(list)), { zero_stage = 2, auto_wrap_policy = wrap })
  for _ = 1, 2 do
    local before = allocated()
    local loss = model(accel.ones(1, 256)):pow(2):mean()
    collectgarbage "stop"
    accel.reset_peak_memory "cpu"
    loss:backward()
    local took = accel.mem_stats("cpu").peak_bytes - before
    collectgarbage "restart"
    assert(P == 1 or took < 10 * unit / P + 4 * unit, ("%.1f units"):format(took / unit))
    model:zero_grad()
  end
end

-- A policy of dtypes, foretold from a model on the meta device.
for stage = 1, 3 do
  local function build() return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)) end
  local policy = { param_dtype = "bf16", reduce_dtype = stage == 2 and "f32" or nil }
  local meta = accel.device("meta", build)
  local foretold = plan.estimate(policies.flat(meta, wrap), P, { parameters = stage == 3, gradients = stage >= 2, optimizer = true }, 2,
    precision.dtypes(meta, precision.check("test", policy, 1), false))
  accel.dist.barrier()
  local before = allocated()
  local model = nn.parallel.FullyShardedDataParallel(build(), { zero_stage = stage, auto_wrap_policy = wrap, share_memory = false,
    mixed_precision = policy })
  local adamw = accel.optim.AdamW(model:parameters())
  for _ = 1, 2 do
    adamw:zero_grad()
    model(accel.ones(1, 512)):float():pow(2):mean():backward()
    adamw:step()
  end
  local bytes, want = allocated() - before, foretold.parameters + foretold.gradients + foretold.optimizer
  assert(math.abs(bytes - want) <= 0.01 * want, ("bf16, stage %d on %d ranks: %d bytes, not %d: %.2f %%"):format(stage, P, bytes, want,
    100 * (bytes / want - 1)))
  accel.dist.barrier()
end
