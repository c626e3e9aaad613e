-- Options of generate (GenerationConfig): each one changes the ids, the scores or the passes of a model; warns; or raises. Also where the
-- option that it is for is missing, as length_penalty without beams.
--   accel-run tests/options/generation_test.lua [NAME]
local accel = require "accel"
local models = accel.models

accel.manual_seed(3)
local CONFIG <const> = { n_embd = 16, n_layer = 1, n_head = 2, vocab_size = 24, n_positions = 40 }
local gpt2 = models.GPT2(CONFIG)
for _, p in ipairs(gpt2:parameters()) do p:detach():mul_(4) end -- so that texts differ
local draft = gpt2
local PROMPT <const> = { 5, 6, 7, 5, 6, 8 }

--- Values that are not the default, and what they need around them. passes: what they ask for holds without it, too (a text without an end is
--- long enough), or only the number of passes differs.
local greedy = gpt2:generate(PROMPT, { max_new_tokens = 8, eos_token_id = false })
local first, second = greedy[1], greedy[2]
local tries = {
  max_length = { 9 }, max_new_tokens = { 3 },
  min_length = { 12, passes = true, with = { eos_token_id = first } }, min_new_tokens = { 4, passes = true, with = { eos_token_id = first } },
  max_time = { 0.0 }, early_stopping = { "never", with = { num_beams = 4, length_penalty = 2.0, eos_token_id = first } }, do_sample = { true },
  num_beams = { 4 }, use_cache = { false }, cache_implementation = { "quantized" }, temperature = { 3.0, with = { do_sample = true } },
  top_k = { 3, 1, with = { do_sample = true, temperature = 5.0 } }, top_p = { 0.7, 0.05, with = { do_sample = true, temperature = 5.0 } },
  min_p = { 0.9, with = { do_sample = true, temperature = 5.0 } }, typical_p = { 0.05, with = { do_sample = true, temperature = 5.0 } },
  epsilon_cutoff = { 0.2, with = { do_sample = true, temperature = 3.0 } }, eta_cutoff = { 0.9, with = { do_sample = true, temperature = 3.0 } },
  repetition_penalty = { 9.0 }, encoder_repetition_penalty = { 9.0, 0.01 }, length_penalty = { -5.0, with = { num_beams = 4, eos_token_id = first } },
  no_repeat_ngram_size = { 1 }, encoder_no_repeat_ngram_size = { 1 }, bad_words_ids = { { { first } } },
  renormalize_logits = { true, with = { num_beams = 2, no_repeat_ngram_size = 2, output_scores = true, return_dict_in_generate = true } },
  forced_bos_token_id = { 9 }, forced_eos_token_id = { 9 }, remove_invalid_values = { true }, suppress_tokens = { { first } },
  exponential_decay_length_penalty = { { 1, 9.0 }, with = { eos_token_id = 1 } }, begin_suppress_tokens = { { first } },
  sequence_bias = { { { { first }, -99.0 } } }, num_return_sequences = { 2, with = { do_sample = true } },
  output_scores = { true, with = { return_dict_in_generate = true } }, output_logits = { true, with = { return_dict_in_generate = true } },
  return_dict_in_generate = { true }, pad_token_id = { 11, passes = true, with = { eos_token_id = second, ragged = true } }, bos_token_id = { 3 },
  eos_token_id = { second }, decoder_start_token_id = { 3 }, cache_config = { { dtype = "bf16" } },
  num_assistant_tokens = { 2, with = { assistant_model = draft, assistant_confidence_threshold = 0, return_dict_in_generate = true } },
  num_assistant_tokens_schedule = { "heuristic",
    with = { assistant_model = draft, assistant_confidence_threshold = 0, num_assistant_tokens = 2, return_dict_in_generate = true } },
  assistant_confidence_threshold = { 0.0, with = { assistant_model = draft, return_dict_in_generate = true } },
  prompt_lookup_num_tokens = { 3, passes = true, with = { return_dict_in_generate = true } }, -- the same ids
  max_matching_ngram_size = { 1,
    with = { prompt = { 2, 9, 2, 9, 2 }, prompt_lookup_num_tokens = 3, return_dict_in_generate = true } }, stop_strings = { "a" },
}
--- Shown by tests of models with an encoder, of memory, or of numbers that a small model does not make.
local elsewhere = { early_stopping = "tests/reference/make/generation.py",
  length_penalty = "tests/reference/make/generation.py",
  forced_bos_token_id = "tests/reference/make/generation.py", decoder_start_token_id = "tests/stdlib/models/families_test.lua",
  use_cache = "tests/stdlib/models/generation/assisted_test.lua", cache_implementation = "tests/stdlib/models/generation/assisted_test.lua",
  cache_config = "tests/stdlib/cli/generate_test.lua", remove_invalid_values = "tests/stdlib/models/generation/generate_test.lua",
  max_time = "tests/stdlib/models/generation/generate_test.lua" }

local function run(opts)
  local heard, warned, o = {}, warn, { max_new_tokens = 8, eos_token_id = false, pad_token_id = 2 }
  for key, value in pairs(opts) do o[key] = value end
  if opts.max_length then o.max_new_tokens = nil end
  local prompt = o.ragged and { PROMPT, { 9, 9, 1 } } or PROMPT
  prompt, o.ragged, o.prompt = o.prompt or prompt, nil, nil
  warn = function(...) heard[#heard + 1] = table.concat { ... } end -- luacheck: ignore 121
  models.GenerationConfig._reset_warnings()
  local ok, out = pcall(gpt2.generate, gpt2, prompt, o)
  warn = warned -- luacheck: ignore 121
  return ok and accel.inspect(out) or ("raises " .. tostring(out)), table.concat(heard, "\n"), ok
end

local n, effect, warns, raises, silent = 0, 0, 0, 0, {}
local function judge(key, value, with, also)
  local given = {}
  for name, v in pairs(with or {}) do given[name] = v end
  local base = run(given)
  given[key] = value
  local got, heard, ok = run(given)
  if not ok then
    assert(got:find(key, 1, true), key .. ": " .. got)
    raises = raises + 1
  elseif got ~= base then effect = effect + 1
  elseif heard:find(key, 1, true) then warns = warns + 1
  else silent[#silent + 1] = ("%s = %s%s"):format(key, accel.inspect(value), also or "") end
end
for key in accel.pairs(models.GenerationConfig._fields) do
  if not arg[1] or arg[1] == key then
    n = n + 1
    local try = assert(tries[key], "no value for the option " .. key)
    local other = elsewhere[key]
    if other then
      local f = assert(io.open(arg[0]:match "^(.*)/[^/]*$" .. "/../../" .. other))
      assert(f:read "a":find(key, 1, true), other .. " does not speak of " .. key)
      f:close()
    else
      for _, value in ipairs(try) do judge(key, value, try.with) end
      if try.with and not try.passes then judge(key, try[1], nil, ", alone") end
    end
  end
end
for _, line in ipairs(silent) do print("SILENT " .. line) end
print(("options of generation: %d options: %d have an effect, %d warn, %d raise, %d silent"):format(n, effect, warns, raises, #silent))
if #silent > 0 then os.exit(1, true) end
