-- Models read declared keys only: keys of other families in a config.json change nothing and are written again, Transformers' other names
-- of keys and null mean what they mean there, and a folder whose class accel does not have is not loaded as another one.
-- tier: sampled
local accel = require "accel"
local config = require "accel.models.config"
local models = accel.models
local sample = dofile((arg[0]:match "^.*/" or "") .. "../../support/sample.lua")

local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

local FAMILIES <const> = {
  gpt2 = "GPT2LMHeadModel", llama = "LlamaForCausalLM", mixtral = "MixtralForCausalLM", bert = "BertForSequenceClassification",
  t5 = "T5ForConditionalGeneration", vit = "ViTForImageClassification", resnet = "ResNetForImageClassification",
}

local function output(model, family)
  if family == "vit" or family == "resnet" then
    return model(accel.arange(192, { dtype = "f32" }):view(1, 3, 8, 8) / 100)
  end
  local ids = accel.tensor { { 1, 2, 3, 4, 5, 6 } }
  local opts = { attention_mask = accel.tensor { { 1, 1, 1, 1, 1, 1 } } }
  if family == "t5" then opts.decoder_input_ids = accel.tensor { { 0, 2, 3 } } end
  return model(ids, opts)
end

local function same(a, b) return accel.equal(a, b) end

-- What other families, or other versions, have: each value would change a model that reads it.
local FOREIGN <const> = {
  sliding_window = 2, attention_bias = true, mlp_bias = true, qkv_bias = false, head_dim = 2, n_inner = 3, num_key_value_heads = 1,
  num_local_experts = 2, scale_attn_weights = false, scale_attn_by_inverse_layer_idx = true, layer_norm_eps = 0.5, rms_norm_eps = 0.5,
  layer_norm_epsilon = 0.5, rope_theta = 3.0, rope_scaling = { rope_type = "linear", factor = 9.0 }, initializer_factor = 9.0,
  hidden_act = "relu", activation_function = "relu", classifier_dropout = 0.9, downsample_in_first_stage = true, n_positions = 3,
  logit_scale = 7.0, embedding_multiplier = 3.0, use_parallel_residual = true, use_sliding_window = true, max_window_layers = 0,
  query_pre_attn_scalar = 9, final_logit_softcapping = 1.0, partial_rotary_factor = 0.5,
}

local tried, take = 0, sample.one_of(4)
for family, name in accel.pairs(FAMILIES) do
  local dir = tmp .. "/" .. family
  local made = models[name](models.tiny[family]):eval()
  local want = output(made, family)
  assert(made:save_pretrained(dir))
  local given = accel.json.decode(read(dir .. "/config.json"))
  local schema = made.schema
  for key, value in accel.pairs(FOREIGN) do
    local declared = schema.fields[key] or schema.aliases[key]
    if not declared and take() then
      tried = tried + 1
      local had = given[key]
      given[key] = value
      assert(accel.write_file(dir .. "/config.json", accel.json.encode(given)))
      local model = assert(models.from_pretrained(dir))
      assert(same(output(model, family), want), ("%s reads %s"):format(family, key))
      assert(config.get(model.config, key) == nil)
      assert(model:save_pretrained(dir .. "-again"))
      assert(accel.json.encode(accel.json.decode(read(dir .. "-again/config.json"))[key]) == accel.json.encode(value), key .. " is lost")
      given[key] = had
    end
  end
  -- other names of keys win over the own ones, as in Transformers
  for alias, own in accel.pairs(schema.aliases) do
    local tiny = config.plain(models.tiny[family])
    local value = tiny[own] or 3
    tiny.model_type, tiny[alias], tiny[own] = family, value, 7
    local c = assert(config.read(schema, tiny))
    assert(c[own] == value and config.get(c, alias) == value, alias)
  end
  if os.getenv "ACCEL_TEST_STRICT" == "1" then
    local ok, why = pcall(function() return made.config.no_such_key end)
    assert(not ok and why:find "reads 'no_such_key', which its schema does not declare", why)
  end
end
assert(tried > (sample.full and 100 or 25))

