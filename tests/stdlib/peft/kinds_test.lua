-- Adapters of every type on a small model: an adapter that has begun changes nothing until a step, a step lowers the loss and changes its
-- own weights alone, merging gives the same outputs and unmerging the former weights bit for bit, a folder gives bit-equal outputs, a
-- second adapter can be switched to and deleted. Also what single types promise: save_projection, use_effective_conv2d, butterfly factors,
-- prompts from other files (prompt_tuning_init_task, prompt_tuning_init_text with tokenizer_name_or_path).
--   accel-run tests/stdlib/peft/kinds_test.lua
local accel = require "accel"
local peft, models = accel.peft, accel.models
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/kinds-")

local function llama()
  accel.manual_seed(3)
  return models.Llama { vocab_size = 17, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 2, num_attention_heads = 2,
    max_position_embeddings = 32, attention_bias = true }
end
local QV <const> = { "q_proj", "v_proj" }
--- Configurations whose adapters begin at random, or change nothing where they cannot.
local KINDS <const> = {
  AdaLoraConfig = { init_r = 3, total_step = 10, target_modules = QV, init_lora_weights = false, orth_reg_weight = 0 },
  LoHaConfig = { r = 2, target_modules = QV, init_weights = false }, LoKrConfig = { r = 2, target_modules = QV, init_weights = false },
  OFTConfig = { oft_block_size = 4, target_modules = QV, init_weights = false, use_cayley_neumann = false },
  BOFTConfig = { boft_block_size = 2, boft_n_butterfly_factor = 2, target_modules = QV, init_weights = false },
  VeraConfig = { r = 3, target_modules = QV, init_weights = false }, HRAConfig = { r = 2, target_modules = QV, init_weights = false },
  FourierFTConfig = { n_frequency = 5, target_modules = QV }, WaveFTConfig = { n_frequency = 5, target_modules = QV, init_weights = false },
  VBLoRAConfig = { r = 2, num_vectors = 5, vector_length = 4, target_modules = QV, init_vector_bank_bound = 0.5 },
  RandLoraConfig = { r = 3, target_modules = { "q_proj", "gate_proj", "down_proj" }, init_weights = false },
  ShiraConfig = { r = 1, target_modules = QV, init_weights = false }, MissConfig = { r = 3, target_modules = QV, init_weights = false },
  C3AConfig = { block_size = 4, target_modules = QV }, RoadConfig = { group_size = 4, target_modules = QV, init_weights = false },
  DeloraConfig = { r = 2, target_modules = QV, init_weights = false },
  GraloraConfig = { r = 4, hybrid_r = 1, target_modules = QV, init_weights = false },
  HiraConfig = { r = 2, target_modules = QV, init_weights = false }, LNTuningConfig = {},
  TrainableTokensConfig = { token_indices = { 1, 4 } }, AdaptionPromptConfig = { adapter_len = 2, adapter_layers = 1 },
  PrefixTuningConfig = { num_virtual_tokens = 2 }, PromptEncoderConfig = { num_virtual_tokens = 2, encoder_hidden_size = 6 },
  MultitaskPromptTuningConfig = { num_virtual_tokens = 2, num_tasks = 3 }, PromptTuningConfig = { num_virtual_tokens = 2 },
  LoraConfig = { r = 2, target_modules = QV, init_lora_weights = false, trainable_token_indices = { 2 } }, IA3Config = { init_ia3_weights = false },
}
local NO_MERGE <const> = { AdaptionPromptConfig = true, PrefixTuningConfig = true, PromptEncoderConfig = true, PromptTuningConfig = true,
  MultitaskPromptTuningConfig = true }
local ids = accel.tensor({ { 1, 2, 3, 4 }, { 4, 5, 6, 1 } }, { dtype = "i64" })
local tasks = accel.tensor({ 0, 2 }, { dtype = "i64" })

local function distance(a, b) return (a - b):abs():max():item() end
local function outputs(name, model)
  local _ <close> = accel.no_grad()
  return model(ids, name == "MultitaskPromptTuningConfig" and { task_ids = tasks } or nil):detach()
end

