-- Updates that begin in the backward: losses and parameters are bit for bit those of the same training without tiers, on 1 and 2
-- ranks, with groups of their own options, a schedule, a parameter that misses gradients, SGD and AdamW; from the second step on
-- updates are begun early, that of the last unit, which is large, for one half; what cannot go together says so.
--   accel-run tests/stdlib/offload/overlap_test.lua
-- tier: every change, memory
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 1, 2 } then return end

local Net = nn.Module:extend "Net"
function Net:init()
  self.a, self.b, self.c, self.odd = nn.Linear(16, 4096), nn.Linear(4096, 64), nn.Linear(64, 4), nn.Linear(64, 64)
end
function Net:forward(x, odd)
  x = self.b(self.a(x):tanh()):tanh()
  if odd then x = x + self.odd(x) end
  return self.c(x)
end

local begun, halves = 0, 0
local Overlap = require "accel.offload.overlap"
local begin = Overlap.begin
function Overlap:begin(...)
  local before = self.running
  begin(self, ...)
  if self.running > before then begun = begun + 1 end
  local unit = ...
  for _, piece in ipairs(unit.pieces) do
    local done = piece and self.done[piece]
    if done and done.count < piece:numel() then halves = halves + 1 end
  end
end

local function make(offload, Optimizer, o)
  accel.manual_seed(9)
  local model = nn.parallel.FullyShardedDataParallel(Net(), {
    auto_wrap_policy = { kind = "transformer", classes = { nn.Linear } }, offload = offload, share_memory = false,
  })
  local plain, decayed = {}, {}
  for name, p in pairs(model.module:named_parameters()) do table.insert(name:find "bias" and plain or decayed, p) end
  o = o or {}
  local optimizer = Optimizer({ { params = decayed, weight_decay = 0.1 }, { params = plain, weight_decay = 0.0 } }, o)
  return model, optimizer
end

local function train(model, optimizer)
  local schedule = accel.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
  local out = {}
  for step = 1, 6 do
    accel.manual_seed(50 + step * 2 + ranks.rank)
    local loss = model(accel.randn(8, 16), step % 3 == 0):pow(2):mean()
    loss:backward()
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    out[#out + 1] = loss:item()
  end
  for name, t in pairs(model:state_dict()) do out[#out + 1] = name .. t:to_bytes() end
  return out
end

local tiers = { parameters = "host", optimizer = "host", overlap = true }
local cases = {
  { accel.optim.AdamW, { lr = 0.01 } }, { accel.optim.SGD, { lr = 0.05, momentum = 0.9 } }, { accel.optim.NAdam, { lr = 0.01 } },
}
for _, case in ipairs(cases) do
  local want = train(make(nil, case[1], case[2]))
  begun, halves = 0, 0
  local model, optimizer = make(tiers, case[1], case[2])
  local got = train(model, optimizer)
  assert(accel.dist.get_world_size() == 1 or model.reducer.tier:stats().host.read_bytes == 0) -- what lies in host memory is gathered from there
  for i = 1, #want do assert(got[i] == want[i], ("%s: value %d"):format(case[1].__name, i)) end
  assert(begun >= 10 and halves >= 3, ("%d begun, %d halved"):format(begun, halves))
end

local function fails(part, f)
  local ok, err = pcall(f)
  assert(not ok and tostring(err):find(part, 1, true), err)
end
do
  local model, optimizer = make(tiers, accel.optim.AdamW, { lr = 0.01 })
  local x = accel.ones(4, 16)
  for _ = 1, 2 do
    model(x):sum():backward()
    optimizer:step()
    optimizer:zero_grad()
  end
  model(x):sum():backward()
  fails("second backward before the optimizer stepped", function() model(x):sum():backward() end)
end
do
  local model, optimizer = make(tiers, accel.optim.AdamW, { lr = 0.01 })
  for _ = 1, 2 do
    model(accel.ones(4, 16)):sum():backward()
    optimizer:step()
    optimizer:zero_grad()
  end
  model(accel.ones(4, 16)):sum():backward()
  optimizer.param_groups[1].lr = 0.5
  fails("the learning rate changed between", function() optimizer:step() end)
end
do
  local model, optimizer = make(tiers, accel.optim.AdamW, { lr = 0.01 })
  for _ = 1, 2 do
    model(accel.ones(4, 16)):sum():backward()
    if _ == 2 then fails("updated in the backward", function() nn.utils.clip_grad_norm_(model:parameters(), 1) end) end
    optimizer:step()
    optimizer:zero_grad()
  end
end
fails("set optimizer = 'host'", function()
  make({ parameters = "file", optimizer = "file", parameters_folder = "/tmp", overlap = true }, accel.optim.SGD, { lr = 1 })
end)
