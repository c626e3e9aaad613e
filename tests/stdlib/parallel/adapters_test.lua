-- Adapters of layers that tensor parallelism cuts, made before prepare and after it, train to the numbers of one rank: losses, clipped
-- norms, whole states, saved and loaded states, and what merging leaves. What cannot be cut says so.
--   accel-run tests/stdlib/parallel/adapters_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local peft = accel.peft

local configs = {
  lora = function()
    return peft.LoraConfig { r = 2, target_modules = { "c_attn", "c_proj", "c_fc", "lm_head" }, init_lora_weights = false }
  end,
  norm = function()
    return peft.LoraConfig { r = 2, target_modules = { "c_attn" }, modules_to_save = { "ln_f" }, init_lora_weights = false }
  end,
  ia3 = function()
    return peft.IA3Config { target_modules = { "c_attn", "mlp.c_proj", "c_fc" }, feedforward_modules = { "mlp.c_proj" },
      init_ia3_weights = false }
  end,
}
local refused = {
  dora = function() return peft.LoraConfig { r = 2, target_modules = { "c_attn" }, use_dora = true } end,
  saved = function() return peft.LoraConfig { r = 2, target_modules = { "c_attn" }, modules_to_save = { "lm_head" } } end,
}

local function learning(model)
  local list = {}
  for _, p in ipairs(model:parameters()) do list[#list + 1] = p.requires_grad and p or nil end
  return list
end

local function train(make, late)
  accel.AcceleratorState._reset_state(true)
  local A = accel.accelerator
  local acc = accel.Accelerator(ranks.size > 1 and { parallelism_config = A.ParallelismConfig { tp_size = 2 } } or {})
  accel.manual_seed(1)
  local config = {}
  for key, value in accel.pairs(accel.models.tiny.gpt2) do config[key] = value end
  for _, key in ipairs { "attn_pdrop", "embd_pdrop", "resid_pdrop" } do config[key] = 0 end
  local base = accel.models.GPT2LMHeadModel(config):double()
  local given = late and base or peft.get_peft_model(base, make())
  local model, optimizer = acc:prepare(given, accel.optim.AdamW(learning(given), { lr = 0.01 }))
  local wrapped, numbers = given, {}
  for step = 1, 4 do
    if late and step == 2 then
      wrapped = peft.get_peft_model(base, make())
      optimizer:add_param_group { params = learning(wrapped) }
    end
    local ids = accel.randint(0, config.vocab_size, { 4, 8 }, { generator = accel.Generator(step) })
    local loss = model(ids, { labels = ids })
    acc:backward(loss)
    numbers[#numbers + 1] = acc:clip_grad_norm_(learning(wrapped), 0.5):item()
    optimizer:step()
    optimizer:zero_grad()
    numbers[#numbers + 1] = loss:item()
  end
  local sum = 0
  for _, t in accel.pairs(acc:get_state_dict(model)) do sum = sum + (t:double() * (t:double() + 2)):sum():item() end
  if acc.is_main_process then numbers[#numbers + 1] = sum end
  local ids = accel.tensor { { 1, 2, 3, 4 } }
  local before = model(ids):detach()
  local dir = { accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/adapters-") }
  if ranks.size > 1 then accel.dist.broadcast_object_list(dir, 0) end
  acc:save_state(dir[1])
  acc:load_state(dir[1])
  assert((model(ids) - before):abs():max():item() == 0)
  local merged = (wrapped:merge_and_unload()(ids) - before):abs():max():item()
  assert(merged < 1e-10, merged)
  return numbers
end

local take = ranks.sample.one_of(2) -- with each configuration before or after prepare
if not ranks.launched then
  local said = ranks.run(2, { capture = true })
  for name, make in accel.pairs(configs) do
    for _, late in ipairs { false, true } do
      local taken = take()
      local numbers, at = taken and train(make, late) or {}, 0
      for value in (said:match(("%s %s:([^\n]*)"):format(name, late)) or ""):gmatch "%S+" do
        at = at + 1
        assert(math.abs(tonumber(value) - numbers[at]) <= 1e-6 * (1 + math.abs(numbers[at])),
          ("%s, %s: number %d is %s on two ranks, %.9g on one"):format(name, late and "later" or "before", at, value, numbers[at]))
      end
      assert(at == #numbers and at == (taken and 9 or 0), name)
    end
  end
  return
end

for name, make in accel.pairs(configs) do
  for _, late in ipairs { false, true } do
    local numbers = take() and train(make, late) or {}
    for i, x in ipairs(numbers) do numbers[i] = ("%.12g"):format(x) end
    if ranks.rank == 0 and #numbers > 0 then print(("%s %s: %s"):format(name, late, table.concat(numbers, " "))) end
  end
end
for name, make in accel.pairs(refused) do
  local ok, message = pcall(train, make, false)
  assert(not ok and tostring(message):find "parallelize_module", name .. ": " .. tostring(message))
end
