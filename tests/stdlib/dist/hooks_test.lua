-- Communication hooks of DistributedDataParallel in worlds of 1 to 4 ranks: close to the plain mean, the same on all
-- ranks, what they lose comes back, and they send as few bytes as they say. The script starts itself on the ranks.
--   accel-run tests/stdlib/dist/hooks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn
local hooks = dist.hooks
local DDP = nn.parallel.DistributedDataParallel

-- ---- bytes, counted by playing one rank of a world ----
if arg[1] == "bytes" then
  dist.init_process_group("sim", { world_size = tonumber(arg[2]) })
  local function sent(...)
    local ddp, bytes = DDP(nn.Linear(256, 1024, { bias = false })), nil
    ddp:register_comm_hook(hooks.by_name(...))
    for _ = 1, 2 do -- before the second, ranks agree on the order of buckets
      local loss = ddp(accel.randn(2, 256)):sum()
      bytes = dist.bytes_sent()
      loss:backward()
    end
    return dist.bytes_sent() - bytes
  end
  local P, plain = dist.get_world_size(), sent "no"
  assert(plain == 2 * (P - 1) * 4 * 256 * 1024 // P)
  local function less(times, ...)
    local bytes = sent(...)
    assert(plain / bytes >= times, ("%s: %d bytes instead of %d, %.3fx less"):format(..., bytes, plain, plain / bytes))
  end
  less(2, "fp16")
  less(2, "bf16")
  less(2, "no", "bf16")
  less(100, "power_sgd", "no", { start_powerSGD_iter = 0 })
  less(100, "batched_power_sgd", "no", { start_powerSGD_iter = 0 })
  less(200, "power_sgd", "fp16", { start_powerSGD_iter = 0 })
  less(3.98, "int8", "no", { block_size = 1024 }) -- four times but for the scales
  less(3.93, "int8")
  less(5.2, "int4")
  return
end

if ranks.start { 1, 2, 3, 4 } then
  for _, n in ipairs { 2, 4, 16 } do ranks.run(nil, { args = "bytes " .. n }) end
  return
end

local R, P, says = ranks.rank, ranks.size, ranks.fails

local function net()
  accel.manual_seed(3)
  return nn.Sequential(nn.Linear(40, 31), nn.Tanh(), nn.Linear(31, 20))
end
local function backward(model, r)
  accel.manual_seed(50 + r)
  ;(model(accel.randn(16, 40)) * accel.randn(16, 20)):mean():backward()
end

local reference = net()
for r = 0, P - 1 do backward(reference, r) end
for _, p in ipairs(reference:parameters()) do p.grad:mul_(1 / P) end

--- Distance of gradients from the reference's, divided by their length; also checks that all ranks have the same bits.
local function distance(grads)
  local far, length = 0, 0
  for i, p in ipairs(reference:parameters()) do
    local all = accel.empty(P, p:numel())
    dist.all_gather_into_tensor(all, grads[i]:reshape(-1))
    for r = 2, P do assert(all[r]:to_bytes() == all[1]:to_bytes(), "ranks have other gradients") end
    far, length = far + ((grads[i] - p.grad) ^ 2):sum():item(), length + (p.grad ^ 2):sum():item()
  end
  return math.sqrt(far / length)
end

local function hooked(word, wrapper, option, opts)
  local ddp = DDP(net(), opts or { first_bucket_mb = 0.001, bucket_cap_mb = 0.004 })
  ddp:register_comm_hook(hooks.by_name(word, wrapper, option))
  return ddp
end

--- Distances of n backward passes and of their mean.
local function passes(ddp, n)
  local mean, list = {}, {}
  for k = 1, n do
    ddp:zero_grad()
    backward(ddp, R)
    local grads = {}
    for i, p in ipairs(ddp:parameters()) do
      grads[i] = p.grad
      mean[i] = (mean[i] or 0) + p.grad / n
    end
    list[k] = distance(grads)
  end
  return list, distance(mean)
end

-- ---- the ten combinations of the reference, in absolute terms as there ----
for _, c in ipairs {
  { "no" }, { "fp16" }, { "bf16" }, { "power_sgd" }, { "power_sgd", "fp16" }, { "power_sgd", "bf16" },
  { "power_sgd", "no", { matrix_approximation_rank = 2 } }, { "batched_power_sgd" }, { "batched_power_sgd", "fp16" },
  { "batched_power_sgd", "bf16" }, { "int8" }, { "int4" },
} do
  local ddp = hooked(c[1], c[2], c[3])
  for _ = 1, 2 do
    ddp:zero_grad()
    backward(ddp, R)
    for i, p in ipairs(reference:parameters()) do
      local off = (ddp:parameters()[i].grad - p.grad):abs():max():item()
      assert(off <= 1e-2 * (1 + p.grad:abs():max():item()), table.concat({ c[1], c[2] }, " "))
    end
  end
end

-- ---- 16 bits: a rounding or two ----
for word, bar in accel.pairs { no = 1e-6, fp16 = 2 ^ -11, bf16 = 2 ^ -8 } do
  local list = passes(hooked(word), 2)
  assert(list[1] <= bar and list[2] <= bar and (word == "no" or list[1] > 1e-6), word)
  for wrapper, wide in accel.pairs { fp16 = 2 ^ -10, bf16 = 2 ^ -7 } do
    list = passes(hooked(word, wrapper), 2)
    assert(list[2] <= math.max(wide, 2 * bar) and list[2] > 1e-6, word .. " " .. wrapper)
  end
end
do -- the sum of f16 values would overflow; their mean does not
  local ddp = DDP(nn.Linear(2, 1, { bias = false }))
  ddp:register_comm_hook(nil, hooks.fp16_compress_hook)
  ddp(accel.full({ 1, 2 }, 60000.0)):sum():backward()
  assert(math.abs(ddp.weight.grad[1][1]:item() - 60000) < 64)
end

-- ---- PowerSGD ----
do
  local full = { matrix_approximation_rank = 40, start_powerSGD_iter = 0, min_compression_rate = 0 }
  local list = passes(hooked("power_sgd", "no", full), 3)
  assert(list[1] < 1e-4 and list[3] < 1e-4, "a rank as large as the matrix loses nothing: " .. list[1])
  full.matrix_approximation_rank = 200
  assert(passes(hooked("batched_power_sgd", "no", full), 1)[1] < 1e-4)

  for _, word in ipairs { "power_sgd", "batched_power_sgd" } do
    local option = { matrix_approximation_rank = 4, start_powerSGD_iter = 0 }
    local _, with = passes(hooked(word, "no", option), 40)
    option.use_error_feedback = false
    local alone, without = passes(hooked(word, "no", option), 40)
    local said = ("%s: the mean of 40 is off by %.3g with feedback, %.3g without"):format(word, with, without)
    assert(with < 0.35 * without, said)
    -- without feedback, a warm start is the power method: the approximation gets better; a random start stays as it was
    assert(alone[40] < alone[1])
    option.warm_start = false
    local cold = passes(hooked(word, "no", option), 20)
    assert(cold[20] > alone[40], word .. ": a cold start is no better")
    -- 16 bits do not spoil it
    local _, bf16 = passes(hooked(word, "bf16", { matrix_approximation_rank = 4, start_powerSGD_iter = 0 }), 40)
    assert(bf16 < 1.2 * with + 0.01)
    local batched = { matrix_approximation_rank = 4, start_powerSGD_iter = 0, batch_tensors_with_same_shape = true }
    assert(select(2, passes(hooked(word, "no", batched), 40)) < 0.4 * without)
  end

  local state = hooks.PowerSGDState { start_powerSGD_iter = 2 }
  local ddp = DDP(net())
  ddp:register_comm_hook(state, hooks.powerSGD_hook)
  list = passes(ddp, 4)
  assert(list[1] < 1e-6 and list[2] < 1e-6 and list[3] > 1e-2 and state.iter == 4, "plain means first")
  local rate, before, after = state:compression_stats()
  local n, m = 40 * 31 + 31 * 20 + 31 + 20, (40 + 31) + (31 + 20) + 31 + 20
  assert(before == 2 * n and after == 2 * m and rate == before / after, "only what began to be compressed counts")

  -- the epsilon is added to the norm of the sum over ranks: here |q| = 1, so that q becomes 1 / 2, and P the sum of
  -- vectors of length 1
  state = hooks.PowerSGDState { start_powerSGD_iter = 0, min_compression_rate = 0, orthogonalization_epsilon = 1 }
  function state.randomize(_, q) q:fill_(1) end
  ddp = DDP(nn.Linear(1, 4, { bias = false }))
  ddp:register_comm_hook(state, hooks.powerSGD_hook)
  ddp(accel.ones(1, 1)):sum():backward()
  assert((ddp.weight.grad - (P / (P + 1)) ^ 2):abs():max():item() < 1e-6)

  -- two matrices of one shape, multiplied together or one by one
  local function twins(batch)
    accel.manual_seed(8)
    local model = DDP(nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20)))
    model:register_comm_hook(hooks.by_name("power_sgd", "no", {
      start_powerSGD_iter = 0, matrix_approximation_rank = 20, min_compression_rate = 0,
      batch_tensors_with_same_shape = batch,
    }))
    accel.manual_seed(R)
    ;(model(accel.randn(30, 20)) ^ 2):mean():backward()
    return model[1].weight.grad
  end
  assert((twins(true) - twins(false)):abs():max():item() < 1e-5)
  says("start_powerSGD_iter must be an integer from 0 on, got -1", hooks.PowerSGDState, { start_powerSGD_iter = -1 })
  says("matrix_approximation_rank must be a positive integer", hooks.PowerSGDState, { matrix_approximation_rank = 0 })
  says("did you mean 'warm_start'", hooks.PowerSGDState, { warmstart = true })
