-- SyncBatchNorm on 1 and 3 ranks: results, gradients and running statistics are those of BatchNorm over the whole batch on one rank, with
-- batches of different sizes (one empty), in groups of ranks (process_group), and after convert_sync_batchnorm in data parallelism.
--   accel-run tests/stdlib/nn/sync_batch_norm_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn

if ranks.start { 1, 3 } then return end
local R, P = ranks.rank, ranks.size

--- Rows of this rank among counts (by rank), and the whole batch, the same on every rank.
local function parts(counts, ...)
  local first, all = 1, 0
  for r, n in ipairs(counts) do
    if r <= R then first = first + n end
    all = all + n
  end
  accel.manual_seed(11)
  local whole = accel.randn(all, ...) * 3 + 20
  return whole, function(t) return t:narrow(1, first, counts[R + 1]) end
end

local function near(a, b, what, bar)
  assert(a:numel() == b:numel())
  if b:numel() == 0 then return end
  ranks.close(a, b, what, bar * math.max(b:abs():max():item(), 1e-3))
end

for _, case in ipairs {
  { dtype = "f64", bar = 1e-11, counts = { 3, 1, 4 }, shape = { 5, 4, { dtype = "f64" } } },
  { dtype = "f32", bar = 2e-4, counts = { 2, 0, 5 }, shape = { 5, 3, 2, { dtype = "f32" } } },
  { dtype = "f32", bar = 2e-4, counts = { 2, 3, 1 }, shape = { 5, { dtype = "f32" } }, momentum = false },
} do
  local counts = table.move(case.counts, 1, P, 1, {})
  local whole, mine = parts(counts, table.unpack(case.shape))
  local options = { dtype = case.dtype, momentum = case.momentum }
  local sync, plain = nn.SyncBatchNorm(5, options), nn.BatchNorm1d(5, options)
  if whole.ndim == 4 then plain = nn.BatchNorm2d(5, options) end
  for _, m in ipairs { sync, plain } do
    accel.no_grad(function()
      m.weight:copy_(accel.arange(5):to(case.dtype) - 1.5)
      m.bias:copy_(accel.arange(5):to(case.dtype) * 0.1)
    end)
  end
  for step = 1, 2 do
    local x, z = mine(whole):clone():requires_grad_(), whole:clone():requires_grad_()
    local weight = (whole * 0.7):sin()
    local y, want = sync(x * step), plain(z * step)
    near(y, mine(want), "result", case.bar)
    sync:zero_grad()
    plain:zero_grad();
    (y * mine(weight)):sum():backward();
    (want * weight):sum():backward()
    near(x.grad, mine(z.grad), "gradient", case.bar)
    -- weight and bias see this rank's part
    for _, name in ipairs { "weight", "bias" } do
      local sum = sync[name].grad:clone()
      dist.all_reduce(sum)
      near(sum, plain[name].grad, name .. "'s gradient", case.bar)
    end
    near(sync.running_mean, plain.running_mean, "running_mean", case.bar)
    near(sync.running_var, plain.running_var, "running_var", case.bar)
    assert(sync.num_batches_tracked:item() == step)
  end
  near(sync:eval()(mine(whole)), mine(plain:eval()(whole)), "result in eval mode", case.bar)
end

-- a second derivative would need the ranks again
if P > 1 then
  local m = nn.SyncBatchNorm(2)
  local x = accel.randn(3, 2, { requires_grad = true })
  local ok, why = pcall(function()
    local g = accel.grad({ m(x):square():sum() }, { x }, { create_graph = true })
    accel.grad({ g[1]:sum() }, { x })
  end)
  assert(not ok, why)
end

-- the ranks of a group
if P == 3 then
  local groups = { dist.new_group { 0 }, dist.new_group { 1, 2 } }
  local whole = parts({ 2, 2, 2 }, 4)
  local m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4), groups[R == 0 and 1 or 2])
  assert(m.process_group)
  local own = whole:narrow(1, 2 * R + 1, 2)
  local want = R == 0 and nn.BatchNorm1d(4)(own) or nn.BatchNorm1d(4)(whole:narrow(1, 3, 4)):narrow(1, 2 * R - 1, 2)
  near(m(own), want, "group", 2e-4)
end

-- converted and trained in parallel: the steps of one rank with the whole batch
do
  local function net()
    accel.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)))
  end
  local alone, model = net(), nn.SyncBatchNorm.convert_sync_batchnorm(net())
  assert(tostring(model):find "SyncBatchNorm%(6" and tostring(model):find "SyncBatchNorm%(3" and not tostring(model):find "BatchNorm1d")
  assert(#model:parameters() == #alone:parameters())
  local ddp = nn.parallel.DistributedDataParallel(model)
  local a = accel.optim.SGD(alone:parameters(), { lr = 0.1 })
  local b = accel.optim.SGD(ddp:parameters(), { lr = 0.1 })
  local counts = {}
  for i = 1, P do counts[i] = 4 end
  for step = 1, 4 do
    local whole, mine = parts(counts, 4)
    local target = (whole:narrow(2, 1, 3) * step):sin()
    a:zero_grad()
    b:zero_grad()
    local one, many = (alone(whole) - target):square():mean(), (ddp(mine(whole)) - mine(target)):square():mean()
    one:backward()
    many:backward()
    a:step()
    b:step()
  end
  for i, p in ipairs(alone:parameters()) do near(model:parameters()[i], p, "parameter " .. i, 1e-3) end
end

do -- without running statistics, eval mode takes the batch of one rank alone; with micro_batches it is refused
  local plain, sync = nn.BatchNorm1d(3, { track_running_stats = false }):eval(), nn.SyncBatchNorm(3, { track_running_stats = false }):eval()
  local x = accel.randn(4 + dist.get_rank(), 3)
  near(sync(x), plain(x), "eval mode without running statistics", 1e-6)
  local ddp = nn.parallel.DistributedDataParallel(nn.Sequential(nn.SyncBatchNorm(3)), { deterministic = "world", micro_batches = 3 })
  local ok, message = pcall(function()
    local _ <close> = P == 1 and ddp:no_sync() or nil
    return ddp(x)
  end)
  assert(not ok and message:find "SyncBatchNorm cannot be used with micro_batches", message)
end