local function of(name) return peft[name](KINDS[name]) end
for name in accel.pairs(KINDS) do
  local base = llama()
  local plain, before = base(ids):detach(), {}
  for key, t in pairs(base:state_dict()) do before[key] = t:clone() end
  local model = peft.get_peft_model(base, of(name))
  model:eval()
  local own = peft.get_peft_model_state_dict(model)
  assert(next(own), name)

  -- One step: only the adapter learns, and the loss falls.
  local function loss() return model(ids, { labels = ids, task_ids = name == "MultitaskPromptTuningConfig" and tasks or nil }) end
  local first = loss()
  first:backward()
  local learn, square = 0, 0
  for key, p in pairs(model:named_parameters()) do
    assert(p.requires_grad == (p.grad ~= nil), ("%s: %s"):format(name, key))
    learn = learn + (p.grad and 1 or 0)
    square = square + (p.grad and (p.grad * p.grad):sum():item() or 0)
  end
  assert(learn > 0, name)
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 2e-3 / square }) -- by 2e-3 if the loss were a plane
  optimizer:step()
  optimizer:zero_grad()
  assert(loss():item() < first:item(), ("%s: a step raises the loss from %g to %g"):format(name, first:item(), loss():item()))
  local want = outputs(name, model)

  -- A folder gives bit-equal outputs, also under other names of adapters.
  assert(model:save_pretrained(dir .. "/" .. name))
  local again = assert(peft.PeftModel.from_pretrained(llama(), dir .. "/" .. name, { adapter_name = "other" }))
  assert(distance(outputs(name, again), want) == 0, ("%s: %g after loading"):format(name, distance(outputs(name, again), want)))
  for key, p in pairs(again:named_parameters()) do assert(not p.requires_grad, ("%s: %s learns"):format(name, key)) end
  again:set_adapter "other"
  for key in pairs(peft.get_peft_model_state_dict(again, "other")) do
    assert(peft.get_peft_model_state_dict(model)[key], ("%s: %s"):format(name, key))
  end

  -- Off, merged, unmerged.
  model:disable_adapter(function() assert(distance(base(ids), plain) == 0, name .. ": off") end)
  if NO_MERGE[name] then
    assert(not pcall(model.merge_adapter, model), name)
  else
    model:merge_adapter()
    local d = distance(outputs(name, model), want)
    assert(d < 2e-5, ("%s: %g when merged"):format(name, d))
    model:unmerge_adapter()
    assert(distance(outputs(name, model), want) == 0, name .. ": unmerged")
  end

  -- A second adapter, and none at last: the base is bit for bit what it was.
  model:add_adapter("second", of(name))
  model:set_adapter "second"
  for key, p in pairs(model:named_parameters()) do
    if p.requires_grad then assert(not key:find "%.default", ("%s: %s learns while another is active"):format(name, key)) end
  end
  model:set_adapter "default"
  assert(distance(outputs(name, model), want) == 0, name .. ": switched back")
  model:delete_adapter "second"
  if not peft[name].prompt then
    local bare = model:unload()
    assert(distance(bare(ids), plain) == 0, name .. ": unloaded")
    for key, t in pairs(bare:state_dict()) do assert(before[key] and distance(before[key], t) == 0, ("%s: %s after unload"):format(name, key)) end
  end
end

-- What nothing learned so far leaves as it is: configurations with their defaults.
for _, name in ipairs { "LoHaConfig", "LoKrConfig", "OFTConfig", "BOFTConfig", "VeraConfig", "HRAConfig", "RandLoraConfig", "ShiraConfig",
  "MissConfig", "RoadConfig", "DeloraConfig", "GraloraConfig", "HiraConfig", "WaveFTConfig", "AdaLoraConfig", "LNTuningConfig",
  "AdaptionPromptConfig", "TrainableTokensConfig" } do
  local config = {}
  for key, value in pairs(KINDS[name]) do config[key] = value end
  config.init_weights, config.init_lora_weights = nil, nil
  local base = llama()
  local plain = base(ids):detach()
  local d = distance(peft.get_peft_model(base, peft[name](config)):eval()(ids), plain)
  assert(d < 1e-6, ("%s begins %g away from its base"):format(name, d))
end

-- BOFT: factors of a butterfly stay orthogonal and mix what one factor does not.
do
  local function rotation(factors)
    accel.manual_seed(1)
    local m = peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(8, 8, { bias = false })), peft.BOFTConfig { target_modules = { "0" },
      boft_block_size = 2, boft_n_butterfly_factor = factors, init_weights = false })
    local layer = m.base_model.model[1]
    return layer.places.default.config:_input(layer:values "default", layer.places.default, accel.eye(8)):detach()
  end
  for factors, width in ipairs { 2, 4, 8 } do
    local r = rotation(factors)
    assert(distance(r:matmul(r:t()), accel.eye(8)) < 1e-5)
    assert(r:ne(0):to("i64"):sum(2):max():item() == width, factors) -- inputs that one output sees double with each factor
  end
end

-- VeRA without its projection in the file (save_projection = false) draws it again.
do
  local function new() return peft.get_peft_model(llama(), peft.VeraConfig { r = 3, target_modules = QV, save_projection = false,
    projection_prng_key = 7, init_weights = false }) end
  local model = new()
  model:save_pretrained(dir .. "/vera")
  assert(not peft.get_peft_model_state_dict(model)["base_model.vera_A"])
  local again = assert(peft.PeftModel.from_pretrained(llama(), dir .. "/vera"))
  assert(distance(again(ids), model:eval()(ids)) == 0)
end

-- use_effective_conv2d: factors with a kernel, on convolutions of one and two dimensions.
for _, name in ipairs { "LoHaConfig", "LoKrConfig" } do
  for conv, x in pairs { Conv1d = accel.randn(2, 4, 7), Conv2d = accel.randn(2, 4, 7, 7) } do
    local function new(whole)
      accel.manual_seed(2)
      return peft.get_peft_model(accel.nn.Sequential(accel.nn[conv](4, 6, 3)), peft[name] { r = 1, target_modules = { "0" },
        init_weights = false, use_effective_conv2d = whole, rank_dropout = 0 }):eval()
    end
    local model = new(true)
    local count = model:get_nb_trainable_parameters()
    assert(count ~= new(false):get_nb_trainable_parameters(), name)
    local want = model(x):detach()
    model:merge_adapter()
    assert(distance(model(x), want) < 1e-5, name)
  end
