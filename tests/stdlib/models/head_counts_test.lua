-- Losses of heads with labels of -100, answers outside of the text, and masks: gradients of two ranks with one half of a batch each, also
-- in micro-steps, are those of one rank with the whole batch. Labels lie at random, and the first rank has few.
--   accel-run tests/stdlib/models/head_counts_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 2 } then return end
local M, R <const>, ROWS <const>, T <const> = accel.models, ranks.rank, 8, 6

local bert = { hidden_size = 12, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16, vocab_size = 31,
  max_position_embeddings = 16, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0, num_labels = 3 }
local llama = { hidden_size = 12, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16, vocab_size = 31,
  max_position_embeddings = 16, num_labels = 3, pad_token_id = 0 }
local modern = { hidden_size = 12, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 16, vocab_size = 31,
  max_position_embeddings = 16, num_labels = 3, pad_token_id = 0, cls_token_id = 1, sep_token_id = 2 }
local electra = { embedding_size = 12 }
for key, value in next, bert do electra[key] = value end

local g = accel.Generator(tonumber(os.getenv "ACCEL_TEST_SEED") or 11)
local function draw(n, shape) return accel.randint(0, n, shape, { generator = g }) end
local ids, mask = draw(30, { ROWS, T }) + 1, accel.ones({ ROWS, T }, { dtype = "i64" })
mask:narrow(1, 1, 4):narrow(2, 3, 4):fill_(0)
local of_tokens, of_texts = draw(3, { ROWS, T }), draw(3, { ROWS })
of_tokens = of_tokens:masked_fill(accel.rand(ROWS, T, { generator = g }):lt(0.3), -100)
of_tokens:narrow(1, 1, 3):fill_(-100)
of_texts:narrow(1, 1, 3):fill_(-100)
local first, last = draw(T, { ROWS }), draw(T, { ROWS })
first:narrow(1, 1, 3):fill_(T + 4)
last:narrow(1, 2, 1):fill_(T + 4)
local pixels, classes = accel.rand(ROWS, 3, 32, 32, { generator = g }), draw(3, { ROWS, 32, 32 })
classes:narrow(1, 1, 3):fill_(255)
local spans = { start_positions = first, end_positions = last }

-- Class, configuration, options of the call, and for two means in one loss: of one micro-step only, whose counts are all known.
local CASES <const> = {
  { "BertForTokenClassification", bert, { labels = of_tokens } }, { "BertForSequenceClassification", bert, { labels = of_texts } },
  { "BertForQuestionAnswering", bert, spans, whole = true }, { "LlamaForQuestionAnswering", llama, spans, whole = true },
  { "LlamaForTokenClassification", llama, { labels = of_tokens } }, { "LlamaForSequenceClassification", llama, { labels = of_texts } },
  { "ModernBertForTokenClassification", modern, { labels = of_tokens } },
  { "ElectraForPreTraining", electra, { labels = draw(2, { ROWS, T }), attention_mask = mask } },
  { "SegformerForSemanticSegmentation", { num_labels = 3, depths = { 1, 1 }, hidden_sizes = { 8, 12 }, num_attention_heads = { 1, 2 },
    sr_ratios = { 2, 1 }, patch_sizes = { 7, 3 }, strides = { 4, 2 }, mlp_ratios = { 2, 2 }, num_encoder_blocks = 2, decoder_hidden_size = 8,
    drop_path_rate = 0.0, classifier_dropout_prob = 0.0 }, { labels = classes }, x = pixels, eval = true },
}

local function made(c)
  accel.manual_seed(3)
  local model = M[c[1]](c[2]):to "f64"
  for _, module in model:named_modules() do
    if module:isinstance(accel.nn.Dropout) then module.p = 0 end
  end
  return c.eval and model:eval() or model -- batch norms of ranks see their own rows
end

local function part(t, from, n) return t:narrow(1, from, n):clone() end
local function call(model, c, from, n)
  local opts, x = {}, c.x and c.x:to "f64" or ids
  for key, t in next, c[3] do opts[key] = part(t, from, n) end
  return model(part(x, from, n), opts)
end

for _, c in ipairs(CASES) do
  local one = made(c)
  call(one, c, 1, ROWS):backward()
  local want = accel.nn.utils.clip_grad_norm_(one:parameters(), 1e9):item()
  assert(want > 0, c[1])
  for _, steps in ipairs(c.whole and { 1 } or { 1, 2 }) do
    accel.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { gradient_accumulation_steps = steps }
    local model = made(c)
    local optimizer
    model, optimizer = a:prepare(model, accel.optim.SGD(model:parameters(), { lr = 0.1 }))
    local n = ROWS // ranks.size // steps
    for step = 1, steps do
      local _ <close> = a:accumulate(model)
      a:backward(call(model, c, (R * steps + step - 1) * n + 1, n))
    end
    ranks.close(a:clip_grad_norm_(model:parameters(), 1e9):item(), want, ("%s, %d micro-steps"):format(c[1], steps), 1e-9)
    optimizer:step()
  end
end

-- A part without labels has the loss 0, which is counted so by metrics and pipelines.
local none = M.BertForTokenClassification(bert)(ids, { labels = accel.full({ ROWS, T }, -100, { dtype = "i64" }) })
assert(none:item() == 0)
