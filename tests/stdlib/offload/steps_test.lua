-- 10,000 updates of a small model whose parameters, gradients and states rest in files: memory of the device, live tensors, bytes in
-- the files and open descriptors are what they were after the first hundred.
-- tier: slow
local accel = require "accel"
local nn = accel.nn
accel.manual_seed(1)
local folder = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local model = nn.parallel.FullyShardedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)), {
  auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } },
  offload = { parameters = "file", optimizer = "file", parameters_folder = folder, slice = 1024 },
})
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
local x = accel.randn(8, 16)
local function measure()
  accel.collect()
  accel.collect()
  local tier, fds = model.reducer.tier:stats(), accel.listdir "/proc/self/fd"
  return { live = accel.mem_stats("cpu").live_bytes, parameters = tier.parameters.used_bytes, optimizer = tier.optimizer.used_bytes,
    fds = #fds }
end
local first
for step = 1, 10000 do
  accel.offload.activations({}, function() return model(x):pow(2):mean() end):backward()
  optimizer:step()
  optimizer:zero_grad()
  if step == 100 then first = measure() end
end
local last = measure()
for name, n in pairs(first) do assert(math.abs(last[name] - n) <= (name == "live" and 8192 or 0), ("%s: %d, then %d"):format(name, n, last[name])) end
