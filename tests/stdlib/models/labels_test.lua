--- Decoders given labels: the loss is that of the shifted logits, as Hugging Face computes it, with the same gradients;
--- heads that are watched or replaced are asked for their logits.
local accel = require "accel"
local nn = accel.nn
local models = accel.models

local function close(a, b, what)
  local d = (a - b):abs():max():item()
  assert(d < 1e-6, ("%s: off by %g"):format(what, d))
end
local function refused(pattern, ...)
  local ok, message = pcall(...)
  assert(not ok and tostring(message):find(pattern), tostring(message))
end

accel.manual_seed(3)
local ids = accel.randint(1, 9, { 2, 5 })
local labels = ids:clone()
labels[{ 1, { 1, 2 } }] = -100

for name, tiny in pairs { GPT2 = "gpt2", Llama = "llama", MixtralForCausalLM = "mixtral" } do
  local model = models[name](models.tiny[tiny]):eval()
  local function plain(logits)
    return accel.cross_entropy(logits:narrow(2, 1, 4):reshape(8, -1), labels:narrow(2, 2, 4):reshape(8))
  end
  local want = plain((model(ids)))
  want:backward()
  local grads = {}
  for key, p in model:named_parameters() do
    grads[key] = p.grad
    p.grad = nil
  end
  local loss = model(ids, { labels = labels })
  assert(#loss.shape == 0)
  close(loss:detach(), want:detach(), name)
  loss:backward()
  for key, p in model:named_parameters() do close(p.grad, grads[key], name .. ": gradient of " .. key) end

  -- with other options, with a cache
  local mask = accel.ones(2, 5, { dtype = "i64" })
  mask[{ 2, 5 }] = 0
  close(model(ids, { labels = labels, attention_mask = mask }):detach(),
    plain((model(ids, { attention_mask = mask }))):detach(), name .. ", mask")
  accel.no_grad(function()
    close(model(ids, model:new_cache(2, 5), { labels = labels }), want:detach(), name .. ", options third")
  end)

  -- a watched head runs, and so does one that is no plain linear layer
  local seen = 0
  local hook = model.lm_head:register_forward_hook(function() seen = seen + 1 end)
  close(model(ids, { labels = labels }):detach(), want:detach(), name .. ", watched")
  assert(seen == 1)
  hook:remove()
  local Twice = nn.Linear:extend("Twice")
  function Twice:forward(x) return nn.Linear.forward(self, x) * 2 end
  local head = Twice(model.lm_head.in_features, model.lm_head.out_features, { bias = false })
  head.weight = model.lm_head.weight
  model.lm_head = head
  close(model(ids, { labels = labels }):detach(), plain((model(ids))):detach(), name .. ", another head")

  refused("labels %(2, 4%) do not fit ids %(2, 5%)", model, ids, { labels = labels:narrow(2, 1, 4) })
  refused("labels must be a tensor, got number", model, ids, { labels = 3 })
end

-- BERT's words and sentences, T5's answers: labels stand at their own places
do
  local B, order = models.BertForPreTraining(models.tiny.bert):eval(), accel.tensor({ 1, 0 }, { dtype = "i64" })
  local function same(model, want, loss, what)
    want:backward()
    local grads = {}
    for key, p in model:named_parameters() do grads[key], p.grad = p.grad, nil end
    close(loss:detach(), want:detach(), what)
    loss:backward()
    for key, p in model:named_parameters() do
      if grads[key] then close(p.grad, grads[key], what .. ": gradient of " .. key) else assert(not p.grad, key) end
    end
    model:zero_grad()
  end
  local function words(logits) return accel.cross_entropy(logits:reshape(10, -1), labels:reshape(10)) end
  local function both()
    local w, s = B(ids)
    return words(w), accel.cross_entropy(s, order)
  end
  local w, s = both()
  local loss, of_words, of_sentence = B(ids, { labels = labels, next_sentence_label = order })
  close(of_words:detach(), w:detach(), "of words")
  close(of_sentence:detach(), s:detach(), "of sentences")
  same(B, w + s, loss, "BertForPreTraining")
  same(B, (both()), (B(ids, { labels = labels })), "BertForPreTraining, words")
  same(B, select(2, both()), (B(ids, { next_sentence_label = order:view(2, 1) })), "BertForPreTraining, sentences")
  local lm, ns = models.BertForMaskedLM(models.tiny.bert):eval(), models.BertForNextSentencePrediction(models.tiny.bert):eval()
  same(lm, words(lm(ids)), lm(ids, { labels = labels }), "BertForMaskedLM")
  same(ns, accel.cross_entropy(ns(ids), order), ns(ids, { labels = order }), "BertForNextSentencePrediction")
  for _, tied in ipairs { true, false } do
    local config = { tie_word_embeddings = tied }
    for key, value in next, models.tiny.t5 do config[key] = value end
    local t5 = models.T5ForConditionalGeneration(config):eval()
    same(t5, words(t5(ids, { decoder_input_ids = t5:shift_right(labels) })), t5(ids, { labels = labels }), "T5")
    refused("labels .* do not fit decoder_input_ids %(2, 4%)", t5, ids, { labels = labels, decoder_input_ids = ids:narrow(2, 1, 4) })
  end
  refused("labels %(2%) does not fit ids %(2, 5%): it must be %(2, 5%)", lm, ids, { labels = order })
  refused("next_sentence_label %(2, 5%) does not fit ids %(2, 5%): it must be %(2%)", B, ids, { next_sentence_label = ids })
  refused("labels must be a tensor, got number", ns, ids, { labels = 1 })
end

-- one token has no next one: nothing to average; 0, as a part of a batch without labels has, where Hugging Face has NaN
do
  local model = models.GPT2(models.tiny.gpt2)
  local v = model(ids:narrow(2, 1, 1), { labels = ids:narrow(2, 1, 1) }):item()
  assert(v == 0)
  refused("labels are for a model with a head", models.GPT2Model(models.tiny.gpt2), ids, { labels = labels })
end

-- Mixtral adds the loss that balances its experts
do
  local model = models.MixtralForCausalLM(models.tiny.mixtral):eval()
  local bare = model(ids, { labels = labels })
  local loss, aux = model(ids, { labels = labels, output_router_logits = true })
  close(loss:detach(), (bare + model.config.router_aux_loss_coef * aux):detach(), "mixtral")
  -- the mask of what a cache has seen is longer than the ids
  local mask, cache = accel.ones(2, 5, { dtype = "i64" }), model:new_cache(2, 5)
  mask[{ 2, 1 }] = 0
  accel.no_grad(function()
    model(ids:narrow(2, 1, 4), cache, { attention_mask = mask:narrow(2, 1, 4), output_router_logits = true })
    local logits, balance = model(ids:narrow(2, 5, 1), cache, { attention_mask = mask, output_router_logits = true })
    close(logits:select(2, 1), (model(ids, { attention_mask = mask })):select(2, 5), "mixtral, cache and mask")
    assert(balance.ndim == 0 and balance:item() > 0)
  end)
end
