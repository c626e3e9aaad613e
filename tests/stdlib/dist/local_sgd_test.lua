-- accel.dist.LocalSGD against the same training written out on each rank alone. The script starts itself on the ranks.
--   accel-run tests/stdlib/dist/local_sgd_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn

if ranks.start { 1, 2, 4 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails
local STEPS = 7

local function net(r)
  accel.manual_seed(r)
  local model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
  model[3].bias.requires_grad = false
  return model
end
local function step(model, sgd, r, s)
  accel.manual_seed(100 * s + r)
  ;(model(accel.randn(6, 3)) ^ 2):mean():backward()
  sgd:step()
  sgd:zero_grad()
end
local function optimizer(model)
  return accel.optim.SGD(model[1]:parameters(), { lr = 0.1, momentum = 0.9 })
end
local function close(a, b, what) ranks.close(a, b, what, 1e-5) end

--- All ranks' models, each trained alone with averages where LocalSGD makes them.
local function written_out(every, same_start)
  local models, sgds = {}, {}
  for r = 0, P - 1 do
    models[r + 1] = net(same_start and 0 or r)
    sgds[r + 1] = optimizer(models[r + 1])
  end
  local function average()
    for i in ipairs(models[1]:parameters()) do
      local sum = 0
      for r = 1, P do sum = sum + models[r]:parameters()[i]:detach() end
      for r = 1, P do accel.no_grad(function() models[r]:parameters()[i]:copy_(sum / P) end) end
    end
  end
  for s = 1, STEPS do
    for r = 0, P - 1 do step(models[r + 1], sgds[r + 1], r, s) end
    if s % every == 0 then average() end
  end
  average()
  return models[R + 1]
end

local function reductions()
  local n = 0
  for _, r in ipairs(dist.records()) do n = n + (r.kind == "all_reduce" and 1 or 0) end
  return n
end

for _, every in ipairs { 1, 3, 100 } do
  for _, wrapped in ipairs { false, true } do
    local model = net(wrapped and 0 or R)
    local used = wrapped and nn.parallel.DistributedDataParallel(model, { broadcast_buffers = false }) or model
    local sgd, before = optimizer(model), reductions()
    do
      local local_sgd <close> = dist.LocalSGD { model = used, local_sgd_steps = every }
      for s = 1, STEPS do
        step(used, sgd, R, s)
        local_sgd:step()
      end
      assert(local_sgd.num_steps == STEPS)
    end
    local averages = P > 1 and STEPS // every + 1 or 0
    assert(reductions() - before == averages, "one collective for all parameters, and no others")
    local want = written_out(every, wrapped)
    for i, p in ipairs(want:parameters()) do close(model:parameters()[i], p, "every " .. every) end
    for i, b in ipairs(want:buffers()) do
      close(model:buffers()[i]:to "f32", b:to "f32", "buffers stay each rank's own")
    end
    if wrapped then assert(used.require_backward_grad_sync) end
  end
end

do -- switched off: as if it were not there
  local ddp = nn.parallel.DistributedDataParallel(net(0))
  local local_sgd = dist.LocalSGD { model = ddp, local_sgd_steps = 2, enabled = false }
  local before = reductions()
  step(ddp, optimizer(ddp), R, 1)
  local_sgd:step()
  local_sgd:step()
  local_sgd:close()
  assert(reductions() - before == (P > 1 and 1 or 0))
end

do -- after an error nothing is averaged, and the wrapper averages gradients again
  local ddp = nn.parallel.DistributedDataParallel(net(0))
  local before = reductions()
  says("of its own", function()
    local _ <close> = dist.LocalSGD { model = ddp, local_sgd_steps = 2 }
    error "of its own"
  end)
  assert(reductions() == before and ddp.require_backward_grad_sync)
  says("local_sgd_steps must be a positive integer, got 0", dist.LocalSGD, { model = ddp, local_sgd_steps = 0 })
  says("local_sgd_steps must be a positive integer, got nil", dist.LocalSGD, { model = ddp })
  says("model must be a module, got nil", dist.LocalSGD, { local_sgd_steps = 2 })
end