end

-- Several prompts from another adapter's file: the mean of its tasks, one of them, the shared part alone.
do
  local file = dir .. "/MultitaskPromptTuningConfig/adapter_model.safetensors"
  local other = assert(accel.load(file))
  local function rows(init, task)
    local m = peft.get_peft_model(llama(), peft.MultitaskPromptTuningConfig { num_virtual_tokens = 2, prompt_tuning_init = init,
      prompt_tuning_init_state_dict_path = file, prompt_tuning_init_task = task })
    local state = peft.get_peft_model_state_dict(m)
    assert(distance(state.prompt_embeddings, other.prompt_embeddings) == 0)
    return state.prefix_task_rows
  end
  assert(distance(rows("EXACT_SOURCE_TASK", 2), other.prefix_task_rows:narrow(1, 3, 1)) == 0)
  assert(distance(rows "AVERAGE_SOURCE_TASKS", other.prefix_task_rows:mean(1, true)) < 1e-7)
  assert(distance(rows "ONLY_SOURCE_SHARED", other.prefix_task_rows:narrow(1, 1, 1)) > 0)
  local ok, err = pcall(peft.get_peft_model, llama(), peft.MultitaskPromptTuningConfig { num_virtual_tokens = 2, prompt_tuning_init = "TEXT",
    prompt_tuning_init_text = "a b", tokenizer_name_or_path = dir .. "/none" })
  assert(not ok and tostring(err):find "none/tokenizer.json", err)
end

-- get_state_dict with adapter_only gives what save_pretrained writes, also computed prompts and parameters with two names.
do
  local accelerator = accel.Accelerator { cpu = true }
  for _, name in ipairs { "PromptEncoderConfig", "RandLoraConfig", "TrainableTokensConfig", "VeraConfig", "AdaLoraConfig" } do
    local model = accelerator:prepare(peft.get_peft_model(llama(), of(name)))
    local state, want = accelerator:get_state_dict(model, { adapter_only = true }), peft.get_peft_model_state_dict(accelerator:unwrap_model(model))
    for key, t in pairs(want) do assert(state[key] and distance(state[key], t) == 0, ("%s: %s"):format(name, key)) end
    for key in pairs(state) do assert(want[key], ("%s: %s"):format(name, key)) end
  end
end

-- Generation continues from a tuned prefix, with and without a cache.
do
  local model = assert(peft.PeftModel.from_pretrained(llama(), dir .. "/PrefixTuningConfig"))
  local a = model:generate(ids, { max_new_tokens = 5, do_sample = false })
  local b = model:generate(ids, { max_new_tokens = 5, do_sample = false, use_cache = false })
  assert(accel.json.encode(a) == accel.json.encode(b) or distance(a:to "f32", b:to "f32") == 0)
end

-- Errors name the layer and what to do.
local function fails(text, name, config)
  config.target_modules = config.target_modules or QV
  local ok, err = pcall(function() return peft.get_peft_model(llama(), peft[name](config)) end)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end
fails("block_size = 3 does not divide its widths 8 and 8", "C3AConfig", { block_size = 3 })
fails("vector_length = 3 does not divide", "VBLoRAConfig", { vector_length = 3 })
fails("more than the 64 of its weight", "ShiraConfig", { r = 9 })
fails("adapter_layers = 5, but the model has 2 layers", "AdaptionPromptConfig", { adapter_len = 2, adapter_layers = 5, target_modules = "self_attn" })
fails("bias must be 'none', 'all' or 'hra_only'", "HRAConfig", { bias = "some" })
fails("draws at random", "LoraConfig", { init_lora_weights = "pissa_niter_4" })
fails("alpha_pattern['q_proj'] must be a positive number, got 'x'", "LoHaConfig", { alpha_pattern = { q_proj = "x" } })
fails("rank_pattern['q_proj'] must be a positive number, got 0", "LoraConfig", { rank_pattern = { q_proj = 0 } })
fails("exclude_modules must be a string or a list of strings, got 5", "LoraConfig", { exclude_modules = 5 })
fails("layers_to_transform must be a number of a block", "LoraConfig", { layers_to_transform = "a" })
fails("each range of layer_replication must be {first, last + 1}", "LoraConfig", { layer_replication = { 0, 1 } })
local nested = peft.get_peft_model(llama(), peft.LoraConfig {})
local ok, why = pcall(peft.get_peft_model, nested, peft.LoraConfig {})
assert(not ok and tostring(why):find("the model has adapters already", 1, true))
ok, why = pcall(nested.save_pretrained, nested, dir .. "/none", { selected_adapters = { "other" } })
assert(not ok and tostring(why):find("there is no adapter 'other'; there are 'default'", 1, true))
