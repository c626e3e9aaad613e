--- load_and_quantize_model: configurations and their errors, models with and without values, files of values and of bitsandbytes,
--- offloaded parts, models of Hugging Face's layout.
local accel = require "accel"
local nn, quant = accel.nn, accel.quant
local Config = accel.BnbQuantizationConfig

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

-- configurations
fails("can't be both true", Config, { load_in_4bit = true, load_in_8bit = true })
fails("can't be both false", Config, {})
fails("load_in_8bit must be a boolean", Config, { load_in_8bit = 1 })
fails("load_in_4bit must be a boolean", Config, { load_in_4bit = "yes" })
fails("llm_int8_threshold must be a float or an int", Config, { load_in_8bit = true, llm_int8_threshold = "6" })
fails("bnb_4bit_quant_type must be a string", Config, { load_in_4bit = true, bnb_4bit_quant_type = 4 })
fails("bnb_4bit_quant_type must be in %['fp4','nf4'%] but found int4", Config, { load_in_4bit = true, bnb_4bit_quant_type = "int4" })
fails("bnb_4bit_use_double_quant must be a boolean", Config, { load_in_4bit = true, bnb_4bit_use_double_quant = 1 })
fails("bnb_4bit_compute_dtype must be in %['fp32','fp16','bf16'%] but found 'int8'", Config,
  { load_in_4bit = true, bnb_4bit_compute_dtype = "int8" })
fails("skip_modules must be a list of strings", Config, { load_in_8bit = true, skip_modules = "lm_head" })
fails("keep_in_fp32_modules must be a list of strings", Config, { load_in_8bit = true, keep_in_fp32_modules = { 3 } })
fails("did you mean 'skip_modules'", Config, { load_in_8bit = true, skip_module = {} })
assert(Config { load_in_8bit = true }.torch_dtype == "f16" and Config { load_in_8bit = true }.llm_int8_threshold == 6)
local c = Config { load_in_4bit = true, bnb_4bit_compute_dtype = "bf16" }
assert(c.torch_dtype == "bf16" and c.bnb_4bit_quant_type == "fp4" and c.skip_modules == nil and c.target_dtype == "int4")
local again = Config.from_dict(accel.json.decode(accel.json.encode(c:to_dict())))
assert(again.load_in_4bit and again.bnb_4bit_compute_dtype == "bf16" and again.bnb_4bit_quant_type == "fp4")

accel.manual_seed(2)
local function make() return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 8)) end
local plain = make()
local x = accel.randn(3, 64)
local want = plain(x):detach()
local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/load-")
accel.Accelerator():save_model(plain, dir)

local function config(more)
  local o = { load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_compute_dtype = "fp32" }
  for key, value in pairs(more or {}) do o[key] = value end
  return Config(o)
end
local int8 = { load_in_8bit = true, torch_dtype = "fp32" }
local function load(cfg, opts)
  local m = accel.init_empty_weights(make)
  return accel.load_and_quantize_model(m, cfg, opts or { weights_location = dir })
end

-- from files, and of a model that is there: the same bits
for _, cfg in ipairs { {}, int8, { bnb_4bit_use_double_quant = true } } do
  local function of() return cfg == int8 and Config(int8) or config(cfg) end
  local m = load(of())
  assert(m[1].weight.quant_state and m[3].weight.quant_state and not m[4].weight.quant_state and m[2].weight.dtype == "f32")
  assert(m.is_loaded_in_4bit == (cfg ~= int8) and m.is_loaded_in_8bit == (cfg == int8))
  local y = m(x):detach()
  assert((y - want):abs():max():item() < 0.3 and (y - want):abs():max():item() > 0)
  local here = accel.load_and_quantize_model(plain:clone(), of())
  assert(accel.equal(here(x):detach(), y))
  -- what it saves, it loads
  local out = accel.mkdtemp(dir .. "/out-")
  accel.Accelerator():save_model(m, out)
  assert(accel.equal(load(of(), { weights_location = out })(x):detach(), y))
end

-- what is skipped, and what stays f32
local m = load(config { skip_modules = { "0" }, keep_in_fp32_modules = { "3" }, torch_dtype = "bf16", bnb_4bit_compute_dtype = "bf16" })
assert(m[1].weight.dtype == "bf16" and m[3].weight.quant_state and m[4].weight.dtype == "f32" and m[2].weight.dtype == "bf16")

