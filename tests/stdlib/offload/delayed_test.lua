-- Delayed parameter updates: losses and parameters are, bit for bit, those of a loop that computes every gradient with the parameters of
-- one update before, on 1 and 2 ranks, for AdamW and SGD with groups and a schedule, with clipping and accumulation; whoever looks finds
-- all updates done, and a state that was saved goes on alike. What cannot go together says so.
--   accel-run tests/stdlib/offload/delayed_test.lua
-- tier: every change, memory
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 1, 2 } then return end

local function make_net()
  accel.manual_seed(9)
  return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
end

local function groups(net)
  local plain, decayed = {}, {}
  for name, p in pairs(net:named_parameters()) do table.insert(name:find "bias" and plain or decayed, p) end
  return { { params = decayed, weight_decay = 0.1 }, { params = plain, weight_decay = 0.0 } }
end

local function make(case, tier)
  local model = nn.parallel.FullyShardedDataParallel(make_net(), {
    zero_stage = case.stage, auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } }, offload = tier,
  })
  return model, accel.optim[case.name](groups(model.module), case.o)
end

local function loss_of(model, step)
  return model(accel.randn(8, 16, { generator = accel.Generator(50 + step * 2 + ranks.rank) })):pow(2):mean()
end

--- The same by hand: `model` has the parameters that are computed with, `master` those that are updated.
local function by_hand(case, steps)
  local model = make(case)
  local master, optimizer = make(case)
  local schedule = accel.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
  local out = {}
  for step = 1, steps do
    for k = 1, case.accumulate or 1 do
      local loss = loss_of(model, step * 10 + k)
      loss:backward()
      out[#out + 1] = loss:item()
    end
    if case.clip then out[#out + 1] = nn.utils.clip_grad_norm_(model:parameters(), case.clip):item() end
    for i, p in ipairs(model.reducer.stepped) do master.reducer.stepped[i].grad = p.grad end
    local values = {} -- after the updates so far
    for name, t in pairs(master:state_dict()) do values[name] = t:clone() end
    optimizer:step()
    schedule:step()
    model:load_state_dict(values)
    for _, p in ipairs(model.reducer.stepped) do p.grad = nil end
    model:zero_grad()
    optimizer:zero_grad()
  end
  for name, t in pairs(master:state_dict()) do out[#out + 1] = name .. t:to_bytes() end
  return out
end

local function train(case, model, optimizer, from, to, out, schedule)
  for step = from, to do
    for k = 1, case.accumulate or 1 do
      local loss = loss_of(model, step * 10 + k)
      loss:backward()
      out[#out + 1] = loss:item()
    end
    if case.clip then out[#out + 1] = nn.utils.clip_grad_norm_(model:parameters(), case.clip):item() end
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
end

local TIER <const> = { optimizer = "host", delayed_update = true }
for _, case in ipairs {
  { name = "AdamW", o = { lr = 0.01 }, stage = 2 }, { name = "SGD", o = { lr = 0.05, momentum = 0.9 }, stage = 1 },
  { name = "AdamW", o = { lr = 0.02 }, stage = 2, clip = 0.1, accumulate = 2 },
} do
  local want, got = by_hand(case, 6), {}
  local model, optimizer = make(case, TIER)
  local schedule = accel.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
  train(case, model, optimizer, 1, 6, got, schedule)
  assert(model.reducer.tier.delayed.running > 0, "no update is under way")
  for name, t in pairs(model:state_dict()) do got[#got + 1] = name .. t:to_bytes() end
  for i = 1, #want do
    local shown = type(want[i]) == "string" and want[i]:sub(1, 12) or tostring(want[i])
    assert(got[i] == want[i], ("%s, stage %d: value %d: %s"):format(case.name, case.stage, i, shown))
  end
  -- goes on from what was looked at, as one that takes over the states
  local parameters, states = model:state_dict(), optimizer:state_dict()
  local other, second = make(case, TIER)
  other:load_state_dict(parameters)
  second:load_state_dict(states)
  local a, b = {}, {}
  train(case, model, optimizer, 7, 9, a, accel.optim.lr_scheduler.LambdaLR(optimizer, function() return 1 end))
  train(case, other, second, 7, 9, b, accel.optim.lr_scheduler.LambdaLR(second, function() return 1 end))
  for i = 1, #a do assert(a[i] == b[i], "after loading: value " .. i) end
  do -- a forward without gradients has the last update
    local _ <close> = accel.no_grad()
    local x = accel.ones(2, 16)
    local y = model(x)
    assert(model.reducer.tier.delayed.running == 0)
    local plain = make_net()
    plain:load_state_dict(model:state_dict())
    assert(accel.equal(plain(x), y))
  end
end

local function fails(tier, part)
  local ok, err = pcall(make, { name = "SGD", o = { lr = 1 }, stage = 2 }, tier)
  assert(not ok and tostring(err):find(part, 1, true), err)
end
fails({ parameters = "host", optimizer = "host", delayed_update = true }, "delayed_update is of optimizer = 'host' alone")
fails({ optimizer = "file", optimizer_folder = "/tmp", delayed_update = true }, "delayed_update is of optimizer = 'host' alone")
