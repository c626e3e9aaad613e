-- Text of models that are shared out is that of one rank, greedy and by beams: heads of this rank in the cache, pipelines without one.
--   accel-run tests/stdlib/parallel/generation_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")

local PROMPTS <const> = { { 1, 2, 3 }, { 4, 5, 6 } }

local function texts(config)
  local a = accel.Accelerator { parallelism_config = config }
  for _, name in ipairs { "gpt2", "llama", "t5" } do
    if not (name == "t5" and config and config.pp_size > 1) then
      local model = a:prepare(cases.model(name, 2, 0)):eval()
      for beams = 1, 2 do
        local ids = model:generate(PROMPTS, { max_new_tokens = 6, num_beams = beams })
        a:print(name, beams, accel.json.encode(accel.is_tensor(ids) and ids:tolist() or ids))
      end
    end
  end
end

if ranks.launched then
  local pp = arg[1] == "pp"
  texts(accel.ParallelismConfig { tp_size = pp and 1 or 2, pp_size = pp and 2 or 1 })
  if pp then
    local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { pp_size = 2 } }
    local t5 = a:prepare(cases.model("t5", 2, 0)):eval()
    ranks.fails("models with an encoder do not generate in a pipeline", t5.generate, t5, PROMPTS)
  end
  return
end

if arg[1] then return texts() end
local one = ranks.run(nil, { args = "alone", capture = true })
assert(select(2, one:gsub("\n", "")) == 6, one)
ranks.same(ranks.run(2, { args = "tp", capture = true }), one, "tensor parallelism")
ranks.same(ranks.run(2, { args = "pp", capture = true }), (one:gsub("t5[^\n]*\n", "")), "a pipeline")