-- layers that stay f32 work in a model of another dtype: linear ones, GPT-2's, embeddings and what is tied to them; closer than all of it
do
  local y32 = load(config { torch_dtype = "fp32" })(x):detach()
  local kept = load(config { keep_in_fp32_modules = { "3" }, torch_dtype = "bf16" })
  local yk = kept(x:to "bf16"):detach()
  assert(kept[4].weight.dtype == "f32" and yk.dtype == "bf16" and (yk:to "f32" - y32):abs():max():item() < 0.05)
  local folder, ids = accel.mkdtemp(dir .. "/kept-"), accel.tensor({ { 1, 5, 2, 9 } }, { dtype = "i64" })
  local made = accel.models.GPT2 { vocab_size = 96, n_positions = 32, n_embd = 64, n_layer = 1, n_head = 4 }
  assert(made:eval():save_pretrained(folder))
  local whole = made(ids):detach()
  for _, names in ipairs { { "c_fc" }, { "c_fc", "c_proj" }, { "wte" }, { "lm_head" }, { "ln_" } } do
    local m = accel.models.from_pretrained(folder, { quantization_config = config {
      keep_in_fp32_modules = names, torch_dtype = "bf16", bnb_4bit_compute_dtype = "bf16", skip_modules = { "lm_head" },
    } })
    local n = 0
    for _, p in ipairs(m:parameters()) do n = n + (p.dtype == "f32" and not p.quant_state and 1 or 0) end
    local y = m(ids):detach()
    assert(n > 0 and (y:to "f32" - whole):abs():max():item() < 0.3, names[1])
    assert(#m:generate({ 1, 2 }, { max_new_tokens = 2, eos_token_id = false }) == 2)
  end
end

-- the same of every kind of layer with an input, of a tied weight whose layer has a bias of its own, of parameters beside layers, and of
-- copies of the model
do
  local models, real = accel.models, warn
  warn = function() end -- luacheck: ignore 121
  local function kept_of(model, names, dtype)
    return accel.load_and_quantize_model(model, Config { load_in_8bit = true, torch_dtype = dtype or "fp16", keep_in_fp32_modules = names })
  end
  local function check(model, names, call)
    local want = call(kept_of(model:clone():eval(), names, "fp32"), "f32")
    local m, n = kept_of(model:clone():eval(), names), 0
    for _, p in ipairs(m:parameters()) do n = n + (p.dtype == "f32" and not p.quant_state and 1 or 0) end
    local y = call(m, "f16")
    assert(n > 0 and y.dtype == "f16" and (y:to "f32" - want):abs():max():item() < 0.05, table.concat(names, " "))
    assert(accel.equal(call(m:clone(), "f16"), y), table.concat(names, " "))
    return m
  end
  local text = accel.tensor({ { 1, 2, 3, 4 } }, { dtype = "i64" })
  for _, names in ipairs { { "word_embeddings" }, { "embeddings" }, { "bert" }, { "decoder" }, { "predictions" } } do
    for _, cls in ipairs { models.BertForMaskedLM, models.BertForPreTraining } do
      local m = check(cls(models.tiny.bert), names, function(m) return (m(text)) end)
      local decoder = m.cls.predictions.decoder
      assert(decoder.weight.dtype == "f32" and decoder.bias.dtype == "f32" and decoder.bias == m.cls.predictions.bias)
      assert(decoder.weight == m.bert.embeddings.word_embeddings.weight)
    end
  end
  local loss = kept_of(models.BertForMaskedLM(models.tiny.bert):eval(), { "bert" })(text, { labels = text })
  assert(#loss.shape == 0 and loss:item() > 0)
  local folder = accel.mkdtemp(dir .. "/bert-")
  assert(models.BertForMaskedLM(models.tiny.bert):save_pretrained(folder))
  local from = models.from_pretrained(folder, { quantization_config = Config { load_in_8bit = true, keep_in_fp32_modules = { "word_embeddings" } } })
  assert(from.cls.predictions.bias.dtype == "f32" and from.cls.predictions.transform.dense.bias.dtype == "f16" and from(text).dtype == "f16")
  local size = models.tiny.vit.image_size
  local image, photo = accel.randn(1, 3, size, size), accel.randn(2, 3, 32, 32)
  for _, names in ipairs { { "patch_embeddings" }, { "projection" }, { "embeddings" }, { "vit" }, { "classifier" } } do
    check(models.ViTForImageClassification(models.tiny.vit), names, function(m, dtype) return m(image:to(dtype)) end)
  end
  for _, names in ipairs { { "embedder" }, { "shortcut" }, { "resnet" } } do
    check(models.ResNetForImageClassification(models.tiny.resnet), names, function(m, dtype) return m(photo:to(dtype)) end)
  end
  local rows = accel.randn(2, 4, 6)
  local function first(m, dtype) return (m(rows:to(dtype))) end
  for _, layer in ipairs { nn.Conv1d(4, 3, 3), nn.ConvTranspose1d(4, 3, 3), nn.PReLU(), nn.LSTM(6, 5, { batch_first = true }) } do
    check(nn.Sequential(nn.Linear(6, 6), layer), { "1" }, first)
  end
  local pair = nn.ModuleDict { two = nn.Bilinear(6, 6, 3), many = nn.MultiheadAttention(6, 2), one = nn.Linear(6, 6) }
  check(pair, { "two", "many" }, function(m, dtype) return m.two(rows:to(dtype), rows:to(dtype)) end)
  check(pair, { "two", "many" }, function(m, dtype) return (m.many(rows:to(dtype), rows:to(dtype), rows:to(dtype))) end)
  warn = real -- luacheck: ignore 121
end

-- parts in host memory and on disk: 8 bits may, 4 bits where they are skipped
local map = { ["0"] = 0, ["1"] = 0, ["2"] = "cpu", ["3"] = "disk" }
local resident = load(Config(int8))(x):detach()
local away = load(Config(int8), { weights_location = dir, device_map = map, offload_folder = dir .. "/offload" })
assert(accel.offload.tier(away[3].weight) == "host" and accel.offload.tier(away[4].weight) == "file")
assert(away[3].weight.quant_state and accel.equal(away(x):detach(), resident))
fails("dispatched on the CPU or the disk", load, config(), { weights_location = dir, device_map = { [""] = "disk" }, offload_folder = dir })
away = load(config(), { weights_location = dir, device_map = map, offload_folder = dir .. "/offload4" })
assert(away[1].weight.quant_state and not away[3].weight.quant_state and away(x).shape == { 3, 8 })

fails("weights_location needs to be the folder path", load, config(), {})
fails("expected a BnbQuantizationConfig", accel.load_and_quantize_model, plain, { load_in_4bit = true })
fails("please choose 'auto'", load, config(), { weights_location = dir, device_map = "nearest" })
fails("no such file or folder", load, config(), { weights_location = dir .. "/none" })
fails("'0.weight' has shape", function()
  local other = accel.init_empty_weights(function() return nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 2)) end)
  accel.load_and_quantize_model(other, config(), { weights_location = dir })
end)

