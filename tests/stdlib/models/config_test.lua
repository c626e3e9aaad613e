--- Configurations: what is declared, what files may get wrong, which class a folder asks for.
local accel = require "accel"
local models = accel.models
local config = require "accel.models.config"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local tiny = { vocab_size = 7, n_positions = 5, n_embd = 8, n_layer = 1, n_head = 2 }
local function with(more)
  local out = {}
  for _, t in ipairs { tiny, more } do
    for key, value in next, t do out[key] = value end
  end
  return out
end

-- Of our own making: unknown keys are mistakes; a table that names its model_type is somebody's config.json.
fails("GPT2LMHeadModel: unknown key 'n_layers' in the configuration; did you mean 'n_layer'%?", models.GPT2,
  with { n_layers = 2 })
fails("unknown key 'zzzzzzzz' in the configuration$", models.GPT2, with { zzzzzzzz = 2 })
assert(models.GPT2(with { model_type = "gpt2", summary_type = "cls_index" }).config.summary_type == "cls_index")
fails("model_type is 'llama', not 'gpt2'", models.GPT2, with { model_type = "llama" })
fails("must be a table, got 'x'", models.GPT2, "x")
fails("PreTrainedModel is a base class", models.PreTrainedModel, tiny)
fails("dtype 'i64' is not a floating one", models.GPT2, tiny, { dtype = "i64" })
fails("unknown option 'dtyp'; did you mean 'dtype'", models.GPT2, tiny, { dtyp = "f32" })

