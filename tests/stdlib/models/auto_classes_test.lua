-- AutoModel classes take the family of a folder and the head of their name; resize_token_embeddings keeps what the model computes for the
-- tokens that it had, for every family that reads tokens, and the folder that is saved loads again.
--   accel-run tests/stdlib/models/auto_classes_test.lua
local accel = require "accel"
local models = accel.models

local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local function class_of(model) return accel.util.class.of(model).__name end

local small = { vocab_size = 20, hidden_size = 8, intermediate_size = 12, num_hidden_layers = 1,
  num_attention_heads = 2, max_position_embeddings = 12 }
local function with(more)
  local c = {}
  for _, t in ipairs { small, more or {} } do
    for key, value in next, t do c[key] = value end
  end
  return c
end

local dir = tmp .. "/auto-qwen2"
assert(models.Qwen2ForCausalLM(with()):save_pretrained(dir))
assert(class_of(models.AutoModelForCausalLM.from_pretrained(dir)) == "Qwen2ForCausalLM")
assert(class_of(models.AutoModel.from_pretrained(dir)) == "Qwen2Model")
local heads, info = models.AutoModelForSequenceClassification.from_pretrained(dir, { config = { num_labels = 3, pad_token_id = 0 } })
assert(class_of(heads) == "Qwen2ForSequenceClassification" and #info.missing_keys == 1 and info.missing_keys[1] == "score.weight")
assert(heads(accel.tensor { { 1, 2 }, { 3, 0 } }).shape[2] == 3)
local none, why, code = models.AutoModelForCTC.from_pretrained(dir)
assert(none == nil and code == "unsupported" and
  why:find("AutoModelForCTC: family 'qwen2' has no such class; choose from Qwen2ForCausalLM", 1, true), why)
assert(select(3, models.AutoModel.from_pretrained(tmp .. "/nowhere")) == "not_found")
assert(class_of(models.AutoModelForMaskedLM.from_config { model_type = "bert", vocab_size = 9, hidden_size = 8, num_hidden_layers = 1,
  num_attention_heads = 2, intermediate_size = 8 }) == "BertForMaskedLM")
assert(class_of(models.AutoModelForCausalLM.from_config(with { model_type = "gpt2", n_embd = 8, n_head = 2, n_layer = 1, hidden_size = nil,
  intermediate_size = nil })) == "GPT2LMHeadModel")
assert(not pcall(models.AutoModel.from_config, { model_type = "gtp2" }))

-- another number of tokens
local ids = accel.tensor { { 5, 6, 7, 8 } }
local function logits(model)
  local _ <close> = accel.no_grad()
  if model.begin_generation then return model(ids, { decoder_input_ids = ids }) end
  return model(ids)
end
for _, model in ipairs {
  models.Qwen2ForCausalLM(with()), models.Llama(with { tie_word_embeddings = true }), models.GPT2(models.tiny.gpt2),
    models.GPTJForCausalLM { vocab_size = 20,
    n_embd = 8, n_head = 2, n_layer = 1, rotary_dim = 2, n_positions = 12 }, models.BertForMaskedLM(models.tiny.bert),
      models.RobertaForMaskedLM(with()),
  models.T5ForConditionalGeneration(models.tiny.t5), models.BartForConditionalGeneration { vocab_size = 20, d_model = 8, encoder_layers = 1,
    decoder_layers = 1, encoder_attention_heads = 2, decoder_attention_heads = 2, encoder_ffn_dim = 8,
      decoder_ffn_dim = 8, max_position_embeddings = 12 },
} do
  model:eval()
  local name, n = class_of(model), model.config.vocab_size
  if n < 9 or n == 9 then ids = ids % n end
  local before = logits(model)
  local embedding = model:resize_token_embeddings(n + 3, { pad_to_multiple_of = 8 })
  local more = (n + 3 + 7) // 8 * 8
  assert(embedding.weight.shape[1] == more and model.config.vocab_size == more and model:get_input_embeddings() == embedding, name)
  local after = logits(model)
  assert(after.shape[3] == more and accel.equal(after:narrow(3, 1, n), before), name .. ": other logits for the tokens of before")
  local rows = embedding.weight:detach()
  assert((rows:narrow(1, n + 1, 1) - rows:narrow(1, 1, n):mean(1, true)):abs():max():item() < 1e-6,
    name .. ": new rows are the mean of the old ones")
  assert(model:save_pretrained(tmp .. "/" .. name))
  local again = assert(models.from_pretrained(tmp .. "/" .. name))
  assert(accel.equal(logits(again), after), name .. ": the folder gives other logits")
  model:resize_token_embeddings(n)
  assert(accel.equal(logits(model), before), name .. ": back to the first size")
end
local ok, err = pcall(models.Llama(with { pad_token_id = 19 }).resize_token_embeddings, models.Llama(with { pad_token_id = 19 }), 10)
assert(not ok and tostring(err):find "pad_token_id 19 would lie outside of 10 tokens", err)
assert(models.ViTModel(models.tiny.vit):get_input_embeddings() == nil)
models.Llama(with()):set_attn_implementation "sdpa"
assert(not pcall(models.Llama(with()).set_attn_implementation, models.Llama(with()), "fast"))
