-- Speculative decoding: with any draft model greedy results are those without it, sampled ones have the model's own
-- distribution; a good draft saves passes.
local accel = require "accel"
local models = accel.models

local files = os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/files/"
local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end
local function text(ids) return accel.json.encode(ids) end

local prompt = { 5, 9, 14, 3, 22 }
for _, family in ipairs { "gpt2", "llama", "mixtral", "t5" } do
  local model = assert(models.from_pretrained(files .. family))
  local other = assert(models.from_pretrained(files .. family))
  do -- a draft that is nearly the model
    local _ <close> = accel.no_grad()
    accel.manual_seed(2)
    for _, p in ipairs(other:parameters()) do p:add_(accel.randn_like(p) * 0.01) end
  end
  -- gpt2's context ends within: the last half is read again
  for _, n in ipairs { 20, family == "gpt2" and 40 or 25 } do
    local plain = { max_new_tokens = n, eos_token_id = false, repetition_penalty = n == 20 and 1.3 or 1.0 }
    local want = model:generate(prompt, plain)
    for _, how in ipairs {
      { assistant_model = model }, { assistant_model = other }, { assistant_model = other, num_assistant_tokens = 3 },
      { assistant_model = other, assistant_confidence_threshold = 0.0, num_assistant_tokens_schedule = "heuristic" },
      { prompt_lookup_num_tokens = 4 }, { assistant_model = other, cache_implementation = "dynamic" },
    } do
      for key, value in next, plain do how[key] = value end
      how.return_dict_in_generate = true
      local out = model:generate(prompt, how)
      assert(text(out.sequences[1]) == text(want), ("%s %d: %s, wanted %s"):format(family, n, text(out.sequences[1]), text(want)))
      if how.assistant_model == model then how.assistant_confidence_threshold = 0.0 end
    end
    local best = model:generate(prompt, {
      max_new_tokens = 18, eos_token_id = false, assistant_model = model, assistant_confidence_threshold = 0.0,
      num_assistant_tokens = 5, return_dict_in_generate = true,
    })
    -- the model as its own draft is always right: 6 ids a pass
    assert(best.assisted.passes == 3 and best.assisted.accepted == best.assisted.proposed)
  end
end

do -- an end among the proposals ends the text
  local model = assert(models.from_pretrained(files .. "llama"))
  local new = model:generate(prompt, { max_new_tokens = 12, eos_token_id = false })
  local out = model:generate(prompt, {
    max_new_tokens = 12, eos_token_id = new[4], assistant_model = model, assistant_confidence_threshold = 0.0,
  })
  assert(text(out) == text(table.move(new, 1, 4, 1, {})))
  local got = {}
  model:generate(prompt, { max_new_tokens = 12, eos_token_id = false, assistant_model = model, on_token = function(ids) got[#got + 1] = ids[1] end })
  assert(text(got) == text(new))
end

do -- sampled pairs of ids are as often what they are without a draft (chi-square over the pairs that are likely)
  local model, draft = assert(models.from_pretrained(files .. "llama")), assert(models.from_pretrained(files .. "llama"))
  do
    local _ <close> = accel.no_grad()
    accel.manual_seed(4)
    for _, p in ipairs(draft:parameters()) do p:add_(accel.randn_like(p) * 0.05) end
  end
  local o = { max_new_tokens = 2, eos_token_id = false, do_sample = true, top_k = 4, temperature = 2.0 }
  local n, counts = 600, { {}, {} }
  for which = 1, 2 do
    for i = 1, n do
      o.seed, o.assistant_model = 100000 * which + i, which == 2 and draft or nil
      o.assistant_confidence_threshold = 0.0
      local key = text(model:generate(prompt, o))
      counts[which][key] = (counts[which][key] or 0) + 1
    end
  end
  local chi, degrees = 0, -1
  for key, a in next, counts[1] do
    local b = counts[2][key] or 0
    if a + b >= 20 then chi, degrees = chi + (a - b) ^ 2 / (a + b), degrees + 1 end
  end
  assert(degrees >= 5 and chi < degrees + 5 * math.sqrt(2 * degrees), ("%g with %d degrees of freedom"):format(chi, degrees))
end

do -- an end that the assistant has no row for ends the text as it does without
  local model = assert(models.from_pretrained(files .. "llama"))
  local small = models.GPT2 { vocab_size = 8, n_positions = 64, n_embd = 16, n_layer = 1, n_head = 2, eos_token_id = 0 }
  local first = model:generate({ 1, 2 }, { max_new_tokens = 1, eos_token_id = false })[1]
  assert(first >= 8)
  local out = model:generate({ 1, 2 }, { max_new_tokens = 12, eos_token_id = first, assistant_model = small, assistant_confidence_threshold = 0.0 })
  assert(text(out) == text { first })
end

do
  local model = assert(models.from_pretrained(files .. "llama"))
  -- an assistant of other ids
  local small = models.GPT2 { vocab_size = 8, n_positions = 64, n_embd = 16, n_layer = 1, n_head = 2, eos_token_id = 0 }
  local large = models.GPT2 { vocab_size = 4096, n_positions = 64, n_embd = 16, n_layer = 1, n_head = 2, eos_token_id = 0 }
  local how = { max_new_tokens = 12, eos_token_id = false, assistant_confidence_threshold = 0.0 }
  how.assistant_model = small
  fails("id 9 is not one of the 8 of the assistant: assistant_model must have the model's tokenizer", model.generate, model, prompt, how)
  fails("id %d+ is not one of the 8 of the assistant", model.generate, model, { 1, 2 }, how)
  how.assistant_model = large
  fails("id %d+ is not one of the %d+ of the model: assistant_model must have", model.generate, model, { 1, 2 }, how)
  fails("takes one prompt, got 2", model.generate, model, { { 1 }, { 2 } }, { assistant_model = model })
  fails("has no beams", model.generate, model, prompt, { assistant_model = model, num_beams = 2 })
  fails("needs use_cache", model.generate, model, prompt, { prompt_lookup_num_tokens = 2, use_cache = false })
end
