-- Optimizers whose rule needs whole tensors, under plugins that divide parameters: one rank trains with one warning, as without the plugin;
-- several raise in prepare. Parameters of ignored modules that learn are named on several ranks.
--   accel-run tests/stdlib/accelerator/prepare_checks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

local KINDS <const> = { "plain", "fsdp1", "fsdp2", "NO_SHARD", "zero0", "zero2", "zero3" }
local ORDERS <const> = { "together", "model first", "optimizer first" }

if not ranks.launched then
  for _, n in ipairs { 1, 2 } do
    local _, err, status = ranks.try(n, {})
    assert(status == 0, err)
    local _, times = err:gsub("one rank alone, several raise: AdamW8bit: its rule needs whole tensors", "")
    assert(times == (n == 1 and (#KINDS - 1) * #ORDERS or 0), ("%d ranks: %d warnings\n%s"):format(n, times, err))
    _, times = err:gsub("ignored_modules: ranks do not average the gradients of '0%.weight', '0%.bias', and", "")
    assert(times == (n == 1 and 0 or 2), err)
  end
  return
end

local function options(kind)
  if kind:find "zero" then return { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = tonumber(kind:sub(5)), gradient_clipping = 1e9 } } end
  if kind == "plain" then return {} end
  return { fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = kind == "fsdp2" and 2 or 1,
    sharding_strategy = kind == "NO_SHARD" and kind or nil } }
end

local function train(kind, order)
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator(options(kind))
  accel.manual_seed(1)
  local model = nn.Linear(64, 128)
  local optimizer = accel.optim.AdamW8bit(model:parameters(), { lr = 0.01 })
  local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.ones(4, 1)), { batch_size = 2 })
  if order == "together" then model, optimizer, loader = a:prepare(model, optimizer, loader)
  elseif order == "model first" then
    model = a:prepare(model, loader)
    optimizer = a:prepare(optimizer)
  else
    optimizer = a:prepare(optimizer)
    model = a:prepare(model, loader)
  end
  for _ = 1, 3 do
    a:backward(model(accel.ones(2, 64)):square():mean())
    optimizer:step()
    optimizer:zero_grad()
  end
  return model.weight
end

local want = train "plain"
for i = 2, #KINDS do
  for _, order in ipairs(ORDERS) do
    local what = KINDS[i] .. ", " .. order
    if ranks.size > 1 then ranks.fails("AdamW8bit: its rule needs whole tensors", train, KINDS[i], order)
    else assert(train(KINDS[i], order):equal(want), what .. ": other weights than without the plugin") end
  end
end

for version = 1, 2 do
  for _, frozen in ipairs { true, false } do
    accel.AcceleratorState._reset_state(true)
    local model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    if frozen then model[1]:requires_grad_(false) end
    local plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = version, ignored_modules = "0" }
    accel.Accelerator { fsdp_plugin = plugin }:prepare(model)
  end
end
