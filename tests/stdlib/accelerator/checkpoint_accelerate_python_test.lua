-- Folders of save_state{ format = "accelerate" } in Accelerate itself: its load_state takes them, with and without pickled weights, and
-- training continues with accel's losses and rates, for each optimizer of PyTorch that accel has and several schedules.
-- tier: slow
-- Needs python3 with torch and accelerate; exit status 77 with a reason without them.
--   accel-run tests/stdlib/accelerator/checkpoint_accelerate_python_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim, S = accel.nn, accel.optim, accel.optim.lr_scheduler
local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/checkpoint_accelerate_python"

if not os.execute "python3 -c 'import accelerate, torch, safetensors' >/dev/null 2>&1" then
  print "skip: python3 with torch and accelerate is not here"
  os.exit(77, true)
end
os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(root, root))

local x, y = (accel.arange(24):to "f32" * 1.7):sin():view(6, 4), (accel.arange(6) % 3):to "i64"
assert(accel.save(root .. "/data.safetensors", { x = x, y = y }))

local function make_schedule(optimizer, s)
  if not s.parts then
    local o = {}
    for key, value in pairs(s) do if key ~= "class" then o[key] = value end end
    return S[s.class](optimizer, o)
  end
  local parts = {}
  for k, part in ipairs(s.parts) do parts[k] = make_schedule(optimizer, part) end
  if s.milestones then return S[s.class](optimizer, parts, s.milestones) end
  return S[s.class](parts)
end

local STEP <const> = { class = "StepLR", step_size = 2, gamma = 0.5 }
local LINEAR <const> = { class = "LinearLR", start_factor = 0.1, end_factor = 1.0, total_iters = 3 }
local EXPONENTIAL <const> = { class = "ExponentialLR", gamma = 0.9 }
local schedules = {
  STEP, { class = "CosineAnnealingLR", T_max = 9 }, { class = "SequentialLR", parts = { LINEAR, EXPONENTIAL }, milestones = { 2 } },
  { class = "ChainedScheduler", parts = { { class = "ConstantLR", factor = 0.5, total_iters = 4 }, EXPONENTIAL } },
  { class = "SequentialLR", parts = { LINEAR, STEP }, milestones = { 5 } }, -- the second has not begun
}
local options = {
  SGD = { momentum = 0.9, weight_decay = 0.01 }, RMSprop = { momentum = 0.5, centered = true }, Adam = { amsgrad = true },
  Adagrad = { lr_decay = 0.01 },
}

for i, name in ipairs { "AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop",
  "Adafactor" } do
  local spec = { optimizer = name, options = options[name] or {}, schedule = schedules[i % (#schedules + 1) + 1], steps = 4 }
  spec.options.lr = 0.01
  accel.accelerator.AcceleratorState._reset_state(true)
  accel.manual_seed(3)
  local a, model = accel.Accelerator(), nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
  local params = model:parameters()
  local optimizer = optim[name]({ { params = { params[1] }, lr = 0.02 }, { params = { table.unpack(params, 2) } } }, spec.options)
  local schedule = spec.schedule and make_schedule(optimizer, spec.schedule)
  if schedule then model, optimizer, schedule = a:prepare(model, optimizer, schedule)
  else model, optimizer = a:prepare(model, optimizer) end
  a:register_for_checkpointing { load_state_dict = function() end, state_dict = function()
    return { n = 7, list = { 1.5, "two", true } }
  end }
  local function train(n)
    local losses = {}
    for k = 1, n do
      a:accumulate(model, function()
        local loss = nn.functional.cross_entropy(model(x), y)
        a:backward(loss)
        optimizer:step()
        if schedule then schedule:step() end
        optimizer:zero_grad()
        losses[k] = loss:item()
      end)
    end
    return losses
  end
  train(3)
  local dir = root .. "/" .. name
  a:save_state(dir, { format = "accelerate", safe_serialization = i % 2 == 0 })
  local want, rates = train(spec.steps), {}
  for g, group in ipairs(optimizer.param_groups) do rates[g] = group.lr end
  local f = assert(io.open(root .. "/spec.json", "w"))
  f:write(accel.json.encode(spec))
  f:close()
  local script = ranks.tests .. "stdlib/accelerator/checkpoint_accelerate_python.py"
  local pipe = assert(io.popen(("OMP_NUM_THREADS=1 python3 '%s' '%s' '%s/spec.json' '%s/data.safetensors'"):format(script, dir, root, root)))
  local text = pipe:read "a"
  assert(pipe:close(), name)
  local got = accel.json.decode(text:match "[^\n]*\n?$")
  ranks.close(got.rates, rates, name .. ": rates in Accelerate", 1e-9)
  ranks.close(got.losses, want, name .. ": losses in Accelerate", 2e-5)
  assert(got.step == 3 and got.box == 7, text)
  ranks.same(got.list, { 1.5, "two", true }, "registered object")
end
os.execute(("rm -rf '%s'"):format(root))
