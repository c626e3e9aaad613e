-- accel-run plan beyond dense decoders: experts of a mixture among ranks, zero_bubble pipelines, long sequences over ranks, encoders and
-- encoder-decoders. What is printed is what accel-run takes; what is not possible is said in a line.
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local sample = dofile(here .. "/../../support/sample.lua")
local plans = require "accel.cli.plan_config"
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/plan-families")

local FAMILIES <const> = {
  mixtral = { vocab_size = 128, hidden_size = 64, intermediate_size = 256, num_hidden_layers = 4, num_attention_heads = 4,
    num_key_value_heads = 2, max_position_embeddings = 32, num_local_experts = 8, expert_capacity_factor = 1.25 },
  llama = { vocab_size = 128, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 2,
    num_key_value_heads = 2, max_position_embeddings = 16384 },
  bert = { vocab_size = 128, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 2,
    max_position_embeddings = 32 },
  t5 = { vocab_size = 128, d_model = 32, d_kv = 16, d_ff = 64, num_layers = 2, num_heads = 2 },
  vit = { image_size = 16, patch_size = 4, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 4, num_attention_heads = 2 },
}
for family, config in accel.pairs(FAMILIES) do
  config.model_type = family
  os.execute(("mkdir -p '%s/%s'"):format(folder, family))
  assert(accel.write_file(("%s/%s/config.json"):format(folder, family), accel.json.encode(config)))
end

local function plan(family, options)
  local errors = os.tmpname()
  local pipe = assert(io.popen(("'%s' plan '%s/%s' --num-processes 4 --device cpu --mixed-precision no --global-batch-size 8 --json --tries 1 %s"
    .. " 2>'%s' </dev/null"):format(accel.process.program(), folder, family, options, errors)))
  local out = pipe:read "a"
  local _, _, status = pipe:close()
  local f <close> = assert(io.open(errors))
  local why = f:read "a"
  os.remove(errors)
  return out:sub(1, 1) == "{" and accel.json.decode(out) or nil, status or 0, why
end

--- A proposal that fits, and whose configuration accel-run takes; its first plan, read again.
local function proposed(family, options)
  local told, status, why = plan(family, options)
  assert(told and status == 0 and told.fits, family .. " " .. options .. ": " .. why)
  local path = folder .. "/c.yaml"
  assert(accel.write_file(path, told.config))
  local launch, wrong = require "accel.config".plan { "--config_file", path, "script.lua" }
  assert(launch and launch.values.num_processes == 4, wrong)
  local best = assert(plans.parse(told.plans[1].plan))
  return told, best, launch.env
end

--- The proposed plan with these words; nil where none has all of them.
local function played(told, ...)
  for _, p in ipairs(told.plans) do
    local all = true
    for _, word in ipairs { ... } do all = all and ("," .. p.plan .. ","):find("," .. word .. ",", 1, true) ~= nil end
    if all then return p end
  end
end

local cases = {
  function() -- half of the experts are on a rank: what plain data parallelism has is too much
    local told, best, env = proposed("mixtral", "--memory 26M --zero 0 --pp 1 --tp 1 --seq-length 32")
    assert(best.ep and env.MEGATRON_LM_EXPERT_MODEL_PARALLEL_SIZE == tostring(best.ep), told.plans[1].plan)
    local ddp = assert(played(told, "ddp"))
    local expert, blocks = 3 * 64 * 256 * 4, 4
    local saved = ddp.peak.parameters - told.plans[1].peak.parameters
    assert(not ddp.fits and math.abs(saved - blocks * (8 - 8 // best.ep) * expert) <= 0.02 * saved, saved)
  end,
  function() -- sharding cuts experts over those that have the same ones
    local told, best, env = proposed("mixtral", "--memory 4G --ep 2 --zero 3 --tp 1 --pp 1")
    assert(best.ep == 2 and best.zero == 3 and env.PARALLELISM_CONFIG_EP_SIZE == "2" and told.plans[1].peak.total > 0)
  end,
  function()
    local told, best, env = proposed("llama", "--memory 4G --pp 2 --tp 1 --seq-length 64")
    assert(best.schedule == "zero_bubble" and env.MEGATRON_LM_PIPELINE_SCHEDULE == "zero_bubble", told.plans[1].plan)
  end,
  function() -- fewer rows than ranks, and sequences that are long: ranks share them
    local told, best, env = proposed("llama", "--memory 8G --global-batch-size 1 --seq-length 16384 --tp 1 --pp 1 --zero 0")
    assert(best.cp == 4 and env.MEGATRON_LM_CONTEXT_PARALLEL_SIZE == "4", told.plans[1].plan)
    assert(not plan("llama", "--global-batch-size 1 --seq-length 4096 --tp 1 --pp 1"))
  end,
  function() proposed("bert", "--memory 4G --tp 2 --pp 2") end,
  function() proposed("t5", "--memory 4G --tp 2 --pp 2 --seq-length 32") end,
  function() proposed("t5", "--memory 4G --zero 2 --seq-length 32") end,
  function() proposed("vit", "--memory 4G --tp 2 --zero 1") end,
}
local take = sample.one_of(4)
for _, case in ipairs(cases) do
  if take() then case() end
end

for _, row in ipairs { { "llama", "--ep 2", "has no experts" }, { "mixtral", "--ep 3", "no plan divides" }, { "bert", "--cp 2", "need a decoder" },
  { "vit", "--seq-length 9", "pictures of" }, { "t5", "--tp 4", "no plan divides" } } do
  local told, status, why = plan(row[1], row[2])
  assert(not told and status ~= 0 and why:find(row[3], 1, true) and not why:find "traceback", row[1] .. " " .. row[2] .. ": " .. why)
end
for text, said in accel.pairs { ["ep=2,schedule=zero_bubble"] = "give pp as well", ["pp=2,schedule=zb"] = "schedule is gpipe, 1f1b or zero_bubble",
  ["experts=2"] = "parts are tp, pp, cp, sp, ep", ["sp=2,pp=2"] = "share sequences out by cp" } do
  local _, why = plans.parse(text)
  assert(why and why:find(said, 1, true), text .. ": " .. tostring(why))
end
