--- Adapters: training over frozen and quantised weights, several of them, merging, saves through the Accelerator, what is refused.
local accel = require "accel"
local nn, peft = accel.nn, accel.peft

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local GPT <const> = { vocab_size = 65, n_positions = 32, n_embd = 64, n_layer = 2, n_head = 4 }
accel.manual_seed(4)
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft-")
local folder = dir .. "/gpt"
assert(accel.models.GPT2LMHeadModel(GPT):save_pretrained(folder))
local ids = accel.randint(0, 65, { 4, 16 })

local function loss_of(model) return model(ids, { labels = ids }) end

-- every kind learns, over whole and quantised weights, and changes nothing but what is its own
local kinds = {
  lora = function() return peft.LoraConfig { r = 4, lora_alpha = 16, lora_dropout = 0.05 } end,
  all = function() return peft.LoraConfig { r = 2, target_modules = "all-linear", use_rslora = true, init_lora_weights = "gaussian" } end,
  dora = function() return peft.LoraConfig { r = 4, lora_alpha = 8, lora_dropout = 0.1, use_dora = true } end,
  ia3 = function() return peft.IA3Config {} end,
  prompt = function() return peft.PromptTuningConfig { num_virtual_tokens = 4, prompt_tuning_init = "SAMPLE_VOCAB" } end,
}
for _, base in ipairs { "plain", "nf4", "int8" } do
  for kind, make in accel.pairs(kinds) do
    local quantization = base ~= "plain" and accel.BnbQuantizationConfig {
      load_in_4bit = base == "nf4", load_in_8bit = base == "int8", bnb_4bit_quant_type = "nf4", bnb_4bit_compute_dtype = "fp32",
      torch_dtype = "fp32",
    } or nil
    local model = accel.models.from_pretrained(folder, { quantization_config = quantization })
    if quantization then model = peft.prepare_model_for_kbit_training(model, { use_gradient_checkpointing = false }) end
    local before = {}
    for name, t in pairs(model:named_parameters()) do before[name] = t:detach():clone() end
    local p = peft.get_peft_model(model, make())
    accel.manual_seed(8)
    local list = {}
    for _, t in ipairs(p:parameters()) do list[#list + 1] = t.requires_grad and t or nil end
    local optimizer = accel.optim.AdamW8bit(list, { lr = kind == "prompt" and 0.1 or 0.02, weight_decay = 0 })
    p:eval()
    local first = loss_of(p):item()
    p:train()
    for _ = 1, 25 do
      local loss = loss_of(p)
      loss:backward()
      optimizer:step()
      optimizer:zero_grad()
    end
    p:eval()
    local last = loss_of(p):item()
    assert(last < first - 0.02, ("%s %s: %g -> %g"):format(base, kind, first, last))
    for name, t in pairs(p:get_base_model():named_parameters()) do
      local own = before[(name:gsub("%.base_layer", ""))]
      if own then assert(t:detach():to_bytes() == own:to_bytes(), name .. " changed") end
    end
    -- saved and read again, over the same base
    local out = ("%s/%s_%s"):format(dir, base, kind)
    assert(p:save_pretrained(out))
    local y = p(ids):detach()
    local again = assert(peft.PeftModel.from_pretrained(accel.models.from_pretrained(folder, { quantization_config = quantization }), out))
    assert(accel.equal(again(ids):detach(), y), out)
    if kind ~= "prompt" then
      local merged = p:merge_and_unload()(ids):detach()
      local bar = base == "int8" and 2e-2 or 1e-5 -- rows of x are int8 in one and f32 in the other
      assert((merged - y):abs():max():item() < bar * math.max(1, y:abs():max():item()), out .. " merged")
    end
  end
end

do -- dropout of adapters in models that are not being trained, as from_pretrained gives them
  for _, use_dora in ipairs { false, true } do
    local p = peft.get_peft_model(nn.Sequential(nn.Linear(8, 8)):eval(),
      peft.LoraConfig { target_modules = { "0" }, lora_dropout = 0.5, init_lora_weights = false, use_dora = use_dora })
    local x = accel.randn(3, 8)
    local y = p(x):detach()
    assert(accel.equal(p(x):detach(), y) and not p.training)
    p:train()
    assert(not accel.equal(p(x):detach(), y))
    p:eval()
    assert(accel.equal(p(x):detach(), y))
  end
end

do -- several adapters of one model
  local model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
  local x = accel.randn(3, 8)
  local want = model(x):detach()
  local p = peft.get_peft_model(model, peft.LoraConfig { r = 2, target_modules = { "0" }, modules_to_save = { "2" } })
  assert(accel.equal(p(x):detach(), want))
  p:add_adapter("other", peft.LoraConfig { r = 3, target_modules = { "0" } })
  p:set_adapter "other"
  assert(not p.base_model.model[1].lora_A.default.weight.requires_grad and p.base_model.model[1].lora_A.other.weight.requires_grad)
  accel.no_grad(function() p.base_model.model[1].lora_B.other.weight:fill_(1) end)
  local changed = p(x):detach()
  assert(not accel.equal(changed, want))
  p:merge_adapter()
  assert(accel.allclose(p(x):detach(), changed, { rtol = 1e-5, atol = 1e-5 }))
  p:set_adapter "default"
  assert(accel.equal(p(x):detach(), want))
  p:set_adapter "other"
  assert(p:save_pretrained(dir .. "/two"))
  assert(accel.load(dir .. "/two/other/adapter_model.safetensors")["base_model.model.0.lora_A.weight"].shape == { 3, 8 })
  assert(accel.equal(p:unload()(x):detach(), want))
  fails("there is an adapter 'other' already", p.add_adapter, p, "other", peft.LoraConfig {})
  fails("cannot be combined with", p.add_adapter, p, "third", peft.IA3Config { target_modules = { "0" } })
  fails("there is no adapter 'fourth'", p.set_adapter, p, "fourth")
end

do -- through a checkpoint of the Accelerator: the adapter's weights come back
  local accelerator = accel.Accelerator()
  local p = peft.get_peft_model(accel.models.from_pretrained(folder), peft.LoraConfig { r = 2 })
  local optimizer = accel.optim.AdamW(p:parameters(), { lr = 0.1 })
  local model, prepared = accelerator:prepare(p, optimizer)
  for _ = 1, 2 do
    accelerator:backward(loss_of(model))
    prepared:step()
    prepared:zero_grad()
  end
  model:eval()
  local y = model(ids):detach()
  accelerator:save_state(dir .. "/state")
  model:train()
  accelerator:backward(loss_of(model))
  prepared:step()
  accelerator:load_state(dir .. "/state")
  model:eval()
  assert(accel.equal(model(ids):detach(), y))
end

do -- what learns where nothing is said, and options that are tables are nobody else's
  local p = peft.get_peft_model(nn.Sequential(nn.Linear(4, 3)), peft.LoraConfig { target_modules = { "0" } })
  local some, all = p:get_nb_trainable_parameters()
  assert(some == 8 * 4 + 3 * 8 and all == some + 15 and not p.base_model.model[1].lora_B.default.bias)
  local config = peft.LoraConfig {}
  config.rank_pattern.q = 3
  assert(peft.LoraConfig {}.rank_pattern.q == nil and config.lora_bias == false and config.inference_mode == false)
end

-- strings are regular expressions of whole names, keys of rank_pattern such of ends, as PEFT has them
do
  local p = peft.get_peft_model(accel.models.from_pretrained(folder), peft.LoraConfig {
    r = 2, target_modules = [[.*\.h\.(0|1)\.attn\.c_(attn|proj)]], exclude_modules = [[.*h\.1.*proj]], rank_pattern = { ["h\\.\\d+.attn.c_p.*"] = 5 },
  })
  local ranks = {}
  for name, t in accel.pairs(p:named_parameters()) do
    local of = name:match "transformer%.(.*)%.lora_A"
    if of then ranks[of] = t.shape[1] end
  end
  assert(accel.json.encode(ranks) == accel.json.encode { ["h.0.attn.c_attn"] = 2, ["h.0.attn.c_proj"] = 5, ["h.1.attn.c_attn"] = 2 },
    accel.json.encode(ranks))
  fails("a pattern of layers: ", peft.get_peft_model, accel.models.from_pretrained(folder), peft.LoraConfig { target_modules = "(c_attn" })
  fails("no layer of the model is called c_attn", peft.get_peft_model, accel.models.from_pretrained(folder),
    peft.LoraConfig { target_modules = "c_attn" })
end

-- what is refused
local model = accel.models.from_pretrained(folder)
fails("no layer of the model is called 'q_proj'; there are .*'c_attn', 'c_fc', 'c_proj'", peft.get_peft_model, model,
  peft.LoraConfig { target_modules = { "q_proj" } })
fails("'transformer.ln_f' is a accel.nn.LayerNorm", peft.get_peft_model, model, peft.LoraConfig { target_modules = { "ln_f" } })
fails("target_modules is missing, and there is no default", peft.get_peft_model, nn.Sequential(nn.Linear(2, 2)), peft.LoraConfig {})
fails("no module is called crown", peft.get_peft_model, model, peft.LoraConfig { modules_to_save = { "crown" } })
fails("did you mean 'lora_alpha'", peft.LoraConfig, { lora_alphas = 3 })
fails("lora_bias does not go with use_dora", peft.LoraConfig, { use_dora = true, lora_bias = true })
fails("use_qalora = true is not supported", peft.LoraConfig, { use_qalora = true })
fails("bias must be", peft.LoraConfig, { bias = "some" })
fails("r must be a positive integer", peft.LoraConfig, { r = 0 })
fails("feedforward_modules should be a subset of target_modules, 'c_fc' is not among them", peft.IA3Config,
  { target_modules = { "c_attn" }, feedforward_modules = { "c_fc" } })
do -- fan_in_fan_out follows the layers: a folder says what PEFT would make of it
  local said, old = {}, warn
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  local plain = peft.get_peft_model(nn.Sequential(nn.Linear(2, 2)), peft.LoraConfig { target_modules = { "0" }, fan_in_fan_out = true })
  local turned = peft.get_peft_model(accel.models.GPT2(accel.models.tiny.gpt2), peft.LoraConfig {})
  warn = old -- luacheck: ignore 121
  assert(#said == 1 and said[1]:find "no target is a Conv1D; it is set to false", said[1])
  assert(plain.peft_config.default.fan_in_fan_out == false and turned.peft_config.default.fan_in_fan_out == true)
end
fails("task_type 'LM'", peft.LoraConfig, { task_type = "LM" })
fails("num_virtual_tokens", peft.PromptTuningConfig, {})
fails("expected a configuration", peft.get_peft_model, model, { r = 4 })
local none, message = peft.PeftModel.from_pretrained(model, dir .. "/nothing")
assert(none == nil and message:find "adapter_config.json", message)
local file = assert(io.open(dir .. "/plain_lora/adapter_config.json", "w"))
file:write '{"peft_type": "NOTHING"}'
file:close()
none, message = peft.PeftModel.from_pretrained(accel.models.from_pretrained(folder), dir .. "/plain_lora")
assert(none == nil and message:find("peft_type 'NOTHING'", 1, true), message)
