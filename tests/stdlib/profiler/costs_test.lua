-- What a dry run and a plan tell of time: rates measured by a coarse clock are above zero, unusable rates are refused, more work takes no less,
-- and nothing takes less than the start of its kernels and messages.
local accel = require "accel"
local cost = require "accel.profiler.cost"
local planner = require "accel.cli.planner"
local rates = require "accel.profiler.rates"
local seed = tonumber(os.getenv "ACCEL_TEST_SEED") or os.time()
print("ACCEL_TEST_SEED=" .. seed)
math.randomseed(seed)

-- A clock of 1 us (and of 20 us) beside calls of 30 ns: the mean of many is told, where one takes 0.
for _, tick in ipairs { 1e-6, 20e-6 } do
  local now = 0
  local took = rates.time(function() now = now + 30e-9 end, nil, function() return math.floor(now / tick) * tick end)
  assert(took > 0 and math.abs(took / 30e-9 - 1) < (tick > 1e-6 and 0.7 or 0.05), took)
end
do -- a clock that stands still at first
  local now, calls = 0, 0
  local took = rates.time(function()
    calls = calls + 1
    if calls > 1000 then now = now + 1e-7 end
  end, nil, function() return now end)
  assert(took > 0 and took < math.huge)
end

local function curves(f)
  local out = { ranks = 2, threads = 1, single = {}, half = {}, link = {} }
  for _, name in ipairs(rates.CLASSES) do
    out.single[name] = { { 1e3, f(1e3) }, { 1e6, f(1e6) } }
    out.half[name] = out.single[name]
  end
  for _, name in ipairs { "all_reduce", "all_gather", "reduce_scatter", "broadcast", "send" } do
    out.link[name] = { { 1024, f(1e3) }, { 1e6, f(1e6) } }
  end
  return out
end
local good = curves(function(n) return 1e-6 + n * 1e-9 end)
assert(rates.problem(good) == nil)
for _, bad in ipairs { 0, -1e-6, 0 / 0, math.huge, "1", false } do
  local r = curves(function(n) return 1e-6 + n * 1e-9 end)
  r.single.norm[1][2] = bad
  assert(rates.problem(r) == "single.norm[1] must be {size, seconds} above zero, of growing sizes")
  r = curves(function() return 1e-6 end)
  r.link.send = { { bad, 1e-6 } }
  assert(rates.problem(r):find "^link.send%[1%] must be")
end
for key, want in accel.pairs { single = "no rates are in it", ranks = "ranks must be a positive number", half = "half.product is missing" } do
  local r = curves(function() return 1e-6 end)
  r[key] = nil
  assert(rates.problem(r) == want, rates.problem(r))
end
assert(rates.problem(3) and rates.problem {})

-- Times of random steps: finite, and more with every size.
local function report(scale)
  local r = { ops = {}, collectives = {}, dispatch = 1e-6 * math.random(1000), flops = 0 }
  for i = 1, 20 do
    local n = math.random(50)
    r.ops[i] = { class = rates.CLASSES[math.random(#rates.CLASSES)], half = math.random(2) == 1, n = n, flops = n * math.random(0, 1000) ^ 2,
      moved = n * math.random(1, 1 << 22) }
    r.flops = r.flops + r.ops[i].flops
  end
  for i, kind in ipairs { "all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "barrier", "all_to_all" } do
    local bytes = kind == "barrier" and 0 or math.random(1 << 24)
    r.collectives[i] = { kind = kind, payload = bytes, sent = bytes, ranks = kind == "send" and 2 or 2 ^ math.random(1, 6), remote = i % 2 == 0 }
  end
  return r, scale
end
local how = { ranks = 2, cores = 2, machines = 2, bandwidth = 1e9 }
local gpu = { rate = 4e14, near = 2e11, bandwidth = 1.25e10, costs = cost.cuda }
for _ = 1, 200 do
  local r = report()
  local before, planned, kernels, steps = rates.estimate(r, good, how), planner.time(r, gpu, 1, 1), 0, 0
  for _, row in ipairs(r.ops) do kernels = kernels + row.n end
  for _, c in ipairs(r.collectives) do steps = steps + cost.steps(c.kind, c.ranks) end
  assert(planned.kernels == kernels and planned.compute >= kernels * cost.cuda.launch * (1 - 1e-9))
  assert(planned.communication >= steps * cost.cuda.near and planned.total >= planned.compute + planned.communication)
  assert(before.communication > 0 and before.total > 0 and before.total < math.huge)
  local key = math.random(3)
  if key == 3 then
    local c = r.collectives[math.random(#r.collectives)]
    c.payload, c.sent = 2 * c.payload + 1, 2 * c.sent + 1
  else
    local row = r.ops[math.random(#r.ops)]
    row.flops, row.moved = 2 * row.flops + 1, 2 * row.moved
  end
  local after, then_ = rates.estimate(r, good, how), planner.time(r, gpu, 1, 1)
  for _, part in ipairs { "ops", "communication", "total" } do assert(after[part] >= before[part] * (1 - 1e-12), part) end
  for _, part in ipairs { "compute", "communication", "total" } do assert(then_[part] >= planned[part] * (1 - 1e-12), part) end
end
assert(cost.steps("all_reduce", 64) == 12 and cost.steps("all_gather", 64) == 6 and cost.steps("all_gather", 3) == 2)
assert(cost.collective(cost.cuda, "all_reduce", 1) == 0 and cost.collective(cost.cuda, "send", 2) > 0)
