-- Sizes of a DeepSpeed configuration have their effect and leave the numbers of data parallelism: units no longer than reduce_bucket_size,
-- parameters below stage3_param_persistence_threshold whole on every rank and not gathered, modules of transformer_moe_cls_names gathered
-- whole, prefetch and overlap on and off.
--   accel-run tests/stdlib/deepspeed/cuts_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn
local owners = require "accel.shard.owners"

if ranks.start { 2 } then
  local machines = dofile(here .. "../../support/machines.lua")
  machines.run(2, 1)
  machines.run(2, 2)
  return
end
local APART <const> = arg[1] == "machines"

local Expert = nn.Module:extend "Expert"
function Expert:init() self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8) end
function Expert:forward(x) return self.down(self.up(x):relu()) end

local Experts = nn.Module:extend "Experts"
function Experts:init()
  self.list = nn.ModuleList()
  for _ = 1, 3 do self.list:append(Expert()) end
end
--- Rows go to the expert of their index: which experts a rank uses depends on its rows.
function Experts:forward(x, which)
  local out = x
  for e, expert in ipairs(self.list) do
    local mask = which:eq(e - 1)
    if mask:any():item() then out = out + expert(x) * mask:to(x.dtype):view(-1, 1) end
  end
  return out
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.first, self.norm, self.experts, self.last = nn.Linear(4, 8), nn.LayerNorm(8), Experts(), nn.Linear(8, 1)
end
function Net:forward(x, which) return self.last(self.experts(self.norm(self.first(x)), which)) end

local function train(zero, plugin)
  accel.AcceleratorState._reset_state(true)
  local o = {}
  if zero then
    plugin = plugin or {}
    plugin.hf_ds_config = { zero_optimization = zero, gradient_clipping = 0.5 }
    o.deepspeed_plugin = accel.DeepSpeedPlugin(plugin)
  else
    o.kwargs_handlers = { accel.DistributedDataParallelKwargs { find_unused_parameters = true } }
  end
  local a = accel.Accelerator(o)
  accel.manual_seed(2)
  local net, losses = Net(), {}
  local optimizer = accel.optim.AdamW(net:parameters(), { lr = 0.05 })
  local model
  model, optimizer = a:prepare(net, optimizer)
  local sent = 0
  for s = 1, 6 do
    local g = accel.Generator(s * 8 + dist.get_rank())
    local x, which = accel.randn(6, 4, { generator = g }), accel.randint(0, 3, { 6 }, { generator = g })
    if s == 2 then which:fill_(dist.get_rank() % 3) end -- ranks use different experts
    local before = dist.bytes_sent()
    local loss = model(x, which):pow(2):mean()
    a:backward(loss)
    if not zero then a:clip_grad_norm_(model:parameters(), 0.5) end
    optimizer:step()
    optimizer:zero_grad()
    losses[s], sent = loss:item(), dist.bytes_sent() - before
  end
  return { losses = losses, sent = sent, units = rawget(model, "reducer").units, net = net }
end

local plain = train()
local function same(zero, plugin)
  local run = train(zero, plugin)
  for s, want in ipairs(plain.losses) do
    assert(math.abs(run.losses[s] - want) <= 1e-5 * math.max(1, want), ("step %d: %.9g, not %.9g"):format(s, run.losses[s], want))
  end
  return run
end

local LEAF <const> = { transformer_moe_cls_names = "Experts" }
local function largest(run)
  local most = 0
  for _, unit in ipairs(run.units) do
    local n = 0
    for _, p in ipairs(unit.params) do n = n + p:numel() end
    if #unit.params > 1 then most = math.max(most, n) end
  end
  return most
end

for stage = 0, 3 do
  local whole = same({ stage = stage }, LEAF)
  local cut = same({ stage = stage, reduce_bucket_size = 100, overlap_comm = false }, LEAF)
  assert(largest(whole) > 100 and largest(cut) <= 100 and #cut.units > #whole.units, largest(cut))
end

do -- experts lie in one unit, those of a block that is none in the units of their list's modules
  local run = same({ stage = 3, stage3_param_persistence_threshold = 0 }, LEAF)
  local unit = owners.of[run.net.experts.list[1].up.weight].unit
  assert(unit == owners.of[run.net.experts.list[3].down.bias].unit and unit.name == "experts")
  ranks.fails("the model has no module of the class 'Nobody' (transformer_moe_cls_names, leaf_module)", train, { stage = 3 },
    { transformer_moe_cls_names = "Nobody" })
end

do -- parameters that stay
  local none = same({ stage = 3, stage3_param_persistence_threshold = 0 }, LEAF)
  local all = same({ stage = 3 }, LEAF)
  local some = same({ stage = 3, stage3_param_persistence_threshold = 16, stage3_model_persistence_threshold = 40 },
    LEAF)
  local function kinds(run)
    local n = {}
    for _, unit in ipairs(run.units) do
      for _, p in ipairs(unit.params) do n[unit.kind] = (n[unit.kind] or 0) + p:numel() end
    end
    return n
  end
  if APART then
    assert(kinds(none).whole == nil and kinds(all).gathered == nil and kinds(some).whole == 33, kinds(some).whole)
    assert(all.sent < none.sent, all.sent)
  else
    assert(kinds(none).gathered == nil and kinds(none).shared)
  end
end

for _, prefetch in ipairs { 0, 1, 1000000 } do
  same({ stage = 3, stage3_param_persistence_threshold = 0, stage3_prefetch_bucket_size = prefetch, reduce_bucket_size = 60 }, LEAF)
end
accel.AcceleratorState._reset_state(true)