-- null is none, not the default; a file without ids of special tokens has those of its family, a table made here has none.
local function of(name, c) return assert(config.read(models[name].schema, c)) end
local null = accel.json.null
assert(of("BertModel", { pad_token_id = null }).pad_token_id == nil and of("BertModel", {}).pad_token_id == 0)
assert(models.BertModel(of("BertModel", { pad_token_id = null, hidden_size = 8, num_attention_heads = 2 })).config.pad_token_id == nil)
assert(of("T5EncoderModel", { eos_token_id = null }).eos_token_id == nil and of("T5EncoderModel", {}).eos_token_id == 1)
assert(of("T5ForConditionalGeneration", { tie_word_embeddings = null }).tie_word_embeddings == true)
assert(of("MixtralForCausalLM", { num_key_value_heads = null, num_attention_heads = 4, hidden_size = 32 }).num_key_value_heads == 4)
assert(of("Llama", { model_type = "llama" }).eos_token_id == 2 and of("Llama", {}).eos_token_id == nil)
assert(of("GPT2", { model_type = "gpt2" }).bos_token_id == 50256)
assert(of("GPT2", { model_type = "gpt2", eos_token_id = null }).eos_token_id == nil)
local c, why, code = config.read(models.GPT2.schema, { n_layer = null })
assert(c == nil and why == "n_layer must not be null" and code == "format")

-- Transformers' rope: the older key wins over the newer one, and the key beside them gives the length of training.
local Rotary = require "accel.models.rotary"
local llama = { hidden_size = 32, num_attention_heads = 4, max_position_embeddings = 64 }
local function rope(more)
  for key, value in next, llama do more[key] = value end
  return Rotary.parameters(of("Llama", more), 1e4)
end
local kind, theta, p = rope { rope_scaling = { type = "linear", factor = 2 }, rope_parameters = { rope_type = "default", rope_theta = 9.0 } }
assert(kind == "linear" and theta == 1e4 and p.factor == 2)
kind, theta, p = rope { rope_parameters = { rope_type = "yarn", factor = 4, beta_fast = null, original_max_position_embeddings = 8 },
  original_max_position_embeddings = 16 }
assert(kind == "yarn" and theta == 1e4 and p.original == 16 and p.fast == 32)
assert(rope { partial_rotary_factor = 0.5 } == "default")

-- Rows of the padding token get no gradient from the embedding, as in Transformers' Llama and Mixtral.
for _, name in ipairs { "Llama", "MixtralForCausalLM" } do
  local tiny = config.plain(models.tiny[name == "Llama" and "llama" or "mixtral"])
  tiny.pad_token_id = 2
  local model = models[name](tiny)
  model(accel.tensor { { 1, 2, 3 } }):sum():backward()
  local grad = model.model.embed_tokens.weight.grad
  assert(grad[3]:abs():sum():item() == 0 and grad[2]:abs():sum():item() > 0, name)
end

-- Classes: the folder's, or the one that is asked for.
local dir = tmp .. "/heads"
assert(models.BertForSequenceClassification(models.tiny.bert):save_pretrained(dir))
local function named(architectures, opts)
  local file = accel.json.decode(read(dir .. "/config.json"))
  file.architectures = architectures
  assert(accel.write_file(dir .. "/config.json", accel.json.encode(file)))
  local model, message, kind_ = models.from_pretrained(dir, opts)
  return model and accel.util.class.of(model).__name, message, kind_
end
local array = accel.json.array
assert(named(array { "BertForSequenceClassification" }) == "BertForSequenceClassification")
for _, name in ipairs { "BertForSpans", "GPT2ForSequenceClassification", "LlamaForCausalLM", "Nonsense" } do
  local none, message, kind_ = named(array { name })
  assert(none == nil and kind_ == "unsupported", name)
  assert(message:find("architectures names '" .. name .. "'", 1, true) and message:find('class = "BertForMaskedLM" or ', 1, true), message)
end
assert(named(array { "BertForSpans" }, { class = "BertModel" }) == "BertModel")
assert(named(array { "BertForSpans" }, { class = models.BertForSequenceClassification }) == "BertForSequenceClassification")
assert(named(nil) == "BertModel" and named(array {}) == "BertModel") -- no class is named: the family's usual one
for _, asked in ipairs { "BertForSpans", "GPT2LMHeadModel", models.GPT2, 3 } do
  local none, message, kind_ = named(nil, { class = asked })
  assert(none == nil and kind_ == "unsupported" and message:find("give one of BertForMaskedLM, ", 1, true), message)
end
local old = { model_type = "t5", architectures = { "T5WithLMHeadModel" } }
assert(require "accel.models.auto".class_of(old) == models.T5ForConditionalGeneration)
