--- Decoder-only models: KV cache, generation, saving, names. (Logits of every family are compared with those
--- of Transformers by tests/reference/models.lua.)
local accel = require "accel"
local models = accel.models

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local files = os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/files/"
local tmp = os.getenv "ACCEL_TEST_TMP"
local function worst(a, b) return (a:to "f64" - b:to "f64"):abs():max():item() end

for _, entry in ipairs {
  { "gpt2", models.GPT2 }, { "llama", models.Llama }, { "mixtral", models.MixtralForCausalLM },
} do
  local name, Class = entry[1], entry[2]
  local model = assert(Class.from_pretrained(files .. name))
  local expected = assert(accel.load(files .. name .. "/expected.safetensors"))
  local ids, want = expected["in/input_ids"], expected["out/logits"]
  local _ <close> = accel.no_grad()
  local logits = model(ids)
  local scale = want:abs():max():item()
  assert(worst(logits, want) < 1e-5 * scale, ("%s f32: %g"):format(name, worst(logits, want) / scale))
  -- Transformers computes the rotation's angles (and norms and routing) in float32 whatever the model's dtype
  local bar = name ~= "gpt2" and 1e-6 or 1e-12
  model:double()
  logits = model(ids)
  assert(worst(logits, want) < bar * scale, ("%s f64: %g"):format(name, worst(logits, want) / scale))

  -- a cache changes nothing: one at a time, in two parts, in odd parts
  for _, cuts in ipairs { { 12 }, { 5, 7 }, { 1, 1, 3, 1, 4, 2 } } do
    local cache, at = model:new_cache(2, 12), 1
    for _, n in ipairs(cuts) do
      local part = model(ids:narrow(2, at, n), cache)
      assert(worst(part, logits:narrow(2, at, n)) < 1e-12 * scale, name)
      at = at + n
    end
    assert(cache.past == 12)
    fails("do not fit after 12 of 12", model.forward, model, ids:narrow(2, 1, 1), cache)
  end

  -- greedy generation equals the argmax of full forwards
  local prompt = ids:narrow(1, 1, 1):tolist()[1]
  local row, new = table.move(prompt, 1, #prompt, 1, {}), {}
  for _ = 1, 8 do
    local last = model(accel.tensor { row }):select(2, -1)
    new[#new + 1] = last:argmax(2):item()
    row[#row + 1] = new[#new]
  end
  local got = model:generate(prompt, { max_new_tokens = 8, eos_token_id = false })
  assert(table.concat(got, " ") == table.concat(new, " "))
  local both = model:generate(ids, { max_new_tokens = 8, eos_token_id = false })
  assert(#both == 2 and table.concat(both[1], " ") == table.concat(new, " ") and #both[2] == 8)

  -- the end: an id, several, or the configuration's; the other row goes on and the first is filled up
  local function first(list, id)
    for i, v in ipairs(list) do
      if v == id then return i end
    end
  end
  local stop = first(new, new[3])
  assert(#model:generate(prompt, { max_new_tokens = 8, eos_token_id = new[3] }) == stop)
  assert(#model:generate(prompt, { max_new_tokens = 8, eos_token_id = { 1000, new[3] } }) == stop)
  local generation = model.generation_config -- of the folder
  local was_eos, was_pad = generation.eos_token_id, generation.pad_token_id
  generation.eos_token_id, generation.pad_token_id = new[3], 77
  assert(#model:generate(prompt, { max_new_tokens = 8 }) == stop)
  if not first(both[2], new[3]) then
    local rows = model:generate(ids, { max_new_tokens = 8 })
    assert(#rows[1] == 8 and rows[1][stop] == new[3] and rows[1][8] == 77)
    assert(table.concat(rows[2], " ") == table.concat(both[2], " "))
  end
  generation.eos_token_id, generation.pad_token_id = was_eos, was_pad

  -- beyond the context it goes on
  local long = model:generate(prompt, { max_new_tokens = 70, eos_token_id = false })
  assert(#long == 70)

  -- prompts of different lengths are continued as if alone, also beyond the context
  local short = table.move(prompt, 1, 4, 1, {})
  for _, n in ipairs { 6, 70 } do
    local o = { max_new_tokens = n, eos_token_id = false }
    local many = model:generate({ short, prompt, { 5 } }, o)
    if n == 6 then
      for b, alone in ipairs { short, prompt, { 5 } } do
        assert(table.concat(many[b], " ") == table.concat(model:generate(alone, o), " "), name)
      end
    end
    assert(#many[1] == n and #many[3] == n)
  end

  -- sampling depends on the seed alone
  local function sample(seed)
    local o = { top_k = 5, seed = seed, max_new_tokens = 20, eos_token_id = false }
    return table.concat(model:generate(prompt, o), " ")
  end
  assert(sample(1) == sample(1) and sample(1) ~= sample(2))
  assert(not model.training)

  -- saved and read again
  assert(model:float():save_pretrained(tmp .. "/" .. name))
  local again = assert(Class.from_pretrained(tmp .. "/" .. name))
  assert(worst(again(ids), model(ids)) == 0)

  -- padding on the right changes nothing for the tokens before it; positions may be given
  local T = ids.shape[2]
  local mask = accel.ones(2, T, { dtype = "i64" })
  mask:narrow(2, 9, T - 8):zero_()
  local seen = model(ids, { attention_mask = mask }):narrow(2, 1, 8)
  assert(worst(seen, model(ids):narrow(2, 1, 8)) < 1e-5 * scale)
  -- padding on the left with positions that begin behind it is the text alone
  mask = accel.ones(2, T, { dtype = "i64" })
  mask:narrow(2, 1, 3):zero_()
  local positions = (accel.arange(T) - 3):maximum(0)
  local left = model(ids, nil, { attention_mask = mask, position_ids = positions }):narrow(2, 4, T - 3)
  assert(worst(left, model(ids:narrow(2, 4, T - 3))) < 1e-5 * scale, name)
  fails("attention_mask %(2, 3%) does not fit 2 rows of 12 tokens", model, ids,
    { attention_mask = accel.ones(2, 3) })
  fails("ids must be %[batch, tokens%], got shape %(12%)", model, ids:select(1, 1))
  fails("unknown option 'attention_musk'; did you mean 'attention_mask'", model, ids, { attention_musk = mask })
end

do -- names and shapes are Hugging Face's
  local model = models.GPT2 { vocab_size = 7, n_positions = 5, n_embd = 8, n_layer = 1, n_head = 2 }
  local names = {}
  for name in pairs(model:state_dict()) do names[#names + 1] = name end
  assert(table.concat(names,
    " ") == "transformer.wte.weight transformer.wpe.weight transformer.h.0.ln_1.weight "
    .. "transformer.h.0.ln_1.bias transformer.h.0.attn.c_attn.weight transformer.h.0.attn.c_attn.bias "
    .. "transformer.h.0.attn.c_proj.weight transformer.h.0.attn.c_proj.bias transformer.h.0.ln_2.weight "
    .. "transformer.h.0.ln_2.bias transformer.h.0.mlp.c_fc.weight transformer.h.0.mlp.c_fc.bias "
    .. "transformer.h.0.mlp.c_proj.weight transformer.h.0.mlp.c_proj.bias transformer.ln_f.weight "
    .. "transformer.ln_f.bias lm_head.weight")
  local shape = model.transformer.h[1].attn.c_attn.weight.shape
  assert(shape[1] == 8 and shape[2] == 24)
  fails("6 tokens exceed the context of 5", model, accel.zeros(1, 6, { dtype = "i64" }))
  fails("not a multiple of n_head", models.GPT2, { n_embd = 10, n_head = 3 })
  fails("prompt is empty", model.generate, model, {})
  fails("prompt 2 is empty", model.generate, model, { { 1, 2 }, {} })
  fails("prompt 2 is a number", model.generate, model, { { 1, 2 }, 3 })
  fails("unknown option 'top_j'", model.generate, model, { 1 }, { top_j = 3 })
  fails("prompt 1 holds 1.5 at place 2", model.generate, model, { 1, 1.5 })
  fails("max_new_tokens must be an integer of at least 0", model.generate, model, { 1 }, { max_new_tokens = -1 })
  fails("top_k must be an integer", model.generate, model, { 1 }, { top_k = 1.5 })
  fails("made for a batch of 2, got 1 rows", model, accel.zeros(1, 2, { dtype = "i64" }), model:new_cache(2, 4))
  accel.enable_grad(function()
    fails("inside accel.no_grad", model, accel.zeros(1, 2, { dtype = "i64" }), model:new_cache(1, 4))
  end)
end
