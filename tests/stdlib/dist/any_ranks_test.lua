-- deterministic = "world" with micro_batches = M: losses and final weights have the same bits on 1, 2, 3, 5, 7, 8 ranks, for DDP, ZeRO 1 to
-- 3, NO_SHARD and hybrid sharding, in f32 and bf16, with dropout, batch norm, parameters that only some micro-batches use, and clipping. The
-- script starts itself on the ranks and compares what they print.
-- tier: sampled
--   accel-run tests/stdlib/dist/any_ranks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local quota = require "accel.dist.quota"
local nn, dist = accel.nn, accel.dist

if not ranks.launched then
  -- the arithmetic of shares: every micro-batch once, in order, at most one more than another rank
  for m = 1, 40 do
    for n = 1, m do
      local at, least, most = 0, m, 0
      for r = 0, n - 1 do
        local first, count = quota.of(m, n, r)
        assert(first == at and count > 0)
        for _, b in ipairs(quota.blocks(first, count)) do
          assert(b.at == at and b.at % b.size == 0 and b.size & (b.size - 1) == 0)
          at = at + b.size
        end
        assert(at == first + count)
        least, most = math.min(least, count), math.max(most, count)
      end
      assert(at == m and most - least <= 1)
    end
  end
  case "shares of ranks"
  local one = ranks.run(1, { capture = true })
  local want = {}
  for name, hash in one:gmatch "([%w_ .]+): (%x+)\n" do want[name] = hash end
  for _, way in ipairs { { 2 }, { 3 }, { 3, "tcp" }, { 5 }, { 7 }, { 8 } } do
    local n, found = way[1], 0
    local said = ranks.run(n, { capture = true, backend = way[2] })
    for name, hash in said:gmatch "([%w_ .]+): (%x+)\n" do
      local whole = name:gsub(" in %d+$", "")
      assert(want[whole] == hash, ("%d ranks: %s has %s, one rank %s"):format(n, name, hash, tostring(want[whole])))
      found = found + 1
    end
    assert(found >= 2, said) -- a case has at least two ways to divide the model
  end
  case "the same bits on any number of ranks"
  return
end

local R, P <const>, ROWS <const>, STEPS <const> = ranks.rank, ranks.size, 2, 3

local Either = nn.Module:extend "Either"
function Either:init() self.first, self.a, self.b = nn.Linear(5, 7), nn.Linear(7, 2), nn.Linear(7, 2) end
function Either:forward(x, at) return (at % 3 == 0 and self.b or self.a)(self.first(x):tanh()) end

local made = {
  plain = function() return nn.Sequential(nn.Linear(5, 90), nn.Tanh(), nn.Dropout(0.3), nn.Linear(90, 2)) end,
  either = function() return Either() end,
  norm = function()
    return nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 6), nn.BatchNorm1d(6, { momentum = false }), nn.Linear(6, 2))
  end,
}

local FSDP, DDP = nn.parallel.FullyShardedDataParallel, nn.parallel.DistributedDataParallel
local leaves = { kind = "none" }

