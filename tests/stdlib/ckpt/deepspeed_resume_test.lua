-- accelerator:load_state of folders that DeepSpeed wrote, of stages 2 and 3 on two ranks: training goes on with DeepSpeed's losses on two
-- ranks, at every stage, with tiers, and without a plugin; parameters are zero_to_fp32.py's. What does not fit says so and changes nothing.
--   accel-run tests/stdlib/ckpt/deepspeed_resume_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 1, 2 } then return end

local Net = nn.Module:extend "Net"
function Net:init(width)
  self.emb, self.a, self.bn = nn.Embedding(11, 6), nn.Linear(6, 9), nn.BatchNorm1d(9)
  self.frozen, self.b, self.head = nn.Linear(9, 5), nn.Linear(5, width or 6), nn.Linear(width or 6, 11, { bias = false })
  if not width then self.head.weight = self.emb.weight end
  self.frozen:requires_grad_(false)
end
function Net:forward(x) return self.head(self.b(self.frozen(self.bn(self.a(self.emb(x))):tanh()))) end

local function make(stage, tier, width)
  accel.accelerator.AcceleratorState._reset_state(true)
  local where = tier and { device = "cpu" } or nil
  local a = accel.Accelerator { deepspeed_plugin = stage and accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = 4, gradient_accumulation_steps = 1, gradient_clipping = 1.0,
    zero_optimization = { stage = stage, stage3_param_persistence_threshold = 0, offload_optimizer = where,
      offload_param = stage == 3 and where or nil },
  } } or nil }
  accel.manual_seed(4)
  local net, wide, flat = Net(width), {}, {}
  for _, p in ipairs(net:parameters()) do
    if p.requires_grad then table.insert(p.ndim > 1 and wide or flat, p) end
  end
  local optimizer = accel.optim.AdamW({ { params = wide }, { params = flat, weight_decay = 0.0 } }, { lr = 0.3, weight_decay = 0.01 })
  local model
  model, optimizer = a:prepare(net, optimizer)
  return a, model, optimizer
end

local function read_losses(dir)
  local f <close> = assert(io.open(dir .. "/losses.json"))
  return accel.json.decode(f:read "a")
end

for _, from in ipairs { "stage2", "stage3" } do
  local dir = here .. "deepspeed/" .. from
  local losses, expected = read_losses(dir), assert(accel.load(dir .. "/expected.safetensors"))
  for _, to in ipairs { { 1 }, { 2 }, { 3 }, { 3, true }, {} } do
    local a, model, optimizer = make(to[1], to[2])
    a:load_state(dir)
    local state = model:state_dict()
    for name, t in pairs(expected) do
      if state and state[name] and state[name]:is_floating_point() then
        assert(accel.equal(state[name]:to "f32", t), ("%s to stage %s: %s"):format(from, to[1], name))
      end
    end
    assert(optimizer.param_groups[1].lr == 0.1 and optimizer.applied == 3)
    for i, row in ipairs(ranks.size == 2 and losses or {}) do
      local x = (accel.arange(4) + (i + 2) + ranks.rank):to "i64"
      local loss = model(x):pow(2):mean()
      a:backward(loss)
      if not to[1] then a:clip_grad_norm_(model:parameters(), 1.0) end
      optimizer:step()
      optimizer:zero_grad()
      local want = row[ranks.rank + 1]
      assert(math.abs(loss:item() - want) <= 2e-5 * want, ("%s to stage %s, step %d: loss %.9g, DeepSpeed's %.9g"):format(from, to[1], i,
        loss:item(), want))
    end
  end
end

do -- another model: one line, nothing is changed
  local a, model = make(2, nil, 7)
  local before = {}
  for name, t in pairs(model:state_dict()) do before[name] = t:to_bytes() end
  ranks.fails("load_state", function() a:load_state(here .. "deepspeed/stage2") end)
  for name, t in pairs(model:state_dict()) do assert(before[name] == t:to_bytes(), name) end
end
