-- accel-run --dry-run of training with tiers: the peak of device memory is within 3 % of what 1 and 2 real ranks need, and the collectives
-- are those that they make, for ZeRO 2 and 3 with states and parameters in host memory and in files. No file is made in a dry run.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local compare = dofile(here .. "/../../support/dry_runs.lua")
local function try(tier, plan, ranks, exact)
  compare { ranks = { ranks }, model = "2 192 2 64", plans = { plan }, offload = tier, exact = exact, within = 0.03, show = os.getenv "SHOW" }
end
try("cpu", "zero3", 2, true)
try("nvme", "zero3", 1, true)
try("nvme", "zero2", 2, true)
try("nvme", "zero3", 1, false) -- the collector as it is
local out, status = compare.text("--num_processes 1 --plan zero3 --steps 1", here .. "/../../support/dry_run_script.lua", "1 128 2 64",
  "env ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE=nvme ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH=/nowhere/at/all")
assert(status == 0 and out:find "peak", out)
assert(not accel.listdir "/nowhere")

-- activations on a tier
local script = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/activations.lua"
assert(accel.write_file(script, [[
local accel = require "accel"
local nn = accel.nn
local net = nn.Sequential(nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU())
local optimizer = accel.optim.SGD(net:parameters(), { lr = 0.1 })
for _ = 1, 2 do
  local x = accel.randn(512, 128)
  local o = { tier = arg[1], folder = os.getenv "ACCEL_TEST_TMP" or "/tmp", window = 1 << 20 }
  accel.offload.activations(o, function() return net(x):pow(2):mean() end):backward()
  optimizer:step()
  optimizer:zero_grad()
end
print(accel.mem_stats().peak_bytes)]]))
for _, tier in ipairs { "host", "file" } do
  local told = compare.dry("--num_processes 1 --steps 2", script, tier, "ACCEL_GC=exact")
  local pipe = assert(io.popen(("ACCEL_GC=exact '%s' '%s' %s"):format(accel.process.program(), script, tier)))
  local real = pipe:read "n"
  assert(pipe:close() and math.abs(told.ranks[1].peak.total - real) < 0.03 * real, ("%s: peak %d, foretold %d"):format(tier, real,
    told.ranks[1].peak.total))
end
