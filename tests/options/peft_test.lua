-- Options of accel.peft: each one changes which parameters learn, what the model computes or what is written; warns; or raises
-- (support/option_sweep.lua).
--   accel-run tests/options/peft_test.lua [NAME]
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "peft"
s:sampled(4)
local peft, models = accel.peft, accel.models

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft-")
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end

local function base_model()
  accel.manual_seed(3)
  return models.Llama { vocab_size = 16, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2, num_attention_heads = 2,
    max_position_embeddings = 32, attention_bias = true }
end
local plain = base_model():state_dict()
local ids = accel.tensor({ { 1, 2, 3, 4 } }, { dtype = "i64" })

--- Which parameters learn, what the model computes in training and evaluation, and one step of it.
local function learned(model)
  local seen = {}
  model:train()
  accel.manual_seed(5)
  local tasks = model.peft_config[model.active_adapter].peft_type == "MULTITASK_PROMPT_TUNING"
    and accel.tensor({ 1 }, { dtype = "i64" }) or nil
  local loss = model(ids, { labels = ids, task_ids = tasks })
  if type(loss) == "table" then loss = loss.loss or loss[1] end
  if loss.requires_grad then loss:backward() end
  for name, p in pairs(model:named_parameters()) do
    if not (name:find "^base_model%.model%." and plain[name:gsub("^base_model%.model%.", ""):gsub("%.base_layer", "")]) or p.requires_grad then
      seen[#seen + 1] = { name, p.shape, p.requires_grad, p:detach(), p.grad and p.grad:detach() }
    end
  end
  model:eval()
  local _ <close> = accel.no_grad()
  local out = model(ids, tasks and { task_ids = tasks } or nil)
  return seen, loss:detach(), accel.is_tensor(out) and out or out.logits
end
local function files(dir)
  local list = accel.listdir(dir)
  if list then table.sort(list) end
  return list
end

local WRITTEN <const> = { base_model_name_or_path = true, task_type = true, inference_mode = true, num_layers = true, token_dim = true,
  num_attention_heads = true, num_transformer_submodules = true } -- what the file is for: others must do more than stand in it
local function adapted(call, given)
  local config = call()
  local model = peft.get_peft_model(base_model(), config)
  local dir = folder()
  model:save_pretrained(dir)
  local f = assert(io.open(dir .. "/adapter_config.json"))
  local text = f:read "a"
  f:close()
  local shown = {}
  for key in pairs(WRITTEN) do shown[key] = given[key] ~= nil and text:match('"' .. key .. '":[^\n]*') or nil end
  return { learned(model) }, shown
end
local SHARED <const> = { base_model_name_or_path = { "other" }, inference_mode = { true }, task_type = { "CAUSAL_LM" },
  modules_to_save = { { "lm_head" } }, exclude_modules = { { "q_proj" } }, target_modules = { { "k_proj" }, "all-linear" } }
local function with(more)
  local all = {}
  for key, value in pairs(SHARED) do all[key] = value end
  for key, value in pairs(more) do all[key] = value end
  return all
end
s:recipe("accel.peft.LoraConfig", {
  base = function() return { r = 2, target_modules = { "q_proj", "v_proj" }, init_lora_weights = false } end,
  run = adapted,
  values = with { r = { 3 }, lora_alpha = { 4 }, lora_dropout = { 0.5 }, bias = { "all", "lora_only" }, use_rslora = { true }, use_dora = { true },
    fan_in_fan_out = { true }, init_lora_weights = { true, "gaussian" }, rank_pattern = { { q_proj = 3 } }, alpha_pattern = { { q_proj = 3 } },
    lora_bias = { true }, layers_to_transform = { 1, { 0 } }, layers_pattern = { "blocks" }, trainable_token_indices = { { 1, 2 } },
    target_parameters = { { "experts.down_proj" } }, layer_replication = { { { 0, 2 }, { 1, 2 } } } },
  with = { layers_pattern = { layers_to_transform = 1 } }, raises = { layers_pattern = "no layer", target_parameters = "no experts" },
})
s:recipe("accel.peft.IA3Config", {
  base = function()
    return { target_modules = { "q_proj", "v_proj", "down_proj" }, feedforward_modules = { "down_proj" }, init_ia3_weights = false }
  end,
  run = adapted,
  values = with { feedforward_modules = { { "v_proj" } }, fan_in_fan_out = { true }, init_ia3_weights = { true } },
  raises = { target_modules = "feedforward_modules" },
})
s:recipe("accel.peft.PromptTuningConfig", {
  base = function() return { num_virtual_tokens = 2, task_type = "CAUSAL_LM" } end,
  run = adapted,
  values = with { num_virtual_tokens = { 3 }, prompt_tuning_init = { "SAMPLE_VOCAB" }, token_dim = { 4 }, num_layers = { 1 },
    num_attention_heads = { 4 }, num_transformer_submodules = { 2 }, prompt_tuning_init_text = { "a b" }, tokenizer_name_or_path = { "/none" } },
  raises = { token_dim = "token_dim" },
  elsewhere = { task_type = "tests/stdlib/peft/prompt_encoder_test.lua" },
})

require("peft_recipes").add(s, peft, adapted, SHARED)

-- ---- the model with its adapters ----
local function two()
  accel.manual_seed(7)
  local model = peft.get_peft_model(base_model(), peft.LoraConfig { r = 2, init_lora_weights = false })
  model:add_adapter("other", peft.LoraConfig { r = 2, init_lora_weights = false })
  return model
end
local function lora_of(model, kind)
  for _, m in ipairs(model:modules()) do
    if accel.util.class.isinstance(m, kind or peft.LoraLinear) then return m end
  end
end
local function with_embeddings()
  accel.manual_seed(7)
  local c = { r = 2, init_lora_weights = false, target_modules = { "embed_tokens" } }
  local model = peft.get_peft_model(base_model(), peft.LoraConfig(c))
  model:add_adapter("other", peft.LoraConfig(c))
  return lora_of(model, peft.LoraEmbedding)
end
local saved = folder()
two():save_pretrained(saved)
s:recipe("accel.peft.get_peft_model", {
  base = function() return { model = base_model(), peft_config = peft.LoraConfig { r = 2 } } end,
  run = function(call)
    local model = call()
    return model.active_adapter, learned(model)
  end,
  values = { adapter_name = { "other" } },
})
s:recipe({ "accel.peft.PeftModel:from_pretrained" }, {
  base = function() return { model = base_model(), dir = saved } end,
  run = function(call)
    local model = call()
    return model.active_adapter, learned(model)
  end,
  values = { adapter_name = { "third" }, is_trainable = { true } },
})
s:recipe("accel.peft.PeftModel:load_adapter", {
  base = function() return { dir = saved, adapter_name = "third" } end,
  run = function(call)
    local model = two()
    call(model)
    local names = { model.training }
    for name, p in pairs(model:named_parameters()) do names[#names + 1] = { name, p.requires_grad } end
    return names
  end,
  values = { adapter_name = { "fourth" }, is_trainable = { true } },
})
s:recipe("accel.peft.PeftModel:save_pretrained", {
  base = function() return { dir = folder() } end,
  run = function(call, given)
    call(two())
    local found = {}
    for _, file in ipairs(files(given.dir)) do
      local reader <close> = accel.open_safetensors(given.dir .. "/" .. file)
      found[#found + 1] = { file, files(given.dir .. "/" .. file), reader and reader:get(reader:keys()[1]) }
    end
    return found
  end,
  values = { selected_adapters = { { "other" } }, safe_serialization = { false },
    state_dict = function()
      local state = {}
      for name, t in pairs(two():state_dict()) do state[name] = t + 1 end
      return { state }
    end },
})
s:recipe("accel.peft.PeftModel:add_weighted_adapter", {
  base = function() return { adapters = { "default", "other" }, weights = { 1.0, 1.0 }, adapter_name = "sum" } end,
  run = function(call, given)
    local model = two():eval()
    call(model)
    model:set_adapter(given.adapter_name)
    return given.adapter_name, model.peft_config[given.adapter_name].r, model(ids)
  end,
  values = { adapters = { { "other", "default" } }, weights = { { 1.0, 2.0 } }, adapter_name = { "more" }, combination_type = { "cat" },
    svd_rank = { 1 }, majority_sign_method = { "frequency" } },
  with = { majority_sign_method = { combination_type = "ties", density = 1 } },
  elsewhere = { density = "tests/stdlib/peft/weighted_test.lua" },
})
s:recipe("accel.peft.PeftModel:disable_adapter", {
  run = function(call)
    local model = two():eval()
    local made = call(model)
    if type(made) == "string" then return made end
    local _ <close> = made
    return model(ids)
  end,
  values = { fn = { function() return "called" end } },
})
s:recipe("accel.peft.get_peft_model_state_dict", {
  base = function() return { model = two() } end,
  values = { adapter_name = { "other" }, state_dict = function()
    local state = {}
    for name, t in pairs(two():state_dict()) do state[name] = t + 1 end
    return { state }
  end },
})
s:recipe("accel.peft.set_peft_model_state_dict", {
  base = function()
    local state = peft.get_peft_model_state_dict(two())
    for name, t in pairs(state) do state[name] = t + 1 end
    return { model = two(), state = state }
  end,
  run = function(call, given)
    call()
    return given.model:state_dict()
  end,
  values = { adapter_name = { "other" } },
})
s:recipe({ "accel.peft.LoraLinear:get_delta_weight" }, {
  run = function(call) return call(lora_of(two())) end, values = { name = { "other" } },
})
s:recipe({ "accel.peft.LoraLinear:merge" }, {
  run = function(call)
    local layer = lora_of(two())
    call(layer)
    return layer:state_dict()
  end,
  values = { name = { "other" } },
})
local function with_convolutions()
  accel.manual_seed(7)
  local c = { r = 2, init_lora_weights = false, target_modules = { "0" } }
  local model = peft.get_peft_model(accel.nn.Sequential(accel.nn.Conv2d(2, 3, 2)), peft.LoraConfig(c))
  model:add_adapter("other", peft.LoraConfig(c))
  return lora_of(model, peft.LoraConv)
end
local function with_weights()
  accel.manual_seed(7)
  local c = { r = 2, init_weights = false, target_modules = { "0" } }
  local model = peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), peft.LoHaConfig(c))
  model:add_adapter("other", peft.LoHaConfig(c))
  return lora_of(model, peft.WeightLayer)
end
for name, make in pairs { LoraConv = with_convolutions, WeightLayer = with_weights } do
  s:recipe({ "accel.peft." .. name .. ":get_delta_weight" }, { run = function(call) return call(make()) end, values = { name = { "other" } } })
  s:recipe({ "accel.peft." .. name .. ":merge" }, {
    run = function(call)
      local layer = make()
      call(layer)
      return layer:state_dict()
    end,
    values = { name = { "other" } },
  })
end
s:recipe({ "accel.peft.LoraEmbedding:get_delta_weight" }, {
  run = function(call) return call(with_embeddings()) end, values = { name = { "other" } },
})
s:recipe({ "accel.peft.LoraEmbedding:merge" }, {
  run = function(call)
    local layer = with_embeddings()
    call(layer)
    return layer:state_dict()
  end,
  values = { name = { "other" } },
})
s:recipe({ "accel.peft.IA3Linear:merge" }, {
  run = function(call)
    accel.manual_seed(7)
    local model = peft.get_peft_model(base_model(), peft.IA3Config { init_ia3_weights = false })
    model:add_adapter("other", peft.IA3Config { init_ia3_weights = false })
    local layer
    for _, m in ipairs(model:modules()) do
      if accel.util.class.isinstance(m, peft.IA3Linear) then layer = layer or m end
    end
    call(layer)
    return layer:state_dict()
  end,
  values = { name = { "other" } },
})
s:recipe("accel.peft.prepare_model_for_kbit_training", {
  base = function() return { model = base_model() } end,
  run = function(call)
    local model = call()
    local names = {}
    for name, p in pairs(model:named_parameters()) do names[#names + 1] = { name, p.requires_grad, p.dtype } end
    return names, model:is_gradient_checkpointing()
  end,
})

s:finish()
