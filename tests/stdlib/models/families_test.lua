--- Every family: gradients against finite differences, initial values, the meta device, masks; what each
--- computes in a way of its own (routing, distances, shifted labels). Logits are compared in
--- tests/reference/models.lua.
local accel = require "accel"
local nn = accel.nn
local models = accel.models

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function worst(a, b) return (a:to "f64" - b:to "f64"):abs():max():item() end

local function with(base, more)
  local out = {}
  for _, t in ipairs { base, more } do
    for key, value in next, t do out[key] = value end
  end
  return out
end

accel.manual_seed(3)
local ids = accel.randint(1, 20, { 2, 7 })
local mask = accel.tensor { { 1, 1, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 0, 0, 0 } }
local images = accel.randn(2, 2, 16, 16)
local decoder = { decoder_input_ids = ids:narrow(2, 1, 4) }

local gpt2 = {
  vocab_size = 20, n_positions = 9, n_embd = 8, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0,
  attn_pdrop = 0,
}
local llama = {
  vocab_size = 20, hidden_size = 8, intermediate_size = 10, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, head_dim = 4, max_position_embeddings = 16,
}
local bert = {
  vocab_size = 20, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 10,
  max_position_embeddings = 9, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0,
}
local t5 = { vocab_size = 20, d_model = 8, d_kv = 3, d_ff = 10, num_layers = 2, num_heads = 2, dropout_rate = 0 }
local vit = {
  image_size = 16, patch_size = 8, num_channels = 2, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 10,
}
local resnet = { num_channels = 2, embedding_size = 4, hidden_sizes = { 4, 8 }, depths = { 1, 2 } }

local cases = {
  { "GPT2", gpt2, ids }, { "GPT2", with(gpt2, { tie_word_embeddings = false }), ids, { attention_mask = mask } },
  { "Llama", llama, ids }, { "Llama", with(llama, { tie_word_embeddings = true, attention_bias = true }), ids },
  { "Llama", with(llama, { rope_scaling = { rope_type = "yarn", factor = 2.0 } }), ids, { attention_mask = mask } },
  { "MixtralForCausalLM", with(llama, { num_local_experts = 3, sliding_window = 3 }), ids,
    { output_router_logits = true } },
  { "BertModel", bert, ids, { attention_mask = mask } }, { "BertForSequenceClassification", bert, ids },
  { "BertForMaskedLM", bert, ids, { token_type_ids = mask } }, { "BertForPreTraining", bert, ids, { token_type_ids = mask } },
  { "BertForNextSentencePrediction", bert, ids, { attention_mask = mask } },
  { "T5ForConditionalGeneration", t5, ids, with(decoder, { attention_mask = mask }) },
  { "T5ForConditionalGeneration", with(t5, { feed_forward_proj = "gated-gelu", tie_word_embeddings = false }),
    ids, decoder },
  { "T5EncoderModel", t5, ids }, { "ViTModel", vit, images }, { "ViTForImageClassification", vit, images },
  { "ResNetModel", with(resnet, { layer_type = "basic" }), images }, { "ResNetForImageClassification", resnet, images },
}

