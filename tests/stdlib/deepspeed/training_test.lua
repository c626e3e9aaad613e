-- A DeepSpeedPlugin trains to the losses, rates, norms and filled configurations of Accelerate with DeepSpeed (deepspeed.json, written by
-- make_deepspeed.py): stages 0 to 3, optimizers and schedules of the configuration by dummies, clipping, accumulation, one rank and two.
--   accel-run tests/stdlib/deepspeed/training_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local A = accel.accelerator

if ranks.start { 1, 2 } then
  ranks.run(2, { backend = "tcp" })
  return
end

local file <close> = assert(io.open(here .. "deepspeed.json"))
local reference = accel.json.decode(file:read "a")

local function near(what, got, want, bound)
  assert(math.abs(got - want) <= bound * math.max(1, math.abs(want)), ("%s: %.9g, not %.9g"):format(what, got, want))
end

local Rows = accel.data.Dataset:extend "Rows"
function Rows:init(x) self.x = x end
function Rows:len() return self.x.shape[1] end
function Rows:get(i) return self.x[i] end

local function data()
  local values = {}
  for i = 0, 63 do
    values[i + 1] = {}
    for k = 0, 2 do values[i + 1][k + 1] = ((i * 3 + k) * 37 % 101) / 50 - 1 end
  end
  return accel.tensor(values)
end

local function same(want, got, path)
  if type(want) ~= "table" then
    assert(want == got, ("%s: %s, not %s"):format(path, tostring(got), tostring(want)))
    return
  end
  for key, value in next, want do same(value, got[key], path .. "." .. tostring(key)) end
end

local function run(name, row, touch)
  accel.accelerator.AcceleratorState._reset_state(true)
  local config = row.config
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = config } }
  local net = accel.nn.Sequential(accel.nn.Linear(3, 8), accel.nn.Tanh(), accel.nn.Linear(8, 2))
  local start = {}
  for key, value in next, row.start do start[key] = accel.tensor(value) end
  net:load_state_dict(start)
  local dummy = A.DummyOptim(net:parameters(), { lr = 0.1, weight_decay = 0.01 })
  local schedule = config.scheduler and A.DummyScheduler(dummy, { total_num_steps = 24, warmup_num_steps = 4 })
  local loader = accel.data.DataLoader(accel.data.TensorDataset(data()), { batch_size = 4 })
  local model, optimizer, batches
  if schedule then model, optimizer, batches, schedule = a:prepare(net, dummy, loader, schedule)
  else model, optimizer, batches = a:prepare(net, dummy, loader) end
  same(row.filled, a.deepspeed_config, name)
  local i, engine = 0, a.deepspeed_engine_wrapped
  for batch in batches() do
    i = i + 1
    if i > 8 then break end
    local _ <close> = a:accumulate(model)
    local loss = model(batch[1]):pow(2):mean()
    a:backward(loss)
    if touch then -- what a script calls then does nothing any more
      local rate = optimizer.param_groups[1].lr
      optimizer:step()
      if schedule then schedule:step() end
      optimizer:zero_grad()
      assert(optimizer.param_groups[1].lr == rate)
    end
    local at = ("%s, micro-batch %d: "):format(name, i)
    near(at .. "loss", loss:item(), row.losses[a.process_index + 1][i], 2e-6)
    near(at .. "rate", optimizer.param_groups[1].lr, row.rates[i][1], 1e-12)
    local norm = row.norms[i]
    if type(norm) == "number" and a.sync_gradients then near(at .. "norm", engine:get_global_grad_norm(), norm, 2e-6) end
  end
  assert(optimizer.applied == 8 // a.gradient_accumulation_steps)
end

for name, row in accel.pairs(reference.runs[tostring(ranks.size)]) do
  run(name, row, true)
  run(name, row, false)
end

do -- a backward inside no_sync cannot end an update: DeepSpeed steps in it
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 1, gradient_accumulation_steps = 1 } }
  local model, optimizer = accel.nn.Linear(2, 2), nil
  model, optimizer = a:prepare(model, accel.optim.SGD(model:parameters(), { lr = 0.1 }))
  local before = a:get_state_dict(model).weight:clone()
  local ok, message = pcall(function() a:no_sync(model, function() a:backward(model(accel.ones(1, 2)):sum()) end) end)
  assert(not ok and tostring(message):find("runs inside no_sync()", 1, true), message)
  assert(accel.equal(a:get_state_dict(model).weight, before) and optimizer.applied == 0)
end
