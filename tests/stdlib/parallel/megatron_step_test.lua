-- model(batch) under MegatronLMPlugin: batches of Transformers' and of Megatron's names give the losses of the model's own call, in training
-- and evaluation; logits beside the loss; steps, losses and batches of one's own; losses by token; eod_mask_loss; groups of parameters by name;
-- checkpoints without optimizers. On 1 rank and on 2 as stages and as data ranks.
--   accel-run tests/stdlib/parallel/megatron_step_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R, P = accel.accelerator, ranks.rank, ranks.size
local models = accel.models
local V <const> = 33

local makers = {
  gpt = function() return models.GPT2 { vocab_size = V, n_positions = 16, n_embd = 16, n_layer = 2, n_head = 4, resid_pdrop = 0,
    embd_pdrop = 0, attn_pdrop = 0, eos_token_id = 5 } end,
  t5 = function() return models.T5ForConditionalGeneration { vocab_size = V, d_model = 16, d_kv = 8, d_ff = 24, num_layers = 2, num_heads = 2,
    dropout_rate = 0 } end,
}
for name, Class in pairs { bert = "BertForPreTraining", lm = "BertForMaskedLM", classes = "BertForSequenceClassification" } do
  makers[name] = function(more)
    local config = { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2, num_attention_heads = 2,
      max_position_embeddings = 16, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 }
    for key, value in next, more or {} do config[key] = value end
    return models[Class](config)
  end
end

local staged = arg[1] == "stages"
local mine = not staged and P > 1 -- data ranks: rows of this one

--- An Accelerator, a prepared model, its optimizer and the plain model.
local function open(kind, plugin, config, steps)
  A.AcceleratorState._reset_state(true)
  local o = { num_micro_batches = 2, pp_degree = staged and P or 1, gradient_clipping = 0 }
  for key, value in next, plugin or {} do o[key] = value end
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin(o), gradient_accumulation_steps = steps }
  accel.manual_seed(3)
  local plain = makers[kind](config)
  accel.manual_seed(3)
  local model = makers[kind](config)
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.5 })
  model, optimizer = a:prepare(model, optimizer)
  return a, model, optimizer, plain
end

local g = accel.Generator(1)
local ids, labels, mask = accel.randint(0, V, { 8, 8 }, { generator = g }), accel.randint(0, V, { 8, 8 }, { generator = g }), nil
labels:narrow(1, 1, 3):narrow(2, 2, 6):fill_(-100)
mask = ids:ne(3):to "i64"
local order, segments = accel.tensor({ 0, 1, 1, 0, 1, 0, 0, 1 }, { dtype = "i64" }), accel.zeros(8, 8, { dtype = "i64" })
segments:narrow(2, 5, 4):fill_(1)

local function rows(t, first, n) return t:narrow(1, first, n) end

