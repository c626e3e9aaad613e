-- DistributedDataParallel:join: ranks with different numbers of inputs, against the same training written out on each
-- rank alone. The script starts itself on the ranks.
--   accel-run tests/stdlib/dist/join_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn
local DDP = nn.parallel.DistributedDataParallel

if ranks.start { 1, 2, 4 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails

local function net()
  accel.manual_seed(4)
  return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
end
local function loss(model, r, s)
  accel.manual_seed(100 * s + r)
  return (model(accel.randn(6, 3)) ^ 2):mean()
end
local function close(a, b, what) ranks.close(a, b, what, 1e-5) end

--- Which rank has how many inputs.
local cases = {
  rising = function(r) return r + 1 end, falling = function(r) return P - r end,
  ["one has none"] = function(r) return r == 1 and 0 or 3 end,
  ["first has none"] = function(r) return r == 0 and P > 1 and 0 or 2 end,
  even = function() return 2 end, ["last far ahead"] = function(r) return r == P - 1 and 6 or 2 end,
}

--- The same training on this rank alone: every rank's gradient, divided by all ranks or by those that have inputs.
local function written_out(count, by_all)
  local model, steps = net(), 0
  local sgd = accel.optim.SGD(model:parameters(), { lr = 0.2 })
  for r = 0, P - 1 do steps = math.max(steps, count(r)) end
  for s = 1, steps do
    local n = 0
    for r = 0, P - 1 do n = n + (count(r) >= s and 1 or 0) end
    for r = 0, P - 1 do
      if count(r) >= s then (loss(model, r, s) / (by_all and P or n)):backward() end
    end
    sgd:step()
    sgd:zero_grad()
  end
  return model
end

for label, count in accel.pairs(cases) do
  for _, by_all in ipairs { true, false } do
    for _, opts in ipairs {
      {}, { bucket_cap_mb = 0 }, { find_unused_parameters = true }, { static_graph = true }, { hook = true },
    } do
      local hook = opts.hook
      if hook then opts = {} end
      local ddp = DDP(net(), opts)
      if hook then ddp:register_comm_hook(nil, dist.hooks.allreduce_hook) end
      local sgd = accel.optim.SGD(ddp:parameters(), { lr = 0.2 })
      do
        local _ <close> = ddp:join { divide_by_initial_world_size = by_all }
        for s = 1, count(R) do
          loss(ddp, R, s):backward()
          sgd:step()
          sgd:zero_grad()
        end
      end
      local want = written_out(count, by_all):parameters()
      for i, p in ipairs(ddp:parameters()) do close(p, want[i], label) end
      -- the wrapper goes on as before
      for s = 7, 9 do
        loss(ddp, R, s):backward()
        local all = accel.empty(P, 4, 3)
        dist.all_gather_into_tensor(all, ddp[1].weight.grad)
        for r = 1, P do close(all[r], all[1], label .. ", afterwards") end
        ddp:zero_grad()
      end
    end
  end
end

do -- all end together: buffers too are the same then
  local ddp = DDP(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
  ddp:join(function() loss(ddp, R, 1):backward() end)
  local all = accel.empty(P, 4)
  dist.all_gather_into_tensor(all, ddp[2].running_mean)
  for r = 2, P do assert(all[r]:to_bytes() == all[1]:to_bytes(), "buffers differ after join") end
end

do -- accumulation inside, buffers of a rank that still has inputs, and a function in the place of a block
  local model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
  accel.manual_seed(6)
  nn.init.normal_(model[1].weight)
  local ddp = DDP(model)
  ddp:join({ divide_by_initial_world_size = false }, function()
    for s = 1, R + 1 do
      ddp:no_sync(function() loss(ddp, R, s):backward() end)
      loss(ddp, R, s):backward()
      ddp:zero_grad()
    end
  end)
  for _, t in ipairs { model[2].running_mean, model[2].running_var, model[1].weight } do
    local all = accel.empty(P, t:numel())
    dist.all_gather_into_tensor(all, t:detach():reshape(-1))
    for r = 2, P do assert(all[r]:to_bytes() == all[1]:to_bytes(), "ranks differ after join") end
  end
end

do -- ending all with the first
  local ddp = DDP(net())
  local function run()
    local _ <close> = ddp:join { throw_on_early_termination = true }
    for s = 1, R + 1 do
      loss(ddp, R, s):backward()
      ddp:zero_grad()
    end
  end
  if P > 1 then says("join: rank 0 has no more inputs, and throw_on_early_termination = true", run) else run() end
  assert(not ddp.joining)
  loss(ddp, R, 1):backward() -- not inside any more
end

do -- an error leaves at once; what is wrong is told
  local ddp = DDP(net())
  says("of its own", function()
    local _ <close> = ddp:join()
    error "of its own"
  end)
  says("unknown option 'divide'", ddp.join, ddp, { divide = true })
  ddp:join({ enable = false }, function() loss(ddp, R, 1):backward() end)
  if P > 1 then
    says("inside a join already", function()
      ddp:join(function()
        error(tostring(select(2, pcall(ddp.join, ddp))), 0)
      end)
    end)
  end
end
