-- A tied weight is one weight under all its names: adapters on a tied head change nothing but the head, merged, taken out again, unloaded,
-- saved and loaded; a layer with two names has one adapter. An adapter that is not the active one is frozen and has no effect, as in PEFT.
--   accel-run tests/stdlib/peft/tied_test.lua
local accel = require "accel"
local nn, peft = accel.nn, accel.peft

local ids = accel.tensor { { 3, 4, 5, 6, 7, 8 } }

local function far(a, b) return (a:double() - b:double()):abs():max():item() end

local function logits(model)
  local _ <close> = accel.no_grad()
  local y = model(ids)
  return type(y) == "table" and y.logits or y
end

local function learns(model)
  local names = {}
  for name, p in pairs(model:named_parameters()) do names[#names + 1] = p.requires_grad and name or nil end
  return table.concat(names, " ")
end

-- ---- a tied head ----

local kinds = {
  lora = function() return peft.LoraConfig { target_modules = { "lm_head" }, r = 4, lora_alpha = 6, init_lora_weights = false } end,
  dora = function()
    return peft.LoraConfig { target_modules = { "lm_head", "c_fc" }, r = 4, use_dora = true, init_lora_weights = false }
  end,
  ia3 = function()
    return peft.IA3Config { target_modules = { "lm_head" }, feedforward_modules = {}, init_ia3_weights = false }
  end,
  saved = function()
    return peft.LoraConfig { target_modules = { "c_fc" }, modules_to_save = { "lm_head" }, init_lora_weights = false }
  end,
}

for kind, config in accel.pairs(kinds) do
  accel.manual_seed(3)
  local model = accel.models.GPT2LMHeadModel(accel.models.tiny.gpt2):eval()
  local before, wte = logits(model), model.transformer.wte.weight
  local values = wte:detach():clone()
  local wrapped = peft.get_peft_model(model, config()):eval()
  if kind == "saved" then
    local _ <close> = accel.no_grad()
    wrapped:get_base_model().lm_head.modules_to_save.default.weight:mul_(1.5)
  end
  local with = logits(wrapped)
  assert(far(with, before) > 1e-3, kind)
  wrapped:merge_adapter()
  assert(far(logits(wrapped), with) < 1e-5 and far(wte, values) == 0, kind)
  wrapped:unmerge_adapter()
  assert(far(logits(wrapped), with) == 0, kind)
  if kind ~= "saved" then assert(wrapped:get_base_model().lm_head.base_layer.weight == wte, kind) end
  local merged = wrapped:merge_and_unload()
  assert(far(logits(merged), with) < 1e-5 and far(merged.transformer.wte.weight, values) == 0, kind)
  assert(not merged:is_tied() and merged.config.tie_word_embeddings == false, kind)
  local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/tied-"))
  assert(merged:save_pretrained(dir))
  local again = assert(accel.models.from_pretrained(dir)):eval()
  assert(far(logits(again), with) < 1e-5, kind)
end

do -- one of two tied pairs is untied, and the other one is saved as it is
  accel.manual_seed(5)
  local model = accel.models.BertForMaskedLM(accel.models.tiny.bert):eval()
  do
    local _ <close> = accel.no_grad()
    model.cls.predictions.bias:uniform_(-1, 1)
  end
  local wrapped = peft.get_peft_model(model, peft.LoraConfig { target_modules = { "decoder" }, init_lora_weights = false }):eval()
  local with = logits(wrapped)
  local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/tied-"))
  assert(wrapped:merge_and_unload():save_pretrained(dir))
  assert(far(logits(assert(accel.models.from_pretrained(dir)):eval()), with) < 1e-5)
end

do -- taken out: tied again, and saved as tied
  local model = accel.models.GPT2LMHeadModel(accel.models.tiny.gpt2):eval()
  local before = logits(model)
  local wrapped = peft.get_peft_model(model, kinds.lora())
  wrapped:merge_adapter()
  local plain = wrapped:unload()
  assert(plain:is_tied() and plain.config.tie_word_embeddings and far(logits(plain:eval()), before) == 0)
end

do -- a weight that was converted while it was merged
  local model = nn.Sequential(nn.Linear(3, 3))
  local wrapped = peft.get_peft_model(model, peft.LoraConfig { target_modules = { "0" }, init_lora_weights = false })
  local weight = wrapped:get_base_model()[1].base_layer.weight:detach():clone()
  wrapped:merge_adapter()
  wrapped:to "f64"
  wrapped:unmerge_adapter()
  local now = wrapped:get_base_model()[1].base_layer.weight
  assert(now.dtype == "f64" and far(now, weight) == 0)
end

-- ---- one layer under two names ----

local Twice = nn.Module:extend "Twice"
function Twice:init()
  self.a = nn.Linear(3, 3)
  self.b = self.a
end
function Twice:forward(x) return self.b(self.a(x):tanh()) end

for _, saved in ipairs { false, true } do
  accel.manual_seed(4)
  local x = accel.randn(2, 3)
  local config = saved and { target_modules = { "c" }, modules_to_save = { "a", "b" } } or { target_modules = { "a", "b" } }
  config.init_lora_weights = false
  local model = Twice()
  model.c = nn.Linear(3, 3)
  local wrapped = peft.get_peft_model(model, peft.LoraConfig(config))
  local base = wrapped:get_base_model()
  assert(base.a == base.b)
  local with = wrapped(x)
  local merged = wrapped:merge_and_unload()
  assert(merged.a == merged.b and far(merged(x), with) < 1e-6)
end

-- ---- adapters that are not active ----

local net = peft.get_peft_model(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)),
  peft.LoraConfig { r = 2, target_modules = { "0" }, init_lora_weights = false })
local x = accel.ones(1, 3)
local with = net(x)
local first = "base_model.model.0.lora_A.default.weight base_model.model.0.lora_B.default.weight"
assert(learns(net) == first)
net:add_adapter("second", peft.LoraConfig { r = 2, target_modules = { "0", "1" }, init_lora_weights = false, modules_to_save = { "1" } })
assert(learns(net) == first, learns(net))
assert(far(net(x), with) == 0) -- layers that the second one alone has are as they were
net:set_adapter "second"
assert(not learns(net):find "default" and learns(net):find "0.lora_A.second" and learns(net):find "modules_to_save.second", learns(net))
net:set_adapter "default"
assert(learns(net) == first and far(net(x), with) == 0)
