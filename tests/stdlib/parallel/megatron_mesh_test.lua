-- MegatronLMPlugin beside data: use_custom_fsdp cuts parameters over the data ranks and gives the losses of whole ones; the mesh is that of the
-- last Accelerator and is let go with it; rates that a schedule has of its own follow the groups that scale_lr_cond cuts.
--   accel-run tests/stdlib/parallel/megatron_mesh_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R, P = accel.accelerator, ranks.rank, ranks.size
local L = accel.optim.lr_scheduler

local function reset()
  A.AcceleratorState._reset_state(true)
end

local function live()
  for _ = 1, 2 do
    collectgarbage()
    accel.collect()
  end
  return accel.mem_stats("cpu").live_bytes
end

local function net(width)
  accel.manual_seed(3)
  return accel.models.GPT2 { vocab_size = 33, n_positions = 8, n_embd = width or 16, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0,
    attn_pdrop = 0 }
end

local function open(plugin, width, steps)
  reset()
  plugin.num_micro_batches, plugin.gradient_clipping = 2, 0
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin(plugin), gradient_accumulation_steps = steps }
  local model = net(width)
  local optimizer = plugin.calculate_per_token_loss and accel.optim.SGD(model:parameters(), { lr = 0.5 })
    or accel.optim.AdamW(model:parameters(), { lr = 1e-2, weight_decay = 0.5 })
  model, optimizer = a:prepare(model, optimizer)
  return a, model, optimizer
end

-- parameters cut over the data ranks. steps: calls of an update, which have the same rows together; rows have tokens, more or less
local function losses(plugin, steps)
  steps = steps or 1
  local a, model, optimizer = open(plugin, nil, steps)
  local dp, out = a._parallel:axis "dp", {}
  for k = 1, 3 do
    local ids, sum = accel.randint(0, 33, { 8, 8 }, { generator = accel.Generator(k) }), 0
    local labels = ids:clone()
    if plugin.calculate_per_token_loss then labels:narrow(1, 1, 3):narrow(2, 2, 6):fill_(-100) end
    for call = 0, steps - 1 do
      local _ <close> = a:accumulate(model)
      local n = 8 // steps // dp.size
      local first = (call * dp.size + dp.rank) * n + 1
      local loss = model { input_ids = ids:narrow(1, first, n), labels = labels:narrow(1, first, n) }
      a:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      sum = sum + a:reduce(loss:detach(), "mean"):item() / steps
    end
    out[k] = sum
  end
  if plugin.calculate_per_token_loss then -- losses of calls with other tokens have another mean: by weights
    model:eval()
    local ids = accel.randint(0, 33, { 8, 8 }, { generator = accel.Generator(9) })
    return model { input_ids = ids, labels = ids }:reshape(1)
  end
  return accel.tensor(out)