-- Types and sizes.
for key, cases in accel.pairs {
  vocab_size = { { "96", "a positive integer below 2%^31, got '96'" }, { -1, "positive" }, { 0, "positive" },
    { 1.5, "positive" }, { 2 ^ 40, "positive" }, { 0 / 0, "positive" }, { {}, "got a table" }, { true, "positive" } },
  n_layer = { { 1e6 // 1 | 0, "an integer in 1 .. 4096, got 1000000" }, { 0, "1 .. 4096" } },
  resid_pdrop = { { 1.5, "a number in 0 .. 1, got 1.5" }, { -0.1, "0 .. 1" }, { 0 / 0, "0 .. 1" }, { "0", "got '0'" } },
  layer_norm_epsilon = { { -1.0, "a number in 0" }, { math.huge, "a number in 0" } },
  scale_attn_weights = { { 1, "must be true or false, got 1" } },
  activation_function = { { "gelu_nu", "names no activation function: 'gelu_nu'; did you mean 'gelu" }, { 3, "got?" } },
  eos_token_id = { { "x", "a token id, got 'x'" }, { { 1, "x" }, "a token id" }, { 1.5, "token id" } },
  id2label = { { 3, "must be a table of names" }, { { ["0"] = 1 }, "%[0%] must be a name" },
    { { ["1"] = "a" }, "has no name for id 0" }, { { a = "b" }, "has no name" } },
  num_labels = { { -2, "an integer in 1 .. 4096" } },
  tie_word_embeddings = { { "yes", "true or false" } },
  architectures = { { "GPT2", "must be a table" } },
} do
  for _, case in ipairs(cases) do
    local c, problem = config.read(models.GPT2.schema, with { [key] = case[1] })
    assert(c == nil and problem:find("^" .. key), tostring(problem))
    assert(problem:find(case[2]) or case[2] == "got?", problem .. "  has no  " .. case[2])
  end
end
assert(models.GPT2(with { n_embd = 8.0, eos_token_id = { 1, 2 }, bos_token_id = -1 }).config.bos_token_id == nil)
fails("num_labels is 3, id2label names 2 classes", models.BertForSequenceClassification,
  { num_labels = 3, id2label = { "a", "b" } })

-- What families add.
for _, case in ipairs {
  { "GPT2", { n_embd = 10, n_head = 3 }, "n_embd 10 is not a multiple of n_head 3" },
  { "GPT2", { add_cross_attention = true }, "add_cross_attention true is not supported: expected false" },
  { "Llama", { num_attention_heads = 4, num_key_value_heads = 3 }, "4 is not a multiple of num_key_value_heads 3" },
  { "Llama", { hidden_size = 12, num_attention_heads = 4 }, "head_dim 3 is odd" },
  { "Llama", { rope_scaling = { type = "llama4" } }, "rope_type 'llama4' is not supported; did you mean 'llama3'" },
  { "Llama", { rope_scaling = { type = {} } }, "rope_type 'table: .*' is not supported" },
  { "Llama", { rope_scaling = { rope_type = "linear" } }, "rope_parameters.factor must be a number" },
  { "Llama", { rope_scaling = { rope_type = "linear", factor = "2" } }, "rope_parameters.factor must be a number" },
  { "Llama", { rope_parameters = { rope_theta = 0.5 } }, "rope_parameters.rope_theta must be a number of at least 1" },
  { "Llama", { rope_parameters = { rope_type = "linear", factor = 2, partial_rotary_factor = 0.5 } }, "partial_rotary_factor 0.5 is not supported" },
  { "Llama", { rope_parameters = { rope_type = "llama3", factor = 8, low_freq_factor = 4, high_freq_factor = 4 } },
    "high_freq_factor must lie above" },
  { "MixtralForCausalLM", { num_experts_per_tok = 3, num_local_experts = 2 }, "num_experts_per_tok 3 exceeds" },
  { "BertModel", { add_cross_attention = true }, "add_cross_attention true is not supported: expected false" },
  { "BertModel", { position_embedding_type = "relative_key" }, "position_embedding_type 'relative_key' is not supported: expected absolute" },
  { "BertModel", { vocab_size = 5, pad_token_id = 5 }, "pad_token_id 5 is outside" },
  { "T5ForConditionalGeneration", { feed_forward_proj = "gated-gated-gelu" }, "names no activation function" },
  { "T5ForConditionalGeneration", { relative_attention_num_buckets = 3 }, "at least 4" },
  { "T5ForConditionalGeneration", { relative_attention_max_distance = 16 }, "must exceed half" },
  { "ViTModel", { image_size = 8, patch_size = 16 }, "a patch of 16 x 16 does not fit an image of 8 x 8" },
  { "ViTModel", { image_size = { 8, 8, 8 } }, "must be a size or two, got 3" },
  { "ResNetModel", { depths = { 1 } }, "depths has 1 entries, hidden_sizes 4" },
  { "ResNetModel", { depths = {} }, "must be a list of 1 .. 64 sizes" },
  { "ResNetModel", { depths = { 5000 }, hidden_sizes = { 8 } }, "depths%[1%] must be at most 4096" },
  { "ResNetModel", { depths = { 1 }, hidden_sizes = { 2 } }, "at least 4 for bottlenecks" },
  { "ResNetModel", { layer_type = "wide" }, "must be one of basic, bottleneck, got 'wide'" },
} do
  fails(case[3], models[case[1]], case[2])
end

-- Frequencies of rotary positions, against Transformers' own: heads of 16, theta 500, context 64.
do
  local Rotary = require "accel.models.rotary"
  for _, case in ipairs {
    { { rope_type = "linear", factor = 2.5 }, 1.0,
      { 0.4, 0.1839453, 0.0845897, 0.0388997, 0.01788854, 0.008226285, 0.003782966, 0.001739647 } },
    { { rope_type = "dynamic", factor = 3.0 }, 1.0,
      { 1.0, 0.3992944, 0.159436, 0.06366193, 0.02541985, 0.01015001, 0.004052841, 0.001618277 } },
    { { rope_type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
      original_max_position_embeddings = 32 }, 1.0,
      { 1.0, 0.2374897, 0.03118546, 0.01215616, 0.00559017, 0.002570714, 0.001182177, 0.0005436398 } },
    { { rope_type = "yarn", factor = 4.0, original_max_position_embeddings = 16 }, 1.138629436111989,
      { 1.0, 0.2874146, 0.05286856, 0.02431231, 0.01118034, 0.005141428, 0.002364354, 0.00108728 } },
    { { rope_type = "yarn", factor = 4.0, original_max_position_embeddings = 16, beta_fast = 16.0, beta_slow = 2.0,
      truncate = false, mscale = 0.7, mscale_all_dim = 0.4 }, 1.0394038191422568,
      { 1.0, 0.1149658, 0.05286856, 0.02431231, 0.01118034, 0.005141428, 0.002364354, 0.00108728 } },
    { { type = "yarn", factor = 4.0, original_max_position_embeddings = 16, attention_factor = 1.5 }, 1.5,
      { 1.0, 0.2874146, 0.05286856, 0.02431231, 0.01118034, 0.005141428, 0.002364354, 0.00108728 } },
  } do
    local c = { head_dim = 16, max_position_embeddings = 64, rope_scaling = case[1], rope_theta = 500.0 }
    local rotary = Rotary(c, 1e4)
    assert(math.abs(rotary.score_scale - case[2] ^ 2) < 1e-12)
    local got = rotary:inverse_frequencies(100)
    for i, want in ipairs(case[3]) do assert(math.abs(got[i] / want - 1) < 1e-6, case[1].rope_type) end
    assert(#got == 8)
  end
  -- dynamic scaling: texts grow beyond those of training, and its frequencies follow the last position
  local dynamic = { rope_type = "dynamic", factor = 2.5 }
  local tiny = { vocab_size = 7, hidden_size = 8, intermediate_size = 8, num_hidden_layers = 1, num_attention_heads = 2,
    max_position_embeddings = 6 }
  assert(models.Llama(tiny):context_length() == 6)
  tiny.rope_parameters = dynamic
  local model = models.Llama(tiny)
  assert(model:context_length() == 15 and #model:generate({ 1, 2 }, { max_new_tokens = 12 }) == 12)
  local rotary = model.model.rotary
  local padded = rotary:turn(0, 9, accel.tensor { { 0, 0, 0, 1, 2, 3, 4, 5, 6 } }, "cpu").inv_freq
  assert(padded[2]:item() == rotary:inverse_frequencies(7)[2] and padded[2]:item() ~= rotary:inverse_frequencies(9)[2])
  padded = accel.tensor { { 0, 0, 0, 0, 1, 2, 3, 4, 5 } }
  assert(rotary:turn(0, 9, padded, "cpu").inv_freq == nil)
  local plain = Rotary({ head_dim = 4, max_position_embeddings = 64 }, 1e4)
  assert(plain:turn(3, 2, nil, "cpu").inv_freq == nil and plain:turn(3, 2, nil, "cpu").offset == 3)
end

-- The class that a folder asks for.
do
  local class_of = require "accel.models.auto".class_of
  local function named(c)
    local cls, problem = class_of(c)
    return cls and cls.__name or problem
  end
  assert(named { architectures = { "BertForMaskedLM" }, model_type = "bert" } == "BertForMaskedLM")
  assert(named { architectures = { "LlamaForCausalLM" } } == "LlamaForCausalLM")
  assert(named({ architectures = { "BertForTeaTime" }, model_type = "bert" }):find("architectures names 'BertForTeaTime', which accel does not have; "
    .. 'to load another head, give class = "BertForMaskedLM" or ', 1, true))
  assert(named({ architectures = { "LlamaForCausalLM" }, model_type = "bert" }):find "which is not a class of model_type 'bert'; to load")
  assert(named { model_type = "t5" } == "T5ForConditionalGeneration")
  assert(named({ model_type = "lama" }):find "accel has no model with model_type 'lama'; did you mean 'llama'%?")
  assert(named({ architectures = { "generate" } }):find "model_type nil")
  assert(named({ architectures = { "PreTrainedModel" } }):find "model_type nil")
  assert(named({ architectures = { {} }, model_type = {} }):find "model_type a table")
end