--- The mean over micro-batches of 2 or 4 rows of what the plain model gives, on all ranks.
local function mean(fn)
  local total, n = 0, mine and 2 or 4
  for first = 1, 8, n do total = total + fn(first, n):item() end
  return total / (8 // n)
end

local function mine_of(batch)
  if not mine then return batch end
  local out = {}
  for key, t in next, batch do out[key] = rows(t, R * (8 // P) + 1, 8 // P) end
  return out
end

local function loss_of(a, model, batch)
  local loss, more = model(mine_of(batch))
  return a:reduce(loss:detach(), "mean"):item(), more
end

local function with(fields, more)
  local all = {}
  for _, t in ipairs { fields or {}, more } do
    for key, value in next, t do all[key] = value end
  end
  return all
end

local cases = {
  { "gpt", { input_ids = ids, attention_mask = mask, labels = labels }, function(m, i, n)
    return m(rows(ids, i, n), { attention_mask = rows(mask, i, n), labels = rows(labels, i, n) })
  end },
  { "gpt", { input_ids = ids }, function(m, i, n) return m(rows(ids, i, n), { labels = rows(ids, i, n) }) end },
  { "gpt", { tokens = ids, labels = labels }, function(m, i, n) return m(rows(ids, i, n), { shift_labels = rows(labels, i, n) }) end },
  { "bert", { text = ids, types = segments, padding_mask = mask, labels = labels, is_random = order }, function(m, i, n)
    return (m(rows(ids, i, n), { token_type_ids = rows(segments, i, n), attention_mask = rows(mask, i, n), labels = rows(labels, i, n),
      next_sentence_label = rows(order, i, n) }))
  end },
  { "bert", { input_ids = ids, token_type_ids = segments, labels = labels, next_sentence_label = order }, function(m, i, n)
    return (m(rows(ids, i, n), { labels = rows(labels, i, n) }))
  end, { other_megatron_args = { bert_binary_head = false } } },
  { "lm", { input_ids = ids, labels = labels, next_sentence_label = order }, function(m, i, n)
    return m(rows(ids, i, n), { labels = rows(labels, i, n) })
  end },
  { "classes", { input_ids = ids, labels = order }, function(m, i, n) return accel.cross_entropy(m(rows(ids, i, n)), rows(order, i, n)) end },
  { "classes", { input_ids = ids, labels = order:to "f32" }, function(m, i, n)
    return accel.mse_loss(m(rows(ids, i, n)):reshape(-1), rows(order, i, n):to "f32")
  end, nil, { num_labels = 1 } },
  { "t5", { input_ids = ids, attention_mask = mask, labels = labels }, function(m, i, n)
    return m(rows(ids, i, n), { attention_mask = rows(mask, i, n), labels = rows(labels, i, n) })
  end },
  { "t5", { text_enc = ids, text_dec = segments, labels = labels, enc_mask = mask }, function(m, i, n)
    return m(rows(ids, i, n), { attention_mask = rows(mask, i, n), decoder_input_ids = rows(segments, i, n), labels = rows(labels, i, n) })
  end },
}
-- the mean over all labels, or with calculate_per_token_loss = false of the means of micro-batches
for i, case in ipairs(cases) do
  local a, model, _, plain = open(case[1], with(case[4], { calculate_per_token_loss = false }), case[5])
  local what, want = ("case %d, %s"):format(i, case[1]), mean(function(first, n) return case[3](plain, first, n) end)
  ranks.close(loss_of(a, model, case[2]), want, what .. ", by micro-batch", 1e-5)
  model:eval()
  ranks.close(loss_of(a, model, case[2]), want, what .. ", by micro-batch, eval", 1e-5)
end
for i, case in ipairs(cases) do
  local a, model, optimizer, plain = open(case[1], case[4], case[5])
  local what, want = ("case %d, %s"):format(i, case[1]), case[3](plain, 1, 8):item()
  ranks.close(loss_of(a, model, case[2]), want, what, 1e-5)
  model:eval()
  ranks.close(loss_of(a, model, case[2]), want, what .. ", eval", 1e-5)
  model:train()
  optimizer:zero_grad()
  -- logits beside the loss, on the last stage's ranks
  local plugin = { return_logits = true }
  for key, value in next, case[4] or {} do plugin[key] = value end
  a, model = open(case[1], plugin, case[5])
  local got, logits = loss_of(a, model, case[2])
  ranks.close(got, want, what .. ", return_logits", 1e-5)
  if staged and R < P - 1 then
    ranks.same(logits, nil, what)
  elseif case[1] == "gpt" and case[2].labels then
    local all = A.gather_across_data_parallel_groups(logits)
    ranks.close(all, plain(ids, { attention_mask = case[2].attention_mask }):detach(), what .. ", logits", 1e-5)
  else
    ranks.same(logits.shape[1], mine and 4 or 8, what)
  end
end

-- by token: the loss of all rows in one, however labels are spread
do
  local a, model, optimizer, plain = open("gpt", { calculate_per_token_loss = true })
  local want = plain(ids, { labels = labels })
  want:backward()
  local loss = model(mine_of { input_ids = ids, labels = labels })
  ranks.close(a:reduce(loss:detach(), "mean"):item(), want:item(), "by token", 1e-6)
  for name, p in pairs(a:unwrap_model(model):named_parameters()) do
    if p.device ~= "meta" then ranks.close(p.grad, plain:get_parameter(name).grad, "by token, gradient of " .. name, 1e-6) end
  end
  optimizer:step()
  optimizer:zero_grad()
  accel.optim.SGD(plain:parameters(), { lr = 0.5 }):step()
  ranks.close(loss_of(a, model, { input_ids = ids, labels = labels }), plain(ids, { labels = labels }):item(), "by token, after a step", 1e-6)
  model:eval()
  ranks.close(loss_of(a, model, { input_ids = ids, labels = labels }), plain(ids, { labels = labels }):item(), "by token, eval", 1e-6)
  ranks.close(loss_of(a, model, { input_ids = ids, labels = labels:clone():fill_(-100) }), 0, "no label at all, eval", 0)
  model:train()
  local _, by_micro_batch = open("gpt", { calculate_per_token_loss = false })
  assert(math.abs(by_micro_batch(mine_of { input_ids = ids, labels = labels }):item() - want:item()) > 1e-4, "it matters")
  ranks.fails("calculate_per_token_loss counts labels [B, T] among the arguments", model, ids)
end

-- by token: over the calls of an update, whatever each has, also nothing; and without any
for _, case in ipairs { { 4, 2, "by accumulate" }, { 2, 1, "by calls" }, { 2, 4, "a call without labels" } } do
  local calls, first, what = table.unpack(case)
  local told = labels:clone()
  told:narrow(1, 1, first):fill_(-100)
  told:narrow(1, 5, 1):fill_(-100)
  local a, model, optimizer, plain = open("gpt", { calculate_per_token_loss = true, num_micro_batches = 1 }, nil,
    what ~= "by calls" and calls or nil)
  local want = plain(ids, { labels = told })
  want:backward()
  local function of(k) -- rows of a call, on every data rank others
    local n = 8 // calls
    return mine and { input_ids = rows(rows(ids, (k - 1) * n + 1, n), R * n // P + 1, n // P),
      labels = rows(rows(told, (k - 1) * n + 1, n), R * n // P + 1, n // P) }
      or { input_ids = rows(ids, (k - 1) * n + 1, n), labels = rows(told, (k - 1) * n + 1, n) }
  end
  for _ = 1, 2 do -- counts of an update are not those of the next
    for k = 1, calls do
      local _ <close> = what ~= "by calls" and a:accumulate(model) or nil
      local loss = model(of(k))
      assert(loss:item() == loss:item(), "a loss that is not a number")
      a:backward(loss)
      if a.sync_gradients then
        for name, p in pairs(k == calls and a:unwrap_model(model):named_parameters() or {}) do
          if p.device ~= "meta" then
            ranks.close(p.grad, plain:get_parameter(name).grad, ("by token, %s, gradient of %s"):format(what, name), 1e-6)
          end
        end
      end
    end
    optimizer:zero_grad()
  end
  ranks.close(loss_of(a, model, { input_ids = ids, labels = told:clone():fill_(-100) }), 0, "no label at all", 0)
  for _, p in ipairs(model:parameters()) do ranks.same(p.grad:ne(0):any():item(), false, "gradients of no label") end
end

-- the last batch of a data set, which does not divide into micro-batches
do
  local a, model, _, plain = open("gpt", { num_micro_batches = 2 })
  model:eval()
  local odd = { input_ids = rows(ids, 1, 3), labels = rows(ids, 1, 3) }
  ranks.close(model(odd):item(), plain(odd.input_ids, { labels = odd.labels }):item(), "three rows", 1e-6)
  ranks.close(model { input_ids = rows(ids, 1, 1) }:item(), plain(rows(ids, 1, 1), { labels = rows(ids, 1, 1) }):item(), "one row", 1e-6)
  a:wait_for_everyone()
end

-- no loss where the batch's own mask says so
do
  local on = accel.randint(0, 2, { 8, 8 }, { generator = accel.Generator(4) })
  local a, model, _, plain = open "gpt"
  local function masked(t, i, n) return rows(t:masked_fill(on:eq(0), -100), i, n) end
  local own = plain(ids, { shift_labels = masked(ids, 1, 8) }):item()
  ranks.close(loss_of(a, model, { tokens = ids, labels = ids, loss_mask = on:to "f32" }), own, "loss_mask", 1e-5)
  ranks.close(loss_of(a, model, { input_ids = ids, labels = ids, loss_mask = on }), plain(ids, { labels = masked(ids, 1, 8) }):item(),
    "loss_mask of labels that are shifted", 1e-5)
  ranks.fails("GPTTrainStep: loss_mask must have the shape of labels (4, 8), got (4, 7)", accel.accelerator.GPTTrainStep({}).get_batch,
    accel.accelerator.GPTTrainStep {}, { tokens = rows(ids, 1, 4), labels = rows(ids, 1, 4), loss_mask = on:narrow(1, 1, 4):narrow(2, 1, 7) })
end

-- no loss behind the token that ends documents
do
  local a, model, _, plain = open("gpt", { eod_mask_loss = true })
  local own = ids:clone()
  own:narrow(2, 4, 1):fill_(5) -- eos_token_id
  local target = accel.cat({ own:narrow(2, 2, 7), accel.full({ 8, 1 }, -100, { dtype = "i64" }) }, 2):masked_fill(own:eq(5), -100)
  local want = plain(own, { shift_labels = target }):item()
  ranks.close(loss_of(a, model, { input_ids = own }), want, "eod_mask_loss", 1e-5)
  a, model = open("gpt", { other_megatron_args = { eod_mask_loss = true, eod = 5 } })
  ranks.close(loss_of(a, model, { input_ids = own }), want, "eod_mask_loss of other_megatron_args", 1e-5)
end

-- a step of one's own, as on Megatron's page: samples with some words weigh more
do
  local Weighted = A.GPTTrainStep:extend "Weighted"
  function Weighted:get_loss_func()
    return function(logits, targets)
      local each = accel.cross_entropy(logits:reshape(-1, V), targets.labels:reshape(-1), { reduction = "none" }):view(targets.labels.shape)
      local by_row = (each * targets.loss_mask):sum(2) / targets.loss_mask:sum(2)
      local weights = targets.tokens:eq(self.kwargs.word):to("f32"):sum(2) * self.kwargs.alpha + 1
      return (by_row * weights):mean(), weights
    end
  end
  local a, model, _, plain = open("gpt", { custom_train_step_class = Weighted, custom_train_step_kwargs = { word = 7, alpha = 0.25 } })
  local want = mean(function(first, n)
    local total = 0
    for i = first, first + n - 1 do
      local weight = rows(ids, i, 1):eq(7):sum():item() * 0.25 + 1
      total = total + plain(rows(ids, i, 1), { shift_labels = rows(ids, i, 1) }):item() * weight
    end
    return accel.tensor(total / n)
  end)
  local got, weights = loss_of(a, model, { tokens = ids, labels = ids })
  ranks.close(got, want, "a step of one's own", 1e-5)
  if not staged or R == P - 1 then ranks.same(weights.shape, { mine and 4 or 8 }, "what it gives besides") end
  ranks.close(A.avg_losses_across_data_parallel_group { accel.tensor(R + 1.0), accel.tensor(2.0) }, accel.tensor { mine and 1.5 or R + 1.0,
    2 }, "mean over data ranks", 0)
  -- a batch of other names, a loss by itself
  a, model = open("gpt", { custom_get_batch_function = function(batch) return { tokens = batch.words, labels = batch.words } end,
    custom_loss_function = function(logits, targets) return logits:sum() * 0 + targets.tokens:eq(7):sum():to "f32" end })
  ranks.close(loss_of(a, model, { words = ids }), mean(function(first, n) return rows(ids, first, n):eq(7):sum():to "f32" end),
    "custom_get_batch_function", 1e-6)
  ranks.fails("the batch needs tokens or input_ids [B, T], got nil", select(2, open "gpt"), { input_id = ids })
  ranks.fails("must be a class below accel.accelerator.AbstractTrainStep", open, "gpt",
    { custom_train_step_class = function() return {} end })
  for _, name in ipairs { "get_forward_step_func", "get_batch_func" } do -- Accelerate's other hooks, which no call would reach
    local Foreign = A.GPTTrainStep:extend "Foreign"
    Foreign[name] = function() return function() end end
    ranks.fails(("custom_train_step_class 'Foreign' defines %s, which is never called; define get_batch(batch)"):format(name), open, "gpt",
      { custom_train_step_class = Foreign })
  end
end

-- groups of parameters by name and shape
for _, mult in ipairs { 0, 3.0 } do
  A.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { pp_degree = staged and P or 1, gradient_clipping = 0,
    no_wd_decay_cond = function(name, p) return name:find "bias$" ~= nil or p.ndim == 1 end,
    scale_lr_cond = function(name) return name:find "mlp" ~= nil end, lr_mult = mult, lr_decay_style = "constant" } }
  accel.manual_seed(3)
  local model = makers.gpt()
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 0.5, weight_decay = 0.25 })
  local before = {}
  for name, p in pairs(model:named_parameters()) do before[name] = p:detach():clone() end
  local schedule = A.MegatronLMDummyScheduler(optimizer, 10, 0)
  optimizer, schedule, model = a:prepare(optimizer, schedule, model)
  local seen = {}
  for _, group in ipairs(optimizer.param_groups) do seen[#seen + 1] = ("%g %g"):format(group.lr, group.weight_decay) end
  table.sort(seen)
  ranks.same(seen, mult == 0 and { "0 0", "0 0.25", "0.5 0", "0.5 0.25" } or { "0.5 0", "0.5 0.25", "1.5 0", "1.5 0.25" }, "groups")
  model(mine_of { input_ids = ids })
  optimizer:step()
  schedule:step()
  if mult == 0 then -- what does not move is what was named
    for name, p in pairs(a:unwrap_model(model):named_parameters()) do
      if p.device ~= "meta" then ranks.same(accel.equal(p:detach(), before[name]), name:find "mlp" ~= nil, name) end
    end
  end
  ranks.same(schedule:get_last_lr()[1], 0.5, "rates stay")
end
ranks.fails("a parameter (2) of the optimizer is in no prepared model", function()
  A.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { no_wd_decay_cond = function() end } }
  a:prepare(accel.optim.SGD(accel.ones(2, { requires_grad = true }), { lr = 1 }))
end)

-- checkpoints without states of optimizers
do
  local folder = os.getenv "STEP_FOLDER" or accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/megatron-step")
  local function trained(plugin)
    local a, model, optimizer = open("gpt", plugin)
    for _, group in ipairs(optimizer.param_groups) do group.momentum = 0.9 end
    return a, model, optimizer
  end
  local function run(model, optimizer)
    model(mine_of { input_ids = ids })
    optimizer:step()
    optimizer:zero_grad()
  end
  local function states(optimizer) return next(optimizer:state_dict().state) ~= nil end
  local a, model, optimizer = trained { no_save_optim = true }
  run(model, optimizer)
  a:save_state(folder .. "/without")
  local want = loss_of(a, model, { input_ids = ids })
  optimizer:zero_grad()
  a, model, optimizer = trained { no_load_optim = true }
  a:load_state(folder .. "/without")
  ranks.same(loss_of(a, model, { input_ids = ids }), want, "weights are there")
  optimizer:zero_grad()
  run(model, optimizer)
  local second = loss_of(a, model, { input_ids = ids }) -- of a step without momentum of the one before
  optimizer:zero_grad()
  a = trained {}
  ranks.fails("the checkpoint has no optimizer states (no_save_optim)", a.load_state, a, folder .. "/without")
  a, model, optimizer = trained {}
  run(model, optimizer)
  a:save_state(folder .. "/with")
  for _, left_out in ipairs { true, false } do
    a, model, optimizer = trained { no_load_optim = left_out }
    a:load_state(folder .. "/with")
    ranks.same(states(optimizer), not left_out, "states of the optimizer, no_load_optim " .. tostring(left_out))
    run(model, optimizer)
    local got = loss_of(a, model, { input_ids = ids })
    if left_out then
      ranks.same(got, second, "a step without what was left out")
    else
      assert(math.abs(got - second) > 1e-4, "momentum matters")
    end
  end
  a:wait_for_everyone()
end

-- sizes of batches
do
  local a = open "gpt"
  local loader = a:prepare(accel.data.DataLoader(accel.data.TensorDataset(ids), { batch_size = 4 }))
  local plugin = a.state.megatron_lm_plugin
  ranks.same({ plugin.global_batch_size, plugin.micro_batch_size, plugin.data_parallel_size, #loader },
    mine and { 8, 2, 2, 1 } or { 4, 2, 1, 2 }, "sizes of batches")
end

if ranks.launched then return end
for _, how in ipairs { "stages", "data" } do
  local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/megatron-step")
  ranks.run(2, { args = how, env = { STEP_FOLDER = folder } })
end
