-- BERT and T5 over indexed sentences through MegatronLMPlugin: MegatronLMDummyDataLoader gives the data set that the prepared model asks for;
-- each data rank has the samples that the formula says, ranks that share a model the same; losses of a masked language model, of one
-- with its binary head beside it, and of one that fills gaps are those of one rank under tensor, pipeline and data parallelism.
--   accel-run tests/stdlib/parallel/megatron_masked_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank
local folder = os.getenv "MASKED_DATA" or accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/megatron-masked")
local V <const>, LENGTH <const>, DECODER <const>, ROWS <const>, STEPS <const> = 64, 32, 16, 8, 4

if not ranks.launched then
  local random, builder = accel.Generator(1), accel.data.IndexedDatasetBuilder(folder .. "/text", { dtype = "u16" })
  for _ = 1, 60 do
    for _ = 1, 6 do builder:add_item(accel.randint(8, 40, { 9 }, { generator = random })) end
    builder:end_document()
  end
  builder:finalize()
end

local ids = { vocab_size = V, cls = 1, sep = 2, mask = 3, pad = 0, bos = 0, eos = 4, sentinels = { 63, 62, 61, 60, 59, 58 } }

local function open(kind, tp, pp, micros)
  local function loss_of(out, _, _, labels) return accel.cross_entropy(out:reshape(-1, V), labels:reshape(-1)) end
  if kind ~= "bert" then loss_of = nil end -- the model's own: of words and sentences, of answers
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = tp, pp_degree = pp, num_micro_batches = micros,
    megatron_dataset_flag = true, train_iters = STEPS, decoder_seq_length = kind == "t5" and DECODER or nil, gradient_clipping = 0,
    encoder_seq_length = LENGTH, custom_loss_function = loss_of } }
  accel.manual_seed(5)
  local model
  if kind ~= "t5" then
    local Class = accel.models[kind == "bert" and "BertForMaskedLM" or "BertForPreTraining"]
    model = Class { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2,
      num_attention_heads = 2, max_position_embeddings = LENGTH, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 }
  else
    model = accel.models.T5ForConditionalGeneration { vocab_size = V, d_model = 16, d_kv = 8, d_ff = 24, num_layers = 2, num_heads = 2,
      dropout_rate = 0 }
  end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  local options = { data_path = folder .. "/text", splits_string = "80,20,0", micro_batch_size = ROWS // micros, seed = 3 }
  for key, value in next, ids do options[key] = value end
  local sets = A.MegatronLMDummyDataLoader(options)
  local train, valid, test
  model, optimizer, train, valid, test = a:prepare(model, optimizer, sets, sets, sets)
  assert(test == nil)
  return a, model, optimizer, train, valid
end

local OF_BERT <const> = "text types labels is_random padding_mask loss_mask truncated"
local NAMES <const> = { pretraining = OF_BERT, bert = OF_BERT,
  t5 = "text_enc text_dec labels loss_mask enc_mask dec_mask truncated" }

--- The data set by itself: of as many samples as training takes.
local function alone(kind, samples)
  local o = { sequence_length = LENGTH, seed = 3, split = "80,20,0", num_samples = samples }
  for key, value in next, ids do o[key] = value end
  if kind == "t5" then o.sequence_length_decoder = DECODER end
  return accel.data[kind == "t5" and "T5Dataset" or "BERTDataset"](folder .. "/text", o)
end

local function check_rows(kind, batch, set, first)
  for name in NAMES[kind]:gmatch "%S+" do
    assert(batch[name], name)
    for row = 1, ROWS do
      local want = set:get(first + row)[name]
      want = accel.is_tensor(want) and want:tolist() or { want }
      local got = batch[name][row]
      got = got.ndim > 0 and got:tolist() or { got:item() }
      for i, x in ipairs(want) do
        if name == "labels" and x == -1 then x = -100 end
        assert(got[i] == x, ("%s of row %d: %s, expected %s"):format(name, row, got[i], x))
      end
    end
  end
end

local function run(kind, tp, pp, micros)
  local a, model, optimizer, train, valid = open(kind, tp, pp, micros)
  local dp = a._parallel and a._parallel:axis "dp" or { size = 1, rank = 0 }
  local set, k = alone(kind, STEPS * ROWS * dp.size), 0
  for batch in train() do
    check_rows(kind, batch, set, (k * dp.size + dp.rank) * ROWS)
    k = k + 1
    local loss
    if kind == "pretraining" then
      loss = model(batch.text, { token_type_ids = batch.types, attention_mask = batch.padding_mask, labels = batch.labels,
        next_sentence_label = batch.is_random })
    elseif kind == "bert" then
      loss = model(batch.text, { token_type_ids = batch.types, attention_mask = batch.padding_mask }, batch.labels)
    else
      loss = model(batch.text_enc, { decoder_input_ids = batch.text_dec, attention_mask = batch.enc_mask, labels = batch.labels })
    end
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    loss = loss:detach()
    if R == 0 then print(("step %d %.9g"):format(k, loss:item())) end
  end
  assert(k == STEPS and #valid > 0)
end

if ranks.launched or arg[1] == "run" then return run(arg[#arg - 3], tonumber(arg[#arg - 2]), tonumber(arg[#arg - 1]), tonumber(arg[#arg])) end

-- model(batch) with samples as the data sets give them: labels of -1, masks of their own
local function by_name(kind)
  A.AcceleratorState._reset_state(true)
  local a, set = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { num_micro_batches = 1 } }, nil
  accel.manual_seed(5)
  local model, want
  if kind == "gpt" then
    model = accel.models.GPT2 { vocab_size = V, n_positions = LENGTH, n_embd = 16, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0,
      attn_pdrop = 0 }
    set = accel.data.GPTDataset(folder .. "/text", { sequence_length = LENGTH, seed = 3, num_samples = ROWS, eod = 9, eod_mask_loss = true })
  else
    set = alone(kind == "t5" and "t5" or "bert", ROWS)
    local c = { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 2,
      max_position_embeddings = LENGTH, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 }
    model = kind == "bert" and accel.models.BertForPreTraining(c) or accel.models.T5ForConditionalGeneration { vocab_size = V, d_model = 16,
      d_kv = 8, d_ff = 24, num_layers = 2, num_heads = 2, dropout_rate = 0 }
  end
  local batch = {}
  for i = 1, ROWS do
    for name, value in pairs(set:get(i)) do
      batch[name] = batch[name] or {}
      batch[name][i] = accel.is_tensor(value) and value or accel.tensor(value, { dtype = "i64" })
    end
  end
  for name, list in pairs(batch) do batch[name] = accel.stack(list, 1) end
  local labels = batch.labels:masked_fill(batch.loss_mask:eq(0), -100)
  local left_out = labels:eq(-100):sum():item()
  assert(left_out > 0 and left_out < labels:numel(), kind .. ": a mask that leaves some out")
  assert(kind == "gpt" or batch.labels:eq(-1):any():item(), kind .. ": labels of -1")
  if kind == "gpt" then
    want = model(batch.tokens, { shift_labels = labels })
  elseif kind == "bert" then
    want = (model(batch.text, { token_type_ids = batch.types, attention_mask = batch.padding_mask, labels = labels,
      next_sentence_label = batch.is_random }))
  else
    want = model(batch.text_enc, { decoder_input_ids = batch.text_dec, attention_mask = batch.enc_mask, labels = labels })
  end
  model = a:prepare(model)
  ranks.close(model(batch):item(), want:item(), kind .. ": model(batch) of samples", 1e-5)
end
for _, kind in ipairs { "gpt", "bert", "t5" } do by_name(kind) end

for _, kind in ipairs { "bert", "pretraining", "t5" } do
  local function losses(n, tp, pp)
    local said = ranks.run(n, { args = ("run %s %d %d 2"):format(kind, tp, pp), capture = true, env = { MASKED_DATA = folder } })
    local list = {}
    for loss in said:gmatch "step %d+ (%S+)" do list[#list + 1] = tonumber(loss) end
    assert(#list == STEPS, said)
    return list
  end
  local one = losses(nil, 1, 1)
  assert(one[STEPS] < one[1], kind .. ": nothing is learnt")
  for _, layout in ipairs { { 2, 2, 1 }, { 2, 1, 2 } } do
    for i, loss in ipairs(losses(table.unpack(layout))) do
      assert(math.abs(loss - one[i]) <= 1e-5 * one[i], ("%s, tp %d, pp %d, step %d: %.9g, on one rank %.9g"):format(kind, layout[2], layout[3], i,
        loss, one[i]))
    end
  end
  losses(2, 1, 1)
end

local function wrong(o)
  A.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { megatron_dataset_flag = true } }
  o.data_path, o.micro_batch_size, o.seq_length = folder .. "/text", 1, 16
  return a:prepare(A.MegatronLMDummyDataLoader(o))
end
ranks.fails("mask is of dataset_type", wrong, { mask = 3 })
ranks.fails("dataset_type must be", wrong, { dataset_type = "bart" })
ranks.fails("sequence_length_decoder is missing", wrong, { dataset_type = "t5", vocab_size = 9 })
ranks.fails("cls is missing", wrong, { dataset_type = "bert", vocab_size = 9 })
for _, kind in ipairs { "bert", "t5" } do
  for _, of_gpt in ipairs { { "eod", 0 }, { "eod_mask_loss", true }, { "reset_position_ids", true }, { "reset_attention_mask", true } } do
    ranks.fails(('%s is of dataset_type "gpt", got "%s"'):format(of_gpt[1], kind), wrong, { dataset_type = kind, [of_gpt[1]] = of_gpt[2] })
  end
end
ranks.fails('classification_head is of dataset_type "bert", got "t5"', wrong, { dataset_type = "t5", sequence_length_decoder = 8,
  classification_head = true })
ranks.fails('sequence_length_decoder is of dataset_type "t5", got "bert"', wrong, { dataset_type = "bert", sequence_length_decoder = 8 })
-- of several the first by name, on every rank
ranks.fails("bos is of dataset_type", wrong, { vocab_size = 9, tokenizer = "x", sep = 2, mask = 3, pad = 0, eos = 1, cls = 1, bos = 2 })