end

-- ---- an overflow on one rank is an infinity for all, once: it is not fed back, nor a start for what follows ----
for _, word in ipairs { "power_sgd", "batched_power_sgd", "int8", "int4" } do
  local ddp = hooked(word, "no", word:find "power" and { start_powerSGD_iter = 0 } or nil)
  for k = 1, 5 do
    ddp:zero_grad()
    ;(ddp(accel.full({ 2, 40 }, 0.1 * (R + k))):sum() * ((R == 0 and k == 3) and math.huge or 1)):backward()
    local finite = true
    for _, p in ipairs(ddp:parameters()) do finite = finite and p.grad:isfinite():all():item() end
    assert(finite == (k ~= 3), word .. ", backward " .. k)
  end
end

do -- what lies between gradients stays zero, whatever a hook writes there
  local ddp = hooked("batched_power_sgd", "no", { start_powerSGD_iter = 0 })
  backward(ddp, R)
  for _, b in ipairs(ddp.reducer.buckets) do
    local sum = 0
    for _, view in ipairs(b.views) do sum = sum + view:to "f64":pow(2):sum():item() end
    assert(math.abs(b.flat:to "f64":pow(2):sum():item() - sum) <= 1e-9 * sum)
  end
end

do -- a rank without anything to approximate: zeros and columns that depend on each other
  local orthogonalize = require "accel.dist.hooks.orthogonalize"
  local t = accel.tensor { { { 1.0, 2, 0, 1 }, { 0, 0, 0, 1 }, { 1, 2, 0, 0 } } }
  orthogonalize(t, 0)
  local g = accel.bmm(t:transpose(2, 3), t)[1]
  local want = accel.tensor { { 1.0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 1 } }
  assert((g - want):abs():max():item() < 1e-6, tostring(g))
  orthogonalize(t, 1e-8)
  assert(t:isfinite():all():item())
