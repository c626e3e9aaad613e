-- model:gradient_checkpointing_enable(): the same losses and gradients to the last bit in every family, with dropout
-- on; layers run twice in training and once elsewhere.
--   accel-run tests/stdlib/models/gradient_checkpointing_test.lua
local accel = require "accel"
local models = accel.models
local tiny = models.tiny

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end

local function with(config, more)
  local c = {}
  for key, value in next, config do c[key] = value end
  for key, value in next, more do c[key] = value end
  return c
end
local ids = accel.tensor { { 1, 2, 3, 4 }, { 5, 6, 7, 0 } }
local mask = accel.tensor { { 1, 1, 1, 1 }, { 1, 1, 1, 0 } }
local function logits(m) return m(ids, { attention_mask = mask }) end

--- name -> class, configuration, forward, the layers
local families = {
  gpt2 = { models.GPT2, with(tiny.gpt2, { n_layer = 3 }), logits, function(m) return m.transformer.h end },
  llama = { models.Llama, with(tiny.llama, { num_hidden_layers = 3, attention_dropout = 0.2 }), logits,
    function(m) return m.model.layers end },
  mixtral = { models.MixtralForCausalLM, tiny.mixtral, function(m)
    local out, aux = m(ids, { output_router_logits = true })
    return out:sum() + aux
  end, function(m) return m.model.layers end },
  bert = { models.BertForMaskedLM, tiny.bert, logits, function(m) return m.bert.encoder.layer end },
  vit = { models.ViTModel, tiny.vit, function(m)
    accel.manual_seed(8)
    local c = m.config
    return m(accel.randn(2, c.num_channels, c.image_size, c.image_size))
  end, function(m) return m.encoder.layer end },
  t5 = { models.T5ForConditionalGeneration, tiny.t5, function(m)
    return m(ids, { decoder_input_ids = ids, attention_mask = mask })
  end, function(m) return m.encoder.block end },
}

for name, family in accel.pairs(families) do
  local class, config, run, layers = table.unpack(family)
  assert(class and config, name)
  accel.manual_seed(1)
  local model = class(config)
  local calls = 0
  layers(model)[1]:register_forward_pre_hook(function() calls = calls + 1 end)
  local function measure()
    calls = 0
    model:zero_grad()
    accel.manual_seed(4)
    local loss = run(model):sin():sum()
    loss:backward()
    local out = { loss:detach() }
    for _, p in ipairs(model:parameters()) do out[#out + 1] = p.grad or false end
    return out, calls
  end
  assert(not model:is_gradient_checkpointing())
  local want, once = measure()
  model:gradient_checkpointing_enable()
  assert(model:is_gradient_checkpointing() and once == 1)
  local got, twice = measure()
  assert(#want == #got, name)
  for i, g in ipairs(want) do
    assert(g == got[i] or accel.equal(g, got[i]), ("%s: value %d differs"):format(name, i))
  end
  assert(twice == 2, name)
  -- not where nothing is learnt
  model:eval()
  measure()
  assert(calls == 1)
  model:train()
  calls = 0
  accel.no_grad(run, model)
  assert(calls == 1)
  model:gradient_checkpointing_disable()
  assert(not model:is_gradient_checkpointing() and select(2, measure()) == 1)
  -- attention alone; arguments in host memory; everything that is saved in host memory as well
  for _, o in ipairs { { granularity = "selective" }, { offload = "host" }, { granularity = "selective", offload = "host" } } do
    model:gradient_checkpointing_enable(o)
    assert(model:is_gradient_checkpointing())
    for _, tier in ipairs { false, true } do
      local plain = run
      if tier then run = function(m) return accel.offload.activations({ least = 1 }, plain, m) end end
      local values, layer_calls = measure()
      run = plain
      for i, g in ipairs(want) do
        assert(g == values[i] or accel.equal(g, values[i]), ("%s: %s: value %d differs"):format(name, o.granularity or "full", i))
      end
      assert(layer_calls == (o.granularity and 1 or 2), name)
    end
  end
  model:gradient_checkpointing_disable()
  assert(not model:is_gradient_checkpointing() and select(2, measure()) == 1)
  -- the switch is not a part of the weights
  for key in accel.pairs(model:state_dict()) do assert(not key:find "checkpointing") end
end

-- Options reach the checkpoints, in both forms; wrong ones are named.
do
  local model = models.GPT2(with(tiny.gpt2, { resid_pdrop = 0.5 }))
  local function grad(opts)
    model:zero_grad()
    if opts then model:gradient_checkpointing_enable(opts) end
    accel.manual_seed(4)
    model(ids):sin():sum():backward()
    return model:parameters()[3].grad:clone()
  end
  local want = grad()
  assert(accel.equal(grad { early_stop = false }, want))
  assert(accel.equal(grad { gradient_checkpointing_kwargs = { use_reentrant = false } }, want))
  assert(not accel.equal(grad { preserve_rng_state = false }, want))
  fails("unknown option 'earlystop'", model.gradient_checkpointing_enable, model, { earlystop = true })
  fails("option 'early_stop' must be a boolean", model.gradient_checkpointing_enable, model, { early_stop = 1 })
  fails("granularity", model.gradient_checkpointing_enable, model, { granularity = "some" })
  fails("offload must be 'none' or 'host'", model.gradient_checkpointing_enable, model, { offload = "tape" })
  fails("use_reentrant = true is not supported", model.gradient_checkpointing_enable, model,
    { gradient_checkpointing_kwargs = { use_reentrant = true } })
  -- text is generated with a cache, in training mode too
  model:gradient_checkpointing_enable()
  assert(#model:generate({ 1, 2 }, { max_new_tokens = 3 }) == 3)
  fails("has no layers that gradient checkpointing could run again", function()
    models.ResNetModel(tiny.resnet):gradient_checkpointing_enable()
  end)
end