--- Groups of ranks that share, and of those that have the same part.
local function hybrid(n)
  local shard, replicas
  for first = 0, P - 1, n do
    local list = {}
    for r = first, first + n - 1 do list[#list + 1] = r end
    local g = dist.new_group(list)
    if R // n == first // n then shard = g end
  end
  for k = 0, n - 1 do
    local list = {}
    for r = k, P - 1, n do list[#list + 1] = r end
    local g = dist.new_group(list)
    if R % n == k then replicas = g end
  end
  return { shard, replicas }
end

local ways = {
  ddp = function(m, o)
    o.bucket_cap_mb, o.find_unused_parameters = 0.0005, true
    return DDP(m, o)
  end,
}
for stage = 1, 3 do
  ways["zero" .. stage] = function(m, o)
    o.zero_stage, o.auto_wrap_policy = stage, leaves
    return FSDP(m, o)
  end
end
ways.no_shard = function(m, o)
  o.sharding_strategy = "NO_SHARD"
  return FSDP(m, o)
end

local function train(model_name, dtype, m, wrap, clip, wrapped_by)
  accel.manual_seed(3)
  local model = made[model_name]():to(dtype)
  local wrapped = wrap(model, { deterministic = "world", micro_batches = m })
  local adam = accel.optim.AdamW(wrapped:parameters(), { lr = 0.02 })
  local first, count = quota.of(m, P, R)
  local losses = accel.zeros(m * STEPS, { dtype = "f64" })
  for s = 1, STEPS do
    local generator = accel.Generator(s)
    local x = accel.randn(m * ROWS, 5, { generator = generator }):to(dtype)
    local y = accel.randn(m * ROWS, 2, { generator = generator }):to(dtype)
    for k = 0, count - 1 do
      local at = first + k
      accel.micro_batch(at * ROWS)
      local _ <close> = k < count - 1 and wrapped:no_sync() or nil
      local out = wrapped(x:narrow(1, at * ROWS + 1, ROWS), model_name == "either" and at or nil)
      local loss = (out - y:narrow(1, at * ROWS + 1, ROWS)):pow(2):mean()
      losses[(s - 1) * m + at + 1] = loss:item()
      loss:backward()
    end
    if clip then nn.utils.clip_grad_norm_(wrapped:parameters(), 0.1) end
    adam:step()
    adam:zero_grad()
  end
  dist.all_reduce(losses) -- each entry is of one rank, the others have zero
  local hash = 0
  local function add(t)
    for c in t:detach():contiguous():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ c:byte() end
  end
  add(losses)
  for _, t in pairs(wrapped:state_dict()) do add(t) end
  if R == 0 then print(("%s %s of %d%s %s: %016x"):format(model_name, dtype, m, clip and " clipped" or "", wrapped_by, hash)) end
end

local taken = ranks.sample.one_of(4)
for _, c in ipairs {
  { "plain", "f32", 8 }, { "plain", "bf16", 8 }, { "either", "f32", 11 }, { "plain", "f32", 12, true }, { "plain", "f32", 9 },
  { "either", "f32", 8, true }, { "norm", "f32", 7 }, { "norm", "f32", 8 },
} do
  if taken() and c[3] >= P then -- every rank needs a micro-batch
    for name, wrap in accel.pairs(ways) do
      -- ZeRO 3 gathers in the same order on all ranks, which modules that only some ranks run do not have
      if c[1] ~= "either" or name == "ddp" or name == "no_shard" then train(c[1], c[2], c[3], wrap, c[4], name) end
    end
    for _, n in ipairs { 2, 3, 4 } do
      if c[1] ~= "either" and P % n == 0 and P > n then
        train(c[1], c[2], c[3], function(m, o)
          o.sharding_strategy, o.process_group = "HYBRID_SHARD", hybrid(n)
          return FSDP(m, o)
        end, c[4], "zero3 in " .. n)
      end
    end
  end
end

-- batch norm: the running statistics are those of one forward after the other, and stay as they are inside an update
do
  local function layers() return nn.Sequential(nn.BatchNorm1d(5), nn.BatchNorm1d(5, { momentum = false })) end
  local plain, wrapped = layers(), layers()
  local ddp = DDP(nn.Sequential(wrapped, nn.Linear(5, 1)), { deterministic = "world", micro_batches = 9 })
  local first, count = quota.of(9, P, R)
  for s = 1, 2 do
    local x = accel.randn(9, 4, 5, { generator = accel.Generator(s) })
    for k = 1, 9 do plain(x[k]) end
    for k = 1, count do
      local _ <close> = k < count and ddp:no_sync() or nil
      local before = wrapped[1].running_mean:clone()
      local out = ddp(x[first + k])
      assert(accel.equal(before, wrapped[1].running_mean))
      out:sum():backward()
    end
    for i = 1, 2 do
      for _, name in ipairs { "running_mean", "running_var" } do
        assert((plain[i][name] - wrapped[i][name]):abs():max():item() < 1e-6, name)
      end
      assert(wrapped[i].num_batches_tracked:item() == 9 * s and wrapped[i].momentum == plain[i].momentum)
    end
  end
end

-- what is refused
local function refused(part, f, ...)
  local ok, message = pcall(f, ...)
  assert(not ok and tostring(message):find(part, 1, true), tostring(message))
end
local function layer() return nn.Linear(5, 2) end
refused("micro_batches fixes the order of sums", DDP, layer(), { micro_batches = 4 })
refused("micro_batches fixes the order of sums", FSDP, layer(), { micro_batches = 4 })
refused("micro_batches", DDP, layer(), { deterministic = "world", micro_batches = 0 })
if P > 1 then
  refused("below the number of ranks", DDP, layer(), { deterministic = "world", micro_batches = P - 1 })
  refused("micro_batches", DDP, layer(), { deterministic = "world", micro_batches = P + R })
end
local ddp = DDP(layer(), { deterministic = "world", micro_batches = 2 * P })
local early = accel.ones(1, 5)
refused(("this rank has 2 micro-batch(es) of each update"), function() ddp(early):sum():backward() end)
