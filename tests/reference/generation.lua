-- Generation equals that of Transformers: the ids of every case, in a batch and prompt by prompt, with every kind of cache and
-- without one; scores of beams; of sampling the scores of each step.
--   accel-run tests/reference/generation.lua DIR [FILES]
-- DIR as tests/reference/make/generation.py writes it, FILES the model folders it was made from.
local accel = require "accel"
local Decoder = require "accel.models.generation.decoder"
local GenerationConfig = require "accel.models.generation.config"
local Stopping = require "accel.models.generation.stopping"
local processors = require "accel.models.generation.processors"
local sampling = require "accel.models.generation.sampling"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local dir, files = arg[1] or here .. "/generation", arg[2] or here .. "/files"

local passed, failed = 0, 0
local function report(case, problem)
  if not problem then
    passed = passed + 1
    return
  end
  failed = failed + 1
  print(("FAIL %s/%s: %s"):format(case.model, case.name, problem))
end

local function text(rows) return accel.json.encode(rows) end

local function same(got, want)
  if text(got) ~= text(want) then return ("%s, wanted %s"):format(text(got), text(want)) end
end

--- The options of a case, as a call gives them.
local function options_of(case, more)
  local o = { pad_token_id = case.pad_token_id }
  for key, value in next, case.kwargs do o[key] = value end
  for key, value in next, more or {} do o[key] = value end
  return o
end

--- `want` without what fills rows up behind their end.
local function trimmed(rows, n)
  local out = {}
  for i, row in ipairs(rows) do out[i] = table.move(row, 1, n[i] or #row, 1, {}) end
  return out
end

--- Beams behind their end: the reference fills them up with the end where the padding id is 0, which it takes for none.
local function cut_at_ends(case, model, rows)
  if case.pad_token_id ~= 0 or not case.sequences_scores then return rows end
  local ends, lengths = Stopping.ends_of(GenerationConfig.resolve("test", options_of(case), model:_generation_config())), {}
  for i, row in ipairs(rows) do
    for n = #row, 1, -1 do
      if ends[row[n]] then lengths[i] = n end
    end
  end
  return trimmed(rows, lengths)
end

local function close(a, b, bar) return a == b or math.abs(a - b) <= bar * math.max(1, math.abs(b)) end

local function check_search(case, model)
  local want = cut_at_ends(case, model, case.new)
  for _, cache in ipairs { "static", "dynamic" } do
    local out = model:generate(case.input_ids, options_of(case, { return_dict_in_generate = true, cache_implementation = cache }))
    local problem = same(cut_at_ends(case, model, out.sequences), want)
    for i, score in ipairs(case.sequences_scores or {}) do
      if not problem and not close(out.sequences_scores[i], score, 1e-4) then
        problem = ("score %d is %g, wanted %g"):format(i, out.sequences_scores[i], score)
      end
    end
    report(case, problem)
  end
  local mask, ids, width = {}, {}, 0 -- as a tensor with padding and attention_mask
  for _, row in ipairs(case.input_ids) do width = math.max(width, #row) end
  for b, row in ipairs(case.input_ids) do
    mask[b], ids[b] = {}, {}
    for i = 1, width do
      mask[b][i], ids[b][i] = i > width - #row and 1 or 0, row[i - width + #row] or 7
    end
  end
  local got = model:generate(options_of(case, {
    input_ids = accel.tensor(ids, { dtype = "i64" }), attention_mask = accel.tensor(mask, { dtype = "i64" }), use_cache = false,
  }))
  report(case, same(cut_at_ends(case, model, got), want))
end

--- Each prompt alone gives what it gives in a batch, up to what fills rows up. Options that count columns from the batch's
--- width, or look at its padding, are left out.
local function check_alone(case, model)
  local k = case.kwargs
  if k.max_length or k.min_length or #case.input_ids == 1 then return end
  local per = #case.new // #case.input_ids
  for b, row in ipairs(case.input_ids) do
    local got = model:generate({ row }, options_of(case))
    local want, lengths = table.move(case.new, (b - 1) * per + 1, b * per, 1, {}), {}
    for i, r in ipairs(got) do lengths[i] = #r end
    report(case, same(cut_at_ends(case, model, got), cut_at_ends(case, model, trimmed(want, lengths))))
  end
end

--- Follows the sequences of a sampled case and compares the scores that each step would draw from.
local function check_scores(case, model, scores)
  local o = GenerationConfig.resolve("test", options_of(case), model:_generation_config())
  local _ <close> = accel.no_grad()
  local decoder = Decoder(model, case.input_ids, { filler = case.pad_token_id, room = o.max_new_tokens, use_cache = true })
  o.ends, o.end_list = Stopping.ends_of(o)
  o.prompt_width, o.max_width, o.n_prompts = decoder.width, decoder.width + o.max_new_tokens, #case.input_ids
  local process = processors.build(o)
  local copies, done, worst = o.num_return_sequences, {}, 0
  for step = 1, scores.shape[1] do
    local logits = decoder:logits():select(2, -1)
    if step == 1 and copies > 1 then
      decoder:expand(copies)
      logits = logits:repeat_interleave(copies, 1)
    end
    local rows, ids = {}, {}
    for b = 1, decoder.n do rows[b] = decoder:ids(b) end
    local got = sampling.scatter(sampling.candidates(process(rows, logits, decoder.width), o), logits.shape[2]):tolist()
    local want = scores:select(1, step):tolist()
    for b = 1, decoder.n do
      ids[b] = case.new[b][step]
      if not done[b] then
        for id, score in ipairs(want[b]) do
          local mine = got[b][id]
          if (score == -math.huge) ~= (mine == -math.huge) or not close(mine, score, 1e-4) then
            return ("step %d, row %d, id %d: %g, wanted %g"):format(step, b, id - 1, mine, score)
          end
          if score > -math.huge then worst = math.max(worst, math.abs(mine - score)) end
        end
        done[b] = o.ends[ids[b]]
      end
    end
    decoder:push(ids)
  end
end

local file <close> = assert(io.open(dir .. "/generation.json", "rb"))
local cases = accel.json.decode(file:read "a").cases
local tensors = assert(accel.load(dir .. "/generation.safetensors"))
local models = {}
for _, case in ipairs(cases) do
  models[case.model] = models[case.model] or assert(accel.models.from_pretrained(files .. "/" .. case.model))
  local model = models[case.model]
  if case.kwargs.do_sample then
    report(case, check_scores(case, model, tensors[case.model .. "/" .. case.name]))
    local o = options_of(case, { seed = 3 })
    report(case, same(model:generate(case.input_ids, o), model:generate(case.input_ids, o)))
  else
    check_search(case, model)
    check_alone(case, model)
  end
end
print(("%d passed, %d failed, 0 skipped"):format(passed, failed))
os.exit(failed == 0 and passed > 0, true)