end
local function decays(_, p) return p.ndim == 1 end
if ranks.launched then
  local pp = P > 2 and 2 or 1
  -- by token, over two calls of an update
  local whole = losses({ pp_degree = pp, calculate_per_token_loss = true }, 2)
  for _, name in ipairs { "use_custom_fsdp", "use_distributed_optimizer" } do
    ranks.close(losses({ pp_degree = pp, calculate_per_token_loss = true, [name] = true }, 2), whole, "by token, " .. name, 1e-5)
  end
  ranks.close(losses({ pp_degree = pp, calculate_per_token_loss = true }, 1), whole, "by token, in one call", 1e-5)
  for _, cond in ipairs { false, decays } do
    local whole = losses { pp_degree = pp, no_wd_decay_cond = cond or nil }
    ranks.close(losses { pp_degree = pp, no_wd_decay_cond = cond or nil, use_custom_fsdp = true }, whole, "losses of cut parameters", 1e-5)
    assert((whole[1] - whole[3]):abs():item() > 1e-3, "something is learnt")
  end
  local bytes = {}
  for i, fsdp in ipairs { false, true } do
    reset()
    local before = live()
    local kept = { open({ pp_degree = pp, use_custom_fsdp = fsdp }, 128) }
    bytes[i] = live() - before
    ranks.same(#kept, 3, "model and optimizer")
  end
  local sums = accel.tensor(bytes, { dtype = "f64" }) -- parts of ranks of one machine lie beside each other, in memory of the first one
  accel.dist.all_reduce(sums)
  local whole, cut = sums[1]:item(), sums[2]:item()
  assert(cut < 0.55 * whole, ("ranks have %d bytes of cut parameters, %d of whole ones"):format(cut, whole))
end

-- collectives over the data ranks are those of the last Accelerator, and its models go with it
do
  local pp = P > 1 and 2 or 1
  local gather = A.gather_across_data_parallel_groups
  reset()
  local first = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { pp_degree = pp } }
  ranks.same(gather(accel.ones(1)).shape, { P // pp }, "of the mesh")
  reset()
  ranks.same(gather(accel.ones(1)).shape, { P }, "of all, after the state was reset")
  first:wait_for_everyone()
  first = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { pp_degree = pp } }
  local _ = accel.Accelerator {}
  ranks.same(gather(accel.ones(1)).shape, { P }, "of all, of a plain Accelerator after one with a mesh")
  ranks.close(A.avg_losses_across_data_parallel_group { accel.tensor(R + 1.0) }, accel.tensor { (P + 1) / 2 }, "mean over all", 1e-6)
  first:wait_for_everyone()
  first, _ = nil, nil
  reset()
  local before = live()
  do
    local a, model = open({ pp_degree = pp }, 64)
    model { input_ids = accel.ones(2, 4, { dtype = "i64" }) }
    a:wait_for_everyone()
  end
  reset()
  ranks.same(live() - before, 0, "bytes that an Accelerator leaves")
end

-- rates of a schedule's own
local function rates(make)
  reset()
  local a = accel.Accelerator { megatron_lm_plugin = accel.MegatronLMPlugin { gradient_clipping = 0, pp_degree = math.min(P, 2),
    no_wd_decay_cond = decays, scale_lr_cond = function(name) return name:find "mlp" ~= nil end, lr_mult = 3.0 } }
  local model = net()
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 0.5 })
  local schedule, late = make(optimizer)
  if late then
    model, optimizer = a:prepare(model, optimizer)
    schedule = a:prepare(schedule)
  else
    model, optimizer, schedule = a:prepare(model, optimizer, schedule)
  end
  local out = {}
  for step = 1, 4 do
    local seen = {}
    for _, group in ipairs(optimizer.param_groups) do seen[#seen + 1] = ("%.6g"):format(group.lr) end
    table.sort(seen, function(x, y) return tonumber(x) < tonumber(y) end)
    out[step] = { tonumber(seen[1]), tonumber(seen[#seen]) }
    model { input_ids = accel.ones(2, 4, { dtype = "i64" }) }
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
  end
  return out
end
local function alone(make)
  local optimizer, out = accel.optim.AdamW({ accel.ones(2, { requires_grad = true }) }, { lr = 0.5 }), {}
  local schedule = make(optimizer)
  for step = 1, 4 do
    out[step] = optimizer.param_groups[1].lr
    optimizer:step()
    schedule:step()
  end
  return out
end
for name, make in pairs {
  OneCycleLR = function(o) return L.OneCycleLR(o, { max_lr = 2.0, total_steps = 10 }) end,
  ["OneCycleLR of a list"] = function(o) return L.OneCycleLR(o, { max_lr = { 2.0 }, base_momentum = { 0.8 }, total_steps = 10 }) end,
  ["OneCycleLR, later"] = function(o) return L.OneCycleLR(o, { max_lr = 2.0, total_steps = 10 }), true end,
  CyclicLR = function(o) return L.CyclicLR(o, 0.1, 0.5, 2, { cycle_momentum = false }) end,
  LambdaLR = function(o) return L.LambdaLR(o, { function(i) return 1 / (i + 1) end }) end,
  LinearLR = function(o) return L.LinearLR(o, { start_factor = 0.5, total_iters = 4 }) end,
  SequentialLR = function(o)
    return L.SequentialLR(o, { L.LinearLR(o, { start_factor = 0.5, total_iters = 2 }), L.OneCycleLR(o, { max_lr = 2.0, total_steps = 9 }) }, { 2 })
  end,
} do
  local got, want = rates(make), alone(make)
  for step = 1, 4 do
    ranks.close(accel.tensor(got[step]), accel.tensor { want[step], 3 * want[step] }, ("%s, step %d"):format(name, step), 1e-5)
  end
end

if ranks.launched then return end
ranks.run(2)
ranks.run(4)
