-- Gradient accumulation: which micro-steps end an update, on loaders of every length, nested and left by break; when
-- ranks agree and when not; no_sync, trigger_sync_in_backward, sync_each_batch. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/accumulation_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn, optim, data, dist = accel.accelerator, accel.nn, accel.optim, accel.data, accel.dist

if ranks.start { 1, 2, 4 } then return end
local R, P, same = ranks.rank, ranks.size, ranks.same
local function loader(n, size) return data.DataLoader(data.TensorDataset(accel.arange(n):to "f32":view(-1, 1)), { batch_size = size }) end
local function plugin(o) return accel.Accelerator { gradient_accumulation_plugin = A.GradientAccumulationPlugin(o) } end

--- The 1-based batches at which updates end, over some passes.
local function ends(a, prepared, passes)
  local at, k = {}, 0
  for _ = 1, passes do
    for _ in prepared() do
      k = k + 1
      local _ <close> = a:accumulate()
      if a.sync_gradients then at[#at + 1] = k end
    end
  end
  return table.concat(at, " ")
end

do -- 5 batches, 2 micro-steps: 2, 4 and the last
  local a = accel.Accelerator { gradient_accumulation_steps = 2 }
  local l = a:prepare(loader(80 * P, 16))
  assert(#l == 5)
  same(ends(a, l, 2), "2 4 5 7 9 10", "with the loader")
  a = plugin { num_steps = 2, sync_with_dataloader = false }
  same(ends(a, a:prepare(loader(80 * P, 16)), 2), "2 4 6 8 10", "over the loader's end")
  a = plugin { num_steps = 3 }
  same(ends(a, a:prepare(loader(2 * P, 1)), 2), "2 4", "fewer batches than micro-steps")
  a = plugin { num_steps = 2 }
  local k, at = 0, {}
  for _ = 1, 5 do -- without a loader
    k = k + 1
    a:accumulate(function() if a.sync_gradients then at[#at + 1] = k end end)
  end
  same(table.concat(at, " "), "2 4", "without a loader")
end

do -- the innermost loop counts while it runs; nothing stays behind
  local a = accel.Accelerator { gradient_accumulation_steps = 2 }
  local train, eval = a:prepare(loader(3 * P, 1), loader(2 * P, 1))
  local seen = {}
  for _ in train() do
    assert(a.gradient_state.active_dataloader == train)
    local flags = {}
    for _ in eval() do
      assert(a.gradient_state.active_dataloader == eval)
      flags[#flags + 1] = a.gradient_state.end_of_dataloader and "end" or "on"
    end
    same(table.concat(flags, " "), "on end", "inner flags")
    seen[#seen + 1] = a.gradient_state.end_of_dataloader and "end" or "on"
  end
  same(table.concat(seen, " "), "on on end", "outer flags")
  local s = a.gradient_state
  assert(s.active_dataloader == nil and not s.in_dataloader and not s.end_of_dataloader and s.remainder == -1)
end

local function parts(opts)
  accel.manual_seed(5)
  local model = nn.Linear(1, 1)
  local a = accel.Accelerator(opts)
  local prepared, sgd, l = a:prepare(model, optim.SGD(model:parameters(), { lr = 0.1 }), loader(6 * P, 1))
  return a, prepared, sgd, l, model
end

--- Whether all ranks have the same gradient.
local function agree(model)
  local g = model:parameters()[1].grad:detach():clone()
  local low, high = g:clone(), g:clone()
  dist.all_reduce(low, { op = "min" })
  dist.all_reduce(high, { op = "max" })
  return accel.equal(low, high)
end

do -- a break inside an update: the next one starts from zero
  local a, model, sgd, l, raw = parts { gradient_accumulation_steps = 4 }
  for batch in l() do
    local _ <close> = a:accumulate(model)
    a:backward(model(batch[1] + 1):sum())
    if true then break end
  end
  assert(raw.weight.grad ~= nil and not a.gradient_state.in_dataloader)
  local micro = 0
  for batch in l() do
    local _ <close> = a:accumulate(model)
    if micro == 0 then assert(raw.weight.grad == nil, "the gradient of a loop that was left leaks") end
    micro = micro + 1
    a:backward(model(batch[1] * 0 + 1):sum())
    if a.sync_gradients then
      same(tostring(micro) .. " " .. raw.weight.grad:item(), "4 1.0", "gradient")
      break
    end
    sgd:step()
    sgd:zero_grad()
  end
end

do -- a loop for evaluation, left by break, does not disturb the update around it
  local a, model, _, l, raw = parts { gradient_accumulation_steps = 3 }
  local eval = a:prepare(loader(4 * P, 1))
  local n = 0
  for batch in l() do
    local _ <close> = a:accumulate(model)
    n = n + 1
    a:backward(model(batch[1] * 0 + 1):sum())
    for _ in eval() do break end
    assert(a.gradient_state.active_dataloader == l)
    if n == 3 then
      assert(a.sync_gradients and math.abs(raw.weight.grad:item() - 1) < 1e-6, raw.weight.grad:item())
      break
    end
  end
end

do -- unsynced gradients are each rank's own, synced ones everybody's
  for _, each in ipairs { false, true } do
    local a, model, sgd, l = parts {
      gradient_accumulation_plugin = A.GradientAccumulationPlugin { num_steps = 3, sync_each_batch = each },
    }
    local before = model:state_dict().weight:clone()
    for batch in l() do
      local _ <close> = a:accumulate(model)
      a:backward((model(batch[1] + R) ^ 2):mean())
      local equal = agree(model)
      assert(equal == (a.sync_gradients or each or P == 1), ("sync %s, each %s: agree %s"):format(a.sync_gradients, each, equal))
      sgd:step()
      assert(accel.equal(model:state_dict().weight, before) == not a.sync_gradients)
      before = model:state_dict().weight:clone()
      sgd:zero_grad()
      assert((model:parameters()[1].grad == nil) == a.sync_gradients)
    end
  end
end

do -- several models in one accumulate; a function in place of a scope
  local a = accel.Accelerator { gradient_accumulation_steps = 2 }
  local m1, m2 = nn.Linear(1, 1), nn.Linear(1, 1)
  local p1, p2, o1, o2, l = a:prepare(m1, m2, optim.SGD(m1:parameters(), { lr = 0.1 }), optim.SGD(m2:parameters(),
    { lr = 0.1 }), loader(2 * P, 1))
  for batch in l() do
    local said, more = a:accumulate(p1, p2, function()
      a:backward((p1(batch[1] + R) + p2(batch[1] + 3 * R + 1)):sum())
      assert(agree(p1) == (a.sync_gradients or P == 1) and agree(p2) == (a.sync_gradients or P == 1))
      o1:step() o2:step() o1:zero_grad() o2:zero_grad()
      return "said", nil
    end)
    assert(said == "said" and more == nil)
  end
end

do -- no_sync, and a backward that averages after forwards inside it
  local a, model, sgd = parts()
  a:no_sync(model, function() a:backward(model(accel.full({ 1, 1 }, R + 1.0)):sum()) end)
  assert(agree(model) == (P == 1))
  sgd:zero_grad()
  local losses = 0
  do
    local _ <close> = a:no_sync(model)
    for k = 1, 3 do losses = losses + model(accel.full({ 1, 1 }, R + k + 0.0)):sum() end
  end
  a:trigger_sync_in_backward(model, function() a:backward(losses) end)
  assert(agree(model))
  local want = 0
  for r = 0, P - 1 do want = want + (3 * r + 6) / P end
  assert(math.abs(model:parameters()[1].grad:item() - want) < 1e-4)
end
