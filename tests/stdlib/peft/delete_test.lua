-- delete_adapter, as PEFT has it: weights, configuration and files of an adapter go, the next one in order becomes active where the active one
-- goes, and the base model is left behind the last. Merging into quantised layers: the result computes in the model's dtype and can be saved.
--   accel-run tests/stdlib/peft/delete_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails
local models, nn, peft, quant = accel.models, accel.nn, accel.peft, accel.quant
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft-delete-"))
local heard = {}
warn = function(...) heard[#heard + 1] = table.concat { ... } end -- luacheck: ignore 121

local ids = accel.tensor { { 1, 2, 3, 4 } }
local SMALL <const> = { vocab_size = 16, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2, num_attention_heads = 2,
  max_position_embeddings = 32 }
local function base() accel.manual_seed(3) return models.Llama(SMALL):eval() end
local function config(kind, more)
  local o = kind == "LoraConfig" and { r = 2, init_lora_weights = false } or kind == "IA3Config" and { init_ia3_weights = false }
    or { num_virtual_tokens = 2, task_type = "CAUSAL_LM" }
  for key, value in pairs(more or {}) do o[key] = value end
  return peft[kind](o)
end
local function out(model)
  local _ <close> = accel.no_grad()
  return model(ids)
end
local function names(model, pattern)
  local found = 0
  for name in pairs(model:named_parameters()) do found = found + (name:find(pattern) and 1 or 0) end
  return found
end

for _, kind in ipairs { "LoraConfig", "IA3Config", "PromptTuningConfig" } do
  local more = kind == "LoraConfig" and { modules_to_save = { "lm_head" }, lora_dropout = 0.1 } or nil
  local plain = base()
  local want_base = out(plain)
  local model = peft.get_peft_model(plain, config(kind, more)):eval()
  local want_default = out(model)
  model:add_adapter("b", config(kind, more))
  model:add_adapter("a", config(kind, more))
  model:set_adapter "b"
  local want_b = out(model)
  assert(not accel.equal(want_b, want_default))
  says("there is no adapter 'c'", model.delete_adapter, model, "c")
  -- one that is not active: nothing else changes
  heard = {}
  model:delete_adapter "a"
  assert(#heard == 0 and model.active_adapter == "b" and accel.equal(out(model), want_b) and names(model, "%f[%w]a%f[%W]") == 0)
  -- the active one: the next in order, whose weights learn
  if kind ~= "PromptTuningConfig" then
    model:merge_adapter()
    says("merged into the model's weights; call unmerge_adapter first", model.delete_adapter, model, "b")
    model:unmerge_adapter()
  end
  model:delete_adapter "b"
  assert(model.active_adapter == "default" and heard[#heard]:find("'default' is active now", 1, true), heard[#heard])
  assert(accel.equal(out(model), want_default) and names(model, "%f[%w]b%f[%W]") == 0)
  for name, p in pairs(model:named_parameters()) do
    if name:find "lora_[AB]%.default" or name:find "ia3_l" or name:find "prompt_encoder" then assert(p.requires_grad, name) end
  end
  assert(model:save_pretrained(root .. "/" .. kind))
  for _, file in ipairs(assert(accel.listdir(root .. "/" .. kind))) do assert(file ~= "a" and file ~= "b") end
  -- the last one: what the model computed before it had adapters
  model:delete_adapter "default"
  assert(model.active_adapter == nil and accel.equal(out(model), want_base))
  assert(#model:generate({ 1, 2 }, { max_new_tokens = 2, eos_token_id = false }) == 2)
  says("the model has no adapter", model.merge_adapter, model)
  -- and the name is free again
  model:add_adapter("default", config(kind, more))
  model:set_adapter "default"
  assert(not accel.equal(out(model), want_base))
end

-- ---- merging into quantised layers ----
local WIDE <const> = { vocab_size = 64, hidden_size = 64, intermediate_size = 64, num_hidden_layers = 1, num_attention_heads = 2,
  max_position_embeddings = 16 }
accel.manual_seed(1)
assert(models.Llama(WIDE):save_pretrained(root .. "/wide"))
for _, how in ipairs { "load_in_4bit", "load_in_8bit" } do
  for dtype, bound in pairs { f32 = 2e-3, f16 = 4e-3, bf16 = 2e-2 } do
    local model = assert(models.from_pretrained(root .. "/wide", { dtype = dtype,
      quantization_config = quant.BnbQuantizationConfig { [how] = true } }))
    local adapted = peft.get_peft_model(model, peft.LoraConfig { r = 2, target_modules = { "q_proj" }, init_lora_weights = false }):eval()
    local want = out(adapted)
    local merged = adapted:merge_and_unload()
    local layer = merged.model.layers[1].self_attn.q_proj
    assert(accel.util.class.of(layer) == nn.Linear and layer.weight.dtype == dtype, layer.weight.dtype)
    assert((out(merged) - want):float():abs():max():item() < bound, how .. " " .. dtype)
    local dir = root .. "/" .. how .. dtype
    assert(merged:save_pretrained(dir))
    local again = assert(models.from_pretrained(dir)) -- quantised again, as the folder's configuration says
    assert((out(again) - want):float():abs():max():item() < 0.1)
  end
end
