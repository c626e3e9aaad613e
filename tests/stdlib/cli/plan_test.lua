-- accel-run plan: what it proposes fits by a dry run of it and is what accel-run --config_file takes, what is not possible is said, and more
-- memory never makes an update slower.
-- tier: every change
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local runs = dofile(here .. "/../../support/dry_runs.lua")
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/plan")
assert(accel.write_file(folder .. "/config.json", accel.json.encode { model_type = "gpt2", architectures = accel.json.array { "GPT2LMHeadModel" },
  vocab_size = 512, n_positions = 64, n_embd = 128, n_layer = 4, n_head = 4 }))

local function plan(options)
  local errors = os.tmpname()
  local pipe = assert(io.popen(("'%s' plan %s 2>'%s' </dev/null"):format(accel.process.program(), options, errors)))
  local out = pipe:read "a"
  local _, _, status = pipe:close()
  local f <close> = assert(io.open(errors))
  local why = f:read "a"
  os.remove(errors)
  return out, status, why
end

local base = ("'%s' --num-processes 4 --device cpu --mixed-precision no --global-batch-size 8 "):format(folder)
local function proposal(options)
  local out, status, why = plan(base .. "--json --tries 1 " .. options)
  assert(out:sub(1, 1) == "{", why)
  return accel.json.decode(out), status
end

local roomy, ok = proposal "--memory 4G --flops 0.2 --bandwidth 2.5"
assert(ok == 0 and roomy.fits and roomy.parameters == 512 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128)
for i, p in ipairs(roomy.plans) do
  assert(p.fits and p.peak.total <= 4 << 30 and (i == 1 or p.time.total >= roomy.plans[i - 1].time.total))
end
-- what one rank of it is said to take is what a dry run of the printed file says, of a script that trains the same
local best = roomy.plans[1]
assert(accel.write_file(folder .. "/c.yaml", roomy.config))
do -- forwards of an update, which the script says as well, are those of the DeepSpeed configuration
  local zero = proposal "--memory 4G --zero 2 --micro-batch-size 1"
  local path = folder .. "/zero.yaml"
  assert(zero.plans[1].forwards == 2 and accel.write_file(path, zero.config))
  local launch = assert(require "accel.config".plan { "--config_file", path, "script.lua" })
  assert(launch.env.ACCELERATE_GRADIENT_ACCUMULATION_STEPS == "2", zero.config)
end

local tight, bad = proposal "--memory 1M"
assert(bad == 1 and not tight.fits and not tight.config)
local least = tight.plans[1].peak.total
for _, p in ipairs(tight.plans) do assert(p.peak.total >= least and not p.fits) end

local text, status = plan(base .. "--memory 4G --tries 1 --output " .. folder .. "/out.yaml")
assert(status == 0 and text:find "fits and takes the least time" and text:find "distributed_type: ")
for line in text:gmatch "[^\n]+" do assert(#line < 80, line) end
local long = plan(base .. "--memory 1M --tries 1 --tp 2 --pp 2") -- names of plans beside which a row has no room
assert(long:find "no plan fits; the closest is tp=2,pp=2,seq,recompute")
for line in long:gmatch "[^\n]+" do assert(#line < 80, line) end
local launch, why = require "accel.config".plan { "--config_file", folder .. "/out.yaml", "script.lua" }
assert(launch and launch.values.num_processes == 4, why)
assert(accel.write_file(folder .. "/s.lua", [[
local accel = require "accel"
local a = accel.Accelerator()
local model = accel.models.GPT2 { vocab_size = 512, n_positions = 64, n_embd = 128, n_layer = 4, n_head = 4 }
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
model, optimizer = a:prepare(model, optimizer)
for i = 1, 9 do
  local ids = accel.randint(0, 512, { ROWS, 64 })
  a:backward(model(ids, { labels = ids }))
  optimizer:step()
  optimizer:zero_grad()
end]]))
local script = folder .. "/s.lua"
do
  local f = assert(io.open(script))
  local code = f:read "a":gsub("ROWS", tostring(best.rows * (best.plan:find "micro_batches" and best.forwards or 1)))
  f:close()
  assert(accel.write_file(script, code))
end
local told, failed, errors = runs.dry("--config_file " .. folder .. "/c.yaml --rank 0", script, "")
assert(failed == 0, errors)
assert(told.size == 4 and math.abs(told.ranks[1].peak.parameters / best.peak.parameters - 1) < 0.05,
  ("%d and %d bytes of parameters"):format(told.ranks[1].peak.parameters, best.peak.parameters))

for options, said in accel.pairs { ["--memory much"] = "is not a size", ["--device tpu"] = "neither cpu nor cuda",
  ["--seq-length 65"] = "64 positions", ["--tp 3"] = "no plan divides", ["--num-machines 3"] = "each has equally many",
  ["--num-processes 0"] = "--num-processes: expected 1 to 16384 ranks, got 0", ["--num-machines 0"] = "--num-machines: expected 1 or more, got 0",
  ["--num-processes 1000000"] = "--num-processes: expected 1 to 16384 ranks, got 1000000" } do
  local _, code, message = plan(base .. options)
  assert(code ~= 0 and message:find(said, 1, true), options .. ": " .. message)
end
do -- plans of many rows are looked at in no time: of an update of a million, which no loop runs over
  local config = { n_embd = 64, n_layer = 4, n_head = 4, vocab_size = 64, n_positions = 64 }
  local planner, from = require "accel.cli.planner", os.clock()
  local list = planner.candidates(require "accel.parallel.traffic".model(config), { ranks = 1 << 18, local_ranks = 8, global_batch = 1 << 20,
    tokens = 64, mixed_precision = "no", accelerator = false, limit = 1 << 40, rate = 1e12, near = 1e9, bandwidth = 1e9, heads = { 4 },
    decoder = true })
  local rows = {}
  for _, p in ipairs(list) do rows[p.rows] = true end
  assert(rows[1] and rows[2] and rows[4] and not rows[3] and os.clock() - from < 5, os.clock() - from)
end
