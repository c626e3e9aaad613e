-- AdaLoRA: update_and_allocate cuts ranks by tinit, tfinal, deltaT and total_step until target_r are left, by the importance that beta1 and
-- beta2 smooth; ranks learn on between cuts, and a saved adapter has those that are left alone.
--   accel-run tests/stdlib/peft/adalora_test.lua
local accel = require "accel"
local peft, models = accel.peft, accel.models

local function new(more)
  accel.manual_seed(3)
  local config = { init_r = 4, target_r = 1, total_step = 8, tinit = 1, tfinal = 2, init_lora_weights = false, lora_alpha = 8 }
  for key, value in pairs(more or {}) do config[key] = value end
  return peft.get_peft_model(models.Llama(models.tiny.llama), peft.AdaLoraConfig(config))
end
local ids = accel.tensor({ { 1, 2, 3, 4, 5 } }, { dtype = "i64" })

local function layers(model)
  local list = {}
  for _, layer in ipairs(model:modules()) do
    if accel.util.class.isinstance(layer, peft.WeightLayer) then list[#list + 1] = layer end
  end
  return list
end
local function left(model)
  local n = 0
  for _, layer in ipairs(layers(model)) do n = n + layer.lora_E.default:ne(0):to("i64"):sum():item() end
  return n
end

--- Ranks that are left after each step.
local function train(model, steps)
  local seen, optimizer = {}, accel.optim.SGD(model:parameters(), { lr = 0.05 })
  for step = 0, steps - 1 do
    model(ids, { labels = ids }):backward()
    optimizer:step()
    model.base_model:update_and_allocate(step)
    optimizer:zero_grad()
    seen[#seen + 1] = left(model)
  end
  return seen
end

local model = new()
local n = #layers(model)
local seen = train(model, 8)
assert(seen[1] == 4 * n and seen[2] == 4 * n, "tinit: no rank is cut before the step after it")
for i = 2, #seen do assert(seen[i] <= seen[i - 1], "the budget never rises") end
assert(seen[7] == n and seen[8] == n, ("target_r: %d ranks are left in %d layers"):format(seen[8], n))
-- Cut ranks by the budget of the cubic schedule: n ranks at the end, of 4 n; step 3 of 1 .. 6 has (3 n) (1 - 2/5)^3 + n.
assert(seen[4] == math.floor(3 * n * 0.6 ^ 3 + n), seen[4])

-- deltaT: steps between cuts.
local slow = train(new { deltaT = 3, total_step = 12 }, 6)
assert(slow[3] == 4 * n and slow[4] < 4 * n and slow[5] == 4 * n, table.concat(slow, " "))

-- beta1, beta2: the means of the importance decide which ranks go.
local function pattern(more)
  more = more or {}
  more.init_r, more.target_r, more.total_step = 8, 4, 20
  local m = new(more)
  train(m, 20)
  return accel.json.encode(m.peft_config.default.rank_pattern)
end
local patterns = { [pattern()] = true, [pattern { beta1 = 0.1 }] = true, [pattern { beta2 = 0.1 }] = true }
local different = 0
for _ in pairs(patterns) do different = different + 1 end
assert(different == 3, "beta1 and beta2 change no rank")

-- A saved adapter has the ranks that are left, gives the same outputs, and is not cut again.
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/adalora-")
model:eval()
local want = model(ids):detach()
assert(model:save_pretrained(dir))
accel.manual_seed(3)
local again = assert(peft.PeftModel.from_pretrained(models.Llama(models.tiny.llama), dir, { is_trainable = true }))
again:eval()
local sizes = 0
for _, layer in ipairs(layers(again)) do sizes = sizes + layer.lora_E.default.shape[1] end
assert(sizes == n, sizes)
assert((again(ids) - want):abs():max():item() < 1e-5 * want:abs():max():item())
again(ids, { labels = ids }):backward()
local ok, err = pcall(again.base_model.update_and_allocate, again.base_model, 0)
assert(not ok and tostring(err):find "no cut ranks any more", err)

-- The loss has the distance of A and B from orthogonal matrices in it, in training alone.
local free, bound = new { orth_reg_weight = 0 }, new { orth_reg_weight = 2 }
free:train()
bound:train()
local sum, count = 0, 0
for _, layer in ipairs(layers(bound)) do
  for _, t in ipairs { layer.lora_A.default, layer.lora_B.default:t() } do
    sum, count = sum + (accel.matmul(t, t:t()) - accel.eye(t.shape[1])):norm():item(), count + 1
  end
end
local more = bound(ids, { labels = ids }):item() - free(ids, { labels = ids }):item()
assert(math.abs(more - 2 * sum / count) < 1e-4 * math.abs(more), more)
bound:eval()
free:eval()
assert(bound(ids, { labels = ids }):item() == free(ids, { labels = ids }):item())

ok, err = pcall(new().base_model.update_and_allocate, new().base_model, 0)
assert(not ok and tostring(err):find "no gradients", err)
ok, err = pcall(peft.AdaLoraConfig, {})
assert(not ok and tostring(err):find "total_step must be", err)