for i, case in ipairs(cases) do
  local name, config, input, opts = case[1], case[2], case[3], case[4]
  local Class = models[name]
  accel.manual_seed(100 + i)
  local model = Class(config)
  if input.dtype == "f32" then input = input:to "f64" end

  do -- values are a function of the seed; every one is finite
    accel.manual_seed(100 + i)
    local twin = Class(config)
    for key, t in pairs(model:state_dict()) do
      assert(worst(t, twin:state_dict()[key]) == 0, key)
      assert(t.device == "cpu" and t:to("f64"):abs():max():item() < 20, key)
    end
  end

  do -- shapes without bytes
    local _ <close> = accel.no_grad()
    local meta = Class(config, { device = "meta" })
    local there = {}
    for key, value in next, opts or {} do
      there[key] = type(value) == "userdata" and value:to "meta" or value
    end
    local want = model(input.dtype == "f64" and input:to "f32" or input, opts)
    local got = meta(input.dtype == "f64" and input:to("f32"):to "meta" or input:to "meta", opts and there)
    assert(accel.inspect(got.shape) == accel.inspect(want.shape) and got.device == "meta", name)
  end

  do -- half precision, whole or by autocast, computes about the same and has gradients
    local x = input.dtype == "f64" and input:to "f32" or input
    local full = model:eval()(x, opts)
    for _, dtype in ipairs { "bf16", "f16" } do
      local half = Class(config, { dtype = dtype }):eval()
      half:load_state_dict(model:state_dict())
      local got = half(x.dtype == "f32" and x:to(dtype) or x, opts)
      assert(got.dtype == dtype, got.dtype)
      assert(worst(got, full) < 0.06 * full:abs():max():item(), ("%s %s: %g"):format(name, dtype, worst(got, full)))
    end
    local _ <close> = accel.autocast { device = "cpu", dtype = "bf16" }
    local got = model:train()(x, opts)
    local out = got:to "f32"
    out:sum():backward()
    assert(model:parameters()[1].grad.dtype == "f32")
    model:zero_grad()
  end

  do -- the derivative along one direction of all parameters
    model:double()
    local parameters, along, outputs = model:parameters(), {}, nil
    do
      local _ <close> = accel.no_grad()
      for k, p in ipairs(parameters) do
        p:add_(accel.randn(p.shape, { dtype = "f64" }) * 0.3)
        along[k] = accel.randn(p.shape, { dtype = "f64" })
      end
    end
    local function loss()
      local results = { model(input, opts) }
      outputs = outputs or {}
      local sum
      for k, y in ipairs(results) do
        if type(y) == "table" then break end
        outputs[k] = outputs[k] or accel.randn(y.shape, { dtype = "f64" })
        local part = (y * outputs[k]):sum()
        sum = sum and sum + part or part
      end
      return sum
    end
    loss():backward()
    local slope, step, values = 0.0, 1e-6, {}
    for k, p in ipairs(parameters) do
      assert(p.grad, ("%s: parameter %d of %d has no gradient"):format(name, k, #parameters))
      slope = slope + (p.grad * along[k]):sum():item()
    end
    local _ <close> = accel.no_grad()
    for side = 1, 2 do
      local h = side == 1 and step or -2 * step
      for k, p in ipairs(parameters) do p:add_(along[k] * h) end
      values[side] = loss():item()
    end
    local measured = (values[1] - values[2]) / (2 * step)
    assert(math.abs(measured - slope) < 1e-5 * math.max(1, math.abs(slope)), ("%s: %g, measured %g"):format(name, slope,
      measured))
  end
end

do -- initial values
  local function std(t) return t:to("f64"):square():mean():sqrt():item() end
  local function near(t, want, what)
    assert(math.abs(std(t) / want - 1) < 0.05, ("%s: %g, wanted %g"):format(what, std(t), want))
  end
  local g = models.GPT2 {
    vocab_size = 100, n_positions = 64, n_embd = 64, n_layer = 8, n_head = 2, initializer_range = 0.1,
  }
  near(g.transformer.wte.weight, 0.1, "wte")
  near(g.transformer.h[3].attn.c_attn.weight, 0.1, "c_attn")
  near(g.transformer.h[3].attn.c_proj.weight, 0.1 / 4, "attn.c_proj")
  near(g.transformer.h[3].mlp.c_proj.weight, 0.1 / 4, "mlp.c_proj")
  assert(std(g.transformer.h[1].mlp.c_fc.bias) == 0 and worst(g.transformer.ln_f.weight, accel.ones(64)) == 0)
  local b = models.BertForMaskedLM(with(bert, { vocab_size = 200, hidden_size = 64, pad_token_id = 5 }))
  near(b.bert.embeddings.word_embeddings.weight, 0.02, "word embeddings")
  assert(std(b.bert.embeddings.word_embeddings.weight:select(1, 6)) == 0 and std(b.cls.predictions.bias) == 0)
  local v = models.ViTModel(with(vit, { image_size = 128, hidden_size = 32 }))
  near(v.embeddings.position_embeddings, 0.02, "positions")
  near(v.embeddings.patch_embeddings.projection.weight, 0.02, "patches")
  local t = models.T5ForConditionalGeneration(with(t5, { d_model = 64, d_kv = 16, d_ff = 128, vocab_size = 100,
    initializer_factor = 0.5, tie_word_embeddings = false, num_heads = 8 }))
  local layer = t.decoder.block[1].layer
  near(t.shared.weight, 0.5, "shared")
  near(t.lm_head.weight, 0.5, "lm_head")
  near(layer[1].SelfAttention.q.weight, 0.5 / math.sqrt(64 * 16), "q")
  near(layer[2].EncDecAttention.k.weight, 0.5 / math.sqrt(64), "k")
  near(layer[1].SelfAttention.o.weight, 0.5 / math.sqrt(8 * 16), "o")
  near(layer[3].DenseReluDense.wi.weight, 0.5 / math.sqrt(64), "wi")
  near(layer[3].DenseReluDense.wo.weight, 0.5 / math.sqrt(128), "wo")
  assert(worst(layer[1].layer_norm.weight, accel.full({ 64 }, 0.5)) == 0)
  local r = models.ResNetForImageClassification {
    embedding_size = 16, hidden_sizes = { 64 }, depths = { 1 }, num_labels = 400,
  }
  near(r.resnet.embedder.embedder.convolution.weight, math.sqrt(2 / (16 * 49)), "stem")
  near(r.classifier[2].weight, 1 / 8 / math.sqrt(3), "classifier")
  assert(worst(r.resnet.embedder.embedder.normalization.running_var, accel.ones(16)) == 0)
  assert(r.resnet.embedder.embedder.normalization.num_batches_tracked.dtype == "i64")
end

do -- what lies behind padding does not matter
  local b = models.BertModel(bert):eval()
  local _ <close> = accel.no_grad()
  local x, pooled = b(ids, { attention_mask = mask })
  local short, short_pooled = b(ids:narrow(1, 2, 1):narrow(2, 1, 4))
  assert(worst(x:narrow(1, 2, 1):narrow(2, 1, 4), short) < 1e-6 and worst(pooled:narrow(1, 2, 1), short_pooled) < 1e-6)
  for _, other in ipairs { mask:to "bool", mask:to "f32", mask:unsqueeze(2):expand(2, 7, 7),
    mask:to("bool"):unsqueeze(2):unsqueeze(2) } do
    assert(worst(b(ids, { attention_mask = other }), x) < 1e-6)
  end
  local added = (1 - mask:to "f32"):unsqueeze(2):unsqueeze(2) * -1e30
  assert(worst(b(ids, { attention_mask = added }):narrow(1, 1, 1), x:narrow(1, 1, 1)) < 1e-6)
  fails("10 tokens exceed the 9 positions", b, accel.zeros(1, 10, { dtype = "i64" }))
  fails("attention_mask must be a tensor, got table", b, ids, { attention_mask = {} })
  fails("unknown option 'token_types'; did you mean 'token_type_ids'", b, ids, { token_types = ids })

  local t = models.T5ForConditionalGeneration(t5):eval()
  local long = t(ids, with(decoder, { attention_mask = mask }))
  local alone = t(ids:narrow(1, 2, 1):narrow(2, 1, 4),
    { decoder_input_ids = decoder.decoder_input_ids:narrow(1, 2, 1) })
  assert(worst(long:narrow(1, 2, 1), alone) < 1e-6)
end

do -- T5: distances, labels, decoding step by step
  local bucket_of = require "accel.models.t5_stack".bucket_of
  -- where the bucket changes, of Transformers' own function with 32 buckets up to 128
  for _, case in ipairs {
    { true, { { -128, 15 }, { -91, 15 }, { -90, 14 }, { -64, 14 }, { -63, 13 }, { -8, 8 }, { -7, 7 }, { -1, 1 },
      { 0, 0 }, { 1, 17 }, { 7, 23 }, { 8, 24 }, { 11, 24 }, { 12, 25 }, { 1000, 31 } } },
    { false, { { 5, 0 }, { 0, 0 }, { -15, 15 }, { -16, 16 }, { -18, 16 }, { -19, 17 }, { -112, 30 }, { -113, 31 },
      { -4000, 31 } } },
  } do
    for _, pair in ipairs(case[2]) do
      local got = bucket_of(pair[1], case[1], 32, 128)
      assert(got == pair[2], ("distance %d: bucket %d, wanted %d"):format(pair[1], got, pair[2]))
    end
  end
  local model = models.T5ForConditionalGeneration(with(t5, { decoder_start_token_id = 3 })):eval()
  local shifted = model:shift_right(accel.tensor { { 5, 6, -100, -100 } }):tolist()[1]
  assert(table.concat(shifted, " ") == "3 5 6 0")
  assert(models.T5ForConditionalGeneration(t5).config.decoder_start_token_id == 0)
  local _ <close> = accel.no_grad()
  local memory = model:encode(ids)
  local whole = model(nil, with(decoder, { encoder_outputs = memory }))
  assert(worst(whole, model(ids, decoder)) == 0)
  for _, cuts in ipairs { { 4 }, { 1, 3 }, { 2, 1, 1 } } do
    local cache, at = model:new_cache(2, 4), 1
    for _, n in ipairs(cuts) do
      local part = model(nil, {
        decoder_input_ids = decoder.decoder_input_ids:narrow(2, at, n), encoder_outputs = memory, cache = cache,
      })
      assert(worst(part, whole:narrow(2, at, n)) < 1e-6)
      at = at + n
    end
  end
  local row, new = { 3 }, model:generate(ids:narrow(1, 1, 1), { max_new_tokens = 6, eos_token_id = false })[1]
  for i = 1, 6 do
    local last = model(ids:narrow(1, 1, 1), { decoder_input_ids = accel.tensor { row } }):select(2, -1)
    row[#row + 1] = last:argmax(2):item()
    assert(new[i] == row[#row])
  end
  assert(#model:generate({ 4, 5, 6 }, { max_new_tokens = 3, eos_token_id = false }) == 3)
  local o = { max_new_tokens = 5, eos_token_id = false }
  local many = model:generate({ { 4, 5, 6, 7 }, { 8 } }, o)
  assert(table.concat(many[1], " ") == table.concat(model:generate({ 4, 5, 6, 7 }, o), " "))
  assert(table.concat(many[2], " ") == table.concat(model:generate({ 8 }, o), " "))
  fails("decoder_input_ids must be a tensor", model, ids)
  fails("knows no longest text", model.new_cache, model, 1)
end

do -- Mixtral: choosing first and computing after equals computing everything and weighting
  local _ <close> = accel.no_grad()
  for _, k in ipairs { 1, 2, 4 } do
    local block = models.MixtralForCausalLM(with(llama, { num_local_experts = 4, num_experts_per_tok = k }))
      .model.layers[1].block_sparse_moe
    for _, p in ipairs(block:parameters()) do p:copy_(accel.randn_like(p)) end
    local x = accel.randn(2, 9, 8)
    local y, logits = block(x)
    local p, want = logits:softmax(2), accel.zeros(18, 8)
    local kth = p:topk(k, 2):select(2, k):unsqueeze(2)
    local weights = p * p:ge(kth):to "f32"
    weights = weights / weights:sum(2, true)
    for e = 1, 4 do want = want + block.experts[e](x:reshape(18, 8)) * weights:narrow(2, e, 1) end
    assert(worst(y:reshape(18, 8), want) < 1e-4 * want:abs():max():item(), k)
    assert(block(accel.zeros(2, 0, 8)).shape[2] == 0)
  end
  local balance = require "accel.models.mixture".load_balancing_loss
  -- equal probabilities: k; one expert for all: the number of experts
  assert(math.abs(balance({ accel.zeros(6, 4), accel.zeros(6, 4) }, 2):item() - 2) < 1e-6)
  local one = accel.zeros(6, 4)
  one:select(2, 3):fill_(60.0)
  assert(math.abs(balance({ one }, 1):item() - 4) < 1e-5)
  -- padding does not count
  local half = accel.tensor { { 1, 0, 1 }, { 0, 1, 1 } }
  local logits = accel.randn(6, 4)
  local kept = accel.cat({ logits:narrow(1, 1, 1), logits:narrow(1, 3, 1), logits:narrow(1, 5, 2) }, 1)
  assert(math.abs(balance({ logits }, 2, half):item() - balance({ kept }, 2):item()) < 1e-6)
  local model = models.MixtralForCausalLM(with(llama, { num_local_experts = 3, output_router_logits = true }))
  local out, aux = model(ids)
  assert(out.shape[3] == 20 and aux.ndim == 0 and select("#", model(ids, { output_router_logits = false })) == 1)
end

do -- masks
  local context = require "accel.models.context"
  local function rows(t) return accel.inspect(t:to("i64"):tolist()) end
  assert(rows(context.causal(2, 2, nil, "cpu")) == accel.inspect { { 1, 1, 1, 0 }, { 1, 1, 1, 1 } })
  assert(rows(context.causal(3, 1, 2, "cpu")) == accel.inspect { { 1, 1, 0, 0 }, { 0, 1, 1, 0 }, { 0, 0, 1, 1 } })
  local float = context.join(context.causal(2, 0, nil, "cpu"), accel.tensor { { { { 0.5, 0.25 } } } }):tolist()
  assert(float[1][1][1][2] == -math.huge and float[1][1][2][2] == 0.25)
  fails("expected a cache, got table", models.GPT2(gpt2).forward, models.GPT2(gpt2), ids, {}, {})
end

do -- dropout acts in training and nowhere else
  local model = models.GPT2(with(gpt2, { resid_pdrop = 0.5, embd_pdrop = 0.5, attn_pdrop = 0.5 }))
  assert(worst(model(ids), model(ids)) > 0 and worst(model:eval()(ids), model(ids)) == 0)
  assert(nn.Module.is_module(model))
  fails("expected images %[batch, 2, 16, 16%], got %(2, 2, 8, 8%)", models.ViTModel(vit), accel.zeros(2, 2, 8, 8))
  fails("expected images %[batch, 2, height, width%], got %(2, 3, 8, 8%)", models.ResNetModel(resnet),
    accel.zeros(2, 3, 8, 8))
end

do -- what is not an input says so, also Python's way of giving it; a typo in an option has a hint
  local tiny = models.tiny
  local of_ids = {
    models.GPT2(tiny.gpt2), models.LlamaForCausalLM(tiny.llama), models.LlamaModel(tiny.llama),
    models.MixtralForCausalLM(tiny.mixtral), models.BertModel(tiny.bert), models.T5EncoderModel(tiny.t5),
  }
  local x = accel.randint(1, 9, { 1, 4 })
  for _, model in ipairs(of_ids) do
    for _, bad in ipairs { "abc", 3, { input_ids = x } } do
      fails("must be a tensor %[batch, tokens%], got", function() return model(bad) end)
    end
    fails("must be a tensor %[batch, tokens%], got nil", function() return model() end)
    fails("unknown option 'atention_mask'; did you mean 'attention_mask'", function()
      return model(x, { atention_mask = x })
    end)
  end
  fails("unknown option 'lables'; did you mean 'labels'", function() return of_ids[1](x, { lables = x }) end)
  fails("labels are for a model with a head", function() return of_ids[3](x, { labels = x }) end)
  for _, model in ipairs { models.ViTModel(tiny.vit), models.ResNetModel(tiny.resnet) } do
    fails("expected images", function() return model "abc" end)
    fails("expected images", function() return model { pixel_values = x } end)
  end
end
