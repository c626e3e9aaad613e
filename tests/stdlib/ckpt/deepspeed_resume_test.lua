-- accelerator:load_state of folders that DeepSpeed wrote, of stages 0, 2 and 3 on two ranks: training goes on with DeepSpeed's losses on two
-- ranks, at every stage, with tiers, and without a plugin; parameters are zero_to_fp32.py's, or stage 0's fp32 masters beside fp16 and bf16.
-- What does not fit says so and changes nothing.
--   accel-run tests/stdlib/ckpt/deepspeed_resume_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local nn = accel.nn
local root = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/deepspeed_resume"

if ranks.start { 1, 2 } then return end

local Net = nn.Module:extend "Net"
function Net:init(width, norm)
  self.emb = nn.Embedding(11, 6) -- one by one: the order of parameters is PyTorch's
  self.a = nn.Linear(6, 9)
  self.bn = (norm or nn.BatchNorm1d)(9)
  self.frozen = nn.Linear(9, 5)
  self.b = nn.Linear(5, width or 6)
  self.head = nn.Linear(width or 6, 11, { bias = false })
  if not width then self.head.weight = self.emb.weight end
  self.frozen:requires_grad_(false)
end
function Net:forward(x) return self.head(self.b(self.frozen(self.bn(self.a(self.emb(x))):tanh()))) end

--- order: of the second group.
local function make(stage, tier, width, half, order)
  accel.accelerator.AcceleratorState._reset_state(true)
  local where = tier and { device = "cpu" } or nil
  local a = accel.Accelerator { deepspeed_plugin = stage and accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = 4, gradient_accumulation_steps = 1, gradient_clipping = 1.0,
    fp16 = half == "fp16" and { enabled = true } or nil, bf16 = half == "bf16" and { enabled = true } or nil,
    zero_optimization = { stage = stage, stage3_param_persistence_threshold = 0, offload_optimizer = where,
      offload_param = stage == 3 and where or nil },
  } } or nil, mixed_precision = not stage and half or nil }
  accel.manual_seed(4)
  local net, wide, flat = Net(width, half and nn.LayerNorm), {}, {}
  for _, p in ipairs(net:parameters()) do
    if p.requires_grad then table.insert(p.ndim > 1 and wide or flat, p) end
  end
  if order then table.sort(flat, order) end
  local optimizer = accel.optim.AdamW({ { params = wide }, { params = flat, weight_decay = 0.0 } }, { lr = 0.3, weight_decay = 0.01 })
  local model
  model, optimizer = a:prepare(net, optimizer)
  return a, model, optimizer
end

local function read_losses(dir)
  local f <close> = assert(io.open(dir .. "/losses.json"))
  return accel.json.decode(f:read "a")
end

for _, from in ipairs { "stage0", "stage2", "stage3" } do
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

for _, half in ipairs { "fp16", "bf16" } do -- stage 0: masters, states, steps and the scale, bit for bit
  local dir = here .. "deepspeed/stage0_" .. half
  local losses, expected = read_losses(dir), assert(accel.load(dir .. "/expected.safetensors"))
  local stored = assert(accel.load(dir .. "/global_step3/mp_rank_00_model_states.pt")).optimizer
  local inner = stored.optimizer_state_dict
  for _, to in ipairs { { 0 }, { 1 }, { 2 }, {} } do
    local a, model, optimizer = make(to[1], nil, nil, half)
    a:load_state(dir)
    local net = a:unwrap_model(model)
    for name, p in net:named_parameters() do
      assert(accel.equal(p:detach():to "f32", expected[name]) and p.dtype == "f32", ("%s to stage %s: %s"):format(half, to[1], name))
    end
    assert(optimizer.applied == 3)
    if half == "fp16" then assert(a.scaler and a.scaler:get_scale() == stored.cur_scale and stored.cur_scale == 512) end
    local saved = ("%s/%s"):format(root, half)
    a:save_state(saved)
    local c <close> = assert(require "accel.ckpt".open(saved))
    local at = 0
    for _, name in ipairs { "emb.weight", "a.weight", "b.weight", "a.bias", "bn.weight", "bn.bias", "b.bias" } do
      for key, want in pairs(inner.state[at]) do
        local got = accel.empty(want.shape, { dtype = key == "step" and "i64" or want.dtype })
        assert(c:read("optimizer", ("state.%s.%s"):format(name, key), got))
        assert(accel.equal(got:to "f32", want:to "f32"), ("%s to stage %s: %s of %s"):format(half, to[1], key, name))
      end
      at = at + 1
    end
    -- DeepSpeed's parameters have 16 bits, and so has its loss. Its fp16 without fused kernels divides gradients by a loss scale that it did
    -- not multiply by (0.19.8): after its next step its losses are others.
    local n = ranks.size == 1 and 0 or half == "fp16" and 1 or #losses
    for i = 1, n do
      local x = (accel.arange(4) + (i + 2) + ranks.rank):to "i64"
      local loss = model(x):pow(2):mean()
      a:backward(loss)
      if not to[1] then a:clip_grad_norm_(model:parameters(), 1.0) end
      optimizer:step()
      optimizer:zero_grad()
      local want = losses[i][ranks.rank + 1]
      assert(math.abs(loss:item() - want) <= 1e-2 * want, ("%s to stage %s, step %d: loss %.9g, DeepSpeed's %.9g"):format(half, to[1], i,
        loss:item(), want))
    end
  end
end

do -- groups in another order: what the file can tell is said, and nothing is changed
  local a, model = make(0, nil, nil, "fp16", function(x, y) return x.shape[1] < y.shape[1] end)
  local before = model:state_dict()["a.weight"]:to_bytes()
  ranks.fails("the optimizer's order differs", function() a:load_state(here .. "deepspeed/stage0_fp16") end)
  assert(before == model:state_dict()["a.weight"]:to_bytes())
end

do -- another model: one line, nothing is changed
  local a, model = make(2, nil, 7)
  local before = {}
  for name, t in pairs(model:state_dict()) do before[name] = t:to_bytes() end
  ranks.fails("load_state", function() a:load_state(here .. "deepspeed/stage2") end)
  for name, t in pairs(model:state_dict()) do assert(before[name] == t:to_bytes(), name) end
end
