-- What test_offloaded_step.c runs: a small model that rests in files, steps of it, the sum of its parameters.
local accel = require "accel"
local nn = accel.nn
local model, optimizer

function setup() -- luacheck: ignore
  model, optimizer = nil, nil
  accel.collect()
  accel.manual_seed(3)
  model = nn.parallel.FullyShardedDataParallel(nn.Sequential(nn.Linear(64, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 8)), {
    auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } },
    offload = { parameters = "file", optimizer = "file", parameters_folder = os.getenv "ACCEL_TEST_TMP" or "/tmp", slice = 40000, window = 1 << 16 },
  })
  optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  return 0.0
end

function step() -- luacheck: ignore
  optimizer:zero_grad()
  local loss = model(accel.randn(16, 64, { generator = accel.Generator(8) })):pow(2):mean()
  loss:backward()
  nn.utils.clip_grad_norm_(model:parameters(), 0.01)
  optimizer:step()
  return loss:item()
end

function sum() -- luacheck: ignore
  local total = 0.0
  for _, t in pairs(model:state_dict()) do total = total + t:to("f64"):sum():item() end
  return total
end
