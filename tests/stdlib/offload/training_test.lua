-- Training with tiers: losses, parameters and gradient norms are bit for bit those of the same sharding without tiers, on 1 and 2
-- ranks, ZeRO 1 to 3, in f32, bf16 and fp16, with clipping, accumulation, a tied and a frozen weight, recompute; what rests on a tier is not in the
-- device's memory. Saved states load with and without tiers.
--   accel-run tests/stdlib/offload/training_test.lua
-- tier: sampled, memory
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local core = require "accel.offload.core"
local nn = accel.nn

if ranks.start { 1, 2 } then return end

local R, P <const> = ranks.rank, ranks.size
local ROOT = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/tiers"

local Block = nn.Module:extend "Block"
function Block:init(d, again)
  self.norm, self.up, self.down, self.again = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d), again
end
function Block:compute(x) return x + self.down(self.up(self.norm(x)):gelu()) end
function Block:forward(x)
  if self.again and self.training then return accel.checkpoint(function(y) return self:compute(y) end, x) end
  return self:compute(x)
end

local Net = nn.Module:extend "Net"
function Net:init(again)
  self.embed, self.h = nn.Embedding(23, 24), nn.ModuleList { Block(24, again), Block(24, again), Block(24, again) }
  self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 23, { bias = false })
  self.head.weight = self.embed.weight
  self.h[2].norm.bias:requires_grad_(false)
end
function Net:forward(x)
  x = self.embed(x)
  for _, block in ipairs(self.h) do x = block(x) end
  return self.head(self.norm(x))
end

local function plugin_of(stage, tier, clip)
  local where = { host = "cpu", file = "nvme" }
  local function block(on) return { device = on and where[tier] or "none", nvme_path = on and tier == "file" and ROOT or nil } end
  return accel.DeepSpeedPlugin { hf_ds_config = {
    gradient_clipping = clip, gradient_accumulation_steps = "auto", train_micro_batch_size_per_gpu = "auto",
    zero_optimization = {
      stage = stage, offload_optimizer = block(true), offload_param = stage == 3 and block(true) or nil,
      stage3_param_persistence_threshold = 0, sub_group_size = 2048,
    },
  } }
end

local function accelerator_of(case, stage, tier, precision, steps, clip)
  local o = { mixed_precision = precision, gradient_accumulation_steps = steps or 1, project_dir = ROOT .. "/project" }
  if stage == "fsdp" then
    o.fsdp_plugin = accel.FullyShardedDataParallelPlugin {
      fsdp_version = case.fsdp_version, activation_checkpointing = case.activations ~= nil,
      activation_checkpointing_offload = case.activations ~= nil and tier == "host",
      cpu_offload = tier == "host", auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "Block" },
    }
  else
    o.deepspeed_plugin = plugin_of(stage, tier, clip)
  end
  return accel.Accelerator(o)
end

local function make(case)
  accel.accelerator.AcceleratorState._reset_state(true)
  accel.manual_seed(5)
  local accelerator = accelerator_of(case, case.stage, case.tier, case.precision or "no", case.accumulate, case.clip)
  local net = Net(case.again)
  local optimizer = accel.optim[case.optimizer or "AdamW"](net:parameters(), { lr = 0.02, weight_decay = 0.1 })
  local model
  model, optimizer = accelerator:prepare(net, optimizer)
  return accelerator, model, optimizer
end

local function batch(i)
  local g = accel.Generator and nil
  accel.manual_seed(1000 + i * 7 + R)
  return accel.randint(0, 23, { 4, 6 }, { generator = g })
end

local function train(case, n, at, parts)
  local accelerator, model, optimizer = parts[1], parts[2], parts[3]
  local out = {}
  for i = at + 1, at + n do
    local _ <close> = accelerator:accumulate(model)
    local x = batch(i)
    local loss = nn.functional.cross_entropy(model(x):reshape(-1, 23), ((x * 3 + 1) % 23):reshape(-1))
    accelerator:backward(loss)
    if case.clip and case.stage == "fsdp" and accelerator.sync_gradients then
      out[#out + 1] = accelerator:clip_grad_norm_(model:parameters(), case.clip):item()
    end
    optimizer:step()
    optimizer:zero_grad()
    out[#out + 1] = loss:item()
  end
  return out
end

local function hash(parts)
  local sums = {}
  for name, t in pairs(parts[2]:state_dict()) do sums[#sums + 1] = name .. t:to_bytes() end
  return table.concat(sums)
end

local function compare(case)
  local steps = 5
  local plain = setmetatable({ tier = false }, { __index = case })
  local a, b = { make(plain) }, { make(case) }
  local name = ("%s %s %s"):format(tostring(case.stage), case.tier, case.precision or "f32")
  local x, y = train(plain, steps, 0, a), train(case, steps, 0, b)
  for i = 1, #x do assert(x[i] == y[i], ("%s: value %d is %.9g, without tiers %.9g"):format(name, i, y[i], x[i])) end
  assert(x[#x] ~= x[1], "it does not learn")
  assert(hash(a) == hash(b), name .. ": other parameters")
  -- what is said to rest on a tier does
  local engine = b[2].reducer
  local tier = engine.tier
  for _, unit in ipairs(engine.units) do
    if tier.parameters then
      assert(core.tier(unit.home) == (case.tier == "file" and "file" or "host") and unit.kind == "gathered")
      assert(not require("accel.shard.core").there(unit.flat))
    end
  end
  local optimizer, n = b[3].optimizer or b[3], 0
  for _, state in next, optimizer.state do
    n = n + 1
    for _, buffer in ipairs(optimizer.buffers) do
      if case.tier == "file" and state[buffer] then assert(core.tier(state[buffer]) == "file") end
    end
  end
  assert(n > 0)
  if case.save then -- with a tier, then on without one, and the other way round
    local dir = ROOT .. "/saved-" .. case.tier
    b[1]:save_state(dir)
    local c = { make(plain) }
    c[1]:load_state(dir)
    local on, want = train(plain, 3, steps, c), train(plain, 3, steps, a)
    for i = 1, #want do assert(on[i] == want[i], name .. ": after loading") end
    local d = { make(case) }
    d[1]:load_state(dir)
    local again = train(case, 3, steps, d)
    for i = 1, #want do assert(again[i] == want[i], name .. ": after loading into a tier") end
  end
end

accel.makedirs(ROOT)
local cases = {
  { stage = "fsdp", tier = "host" }, { stage = "fsdp", tier = "host", precision = "bf16", clip = 0.5, again = true },
  { stage = "fsdp", tier = "host", activations = true, fsdp_version = 2 },
  { stage = 3, tier = "host", save = true }, { stage = 3, tier = "file", save = true }, { stage = 3, tier = "file", precision = "bf16", clip = 0.3 },
  { stage = 3, tier = "file", clip = 0.3, accumulate = 2, again = true }, { stage = 3, tier = "file", precision = "fp16" },
  { stage = 2, tier = "host", accumulate = 2 }, { stage = 2, tier = "file", clip = 0.3 }, { stage = 1, tier = "host", precision = "bf16" },
  { stage = 1, tier = "file" }, { stage = 3, tier = "file", optimizer = "SGD" },
}
for _, case in ipairs(cases) do
  if os.getenv "CASE" == nil or tonumber(os.getenv "CASE") == _ then compare(case) end
end
assert(P > 0)
