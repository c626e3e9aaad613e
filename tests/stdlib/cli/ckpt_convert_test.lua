-- accel-run ckpt convert: a checkpoint of one rank and one that two ranks sharded (FSDP) become folders that load as Accelerate's and continue
-- with the same losses. Checkpoints without a form there are refused.
--   accel-run tests/stdlib/cli/ckpt_convert_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim = accel.nn, accel.optim
local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/ckpt_convert"
local X <const>, Y <const> = accel.linspace(-1, 1, 32):view(8, 4), accel.arange(8) % 3

local function session(sharded)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { fsdp_plugin = sharded and accel.FullyShardedDataParallelPlugin {} or nil }
  accel.manual_seed(6)
  local model = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
  local optimizer = optim.AdamW(model:parameters(), { lr = 0.02 })
  local schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
  model, optimizer, schedule = a:prepare(model, optimizer, schedule)
  local share = 8 // a.num_processes
  return a, function(n)
    local losses = {}
    for i = 1, n do
      local first = a.process_index * share + 1
      local loss = nn.functional.cross_entropy(model(X:narrow(1, first, share)), Y:narrow(1, first, share))
      a:backward(loss)
      optimizer:step()
      schedule:step()
      optimizer:zero_grad()
      losses[i] = a:gather(loss:detach():view(1)):mean():item()
    end
    return losses
  end
end

if ranks.launched then
  local a, train = session(true)
  train(3)
  a:save_state(root .. "/sharded")
  local refused = pcall(a.save_state, a, root .. "/not", { format = "accelerate" })
  assert(not refused, "sharded states are not written whole")
  local losses = train(3)
  if ranks.rank == 0 then
    local f <close> = assert(io.open(root .. "/losses.json", "w"))
    f:write(accel.json.encode(losses))
  end
  return
end

os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(root, root))
local function convert(words)
  local pipe = assert(io.popen(("cd '%s' && '%s' ckpt convert %s 2>&1"):format(root, accel.process.program(), words)))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

local a, train = session()
train(3)
a:save_state(root .. "/one")
local want = train(3)
ranks.run(2)
local file <close> = assert(io.open(root .. "/losses.json"))
ranks.close(accel.json.decode(file:read "a"), want, "sharded and whole training", 1e-5)
for k, words in ipairs { "one out1", "--pickle one out2", "sharded out3" } do
  local text, status = convert(words)
  assert(status == 0 and text:find "out%d: 1 model and 1 optimizer for Accelerate", text)
  local dir = ("%s/out%d"):format(root, k)
  for _, pure in ipairs { false, true } do
    if pure then os.execute(("rm '%s'/MANIFEST.json '%s'/*.accel"):format(dir, dir)) end
    a, train = session()
    a:load_state(dir)
    ranks.close(train(3), want, words .. (pure and ", as Accelerate sees it" or ""), k == 3 and 1e-5 or 1e-6)
  end
end
for _, format in ipairs { "dcp", "deepspeed" } do
  local text, status = convert(("--format %s sharded %s"):format(format, format))
  assert(status == 0 and text:find(format .. ": for "), text)
end
assert(accel.load(root .. "/dcp").model["0.weight"].shape[2] == 4)
a, train = session()
a:load_state(root .. "/deepspeed")
ranks.close(train(2), { want[1], want[2] }, "for DeepSpeed, whose folder has no schedule of accel's", 1e-5)
for words, said in pairs {
  ["--format torch one x"] = "must be accelerate", ["--pickle --format dcp one x"] = "belongs to --format accelerate", ["one out1"] = "out1",
  ["nowhere out"] = "nowhere: cannot open", ["one"] = "",
} do
  local text, status = convert(words)
  assert(status ~= 0 and text:find(said, 1, true), text)
end
os.execute(("rm -rf '%s'"):format(root))
