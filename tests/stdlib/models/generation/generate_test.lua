-- model:generate: options of calls and files, ends, callbacks, speculative decoding. (Ids and scores are compared with those of
-- Transformers by tests/reference/generation.lua.)
local accel = require "accel"
local models = accel.models

local files, tmp = os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/files/", os.getenv "ACCEL_TEST_TMP"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

local function text(ids) return accel.json.encode(ids) end
local function same(a, b) assert(text(a) == text(b), text(a) .. " and " .. text(b)) end

local model = assert(models.from_pretrained(files .. "llama"))
local prompt = { 5, 9, 14, 3, 22 }
local free = { max_new_tokens = 12, eos_token_id = false }
local function with(more)
  local o = { max_new_tokens = 12, eos_token_id = false }
  for key, value in next, more do o[key] = value end
  return o
end
local new = model:generate(prompt, free)

-- one table, or ids and a table
same(model:generate { input_ids = prompt, max_new_tokens = 12, eos_token_id = false }, new)
same(model:generate(accel.tensor({ prompt }, { dtype = "i64" }), free), { new })
assert(#model:generate(prompt, { eos_token_id = false }) == 32)
assert(#model:generate(prompt, { max_length = 9, eos_token_id = false }) == 4)
assert(#model:generate(prompt, { max_new_tokens = 0 }) == 0)
fails("max_length is 5, but the prompt has 5 tokens already", model.generate, model, prompt, { max_length = 5 })

do -- what is padded by hand, on either side, is the same
  local rows = { { 7, 7, 5, 9, 14, 3, 22 }, { 5, 9, 14, 3, 22, 7, 7 } }
  local mask = { { 0, 0, 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1, 0, 0 } }
  same(model:generate(rows, with { attention_mask = mask }), { new, new })
  fails("attention_mask has 1 rows for 2 prompts", model.generate, model, rows, { attention_mask = { mask[1] } })
  fails("attention_mask hides all of prompt 1", model.generate, model, { { 1 } }, { attention_mask = { { 0 } } })
  fails("row 1 of attention_mask does not fit the 5 ids", model.generate, model, prompt, { attention_mask = { 1 } })
end

do -- greedy, unless something about the draw is said; temperature = 0 is greedy
  same(model:generate(prompt, with { do_sample = false, temperature = 0.7, top_k = 3 }), new)
  same(model:generate(prompt, with { temperature = 0, top_k = 3 }), new)
  same(model:generate(prompt, with { top_k = 1 }), new)
  local drawn = model:generate(prompt, with { do_sample = true, seed = 4 })
  same(model:generate(prompt, with { temperature = 1.0, seed = 4 }), drawn)
  assert(text(drawn) ~= text(new))
  local several = model:generate({ prompt, { 1 } }, with { do_sample = true, num_return_sequences = 3, seed = 4 })
  assert(#several == 6 and text(several[1]) ~= text(several[2]))
  fails("temperature must be above 0 with do_sample = true", model.generate, model, prompt, { do_sample = true, temperature = 0 })
  fails("num_return_sequences is 2, but greedy search has one result", model.generate, model, prompt, { num_return_sequences = 2 })
  fails("num_return_sequences is 3, but num_beams only 2", model.generate, model, prompt, { num_beams = 2, num_return_sequences = 3 })
end

do -- names, types
  fails("unknown option 'max_new_token'; did you mean 'max_new_tokens'", model.generate, model, prompt, { max_new_token = 3 })
  fails("penalty_alpha is not supported: the search is not built", model.generate, model, prompt, { penalty_alpha = 0.6 })
  fails("assistant_early_exit is not supported: an assistant is a model", model.generate, model, prompt, { assistant_early_exit = 3 })
  -- every name of Transformers' class (5.24) is followed, refused with a reason, or said to have no effect, once
  local names = "use_mtp max_cache_len top_h token_healing guidance_scale watermarking_config output_attentions output_hidden_states "
    .. "is_assistant assistant_early_exit assistant_lookbehind target_lookbehind assistant_ensemble_weight speculation_type compile_config "
    .. "disable_compile continuous_batching_config low_memory penalty_alpha dola_layers diversity_penalty num_beam_groups constraints "
    .. "force_words_ids prefill_chunk_size"
  local real, said = warn, {}
  warn = function(line) said[#said + 1] = line end -- luacheck: ignore 121
  local refused = 0
  for name in names:gmatch "%S+" do
    local before = #said
    local ok, err = pcall(model.generate, model, prompt, with { [name] = 0.25 })
    if ok then
      assert(#said == before + 1 and said[#said]:find("generate: " .. name .. " has no effect: ", 1, true), name)
      same(model:generate(prompt, with { [name] = 0.25 }), new)
      assert(#said == before + 1, name)
    else
      assert(tostring(err):find(name .. " is not supported: %l"), tostring(err))
      refused = refused + 1
    end
  end
  assert(refused == 18 and #said == 7, refused)
  -- a folder that asks for what is not built says so; what changes nothing is kept quietly
  local folder = tmp .. "/elsewhere"
  assert(accel.makedirs(folder))
  assert(accel.write_file(folder .. "/generation_config.json", accel.json.encode {
    penalty_alpha = 0.6, num_beam_groups = 1, prefill_chunk_size = 4, top_k = 3, dola_layers = accel.json.null,
  }))
  said = {}
  local kept = assert(models.GenerationConfig.from_pretrained(folder))
  warn = real -- luacheck: ignore 121
  assert(#said == 1 and said[1]:find "generation_config.json: penalty_alpha is not supported: .*; generation ignores it", said[1])
  assert(kept.top_k == 3 and kept.others.penalty_alpha == 0.6 and kept.others.prefill_chunk_size == 4)
  same(model:generate(prompt, with { penalty_alpha = 0.0, guidance_scale = 1.0 }), new)
  fails("top_p must lie in %(0, 1%], got 1.5", model.generate, model, prompt, { top_p = 1.5 })
  fails("early_stopping must be true, false or 'never'", model.generate, model, prompt, { early_stopping = "always" })
  fails("bad_words_ids %[2%] is empty", model.generate, model, prompt, { bad_words_ids = { { 1 }, {} } })
  fails("on_token must be a function", model.generate, model, prompt, { on_token = 3 })
  fails("repetition_penalty must be a number", model.generate, model, prompt, { repetition_penalty = "much" })
end

do -- the folder's generation_config.json, which a call overrides and save_pretrained keeps
  local config = models.GenerationConfig { max_new_tokens = 7, do_sample = true, top_k = 5, eos_token_id = { 2, 3 }, temperature = 0.5 }
  model.generation_config = config
  assert(model:save_pretrained(tmp .. "/saved"))
  local again = assert(models.from_pretrained(tmp .. "/saved"))
  local g = again.generation_config
  assert(g.max_new_tokens == 7 and g.do_sample and g.top_k == 5 and g.temperature == 0.5 and text(g.eos_token_id) == "[2,3]")
  assert(#again:generate(prompt, { eos_token_id = false }) == 7)
  same(again:generate(prompt, { seed = 9 }), model:generate(prompt, { seed = 9 }))
  same(again:generate(prompt, { do_sample = false, max_new_tokens = 12, eos_token_id = false }), new)
  same(again:generate(prompt, { temperature = 0, max_new_tokens = 12, eos_token_id = false }), new)
  same(again:generate(prompt, with { generation_config = {} }), new)
  same(again:generate(prompt, with { generation_config = models.GenerationConfig { num_beams = 2 } }),
    model:generate(prompt, with { num_beams = 2, do_sample = false }))
  local function write(json)
    local file <close> = assert(io.open(tmp .. "/saved/generation_config.json", "wb"))
    file:write(json)
  end
  write '{"top_k": "many"}'
  local ok, message, code = models.from_pretrained(tmp .. "/saved")
  assert(not ok and code == "format" and message:find "generation_config.json: top_k must be an integer", message)
  write '{"temperature": 0.25, "transformers_version": "9", "something_new": [1]}'
  again = assert(models.from_pretrained(tmp .. "/saved"))
  assert(again.generation_config.temperature == 0.25 and again:save_pretrained(tmp .. "/saved"))
  assert(assert(models.from_pretrained(tmp .. "/saved")).generation_config.others.something_new[1] == 1)
  model.generation_config = models.GenerationConfig {}
end

do -- ends: by string within decoded text, by a criterion, by time; min_new_tokens holds ends off
  local chars = {}
  for i = 0, 95 do chars[i] = string.char(32 + i % 90) end
  local tokenizer = { decode = function(_, ids)
    local out = {}
    for i, id in ipairs(ids) do out[i] = chars[id] end
    return table.concat(out)
  end }
  local written = tokenizer:decode(new)
  for n = 1, 3 do -- the first n characters from the fifth on
    local stop = written:sub(5, 4 + n)
    local first = written:find(stop, 1, true) + n - 1
    same(model:generate(prompt, with { stop_strings = { "\1never", stop }, tokenizer = tokenizer }),
      table.move(new, 1, first, 1, {}))
  end
  fails("stop_strings need the option tokenizer", model.generate, model, prompt, { stop_strings = "x" })
  same(model:generate(prompt, with { stopping_criteria = function(row) return #row >= #prompt + 4 end }), table.move(new, 1, 4, 1, {}))
  assert(#model:generate(prompt, with { max_time = 0.0 }) == 1)
  assert(#model:generate(prompt, { max_new_tokens = 12, eos_token_id = new[5] }) == 5)
  assert(#model:generate(prompt, { max_new_tokens = 12, eos_token_id = new[5], min_new_tokens = 6 }) > 6)
end

do -- callbacks and what is kept
  local steps, put, finished = {}, {}, false
  local streamer = { put = function(_, ids) put[#put + 1] = ids end, finish = function() finished = true end }
  model:generate(prompt, with { on_token = function(ids) steps[#steps + 1] = ids[1] end, streamer = streamer })
  same(steps, new)
  local n = 0
  same(model:generate(prompt, with { on_token = function() n = n + 1 return n < 3 end }), table.move(new, 1, 3, 1, {}))
  assert(finished and text(put[1]) == text(prompt) and #put == 13 and put[2][1] == new[1])
  fails("need num_beams = 1", model.generate, model, prompt, with { streamer = streamer, num_beams = 2 })
  local out = model:generate({ prompt }, with {
    return_dict_in_generate = true, output_scores = true, output_logits = true, repetition_penalty = 2.0,
  })
  assert(#out.scores == 12 and #out.logits == 12 and out.scores[1]:argmax(2):item() == out.sequences[1][1])
  assert((out.scores[1] - out.logits[1]):abs():max():item() > 0)
  local eleven = accel.tensor({ 11 }, { dtype = "i64" })
  out = model:generate(prompt, with { logits_processor = function(_, scores) return scores:index_fill(2, eleven, 1e4) end })
  same(out, { 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11 })
  out = model:generate({ prompt, prompt }, with { prefix_allowed_tokens_fn = function(b, _) return b == 0 and { 4, 6 } or { 8 } end })
  for i = 1, 12 do assert((out[1][i] == 4 or out[1][i] == 6) and out[2][i] == 8) end
end

do -- a cache that goes on from call to call
  local cache = model:new_cache(1, nil, { implementation = "dynamic" })
  local first = model:generate(prompt, with { past_key_values = cache, max_new_tokens = 5 })
  assert(cache.past == 9)
  local longer = table.move({ 8, 4 }, 1, 2, 11, table.move(first, 1, 5, 6, table.move(prompt, 1, 5, 1, {})))
  same(model:generate(longer, with { past_key_values = cache }), model:generate(longer, free))
  assert(cache.past == 23)
  cache:crop(5)
  same(model:generate(prompt, with { past_key_values = cache }), new)
  fails("made for a batch of 1, got 2 prompts", model.generate, model, { prompt, prompt }, with { past_key_values = cache })
  fails("hold 8 tokens, the text may have 17", model.generate, model, prompt, with { past_key_values = model:new_cache(1, 8) })
end

do -- invalid scores can be taken out
  local function spoil(_, scores) return scores:index_fill(2, accel.tensor({ 1 }, { dtype = "i64" }), 0 / 0) end
  fails("the logit of id 1 is not finite", model.generate, model, prompt, with { logits_processor = spoil, do_sample = true })
  same(model:generate(prompt, with { remove_invalid_values = true }), new)
end

do -- training mode comes back, also after an error
  model:train()
  model:generate(prompt, free)
  assert(model.training)
  fails("boom", model.generate, model, prompt, with { on_token = function() error "boom" end })
  assert(model.training)
  model:eval()
end

do -- what is not a streamer and no draft model is told by name
  fails("streamer must have the methods put and finish, .*got a function; on_token must be a function", model.generate, model, prompt,
    with { streamer = print })
  fails("streamer must have the methods put and finish", model.generate, model, prompt, with { streamer = 3 })
  fails("streamer must have the methods put and finish", model.generate, model, prompt, with { streamer = { put = print } })
  fails("assistant_model must be a model that generates, got 'x'", model.generate, model, prompt, with { assistant_model = "x" })
  fails("assistant_model must be a model that generates", model.generate, model, prompt, with { assistant_model = accel.nn.Linear(2, 2) })
  fails("assistant_model and the model must both have an encoder", model.generate, model, prompt,
    with { assistant_model = assert(models.from_pretrained(files .. "t5")) })
end

do -- least and most that do not go together: one warning, and the most holds
  local said, old = {}, warn
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  local short = model:generate(prompt, with { min_new_tokens = 30, max_new_tokens = 3 })
  model:generate(prompt, with { min_length = 17, max_new_tokens = 12 })
  warn = old -- luacheck: ignore 121
  assert(#short == 3 and #said == 1 and said[1]:find "the minimum of 30 new tokens exceeds the room for 3", said[1])
end

do -- options that another one overrides
  local said, old = {}, warn
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  models.GenerationConfig._reset_warnings()
  same(model:generate(prompt, with { max_length = 6 }), new)
  model:generate(prompt, with { use_cache = false, cache_implementation = "static" })
  warn = old -- luacheck: ignore 121
  assert(#said == 2 and said[1]:find("max_length has no effect here: it needs a call without max_new_tokens", 1, true), said[1])
  assert(said[2]:find("cache_implementation has no effect here: it needs use_cache = true", 1, true), said[2])
end
