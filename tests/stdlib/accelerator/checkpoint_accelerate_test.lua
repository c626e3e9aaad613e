-- save_state{ format = "accelerate" }: the folder has Accelerate's files, loads without a loss, and without accel's own files it continues
-- with the same losses for every optimizer and schedule. Folders that do not fit are refused by the file, and one warning names everything
-- that was not loaded. Checkpoints whose plain data is in .bin files, as earlier releases wrote them, still load.
--   accel-run tests/stdlib/accelerator/checkpoint_accelerate_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim, S = accel.nn, accel.optim, accel.optim.lr_scheduler
local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/checkpoint_accelerate"
os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(root, root))

local X <const>, Y <const> = (accel.arange(24):to "f32" * 1.7):sin():view(6, 4), accel.arange(6) % 3

local function net()
  return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
end

--- A session: what prepare returns, and a function that trains n steps and returns the losses.
local function session(make_optimizer, make_schedule, opts)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a, model = accel.Accelerator(opts), net()
  local optimizer = make_optimizer(model)
  local schedule = make_schedule and make_schedule(optimizer)
  if schedule then model, optimizer, schedule = a:prepare(model, optimizer, schedule)
  else model, optimizer = a:prepare(model, optimizer) end
  return { a = a, model = model, optimizer = optimizer, schedule = schedule, train = function(n)
    local losses = {}
    for i = 1, n do
      a:accumulate(model, function()
        local loss = nn.functional.cross_entropy(model(X), Y)
        a:backward(loss)
        optimizer:step()
        if schedule then schedule:step() end
        optimizer:zero_grad()
        losses[i] = loss:item()
      end)
    end
    return losses
  end }
end

local function adamw(model) return optim.AdamW(model:parameters(), { lr = 0.01 }) end
local function named(dir)
  local set = {}
  for _, name in ipairs(accel.listdir(dir)) do set[name] = true end
  return set
end
local function pure(dir) os.execute(("rm -f '%s'/MANIFEST.json '%s'/*.accel"):format(dir, dir)) end

local n = 0
local function folder()
  n = n + 1
  return ("%s/%d"):format(root, n)
end

