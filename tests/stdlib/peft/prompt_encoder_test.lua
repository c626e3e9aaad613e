-- A tuned prompt before models with an encoder, and what callers give for each token: the decoder's ids stay as they are and PEFT's shape
-- of the prompt is taken (peft 0.21.2: logits and gradients of a T5 differ by 6e-7); segments and shifted labels are made longer.
--   accel-run tests/stdlib/peft/prompt_encoder_test.lua
local accel = require "accel"
local models, peft = accel.models, accel.peft
local N <const> = 3

local function near(a, b, what)
  assert(a.shape == b.shape, ("%s: %s, expected %s"):format(what, tostring(a.shape), tostring(b.shape)))
  assert(accel.allclose(a:detach(), b:detach(), { rtol = 1e-5, atol = 1e-5 }), what)
end

--- The model with a prompt whose rows are the embeddings of the tokens 0, 1 and 2, so that these before a text are the same.
local function make(base, words, task_type)
  local p = peft.get_peft_model(base:eval(), peft.PromptTuningConfig { num_virtual_tokens = N, task_type = task_type }):eval()
  accel.no_grad(function() p.prompt_encoder.default.embedding.weight:narrow(1, 1, N):copy_(words.weight:narrow(1, 1, N)) end)
  return p
end

local function ids_of(rows) return accel.tensor(rows, { dtype = "i64" }) end
local ids, longer = ids_of { { 4, 7, 3, 5 }, { 6, 3, 8, 8 } }, ids_of { { 0, 1, 2, 4, 7, 3, 5 }, { 0, 1, 2, 6, 3, 8, 8 } }
local mask, longer_mask = ids_of { { 1, 1, 1, 1 }, { 1, 1, 0, 0 } }, ids_of { { 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 0, 0 } }

accel.manual_seed(3)
for _, task_type in ipairs { "SEQ_2_SEQ_LM", false } do
  local base = models.T5ForConditionalGeneration(models.tiny.t5)
  local p = make(base, base.shared, task_type or nil)
  assert(p.prompt_encoder.default.embedding.weight.shape[1] == (task_type and 2 or 1) * N)
  for _, decoder in ipairs { ids_of { { 0 }, { 0 } }, ids_of { { 0, 5, 6, 4, 8 }, { 0, 3, 3, 7, 1 } } } do -- shorter than the prompt, longer
    local want = base(longer, { attention_mask = longer_mask, decoder_input_ids = decoder })
    near(p(ids, { attention_mask = mask, decoder_input_ids = decoder }), want, "T5")
  end
  local answer = ids_of { { 5, 6, 1 }, { 3, 7, 1 } } -- which is the decoder's, so that it is not made longer
  near(p(ids, { attention_mask = mask, labels = answer }), base(longer, { attention_mask = longer_mask, labels = answer }), "T5 with labels")
  local ok, err = pcall(p, ids, { decoder_input_ids = ids, encoder_outputs = base:encode(ids) })
  assert(not ok and tostring(err):find "takes no encoder_outputs", err)
end

do
  local base = models.BertForSequenceClassification(models.tiny.bert)
  local p = make(base, base.bert.embeddings.word_embeddings, "SEQ_CLS")
  local segments, longer_segments = ids_of { { 0, 0, 1, 1 }, { 0, 1, 1, 1 } }, ids_of { { 0, 0, 0, 0, 0, 1, 1 }, { 0, 0, 0, 0, 1, 1, 1 } }
  near(p(ids, { attention_mask = mask, token_type_ids = segments }),
    base(longer, { attention_mask = longer_mask, token_type_ids = longer_segments }), "BERT")
end

do
  local base = models.GPT2LMHeadModel { vocab_size = 9, n_positions = 16, n_embd = 8, n_layer = 1, n_head = 2 }
  local p = make(base, base.transformer.wte, "CAUSAL_LM")
  local labels = ids_of { { 7, 3, 5, -100 }, { 3, 8, -100, -100 } }
  near(p(ids, { shift_labels = labels }), base(longer, { shift_labels = accel.cat({ accel.full({ 2, N }, -100, { dtype = "i64" }), labels }, 2) }),
    "shifted labels")
end
