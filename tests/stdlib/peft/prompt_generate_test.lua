-- Generation with a tuned prompt: with a cache as without one, as by calls of the whole text; prompts of unequal lengths as each alone;
-- penalties do not see the placeholders of virtual tokens; beams, proposals, texts that outgrow the context.
--   accel-run tests/stdlib/peft/prompt_generate_test.lua
local accel = require "accel"
local peft = accel.peft
local GPT <const> = { vocab_size = 65, n_positions = 24, n_embd = 32, n_layer = 2, n_head = 2 }
local LLAMA <const> = { vocab_size = 65, hidden_size = 32, intermediate_size = 48, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 24 }

local function same(a, b, what)
  a, b = accel.json.encode(a), accel.json.encode(b)
  assert(a == b, ("%s: %s, expected %s"):format(what, a, b))
end

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("%s, not %s"):format(tostring(err), pattern))
end

--- A model with a prompt of n tokens, which matters: weights are wide.
local function make(class, config, n)
  accel.manual_seed(11)
  local base = class(config)
  for _, p in ipairs(base:parameters()) do accel.no_grad(function() if p.ndim > 1 then p:mul_(6) end end) end
  local p = peft.get_peft_model(base, peft.PromptTuningConfig { num_virtual_tokens = n })
  accel.no_grad(function() p.prompt_encoder.default.embedding.weight:mul_(0.5) end)
  return p:eval()
end

--- Greedy by calls of the whole text; adjust(scores, text) changes the scores of a step.
local function by_calls(p, text, steps, adjust)
  local _ <close> = accel.no_grad()
  text = { table.unpack(text) }
  local out = {}
  for i = 1, steps do
    local y = p(accel.tensor({ text }, { dtype = "i64" }))
    local scores = y:select(2, -1):select(1, 1)
    if adjust then scores = adjust(scores, text) end
    out[i] = scores:argmax():item()
    text[#text + 1] = out[i]
  end
  return out
end

for _, kind in ipairs { { accel.models.GPT2LMHeadModel, GPT }, { accel.models.LlamaForCausalLM, LLAMA } } do
  local p = make(kind[1], kind[2], 5)
  local prompts = { { 3, 9, 4 }, { 7, 1, 30, 12, 8, 2 }, { 50 } }
  local singles = {}
  for i, prompt in ipairs(prompts) do
    singles[i] = by_calls(p, prompt, 8)
    local plain = p:disable_adapter(function() return p:generate(prompt, { max_new_tokens = 8, eos_token_id = false }) end)
    assert(accel.json.encode(plain) ~= accel.json.encode(singles[i]), "the prompt changes nothing")
    for _, o in ipairs { { use_cache = true }, { use_cache = false }, { cache_implementation = "dynamic" },
      { prompt_lookup_num_tokens = 2 }, { assistant_model = p, num_assistant_tokens = 3 } } do
      o.max_new_tokens, o.eos_token_id = 8, false
      same(p:generate(prompt, o), singles[i], accel.json.encode(prompt))
    end
  end
  for _, use_cache in ipairs { true, false } do -- prompts of unequal lengths, padded before them
    local o = { max_new_tokens = 8, eos_token_id = false, pad_token_id = 0, use_cache = use_cache }
    same(p:generate(prompts, o), singles, "batch")
    o.num_beams, o.num_return_sequences = 3, 2
    local beams = p:generate(prompts, o)
    for i, prompt in ipairs(prompts) do
      same({ beams[2 * i - 1], beams[2 * i] }, p:generate(prompt, o), "beams")
    end
  end

  -- placeholders are id 0: a penalty on ids that were there leaves 0 alone, and the ids of the text are met
  local function penalise(scores, text)
    scores = scores:clone()
    for id = 0, 64 do
      local there
      for _, t in ipairs(text) do there = there or t == id end
      local s = scores[id + 1]:item()
      if there then scores:narrow(1, id + 1, 1):fill_(s < 0 and s * 1.7 or s / 1.7) end
    end
    return scores
  end
  same(p:generate(prompts[2], { max_new_tokens = 8, eos_token_id = false, repetition_penalty = 1.7 }),
    by_calls(p, prompts[2], 8, penalise), "repetition_penalty")
  local seen -- what a processor gets
  p:generate(prompts[1], { max_new_tokens = 1, logits_processor = { function(rows, scores) seen = rows[1] return scores end } })
  same({ table.unpack(seen, 1, 3) }, prompts[1], "rows")

  -- the same draws with a cache and without
  local o = { max_new_tokens = 6, eos_token_id = false, do_sample = true, temperature = 1.5, seed = 4 }
  local drawn = p:generate(prompts, o)
  o.use_cache = false
  same(p:generate(prompts, o), drawn, "draws")

  -- a text that outgrows the context is read again behind the prompt: 24 positions hold 19 ids
  local long = p:generate(prompts[2], { max_new_tokens = 30, eos_token_id = false })
  assert(#long == 30)
  same({ table.unpack(long, 1, 13) }, by_calls(p, prompts[2], 13), "up to the context")
  local text = { table.unpack(prompts[2]) }
  table.move(long, 1, 14, #text + 1, text) -- at 20 ids the last half goes on: 9 of them
  same({ long[15] }, by_calls(p, { table.unpack(text, #text - 8) }, 1), "behind the context")
  fails("past_key_values of a model with a tuned prompt", p.generate, p, prompts[1],
    { past_key_values = p:get_base_model():new_cache(1, 20), max_new_tokens = 2 })
end

-- other adapters: the model's own generation, with the adapter
accel.manual_seed(2)
local lora = peft.get_peft_model(accel.models.GPT2LMHeadModel(GPT), peft.LoraConfig { r = 2, init_lora_weights = false }):eval()
same(lora:generate({ 1, 2 }, { max_new_tokens = 6, eos_token_id = false }), by_calls(lora, { 1, 2 }, 6), "lora")
local t5 = peft.get_peft_model(accel.models.T5ForConditionalGeneration(accel.models.tiny.t5), peft.PromptTuningConfig { num_virtual_tokens = 2 })
fails("this one has an encoder", t5.generate, t5, { 1, 2 }, { max_new_tokens = 2 })
