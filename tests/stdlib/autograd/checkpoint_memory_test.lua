-- Recompute saves memory: the activations of a 12-layer GPT peak at a quarter or less, losses and gradients stay the
-- same to the last bit; nothing is kept after a step; the meta device predicts it.
--   accel-run tests/stdlib/autograd/checkpoint_memory_test.lua
local accel = require "accel"

local V, T, B, C = 65, 64, 8, 128

--- Three steps: losses, the last gradients, and the highest number of bytes above what the model itself has; `exact`: with
--- no garbage between the layers, whenever the collector would have come.
local function train(device, mode, exact)
  local losses, peak, grads = {}, 0, {}
  do
    local _ <close> = accel.device(device)
    accel.manual_seed(2)
    local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = C, n_layer = 12, n_head = 4 }
    if mode == "recompute" then model:gradient_checkpointing_enable() end
    for _, block in ipairs(exact and model.transformer.h or {}) do
      for _, part in ipairs { block.attn, block.mlp } do part:register_forward_pre_hook(function() collectgarbage() end) end
    end
    local sgd = accel.optim.SGD(model:parameters(), { lr = 0.05 })
    for step = 1, 3 do
      local ids = accel.randint(0, V, { B, T })
      accel.collect()
      local fixed = accel.mem_stats(device).live_bytes -- from the second step on with gradients
      accel.reset_peak_memory(device)
      local loss = accel.cross_entropy(model(ids):reshape(-1, V), ids:reshape(-1))
      loss:backward()
      if step > 1 then peak = math.max(peak, accel.mem_stats(device).peak_bytes - fixed) end
      losses[step] = device == "cpu" and loss:item() or 0
      for i, p in ipairs(model:parameters()) do grads[i] = device == "cpu" and step == 3 and p.grad:clone() or nil end
      sgd:step()
      for _, p in ipairs(model:parameters()) do p.grad:zero_() end -- kept, so that they do not count
    end
  end
  accel.collect()
  return losses, peak, grads
end

local losses, plain, grads = train("cpu", "plain")
local again, lean, lean_grads = train("cpu", "recompute")
print(("activations: %.1f MB, recomputed %.1f MB, %.1f times less"):format(plain / 2 ^ 20, lean / 2 ^ 20, plain / lean))
for i = 1, 3 do assert(losses[i] == again[i], ("step %d: %.17g and %.17g"):format(i, losses[i], again[i])) end
assert(losses[3] < losses[1] and #grads == #lean_grads and #grads > 100)
for i, g in ipairs(grads) do assert(accel.equal(g, lean_grads[i]), "a gradient differs") end
assert(plain >= 4 * lean, "less than four times")
local _, exact = train("cpu", "recompute", true)
local _, meta = train("meta", "recompute", true)
assert(math.abs(meta - exact) <= 0.02 * exact, ("meta predicts %d, it was %d"):format(meta, exact))
assert(lean <= 1.25 * exact, ("garbage makes %d of %d"):format(lean, exact))

losses, again, grads, lean_grads = nil, nil, nil, nil
accel.collect()
local m = accel.mem_stats()
assert(losses == nil and again == nil and grads == nil and lean_grads == nil and m.live_tensors == 0)
