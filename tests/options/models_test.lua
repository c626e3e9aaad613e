-- Options of accel.models: each one changes parameters, results, caches or files; warns; or raises (support/option_sweep.lua). Options of
-- generate that GenerationConfig declares: generation_test.lua. Keys of configurations have no sweep yet.
-- tier: slow
--   accel-run tests/options/models_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local models = accel.models
local s = sweep.folder "models"
local HERE <const> = "tests/options/models_test.lua"

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/models-")
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end
local function files(dir)
  local list = accel.listdir(dir)
  if list then table.sort(list) end
  return list
end
local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

local FAMILY <const> = { GPT2 = "gpt2", Llama = "llama", Mixtral = "mixtral", Bert = "bert", T5 = "t5", ViT = "vit", ResNet = "resnet" }
local function family_of(name) -- "accel.models.BertModel:forward"
  local word = name:match "^accel%.models%.(%w+)"
  if require("accel.models.families").homes[word] then return nil end
  for prefix, family in pairs(FAMILY) do
    if word:sub(1, #prefix) == prefix then return family, models[word] end
  end
end
local function plain(c, more)
  local all = {}
  for key, value in pairs(c) do all[key] = value end
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end
local function made(name, more)
  local family, class = family_of(name)
  accel.manual_seed(3)
  return class(plain(models.tiny[family], more)):eval()
end

local ids = accel.tensor { { 1, 2, 3, 4 }, { 5, 6, 7, 2 } }
local other = accel.tensor { { 2, 2, 5, 1 }, { 1, 0, 3, 2 } }
local mask = accel.tensor { { 1, 1, 0, 1 }, { 1, 0, 1, 1 } }
local sentence = accel.tensor { 1, 0 }
local pixels = accel.arange(2 * 3 * 8 * 8, { dtype = "f32" }):view(2, 3, 8, 8) / 100

-- ---- classes ----
local DEEPER <const> = { gpt2 = { n_layer = 1 }, t5 = { num_layers = 1 }, resnet = { depths = { 2, 1 } } }
for _, entry in ipairs(s.entries) do
  local family, class = family_of(entry.name)
  if family and entry.kind == "class" then
    s:recipe(entry.name, {
      base = function() return { config = plain(models.tiny[family]) } end,
      run = function(call) return call():state_dict() end,
      values = { config = { plain(models.tiny[family], DEEPER[family] or { num_hidden_layers = 1 }) } },
    })
  elseif family and entry.name:find ":from_pretrained$" then
    local dir = folder()
    made(entry.name):save_pretrained(dir)
    local config = accel.json.decode(read(dir .. "/config.json"))
    assert(class.schema.model_type == config.model_type)
    s:recipe(entry.name, {
      base = function() return { dir = dir } end,
      run = function(call)
        local model, told = call()
        if not model then error(told, 0) end
        return model:state_dict(), told
      end,
      values = { config = { DEEPER[family] or { num_hidden_layers = 1 } }, strict = { true }, ignore_mismatched_sizes = { true },
        quantization_config = { accel.quant.BnbQuantizationConfig { load_in_8bit = true } } },
      raises = { config = family == "resnet" and "missing" or nil },
      elsewhere = { strict = HERE, ignore_mismatched_sizes = HERE, quantization_config = HERE },
    })
  end
end
do -- classes that the description of a family makes: one function makes them all, and what differs is compared with Transformers
  local described, of_auto = {}, {}
  local homes = require("accel.models.families").homes
  for _, entry in ipairs(s.entries) do
    local word = entry.name:match "^accel%.models%.(%w+)"
    if homes[word or ""] then described[#described + 1] = entry.name end
    local head, method = entry.name:match "^accel%.models%.AutoModel(%w*)[.:]([%w_]+)$"
    if head and head ~= "ForCausalLM" then of_auto[#of_auto + 1] = entry.name
    elseif method == "from_config" then
      s:recipe(entry.name, {
        base = function() return { config = plain(models.tiny.llama, { model_type = "llama" }) } end,
        run = function(call) return call():state_dict() end,
      })
    elseif method == "from_pretrained" then
      local dir = folder()
      made("accel.models.LlamaForCausalLM"):save_pretrained(dir)
      s:recipe(entry.name, {
        base = function() return { dir = dir } end,
        run = function(call)
          local model, told = call()
          if not model then error(told, 0) end
          return model:state_dict(), told
        end,
        values = { config = { { num_hidden_layers = 1 } }, quantization_config = { accel.quant.BnbQuantizationConfig { load_in_8bit = true } } },
        elsewhere = { strict = HERE, ignore_mismatched_sizes = HERE },
      })
    end
  end
  s:leave(described, "made by a description: tests/reference/families.lua, tests/stdlib/models/keys_effect_test.lua")
  s:leave(of_auto, "the functions of AutoModelForCausalLM for another head: tests/stdlib/models/auto_classes_test.lua")
end
s:leave("accel.models.PreTrainedModel", "abstract: its options are those of each subclass")

local loaded = folder()
do -- a checkpoint with a tensor too many, one of another shape and one that is missing
  local model = made "accel.models.GPT2"
  local state = {}
  for name, t in pairs(model:state_dict()) do state[name] = t:clone() end
  state["transformer.h.0.ln_1.bias"], state["transformer.extra"] = nil, accel.ones(1)
  model:save_pretrained(loaded)
  assert(accel.save(loaded .. "/model.safetensors", state))
end
local partial = folder()
do -- a base model, whose head is missing, with a tensor too many
  local base = made "accel.models.BertModel"
  base:save_pretrained(partial)
  local state = { ["bert.extra"] = accel.ones(1) }
  for name, t in pairs(base:state_dict()) do state[name] = t end
  assert(accel.save(partial .. "/model.safetensors", state))
end
s:recipe("accel.models.from_pretrained", {
  base = function() return { dir = partial, class = "BertForSequenceClassification" } end,
  run = function(call)
    local model, told, code = call()
    if not model then error(told .. " " .. code, 0) end
    return accel.util.class.of(model).__name, model:state_dict(), told
  end,
  values = { class = { "BertModel" }, config = { { num_labels = 3 } }, strict = { true }, dtype = { "f64" }, device = { "meta" },
    quantization_config = { accel.quant.BnbQuantizationConfig { load_in_8bit = true } } },
  raises = { strict = "unexpected" }, elsewhere = { ignore_mismatched_sizes = HERE },
})
do -- without the option another shape is an error, with it a warning and initial values
  local config = { num_labels = 3, vocab_size = 5 }
  local none, message = models.from_pretrained(partial, { class = "BertForSequenceClassification", config = config })
  assert(none == nil and message:find("ignore_mismatched_sizes = true", 1, true), message)
  local model, told = models.from_pretrained(partial, { class = "BertForSequenceClassification", config = config, ignore_mismatched_sizes = true })
  assert(model and told.mismatched_keys[1], told)
  local larger = made("accel.models.ViTModel")
  local wide = accel.zeros(1, 3, 12, 12)
  local ok, why = pcall(larger, wide)
  assert(not ok and tostring(why):find("interpolate_pos_encoding = true", 1, true))
  assert(larger(wide, { interpolate_pos_encoding = true }).shape[2] == 10)
end

-- ---- forward and the counts of its means ----
local function decoder(given) -- every forward of a text model
  local opts = { attention_mask = { mask }, position_ids = { accel.tensor { { 0, 2, 1, 3 }, { 3, 2, 1, 0 } } }, labels = { other },
    shift_labels = { other }, output_router_logits = { true }, logits_to_keep = { 1 }, cache = {}, token_type_ids = { accel.tensor { { 0,
      1, 1, 1 }, { 0, 0, 1, 1 } } },
    next_sentence_label = { sentence }, decoder_input_ids = { other }, decoder_attention_mask = { mask },
    encoder_outputs = { accel.arange(64, { dtype = "f32" }):view(2, 4, 8) / 50 }, ids = { other }, interpolate_pos_encoding = { true } }
  for key, value in pairs(given or {}) do opts[key] = value end
  return opts
end
local function forward(call, given, entry)
  local model = made(entry.name, entry.name:find "ForSequence" and { pad_token_id = 1 }
    or entry.name:find "ViTForMasked" and { encoder_stride = 4 } or nil) -- without one rows have no last token
  local cache = given.cache
  if cache then cache:reset() end
  local _ <close> = accel.no_grad()
  local out = { call(model) }
  return out, cache and cache.past > 0 or nil
end
for _, entry in ipairs(s.entries) do
  local family = family_of(entry.name)
  local method = entry.name:match ":([%w_]+)$"
  if family and (method == "forward" or method == "_loss_counts" or method == "encode") then
    local values = decoder()
    if family ~= "vit" and family ~= "resnet" and family ~= "bert" and not entry.name:find "Encoder" then
      local model = made(entry.name)
      local writes, cache = pcall(model.new_cache, model, 2, 8) -- a head of another kind writes no text
      if writes then values.cache = { cache } end
    end
    local recipe = { run = forward, values = values, base = function() return { ids = ids } end }
    if entry.name:find "NextSentence" or entry.name:find "Classification" or entry.name:find "Choice" then values.labels = { sentence } end
    if entry.name:find "ForToken" then values.labels = { sentence:view(2, 1):expand(2, 4):contiguous() } end
    if family == "bert" or entry.name:find "T5ForSequence" then values.cache = { models.KVCache(2, { 2, 2, 8, 4 }) } end
    if entry.name:find "ForMasked" and family == "vit" then values.bool_masked_pos = { mask }
    elseif family == "vit" then values.bool_masked_pos = { mask } end
    recipe.raises = { cache = family == "bert" and "only a decoder" or entry.name:find "T5ForSequence" and "reads whole texts" or nil,
      bool_masked_pos = family == "vit" and not entry.name:find "ForMasked" and "needs a mask token" or nil,
      labels = entry.name:find "Llama.*Answer" and "labels are for" or nil }
    if entry.name:find "ForMasked" and family == "vit" then recipe.with = { return_loss = { bool_masked_pos = mask } } end
    if entry.name:find "Choice" then -- two texts for each of two questions
      local function pairs_of(t) return t:view(2, 2, 2) end
      recipe.base = function() return { ids = pairs_of(ids) } end
      for _, key in ipairs { "attention_mask", "position_ids", "token_type_ids" } do values[key] = { pairs_of(values[key][1]) } end
    end
    if entry.order[1] == "_" then recipe.base = function() return { _ = ids } end end
    recipe.elsewhere = { interpolate_pos_encoding = HERE }
    if entry.name:find "T5ForSequence" then
      recipe.base = function() return { ids = accel.tensor { { 2, 3, 4, 1 }, { 5, 6, 7, 1 } } } end
    elseif family == "t5" and method == "forward" and not entry.name:find "Encoder" then
      recipe.base = function() return { ids = ids, decoder_input_ids = ids } end
    elseif family == "vit" or family == "resnet" then
      recipe.base = function() return { pixel_values = pixels } end
    end
    if method == "_loss_counts" then -- of labels; the other options of forward change no count
      recipe.passes_on = true
      entry.options = { labels = entry.options.labels or { name = "labels" } }
      if entry.name:find "Question" then -- two places count
        entry.options, values.start_positions = { start_positions = { name = "start_positions" } }, { sentence }
        recipe.with = { start_positions = { end_positions = sentence } }
      end
    end
    if next(entry.options) or entry.takes_table then s:recipe(entry.name, recipe) end
  end
end

-- ---- caches ----
local function filled(cache)
  local kv = accel.arange(24, { dtype = "f32" }):view(1, 2, 3, 4) / 7
  for _ = 1, 2 do
    cache:append(1, kv, kv + 1)
    cache:advance(3)
  end
  local k, v = cache:append(1, kv:narrow(3, 1, 1), kv:narrow(3, 1, 1))
  return k, v, cache:nbytes(), cache:held(), k.device
end
s:recipe({ "accel.models.KVCache", "accel.models.DynamicCache", "accel.models.QuantizedCache", "accel.models.SlidingWindowCache" }, {
  base = function(_) return { layers = 1, shape = { 1, 2, 8, 4 } } end,
  run = function(call, given, entry)
    if entry.name:find "Sliding" and given.window == nil then given.window = 4 end
    return filled(call())
  end,
  values = { dtype = { "bf16" }, window = { 2 }, device = { "meta" } },
})
s:recipe("accel.models.KVCache:attend", {
  base = function()
    local kv = accel.arange(24, { dtype = "f32" }):view(1, 2, 3, 4) / 7
    return { layer = 1, q = kv, k = kv, v = kv }
  end,
  run = function(call) return call(models.KVCache(1, { 1, 2, 8, 4 })) end, passes_on = true, -- to scaled_dot_product_attention
})
s:recipe("accel.models.PreTrainedModel:new_cache", {
  base = function() return { batch = 1 } end,
  run = function(call)
    local cache = call(made("accel.models.MixtralForCausalLM", { sliding_window = 4 }))
    local _ <close> = accel.no_grad()
    local kv = accel.arange(4, { dtype = "f32" }):view(1, 1, 1, 4)
    return accel.util.class.of(cache).__name, cache.length, { cache:append(1, kv, kv) }
  end,
  values = { length = { 8 }, implementation = { "static", "dynamic", "quantized" }, config = { { dtype = "bf16" }, { dtype = "int8" } } },
  raises = { config = "no int8" },
})

-- ---- models ----
local CHECKPOINT <const> = "tests/stdlib/autograd/checkpoint_test.lua"
s:recipe("accel.models.Conv1D", { base = function() return { in_features = 3, out_features = 4 } end,
  inputs = function() return { accel.ones(2, 3) } end,
  values = { std = { 0.5 } } })
s:recipe("accel.models.GenerationConfig", { run = function(call)
  local dir = folder()
  accel.makedirs(dir)
  assert(call():save_pretrained(dir))
  return read(dir .. "/generation_config.json")
end, values = { values = { { top_k = 3 } } }, passes_on = true })
s:recipe("accel.models.GenerationConfig:from_model_config", { run = function(call) return call().eos_token_id end,
  values = { config = { { eos_token_id = 4 } } },
  passes_on = true })
s:recipe("accel.models.GenerationConfig:resolve", {
  base = function() return { who = "generate", values = { num_assistant_tokens = 3 }, base = models.GenerationConfig() } end,
  run = function(call)
    models.GenerationConfig._reset_warnings()
    local heard, was = {}, warn
    warn = function(...) heard[#heard + 1] = table.concat { ... } end -- luacheck: ignore 121
    local o = call()
    warn = was -- luacheck: ignore 121
    return o.num_assistant_tokens, heard
  end,
  values = { assistant = { true } }, passes_on = true,
})
s:recipe("accel.models.PreTrainedModel:define", {
  base = function() return { name = "Own" } end,
  run = function(call) return call(models.GPT2).is_base end, values = { fields = { { is_base = true } } }, passes_on = true,
})
s:recipe("accel.models.PreTrainedModel:gradient_checkpointing_enable", {
  run = function(call)
    local model = made("accel.models.GPT2", { attn_pdrop = 0.5 }):train()
    call(model)
    local kinds = {}
    for name, m in pairs(model:named_modules()) do
      kinds[#kinds + 1] = { name, m.gradient_checkpointing, rawget(m, "recomputed") ~= nil }
    end
    return kinds
  end,
  values = { granularity = { "selective" }, gradient_checkpointing_kwargs = { { granularity = "selective" } } },
  elsewhere = { preserve_rng_state = CHECKPOINT, determinism_check = CHECKPOINT, early_stop = CHECKPOINT,
    offload = "tests/stdlib/models/gradient_checkpointing_test.lua",
    use_reentrant = CHECKPOINT },
})
s:leave({ "accel.models.PreTrainedModel:initialize", "accel.models.PreTrainedModel:part" },
  "of the library: hooks of families, whose arguments are required")
s:leave("accel.models.T5ForConditionalGeneration:begin_generation", "of the library: what generate calls")
s:recipe("accel.models.PreTrainedModel:resize_token_embeddings", {
  base = function() return { new_num_tokens = 10 } end,
  run = function(call)
    local model = made "accel.models.GPT2"
    call(model)
    return model.config.vocab_size
  end,
  values = { new_num_tokens = { 12 }, pad_to_multiple_of = { 8 } },
})
s:recipe("accel.models.PreTrainedModel:load_state_dict", {
  base = function()
    local state = {}
    for name, t in pairs(made("accel.models.GPT2Model"):state_dict()) do state[name] = t:double() + 1 end
    return { state = state }
  end,
  run = function(call)
    local model = made "accel.models.GPT2Model"
    return call(model), model:state_dict()
  end,
  values = { assign = { true } }, elsewhere = { strict = HERE },
})
s:recipe("accel.models.PreTrainedModel:save_pretrained", {
  base = function() return { dir = folder() } end,
  run = function(call, given)
    assert(call(made "accel.models.GPT2"))
    return files(given.dir)
  end,
  values = { max_shard_size = { 1000 }, safe_serialization = { false },
    beside = { { ["notes.txt"] = "a" } }, is_main_process = { false }, state_dict = { { a = accel.ones(1) } }, save_function = { print } },
  raises = { state_dict = "state_dict has no" },
})
s:recipe("accel.models.pretrained.save", {
  base = function() return { dir = folder(), config = {}, state = { a = accel.ones(100), b = accel.ones(100) } } end,
  run = function(call, given)
    assert(call())
    return files(given.dir)
  end,
  values = { max_shard_size = { 500 }, beside = { { ["notes.txt"] = "a" } }, safe_serialization = { false } },
  passes_on = true, -- beside holds any names
})

do
  local model = made "accel.models.GPT2Model"
  assert(not pcall(model.load_state_dict, model, {}) and #model:load_state_dict({}, { strict = false }).missing_keys > 5)
end

-- ---- GGUF ----
local gguf = models.gguf
s:recipe("accel.models.gguf.save", {
  base = function() return { model = made("accel.models.GPT2", { n_embd = 32 }), path = folder() .. ".gguf" } end,
  run = function(call, given)
    assert(call())
    return read(given.path)
  end,
  values = { name = { "tiny" }, tokenizer = function()
    local tok = accel.text.Tokenizer.from_file(here .. "/../reference/tokenizers/bytelevel.json")
    return { tok }
  end },
  elsewhere = { tokenizer = "tests/stdlib/models/gguf_tokenizer_test.lua" },
})
local file = root .. "/model.gguf"
assert(gguf.save(made "accel.models.Llama", file))
s:recipe("accel.models.gguf.load", {
  base = function() return { path = file } end,
  run = function(call)
    local model, extra = call()
    assert(model, extra)
    return model:state_dict()
  end,
  values = { dtype = { "f64" } },
})

-- ---- generate: options that GenerationConfig does not declare ----
local GENERATION <const> = "tests/options/generation_test.lua"
local function generate(call, given, entry)
  local heard = {}
  if given.streamer then given.streamer.heard = heard end
  if given.on_token == true then given.on_token = function(new) heard[#heard + 1] = new end end
  if given.past_key_values == true then
    local _ <close> = accel.no_grad()
    given.past_key_values = given.model:new_cache(1, 16)
    given.model(accel.tensor { { 1, 2 } }, { cache = given.past_key_values })
  end
  local model = given.model
  if entry.kind == "method" then given.model = nil end
  local out = entry.kind == "method" and call(model) or call()
  return out, heard, given.past_key_values and given.past_key_values.past > 2
end
local function random_model()
  local model = made("accel.models.GPT2", { n_layer = 1 })
  for _, p in ipairs(model:parameters()) do p:detach():mul_(6) end
  return model
end
local Streamer = {}
function Streamer:put(new) self.heard[#self.heard + 1] = new end
function Streamer:finish() self.heard[#self.heard + 1] = "finish" end
local elsewhere = {}
elsewhere.input_ids = "tests/stdlib/models/generation/generate_test.lua"
for key in pairs(models.GenerationConfig._fields) do elsewhere[key] = GENERATION end
s:recipe({ "accel.models.generate.run", "accel.models.PreTrainedModel:generate" }, {
  base = function() return { model = random_model(), ids = { 1, 2, 3 }, eos_token_id = false, max_new_tokens = 6,
    return_dict_in_generate = true } end,
  run = generate, elsewhere = elsewhere,
  values = {
    attention_mask = { { 0, 1, 1 } }, generation_config = { { repetition_penalty = 9.0 } }, seed = { 7 }, on_token = { true },
    streamer = { setmetatable({}, { __index = Streamer }) }, assistant_model = function() return { random_model() } end,
    logits_processor = { function(_, scores) return -scores end }, stopping_criteria = { function() return true end },
    prefix_allowed_tokens_fn = { function() return { 4 } end }, past_key_values = { true },
    tokenizer = { {} }, decoder_input_ids = { { { 1, 2 } } },
  },
  raises = { decoder_input_ids = "model with an encoder" },
  with = { seed = { do_sample = true } },
})
s:finish()