-- Hugging Face's layout: GPT-2's Conv1D, a tied head, the base model's prefix left out
local gpt = accel.models.GPT2LMHeadModel { vocab_size = 65, n_positions = 32, n_embd = 64, n_layer = 2, n_head = 4 }:eval()
local folder = dir .. "/gpt"
assert(gpt:save_pretrained(folder))
local ids = accel.randint(0, 65, { 2, 16 })
local q = accel.models.GPT2LMHeadModel.from_pretrained(folder, { quantization_config = config() })
local head = q.transformer.h[1]
assert(head.attn.c_attn.weight.quant_state.shape == { 192, 64 } and not q.lm_head.weight.quant_state)
local y = q(ids):detach()
assert((y - gpt(ids):detach()):abs():max():item() < 0.2)
assert(q:save_pretrained(folder .. "/nf4"))
local file = assert(io.open(folder .. "/nf4/config.json"))
local saved = accel.json.decode(file:read "a")
file:close()
assert(saved.quantization_config.bnb_4bit_quant_type == "nf4" and saved.quantization_config.quant_method == "bitsandbytes")
local r = accel.models.from_pretrained(folder .. "/nf4")
assert(accel.equal(r(ids):detach(), y))

do -- fields that have no effect, and names that the model does not have, are said once; what a file holds is not
  local real, said = warn, {}
  warn = function(text) said[#said + 1] = text end -- luacheck: ignore 121
  local function after(pattern, fn, ...)
    said = {}
    local made = fn(...)
    assert(#said == (pattern and 1 or 0) and (not pattern or said[1]:find(pattern)), table.concat(said, "|"))
    return made
  end
  after("bnb_4bit_compute_dtype, bnb_4bit_quant_type, bnb_4bit_use_double_quant have no effect with load_in_8bit", Config,
    { load_in_8bit = true, bnb_4bit_compute_dtype = "bf16", bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true })
  after("quant_type has no effect with load_in_8bit", Config,
    { load_in_8bit = true, head_quant_type = "nf4", bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true })
  after("llm_int8_threshold has no effect", Config, { load_in_4bit = true, llm_int8_threshold = 5 })
  local eight = after(nil, Config, { load_in_8bit = true, torch_dtype = "bf16" })
  after(nil, Config.from_dict, eight:to_dict())
  after(nil, Config.from_dict, config { bnb_4bit_use_double_quant = true }:to_dict())
  local function from(o) return accel.models.from_pretrained(folder, { quantization_config = o }) end
  after("skip_modules: the model has no module called headd, c_atn$", from, config { skip_modules = { "headd", "lm_head", "c_atn" } })
  after("keep_in_fp32_modules: the model has no module called wo$", from, config { keep_in_fp32_modules = { "wo", "ln_f" } })
  local given = eight:to_dict()
  given.llm_int8_skip_modules = { "headd" }
  after(nil, from, Config.from_dict(given))
  warn = real -- luacheck: ignore 121
end

-- a folder that Transformers does not read says so when it is written, in one line: it quantises linear layers alone, to one type
do
  local whole = accel.models.GPT2 { vocab_size = 96, n_positions = 32, n_embd = 64, n_layer = 1, n_head = 4, tie_word_embeddings = false }
  assert(whole:save_pretrained(folder .. "/untied"))
  local real, said = warn, {}
  warn = function(text) said[#said + 1] = text end -- luacheck: ignore 121
  local function warned(from, o)
    local model = accel.models.from_pretrained(from, { quantization_config = config(o) })
    said = {}
    assert(model:save_pretrained(folder .. "/warned"))
    assert(#said <= 1 and not (said[1] or ""):find "\n", table.concat(said, "|"))
    return said[1]
  end
  local quiet = { warned(folder, {}) or "", warned(folder .. "/untied", { skip_modules = {} }) or "",
    warned(folder .. "/untied", { head_quant_type = "nf4" }) or "" }
  local shown = { warned(folder, { skip_modules = {} }), warned(folder, { head_quant_type = "int8" }), warned(folder .. "/untied",
    { head_quant_type = "int8" }) }
  warn = real -- luacheck: ignore 121
  assert(table.concat(quiet) == "", table.concat(quiet))
  for i, name in ipairs { "transformer.wte (nf4)", "transformer.wte (int8), lm_head (int8)", "lm_head (int8)" } do
    assert(shown[i]:find("save_pretrained: only accel can read " .. name, 1, true) and shown[i]:find("without --head", 1, true), shown[i])
  end
end

-- a tied head that is not skipped: one quantised weight, which the embedding and the head share, also of a file and of a state dict
for _, row in ipairs {
  { "nf4", { skip_modules = {} } }, { "int8", { head_quant_type = "int8" } }, { "fp4", { head_quant_type = "fp4" } },
  { "int8", { load_in_4bit = false, load_in_8bit = true, skip_modules = { "wpe" }, torch_dtype = "fp32" } },
} do
  local want, o = row[1], row[2]
  local function of(t) return t.quant_state and t.quant_state.quant_type end
  local tied = accel.models.from_pretrained(folder, { quantization_config = config(o) })
  local wte = tied.transformer.wte
  assert(tied.lm_head.weight == wte.weight and of(wte.weight) == want and #tied:parameters() == #gpt:parameters())
  assert(of(tied.transformer.h[1].attn.c_attn.weight) == (o.load_in_8bit and "int8" or "nf4"))
  local z = tied(ids):detach()
  assert(z.dtype == "f32" and (z - gpt(ids):detach()):abs():max():item() < 0.25)
  assert(accel.equal(wte(ids), wte.weight:dequantize "f32"[ids]))
  assert(tied(ids, { labels = ids }).shape == {} and tied:generate({ 1, 2 }, { max_new_tokens = 2, eos_token_id = false }))
  assert(tied:save_pretrained(folder .. "/tied"))
  local state = accel.load(folder .. "/tied/model.safetensors")
  assert(state["transformer.wte.weight"] and not state["lm_head.weight"])
  local loaded = accel.models.from_pretrained(folder .. "/tied")
  assert(loaded.lm_head.weight == loaded.transformer.wte.weight and accel.equal(loaded(ids):detach(), z))
  -- the file's entries, without the head's, into a model of the other layout
  local other = accel.models.from_pretrained(folder, { quantization_config = config {
    head_quant_type = want == "int8" and "nf4" or "int8", load_in_8bit = o.load_in_8bit, load_in_4bit = o.load_in_4bit } })
  if o.load_in_8bit == nil then
    other:load_state_dict(state)
    assert(other.lm_head.weight == other.transformer.wte.weight and of(other.lm_head.weight) == want)
  end
  local here = accel.load_and_quantize_model(gpt:clone(), config(o))
  assert(here.lm_head.weight == here.transformer.wte.weight and accel.equal(here(ids):detach(), z))
  fails("adapters support", accel.peft.get_peft_model, here, accel.peft.LoraConfig { target_modules = { "wte" } })
end
for _, skip in ipairs { { "lm_head" }, { "wte" }, { "transformer.wte" } } do -- either name keeps both
  local kept = accel.models.from_pretrained(folder, { quantization_config = config { skip_modules = skip } })
  assert(kept.lm_head.weight == kept.transformer.wte.weight and not kept.lm_head.weight.quant_state)
  assert(kept.transformer.h[2].mlp.c_fc.weight.quant_state)
end
fails("head_quant_type must be in %['int8','nf4','fp4'%]", config, { head_quant_type = "int4" })
c = config { head_quant_type = "int8", llm_int8_threshold = 4 }
again = Config.from_dict(accel.json.decode(accel.json.encode(c:to_dict())))
assert(again.head_quant_type == "int8" and again.llm_int8_threshold == 4 and again.skip_modules == nil)
again = Config.from_dict(accel.json.decode(accel.json.encode(config({ skip_modules = {} }):to_dict())))
assert(#again.skip_modules == 0)

-- the command
local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
local p = assert(io.popen(("'%s' quantize '%s' '%s/cli' --int8 2>&1"):format(run, folder, folder)))
local text = p:read "a"
assert(p:close() and text:find "bits each", text)
assert(accel.models.from_pretrained(folder .. "/cli").transformer.h[1].mlp.c_fc.weight.quant_state.quant_type == "int8")
p = assert(io.popen(("'%s' quantize '%s' '%s/cli3' --nf4 --head int8 2>&1"):format(run, folder, folder)))
text = p:read "a"
assert(p:close() and text:find "bits each", text)
assert(accel.models.from_pretrained(folder .. "/cli3").lm_head.weight.quant_state.quant_type == "int8")
p = assert(io.popen(("'%s' quantize '%s/none' '%s/cli2' 2>&1"):format(run, folder, folder)))
text = p:read "a"
assert(not p:close() and text:find("none", 1, true), text)
do -- a wrong name is told before any weight is read: here there are none
  local config_file <close> = assert(io.open(folder .. "/config.json"))
  assert(accel.makedirs(folder .. "/bare") and accel.write_file(folder .. "/bare/config.json", config_file:read "a"))
end
for options, pattern in pairs {
  ["%s/cli3 %s/cli4 --int8"] = "is quantised already %(nf4%); give the original folder",
  ["%s/cli %s/cli4 --nf4"] = "is quantised already %(int8%)",
  ["%s %s/cli4 --int8 --double-quant"] = "%-%-double%-quant has no effect with %-%-int8",
  ["%s %s/cli4 --skip nothing"] = "no module of the model is called 'nothing'",
  ["%s/bare %s/cli4 --skip nothing"] = "no module of the model is called 'nothing'",
  ["%s/bare %s/cli4 --skip h.0"] = "bare: ",
  ["%s %s/cli4 --skip ,"] = "%-%-skip names no module",
} do
  p = assert(io.popen(("'%s' quantize %s 2>&1"):format(run, (options:gsub("%%s", folder)))))
  text = p:read "a"
  assert(not p:close() and text:find(pattern), text)
  assert(not io.open(folder .. "/cli4/config.json"))
end
