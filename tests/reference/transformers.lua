-- What save_pretrained writes is read by Transformers, which then computes the same: the seven folders of
-- DIR, loaded and written again, and fresh models of small configurations that cover the variants of each
-- family.
--   accel-run tests/reference/transformers.lua DIR
-- Needs python3 with torch, transformers and safetensors; exit status 77 with a reason without them.
local accel = require "accel"
local models = accel.models
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local inputs = dofile(here .. "/model_inputs.lua")
local dir = arg[1] or here .. "/files"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/transformers"

local python = "python3 -c 'import torch, transformers, safetensors' >/dev/null 2>&1"
if not os.execute(python) then
  print "skip: python3 with torch, transformers and safetensors is not here"
  os.exit(77, true)
end

local folders = {}

--- Writes a model with its inputs and what it computes from them.
local function write(name, model, given, opts)
  local path = tmp .. "/" .. name
  model:eval()
  assert(model:save_pretrained(path, opts and opts.save))
  if opts and opts.save_model then -- the weights once more, by the other way
    accel.Accelerator { cpu = true }:save_model(model, path, opts.save_model)
  end
  local out = {}
  for key, t in next, given do out["in/" .. key] = t end
  out["out/want"] = inputs.run(model, given)
  local _ <close> = accel.no_grad()
  if model.config.num_local_experts then
    local _, aux = model(given.input_ids, { output_router_logits = true, attention_mask = given.attention_mask })
    out["out/aux_loss"] = aux
  end
  if opts and opts.labels then
    local all = {}
    for _, t in ipairs { given, opts.labels } do
      for key, value in next, t do all[key] = key ~= "input_ids" and value or nil end
    end
    for key, t in next, opts.labels do out["label/" .. key] = t end
    out["out/loss"] = model(given.input_ids, all)
  end
  if opts and opts.second then -- a second output
    local all = {}
    for key, value in next, given do all[key] = key ~= "input_ids" and value or nil end
    out["out/second"] = select(2, model(given.input_ids, all))
  end
  if opts and opts.generate then
    -- without an end, as the other side is told to
    out["out/generated"] = accel.tensor(model:generate(given.input_ids, { max_new_tokens = 8, eos_token_id = false }))
  end
  assert(accel.save(path .. "/accel.safetensors", out))
  folders[#folders + 1] = ("'%s'"):format(path)
end

--- Loaded from DIR and written again, in one file or several.
for _, name in ipairs(inputs.families) do
  local path = dir .. "/" .. name
  local expected = accel.load(path .. "/expected.safetensors")
  if expected then
    local model = assert(models.from_pretrained(path))
    write(name, model, inputs.of(expected))
    write(name .. "-sharded", model, inputs.of(expected), { save = { max_shard_size = "30KB" } })
    write(name .. "-save_model", model, inputs.of(expected), { save_model = "40KB" })
  else
    print(("skip %s: %s is not there"):format(name, path))
  end
end

-- ---- fresh models ----

accel.manual_seed(7)
local ids = accel.randint(2, 60, { 2, 11 })
local half_mask = accel.ones(2, 11, { dtype = "i64" })
half_mask:narrow(1, 2, 1):narrow(2, 9, 3):zero_()
local text = { input_ids = ids }
local masked = { input_ids = ids, attention_mask = half_mask }

--- A model whose every parameter matters.
local function fresh(Class, config)
  local model = Class(config)
  local _ <close> = accel.no_grad()
  for _, p in ipairs(model:parameters()) do p:add_(accel.randn_like(p) * 0.05) end
  return model
end

local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, value in next, t do out[key] = value end
  end
  return out
end

local gpt2 = { vocab_size = 60, n_positions = 24, n_embd = 16, n_layer = 2, n_head = 2 }
write("fresh-gpt2", fresh(models.GPT2, gpt2), text, { generate = true })
write("fresh-gpt2-variant", fresh(models.GPT2, with(gpt2, {
  n_inner = 20, activation_function = "relu", scale_attn_weights = false, scale_attn_by_inverse_layer_idx = true,
  tie_word_embeddings = false,
})), masked)
write("fresh-gpt2-base", fresh(models.GPT2Model, gpt2), text)

local llama = {
  vocab_size = 60, hidden_size = 24, intermediate_size = 20, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, head_dim = 8, max_position_embeddings = 32,
}
write("fresh-llama", fresh(models.Llama, llama), masked, { generate = true })
write("fresh-llama-tied", fresh(models.Llama, with(llama, {
  tie_word_embeddings = true, attention_bias = true, mlp_bias = true, rope_theta = 500.0, hidden_act = "gelu",
})), text)
local scalings = {
  linear = { rope_type = "linear", factor = 2.5 },
  dynamic = { rope_type = "dynamic", factor = 3.0 },
  llama3 = { rope_type = "llama3", factor = 8.0, low_freq_factor = 1.0, high_freq_factor = 4.0,
    original_max_position_embeddings = 8 },
  yarn = { rope_type = "yarn", factor = 4.0, original_max_position_embeddings = 8 },
}
for kind, rope in accel.pairs(scalings) do
  write("fresh-llama-" .. kind, fresh(models.Llama, with(llama, {
    rope_parameters = with({ rope_theta = 100.0 }, rope), max_position_embeddings = kind == "dynamic" and 6 or 32,
  })), text)
end
write("fresh-llama-base", fresh(models.LlamaModel, llama), text)

local mixtral = with(llama, { num_local_experts = 5, num_experts_per_tok = 2 })
write("fresh-mixtral", fresh(models.MixtralForCausalLM, mixtral), masked)
write("fresh-mixtral-window", fresh(models.MixtralForCausalLM, with(mixtral, {
  sliding_window = 4, num_experts_per_tok = 1,
})), text, { generate = true })

local bert = {
  vocab_size = 60, hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 20,
  max_position_embeddings = 12,
}
local segments = accel.zeros(2, 11, { dtype = "i64" })
segments:narrow(2, 6, 6):fill_(1)
local pair = with(masked, { token_type_ids = segments })
local three = with(bert, { id2label = { "no", "yes", "else" } })
write("fresh-bert", fresh(models.BertForSequenceClassification, three), pair)
local told, follows = ids:clone(), accel.tensor({ 1, 0 }, { dtype = "i64" })
told:narrow(2, 3, 6):fill_(-100)
write("fresh-bert-lm", fresh(models.BertForMaskedLM, bert), pair, { labels = { labels = told } })
write("fresh-bert-sentence", fresh(models.BertForNextSentencePrediction, bert), pair, { labels = { labels = follows } })
write("fresh-bert-pretraining", fresh(models.BertForPreTraining, bert), pair, { second = true,
  labels = { labels = told, next_sentence_label = follows } })
write("fresh-bert-base", fresh(models.BertModel, with(bert, { hidden_act = "gelu_new" })), pair)

local t5 = { vocab_size = 60, d_model = 16, d_kv = 6, d_ff = 20, num_layers = 2, num_heads = 2 }
local long = accel.randint(2, 60, { 2, 200 }) -- beyond the last bucket
local answer = { decoder_input_ids = ids }
write("fresh-t5", fresh(models.T5ForConditionalGeneration, t5), with({ input_ids = long }, answer),
  { generate = true })
write("fresh-t5-gated", fresh(models.T5ForConditionalGeneration, with(t5, {
  feed_forward_proj = "gated-gelu", tie_word_embeddings = false, num_decoder_layers = 1,
  relative_attention_num_buckets = 10, relative_attention_max_distance = 20,
})), with(masked, answer))
write("fresh-t5-silu", fresh(models.T5ForConditionalGeneration, with(t5, { feed_forward_proj = "gated-silu" })),
  with(text, answer))
write("fresh-t5-encoder", fresh(models.T5EncoderModel, t5), masked)

local vit = {
  image_size = 12, patch_size = 4, hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 20, num_channels = 2,
}
write("fresh-vit", fresh(models.ViTForImageClassification, with(vit, { num_labels = 3 })),
  { pixel_values = accel.randn(2, 2, 12, 12) })
local wide = with(vit, { image_size = { 8, 12 }, patch_size = { 2, 4 }, qkv_bias = false })
write("fresh-vit-base", fresh(models.ViTModel, wide),
  { pixel_values = accel.randn(2, 2, 8, 12) })

write("fresh-vit-larger", fresh(models.ViTForImageClassification, vit), { pixel_values = accel.randn(2, 2, 20, 16) })

local resnet = { num_channels = 2, embedding_size = 8, hidden_sizes = { 8, 16 }, depths = { 1, 2 } }
local image = { pixel_values = accel.randn(2, 2, 32, 32) }
write("fresh-resnet", fresh(models.ResNetForImageClassification, with(resnet, { num_labels = 4 })), image)
write("fresh-resnet-early", fresh(models.ResNetForImageClassification, with(resnet, {
  downsample_in_first_stage = true, downsample_in_bottleneck = true,
})), image)
write("fresh-resnet-basic", fresh(models.ResNetModel, with(resnet, { layer_type = "basic" })), image)

-- In half precision files: what is read back is what was written.
write("fresh-llama-bf16", fresh(models.Llama, llama):to "bf16":to "f32", text)
assert(models.Llama(llama, { dtype = "bf16" }):save_pretrained(tmp .. "/bf16"))
assert(assert(models.from_pretrained(tmp .. "/bf16")):parameters()[1].dtype == "bf16")

local script = ("python3 '%s/check_transformers.py' %s"):format(here, table.concat(folders, " "))
local ok = os.execute(script)
os.exit(ok and 0 or 1, true)
