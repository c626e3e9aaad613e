-- Offloaded activations: losses, gradients and parameters after steps are those without, bit for bit, in host memory and in a file, with dropout,
-- autocast, recompute and double use of a tensor; the device's memory holds less while the backward is awaited; the second backward
-- finds what the first one's order promised.
-- tier: every change, memory
local accel = require "accel"
local nn = accel.nn
local ROOT = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function net()
  accel.manual_seed(4)
  local layers = {}
  for i = 1, 6 do layers[i] = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)) end
  return nn.ModuleList(layers)
end

local function forward(m, x, again)
  for _, layer in ipairs(m) do
    local y = again and accel.checkpoint(function(z) return layer(z) end, x) or layer(x)
    x = x + y * y:tanh()
  end
  return x:pow(2):mean()
end

local function run(scope, again, autocast)
  local m = net()
  local optimizer, out = accel.optim.AdamW(m:parameters(), { lr = 0.01 }), {}
  for step = 1, 3 do
    accel.manual_seed(step)
    local x = accel.randn(32, 64)
    accel.collect()
    local before, loss = accel.mem_stats("cpu").live_bytes, nil
    do
      local _ <close> = scope()
      local _ <close> = autocast and accel.autocast { dtype = "bf16" } or setmetatable({}, { __close = function() end })
      loss = forward(m, x, again)
    end
    accel.collect()
    out.held = accel.mem_stats("cpu").live_bytes - before
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    out[#out + 1] = loss:item()
  end
  for _, p in ipairs(m:parameters()) do out[#out + 1] = p:to_bytes() end
  return out
end

local function nothing() return setmetatable({}, { __close = function() end }) end
for _, again in ipairs { false, true } do
  for _, autocast in ipairs { false, true } do
    local want = run(nothing, again, autocast)
    for _, o in ipairs { { tier = "host" }, { tier = "file", folder = ROOT }, { window = 200000 } } do
      local got = run(function() return accel.offload.activations(o) end, again, autocast)
      for i = 1, #want do assert(got[i] == want[i], ("%s %s: value %d"):format(o.tier, again, i)) end
      if not again then assert(got.held < want.held / 2, ("%d bytes held, %d without"):format(got.held, want.held)) end
    end
  end
end

local ok, err = pcall(accel.offload.activations, { tier = "tape" })
assert(not ok and tostring(err):find "tier must be", err)
ok, err = pcall(accel.offload.activations, { tier = "file" })
assert(not ok and tostring(err):find "needs a folder", err)
ok, err = pcall(accel.offload.activations, { tier = "file", folder = "/nowhere" })
assert(not ok and tostring(err):find "/nowhere", err)

-- activation_checkpointing.cpu_checkpointing of a DeepSpeed configuration: checkpoints of the model keep their arguments in host memory
local function deepspeed(cpu)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    activation_checkpointing = { cpu_checkpointing = cpu }, train_micro_batch_size_per_gpu = 1, zero_optimization = { stage = 2 },
  } } }
  accel.manual_seed(1)
  local model = accel.models.GPT2 { vocab_size = 64, n_positions = 64, n_embd = 64, n_layer = 4, n_head = 4 }
  model:gradient_checkpointing_enable()
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
  model, optimizer = a:prepare(model, optimizer)
  local ids = accel.randint(0, 64, { 4, 64 }, { generator = accel.Generator(3) })
  accel.collect()
  local before, losses = accel.mem_stats("cpu").live_bytes, {}
  for step = 1, 2 do
    local loss = model(ids, { labels = ids })
    accel.collect()
    losses.held = losses.held or accel.mem_stats("cpu").live_bytes - before
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = loss:item()
  end
  return losses
end
local want, got = deepspeed(false), deepspeed(true)
assert(got[1] == want[1] and got[2] == want[2] and got[2] < got[1])
-- of the inputs of 4 layers two may be under way
assert(want.held - got.held >= 2 * 4 * 64 * 64 * 4, ("%d bytes held, %d without"):format(got.held, want.held))
