-- Tiers below a device: a training whose parameters, gradients and states rest in host memory or in files has the losses and parameters of one
-- that rests on the device, with the update beside the backward and with delayed updates, too; an overflow in fp16 skips a step wherever the
-- states are; activations and the layers of a dispatched model come back from page-locked memory as they were, the next layers ahead.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local nn = accel.nn
local TMP <const> = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function make_net(device)
  accel.manual_seed(9)
  return nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4)):to(device or "cuda:0")
end

local function make(tier, stage, device)
  local model = nn.parallel.FullyShardedDataParallel(make_net(device), {
    zero_stage = stage or 3, auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } }, offload = tier,
  })
  return model, accel.optim.AdamW(model:parameters(), { lr = 0.01, weight_decay = 0.1 })
end

--- Numbers of a training: losses, then parameters. overflow: the step whose loss is infinite once scaled (fp16's GradScaler).
local function train(tier, stage, overflow, device)
  device = device or "cuda:0"
  local model, optimizer = make(tier, stage, device)
  assert(model:parameters()[1].device == device)
  local scaler = overflow and accel.amp.GradScaler { init_scale = 2.0 ^ 10 }
  local out = {}
  for step = 1, 6 do
    local x = accel.randn(8, 16, { generator = accel.Generator(50 + step), device = "cpu" }):to(device)
    local loss = model(x):pow(2):mean()
    out[#out + 1] = loss:item()
    if step == overflow then loss = loss * 1e38 end
    if scaler then
      scaler:scale(loss):backward()
      scaler:step(optimizer)
      scaler:update()
    else
      loss:backward()
      optimizer:step()
    end
    optimizer:zero_grad()
  end
  if scaler then out[#out + 1] = scaler:get_scale() end
  for _, t in pairs(model:state_dict()) do
    for _, x in ipairs(t:detach():to("cpu"):reshape(-1):tolist()) do out[#out + 1] = x end
  end
  return out
end

local function same(what, got, want, near)
  assert(#got == #want, what)
  for i = 1, #want do -- on a GPU the host's rule may round otherwise than the device's
    local bar = suite.emulated and not near and 0 or 1e-5 * math.max(1, math.abs(want[i]))
    if math.abs(got[i] - want[i]) > bar then error(("%s: value %d: %.9g, not %.9g"):format(what, i, got[i], want[i])) end
  end
end

local TIERS <const> = {
  host = { parameters = "host", optimizer = "host" }, states = { optimizer = "host" },
  files = { parameters = "file", optimizer = "file", parameters_folder = TMP, optimizer_folder = TMP },
  slices = { optimizer = "file", optimizer_folder = TMP, slice = 1000 },
  overlap = { parameters = "host", optimizer = "host", overlap = true },
}
do
  local want, skipping = train(), train(nil, nil, 3)
  assert(skipping[7] == 2.0 ^ 9, "no step was skipped")
  for name, tier in accel.pairs(TIERS) do
    same(name, train(tier), want)
    if name ~= "overlap" then same(name .. ", a step skipped", train(tier, nil, 3), skipping) end
  end
  -- an update late, as on the CPU
  for _, overflow in ipairs { false, 3 } do
    local tier = { optimizer = "host", delayed_update = true }
    same("delayed", train(tier, 2, overflow or nil), train(tier, 2, overflow or nil, "cpu"), true)
  end
end

-- Activations of a backward, in host memory and in files.
do
  local function gradients(tier)
    local net, out = make_net(), {}
    local x = accel.randn(64, 16, { generator = accel.Generator(3), device = "cpu" }):to "cuda:0"
    local function loss() return net(x):pow(2):mean() end
    if tier then accel.offload.activations({ tier = tier, folder = TMP, least = 1 }, loss):backward()
    else loss():backward() end
    for i, p in ipairs(net:parameters()) do out[i] = p.grad:to("cpu"):to_bytes() end
    return table.concat(out)
  end
  local want = gradients()
  for _, tier in ipairs { "host", "file" } do assert(gradients(tier) == want, tier) end
end

-- A dispatched model: layers on the device, in host memory and on disk.
do
  local x = accel.randn(8, 16, { generator = accel.Generator(3), device = "cpu" }):to "cuda:0"
  local _ <close> = accel.no_grad()
  local want = make_net():eval()(x):to("cpu"):to_bytes()
  for _, map in ipairs { { ["0"] = "cuda:0", ["2"] = "cpu", ["4"] = "disk" }, { [""] = "disk" }, { [""] = "cpu" } } do
    map["1"], map["3"] = not map[""] and "cuda:0" or nil, not map[""] and "cuda:0" or nil
    local net = accel.dispatch_model(make_net("cpu"):eval(), map, { main_device = "cuda:0", offload_dir = TMP .. "/dispatched",
      window = 270 << 10, force_hooks = true })
    for _ = 1, 3 do
      local y = net(x)
      assert(y.device == "cuda:0" and y:to("cpu"):to_bytes() == want, accel.inspect(map))
    end
    local stats = accel.offload.stats(net)
    assert(map[""] ~= "cpu" or stats.windows["cuda:0"].prefetched > 0, accel.inspect(stats))
  end
end

-- The layers to come are copied while those before them compute, on a stream of their own, for which the host does not wait.
if suite.emulated then
  local script <close> = suite.temporary [[
local accel = require "accel"
local nn, layers = accel.nn, {}
accel.manual_seed(9)
for i = 1, 8 do layers[i] = nn.Linear(256, 256) end
local x = accel.randn(8, 256, { device = "cpu" }):to "cuda:0"
local _ <close> = accel.no_grad()
local net = accel.dispatch_model(nn.Sequential(table.unpack(layers)):eval(), { [""] = "cpu" }, { main_device = "cuda:0", window = 1 << 20,
  force_hooks = true })
for _ = 1, 5 do net(x) end
print(accel.offload.stats(net).windows["cuda:0"].prefetched)
]]
  local beside <close> = suite.temporary ""
  local waits <close> = suite.temporary ""
  local text, ok = suite.output(("env -u ACCEL_DEVICE CUDA_TWIN_BESIDE=%s CUDA_TWIN_WAITS=%s %s/bin/accel-run --device cpu %s"):format(beside.path,
    waits.path, os.getenv "ACCEL_TEST_BUILD", script.path))
  local function number(file)
    local f <close> = assert(io.open(file.path))
    return f:read "n"
  end
  assert(ok and tonumber(text) > 8, text)
  assert(number(beside) > 8, ("%d kernels ran beside copies"):format(number(beside)))
  assert(number(waits) < 8, ("the host waited %d times for the device"):format(number(waits)))
end
suite.finish()
