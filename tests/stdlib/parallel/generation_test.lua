-- Text of models that are shared out is that of one rank, token for token: greedy, by beams, drawn, with stop ids, of prompts of unequal lengths,
-- and as it is streamed; under tensor parallelism (heads of this rank in the cache), in pipelines (without one), and both.
--   accel-run tests/stdlib/parallel/generation_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")

local PROMPTS <const> = { { { 1, 2, 3 }, { 4, 5, 6 } }, { { 1, 2, 3, 8, 9 }, { 4 }, { 7, 7 } } }
local STOPS <const> = { 3, 5, 7, 9, 11, 14, 20, 22, 24, 26, 28, 30 }
local WAYS <const> = {
  {}, { num_beams = 2, num_return_sequences = 2, length_penalty = 1.5 }, { top_k = 5, seed = 3 },
  { top_p = 0.8, temperature = 0.9, repetition_penalty = 1.2, seed = 4 }, { eos_token_id = STOPS, pad_token_id = 0 },
  { num_beams = 3, eos_token_id = STOPS, pad_token_id = 0, early_stopping = true },
}

local function texts(config)
  local a = accel.Accelerator { parallelism_config = config }
  for _, name in ipairs { "gpt2", "llama", "mixtral", "t5" } do
    if not (name == "t5" and config and config.pp_size > 1) then
      local model = a:prepare(cases.model(name, 2, 0)):eval()
      for i, way in ipairs(WAYS) do
        for _, prompts in ipairs(PROMPTS) do
          local o, streamed = { max_new_tokens = 6 }, {}
          for key, value in next, way do o[key] = value end
          if not way.num_beams then o.on_token = function(ids) streamed[#streamed + 1] = accel.json.encode(ids) end end
          local ids = model:generate(prompts, o)
          a:print(name, i, accel.json.encode(ids), table.concat(streamed, " "))
        end
      end
    end
  end
end

if ranks.launched then
  local tp, pp = tonumber(arg[1]), tonumber(arg[2])
  texts(accel.ParallelismConfig { tp_size = tp, pp_size = pp })
  if pp == 2 and tp == 1 then
    local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { pp_size = 2 } }
    local t5 = a:prepare(cases.model("t5", 2, 0)):eval()
    ranks.fails("models with an encoder cannot generate in a pipeline", t5.generate, t5, PROMPTS[1])
    local gpt2 = a:prepare(cases.model("gpt2", 2, 0)):eval()
    ranks.fails("a pipeline does not support a cache of keys and values", gpt2.generate, gpt2, PROMPTS[1], { use_cache = true })
    ranks.fails("did you mean 'max_new_tokens'?", gpt2.generate, gpt2, PROMPTS[1], { max_new_token = 2 })
  end
  return
end

if arg[1] then return texts() end
local one = ranks.run(nil, { args = "alone", capture = true })
assert(select(2, one:gsub("\n", "")) == 4 * #WAYS * #PROMPTS, one)
for _, layout in ipairs { { 2, 1 }, { 1, 2 }, { 2, 2 } } do
  local tp, pp = table.unpack(layout)
  ranks.same(ranks.run(tp * pp, { args = ("%d %d"):format(tp, pp), capture = true }), pp > 1 and (one:gsub("t5[^\n]*\n", "")) or one,
    ("tp %d, pp %d"):format(tp, pp))
end