end

-- ---- quantised ----
for word, bars in accel.pairs { int8 = { 0.02, 0.002 }, int4 = { 0.25, 0.02 } } do
  local list, mean = passes(hooked(word), 40)
  local said = ("%s: %.3g, mean of 40: %.3g"):format(word, list[1], mean)
  assert(list[1] < bars[1] and list[1] > 1e-4 and mean < bars[2], said)
  local _, without = passes(hooked(word, "no", { use_error_feedback = false }), 40)
  assert(mean < 0.3 * without, word)
  for _, block in ipairs { 2, 64, 4096 } do passes(hooked(word, "bf16", { block_size = block }), 2) end
end
says("the state must be a QuantizedState, got nil", function()
  local ddp = DDP(net())
  ddp:register_comm_hook(nil, hooks.int8_all_gather_hook)
  backward(ddp, R)
end)

-- ---- hooks of scripts ----
do
  local ddp, seen = DDP(net(), { first_bucket_mb = 0.001, bucket_cap_mb = 0.004 }), {}
  ddp:register_comm_hook({ factor = 2 }, function(state, bucket)
    seen[#seen + 1] = bucket:index()
    assert(#bucket:gradients() == #bucket:parameters() and bucket:buffer().ndim == 1)
    for i, g in ipairs(bucket:gradients()) do assert(g == bucket:parameters()[i].grad) end
    assert(bucket:is_last() == (bucket:index() == #ddp.reducer.buckets))
    says("expected a flat tensor of", bucket.set_buffer, bucket, accel.ones(3))
    return bucket:buffer() * state.factor -- a tensor that is there at once
  end)
  local own = net()
  backward(ddp, R)
  backward(own, R)
  for k, at in ipairs(seen) do assert(k == at) end
  assert(#seen == #ddp.reducer.buckets and #seen > 1)
  for i, p in ipairs(own:parameters()) do assert((ddp:parameters()[i].grad - p.grad * 2):abs():max():item() < 1e-6) end
  says("there is a hook already", ddp.register_comm_hook, ddp, nil, hooks.allreduce_hook)
  says("hook must be a function, got 'fp16'", ddp.register_comm_hook, ddp, nil, "fp16")
  ddp = DDP(net())
  ddp:register_comm_hook(nil, function(_, bucket) -- the work of a collective
    return dist.all_reduce(bucket:buffer(), { op = "mean", async_op = true })
  end)
  backward(ddp, R)
  for i, p in ipairs(reference:parameters()) do
    assert((ddp:parameters()[i].grad - p.grad):abs():max():item() < 1e-6)
  end
  ddp = DDP(net())
  ddp:register_comm_hook(nil, function() return "done" end)
  says("a work of a collective, or nothing; this one returned 'done'", backward, ddp, R)
  says("hook must be one of no, fp16, bf16, power_sgd", hooks.by_name, "fp8")

  local steps = {}
  local future = hooks.Future(nil, 1):and_then(function(v)
    steps[#steps + 1] = v
    local work = { wait = function() steps[#steps + 1] = "waited" end }
    return hooks.Future(work, 10):and_then(function(w) return w + 1 end)
  end):and_then(function(v)
    steps[#steps + 1] = v
    return nil
  end)
  assert(not future:advance() and #steps == 1 and future:wait() == 11 and table.concat(steps, " ") == "1 waited 11")
end

do -- steps of a future that a step returns come before those that are left; each advance waits once
  local Future = accel.dist.hooks.Future
  local order, waits = {}, 0
  local function say(name)
    return function(v)
      order[#order + 1] = name .. v
      return v + 1
    end
  end
  local function work() return { wait = function() waits = waits + 1 end } end
  local inner = Future(work(), 10):and_then(say "b"):and_then(function(v)
    return Future(work(), v * 2):and_then(say "d")
  end)
  local future = Future(nil, 0):and_then(say "a"):and_then(function() return inner end):and_then(say "e")
  assert(not future:advance() and waits == 0 and not future:advance() and waits == 1)
  assert(future:advance() and waits == 2 and future:advance() and future:wait() == 24)
  assert(table.concat(order, " ") == "a0 b10 d22 e23", table.concat(order, " "))
end
