-- Models whose parameters are created in host memory or a file have the values and losses of a model that was created in memory; a model
-- whose states are over six times the memory there is trains three steps, its loss falls; memory holds a module while it is created,
-- and files and host memory hold parameters once. Misuse names its option.
--   accel-run tests/stdlib/offload/create_test.lua
-- tier: sampled, memory
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, zero = accel.nn, accel.deepspeed.zero
local ROOT = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/created"

local function start()
  if not ranks.start { 1, 2 } then return false end
  for _, tier in ipairs { "nvme", "cpu" } do
    local job = accel.process.spawn(accel.process.program(), { "accel-run", "--memory-limit", "16M", arg[0], "limit", tier }, {})
    local how, code = job:wait(300)
    assert(how == "exit" and code == 0, "the run within a limit failed")
  end
  return true
end

if arg[1] ~= "limit" and start() then return end

local Block = nn.Module:extend "Block"
function Block:init(width)
  self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
end
function Block:forward(x) return x + self.down(self.up(x):tanh()) end

local Net = nn.Module:extend "Net"
function Net:init(width, depth)
  self.blocks = nn.ModuleList()
  for _ = 1, depth do self.blocks:append(Block(width)) end
  self.head = nn.Linear(width, 1)
  self:apply(function(m) -- as models do, once they are complete
    if m.up then nn.init.normal_(m.up.weight, 0, 0.02) end
  end)
end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(x)
end

local function tiers(device)
  local where = { device = device, nvme_path = device == "nvme" and ROOT or nil }
  accel.accelerator.AcceleratorState._reset_state(true)
  return accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = 2, gradient_accumulation_steps = 1,
    zero_optimization = { stage = 3, offload_param = where, offload_optimizer = where, stage3_param_persistence_threshold = 0,
      sub_group_size = 1 << 16 },
  } } }
end

local function train(accelerator, net, steps)
  local width = net.head.weight.shape[2]
  local optimizer = accel.optim.AdamW(net:parameters(), { lr = 2e-6 })
  local model
  model, optimizer = accelerator:prepare(net, optimizer)
  local losses = {}
  for i = 1, steps do
    local x = accel.randn(2, width, { generator = accel.Generator(9) })
    local loss = model(x):pow(2):mean()
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[i] = loss:item()
  end
  return losses, model
end

if arg[1] == "limit" then -- 16 MB of memory, over 100 MB of parameters, gradients and moments
  local accelerator = tiers(arg[2])
  accel.manual_seed(3)
  local from = accel.clock()
  local net
  do
    local _ <close> = zero.Init()
    net = Net(256, 26)
  end
  local n = 0
  for _, p in ipairs(net:parameters()) do n = n + p:numel() end
  assert(16 * n > 6 * 16e6 and accel.clock() > from)
  assert(accel.mem_stats("cpu").peak_bytes < 6e6, accel.mem_stats("cpu").peak_bytes)
  local losses, model = train(accelerator, net, 3)
  assert(losses[3] < losses[2] and losses[2] < losses[1], table.concat(losses, " "))
  local stats = model.reducer.tier:stats()
  local held = arg[2] == "nvme" and stats.parameters.used_bytes or stats.host.used_bytes
  assert(held < (arg[2] == "nvme" and 4.3 or 16.6) * n, ("%d bytes for %d parameters"):format(held, n))
  return
end

accel.makedirs(ROOT)
local want, whole
for _, device in ipairs { "none", "cpu", "nvme" } do
  local accelerator = tiers(device)
  accel.manual_seed(3)
  local net
  do
    local _ <close> = zero.Init { enabled = device ~= "none" }
    net = Net(48, 3)
  end
  local values = {}
  do
    local _ <close> = zero.GatheredParameters(net:parameters())
    for name, p in net:named_parameters() do values[name] = p:to_bytes() end
  end
  whole = whole or values
  for name, bytes in next, whole do assert(values[name] == bytes, device .. ": " .. name) end
  local losses = train(accelerator, net, 3)
  want = want or losses
  for i, loss in ipairs(losses) do assert(loss == want[i], ("%s: loss %d is %.9g, not %.9g"):format(device, i, loss, want[i])) end
end

for _, o in ipairs { { remote_device = "cpu" }, { remote_device = "nvme", nvme_path = ROOT } } do -- without a plugin
  accel.accelerator.AcceleratorState._reset_state(true)
  accel.manual_seed(3)
  local before = accel.mem_stats("cpu").live_bytes
  local net = zero.Init(o, function() return Net(48, 3) end)
  accel.collect()
  assert(accel.mem_stats("cpu").live_bytes - before < 40000, accel.mem_stats("cpu").live_bytes - before)
  do -- what is written stays
    local _ <close> = zero.GatheredParameters(net.head.weight, ranks.size - 1)
    local _ <close> = zero.GatheredParameters(net.blocks[1].up.weight, ranks.size - 1)
    local _ <close> = accel.no_grad()
    net.blocks[1].up.weight:fill_(ranks.rank + 1)
  end
  assert((net.blocks[2].up.weight + 0):to_bytes() == whole["blocks.1.up.weight"])
  assert(net.blocks[1].up.weight:min():item() == ranks.size)
  local y = net(accel.ones(1, 48))
  local model = nn.parallel.FullyShardedDataParallel(net, { zero_stage = 3, auto_wrap_policy = { kind = "transformer",
    classes = { "Block" } } })
  assert(accel.equal(model(accel.ones(1, 48)), y))
end
local function fails(o, text)
  local ok, e = pcall(zero.Init, o, function() return nn.Linear(64, 64) end)
  assert(not ok and tostring(e):find(text, 1, true), tostring(e))
end
fails({ remote_device = "disk" }, "remote_device")
fails({ remote_device = "nvme" }, "needs a folder")
fails({ nvme_path = ROOT }, "nvme_path is of remote_device = 'nvme'")
fails({ remote_device = "nvme", nvme_path = "/proc/none" }, "/proc/none")