-- every optimizer, with a schedule of each kind in turn
local schedules = {
  function(o) return S.StepLR(o, 2, 0.5) end,
  function(o) return S.CosineAnnealingLR(o, 9) end,
  function(o)
    local inner = S.SequentialLR(o, { S.ConstantLR(o, 0.5, 9), S.ExponentialLR(o, 0.9) }, { 2 })
    return S.SequentialLR(o, { S.LinearLR(o, 0.1, 1.0, 3), inner }, { 2 })
  end,
  function(o) return S.ChainedScheduler { S.LambdaLR(o, function(s) return 1 / (1 + s) end), S.ExponentialLR(o, 0.9) } end,
}
for i, name in ipairs { "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop",
  "Adafactor", "Lion" } do
  local function make(model)
    local o = name == "SGD" and { momentum = 0.9 } or name == "RMSprop" and { momentum = 0.5, centered = true } or {}
    o.lr = 0.01
    return optim[name]({ { params = { model:parameters()[1] }, lr = 0.02 }, { params = { table.unpack(model:parameters(), 2) } } }, o)
  end
  local schedule = schedules[i % #schedules + 1]
  accel.manual_seed(3)
  local s, dir = session(make, schedule), folder()
  s.train(3)
  s.a:save_state(dir, { format = "accelerate", safe_serialization = i % 2 == 0 })
  local want = s.train(3)
  local files = named(dir)
  local weights = i % 2 == 0 and "model.safetensors" or "pytorch_model.bin"
  for _, file in ipairs { weights, "optimizer.bin", "scheduler.bin", "random_states_0.pkl" } do assert(files[file], file) end
  accel.manual_seed(4)
  s = session(make, schedule)
  s.a:load_state(dir)
  ranks.close(s.train(3), want, name .. " with accel's files", name == "ASGD" and 1e-6 or 0)
  pure(dir)
  s = session(make, schedule)
  s.a:load_state(dir)
  assert(s.optimizer.applied == 3 or not s.optimizer.counts, name)
  ranks.close(s.train(3), want, name .. " as Accelerate sees it", 1e-6)
end

do -- PyTorch's state of a schedule: parts count from their milestones, -1 before them
  local o = optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
  local schedule = schedules[3](o)
  for _ = 1, 5 do o:step() schedule:step() end
  local state = schedule:state_dict()
  ranks.same({ state.last_epoch, state._schedulers[1].last_epoch, state._schedulers[2].last_epoch }, { 5, 1, 3 }, "parts")
  local inner = state._schedulers[2]._schedulers
  ranks.same({ inner[1].last_epoch, inner[2].last_epoch }, { 1, 1 }, "parts of a part")
  local early = schedules[3](o):state_dict()
  ranks.same({ early._schedulers[1].last_epoch, early._schedulers[2].last_epoch }, { 0, -1 }, "parts before their milestone")
end

-- registered objects, a gradient scaler, the place inside an update
do
  local function objects(s)
    s.a.scaler = accel.amp.GradScaler { init_scale = 64.0, growth_interval = 2 }
    s.box = { state_dict = function(self) return self.v end, load_state_dict = function(self, v) self.v = v end }
    s.a:register_for_checkpointing(s.box)
    return s
  end
  local opts = { gradient_accumulation_steps = 2 }
  local s, dir = objects(session(adamw, nil, opts)), folder()
  s.box.v = { best = 0.5, list = { 1, 2 }, t = accel.arange(3) }
  s.train(5)
  s.a:save_state(dir, { format = "accelerate" })
  local scale, want = s.a.scaler:get_scale(), s.train(3)
  assert(scale == 128)
  s = objects(session(adamw, nil, opts))
  s.a:load_state(dir) -- the gradients of the unfinished update are in accel's file
  ranks.same({ s.a.scaler:get_scale(), s.box.v.best, s.box.v.list, s.box.v.t:tolist() }, { 128.0, 0.5, { 1, 2 }, { 0, 1, 2 } }, "objects")
  ranks.same(s.train(3), want, "inside an update")
  pure(dir)
  os.execute(("rm '%s/gradients.safetensors'; echo x > '%s/notes.txt'"):format(dir, dir))
  s = objects(session(adamw, nil, opts))
  local warnings = {}
  function s.a._warn(_, text) warnings[#warnings + 1] = text end
  s.a:load_state(dir)
  assert(#warnings == 1 and warnings[1]:find("was written by Accelerate; not loaded: the random states", 1, true), warnings[1])
  assert(warnings[1]:find "unfinished update" and warnings[1]:find "notes.txt" and not warnings[1]:find "optimizer.bin", warnings[1])
  ranks.same({ s.a.gradient_state.step, s.a.scaler:get_scale(), s.box.v.list }, { 5, 128.0, { 1, 2 } }, "objects of a pure folder")
  ranks.fails("scaler.pt", function()
    os.execute(("rm '%s/scaler.pt'"):format(dir))
    objects(session(adamw, nil, opts)).a:load_state(dir)
  end)
  ranks.fails("has 1 registered object, and 0 are registered here", function() session(adamw, nil, opts).a:load_state(dir) end)
end

-- folders that do not fit
do
  local s, dir = session(adamw, schedules[1]), folder()
  s.train(2)
  s.a:save_state(dir, { format = "accelerate" })
  pure(dir)
  local function refused(text, make, schedule) ranks.fails(text, function() session(make or adamw, schedule).a:load_state(dir) end) end
  refused("6 parameters are stored, here are 2", function(model) return optim.AdamW({ table.unpack(model:parameters(), 1, 2) }) end)
  refused("parameter groups are stored, here are 2; make the groups as they were", function(model)
    return optim.AdamW { { params = { model:parameters()[1] } }, { params = { table.unpack(model:parameters(), 2) } } }
  end)
  refused("scheduler.bin: it is the state of one schedule, and here the schedule has 2", nil, schedules[3])
  local state = assert(accel.load(dir .. "/optimizer.bin"))
  state.state["0"], state.state[0] = state.state[0], nil
  assert(accel.save(dir .. "/optimizer.bin", state))
  refused('optimizer.bin: it has a state of parameter "0", which no group lists', nil, schedules[1])
  os.remove(dir .. "/optimizer.bin")
  refused("has no optimizer.bin, and 1 optimizer is prepared here", nil, schedules[1])
  ranks.fails("adapter_only has no form in Accelerate's folders", function()
    s.a:save_state(folder(), { format = "accelerate", adapter_only = true })
  end)
  ranks.fails("format", function() s.a:save_state(folder(), { format = "torch" }) end)
  ranks.fails("must be an accel.amp.GradScaler", function() s.a.scaler = 3 end)
end

-- options of the file that differ are named, and the constructor's stay
do
  local s, dir = session(adamw, function(o) return S.StepLR(o, 2, 0.5) end), folder()
  s.train(3)
  s.a:save_state(dir, { format = "accelerate" })
  pure(dir)
  local state = assert(accel.load(dir .. "/scheduler.bin"))
  state.gamma = 0.25
  assert(accel.save(dir .. "/scheduler.bin", state))
  local warnings = {}
  s = session(adamw, function(o) return S.StepLR(o, 2, 0.5) end)
  function s.a._warn(_, text) warnings[#warnings + 1] = text end
  s.a:load_state(dir)
  assert(warnings[1]:find("scheduler.bin's options (gamma is 0.25 there and 0.5 here)", 1, true), warnings[1])
end

-- an optimizer that PyTorch made from named parameters in another order: its states go by name
do
  local s, dir = session(adamw), folder()
  s.train(2)
  s.a:save_state(dir, { format = "accelerate" })
  local want = s.train(2)
  pure(dir)
  local state, names = assert(accel.load(dir .. "/optimizer.bin")), {}
  for name in pairs(s.a:unwrap_model(s.model):named_parameters()) do names[#names + 1] = name end
  local group, n_params = state.param_groups[1], #names
  assert(n_params == 6 and #group.params == 6)
  group.param_names, group.params = {}, {}
  local turned = {}
  for i = 1, n_params do -- the last parameter first
    group.params[i], group.param_names[i] = i - 1, names[n_params + 1 - i]
    turned[i - 1] = state.state[n_params - i]
  end
  state.state = require("accel.util.pickle").dict(turned)
  assert(accel.save(dir .. "/optimizer.bin", state, { format = "torch" }))
  s = session(adamw)
  s.a:load_state(dir)
  ranks.same(s.train(2), want, "states by name")
end

-- a checkpoint of an earlier release: plain data in .bin files
do
  local content = require "accel.accelerator.checkpoint_content"
  local now = content.plain_file
  local s, dir = session(adamw, schedules[2]), folder()
  s.train(2)
  function content.plain_file(name) return name .. ".bin" end
  s.a:save_state(dir)
  content.plain_file = now
  assert(named(dir)["optimizer.bin"] and not named(dir)["optimizer.accel"])
  local want = s.train(2)
  s = session(adamw, schedules[2])
  s.a:load_state(dir)
  ranks.same(s.train(2), want, "an earlier release")
  dir = folder()
  s.a:save_state(dir)
  for name in pairs(named(dir)) do assert(not name:find "%.bin$", name) end
end
os.execute(("rm -rf '%s'"):format(root))
