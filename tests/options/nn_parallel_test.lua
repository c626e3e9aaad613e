-- Options of accel.nn.parallel on two ranks: each one changes what ranks have, compute or keep, warns, or raises (support/option_sweep.lua).
-- tier: slow
--   accel-run tests/options/nn_parallel_test.lua [NAME]
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
if ranks.start { 2, args = arg[1] } then return end
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local observer = require "option_observer"
local sweep = require "option_sweep"
local s = sweep.folder("nn", function(entry) return entry.name:find "^accel%.nn%.parallel%." ~= nil end)
local nn, dist = accel.nn, accel.dist
local me = dist.get_rank()
local N <const> = "accel.nn.parallel."

local alone
for r = 0, 1 do
  local group = dist.new_group { r }
  if r == me then alone = group end
end
--- What all ranks see, so that they go through the same collectives; an error of one is an error of all.
local function together(f)
  return function(...)
    local results = table.pack(pcall(f, ...))
    local ok = results[1]
    local of = dist.all_gather_object { ok, ok and observer.text(results) or tostring(results[2]) }
    for _, one in ipairs(of) do
      if not one[1] then error(one[2], 0) end
    end
    return of
  end
end
local function net(dtype)
  accel.manual_seed(3 + me) -- ranks differ until one sends its values
  local model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
  model[2].running_mean:fill_(me)
  return dtype and model:to(dtype) or model
end
--- Two steps of a wrapped model: results, what it holds, gradients.
local function trained(model)
  local x = accel.full({ 3, 4 }, me + 1.0) * accel.arange(1, 13):view(3, 4):float()
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
  local out = {}
  for step = 1, 2 do
    local y = model(x)
    y:float():pow(2):sum():backward()
    local grads = {}
    for name, p in pairs(model:named_parameters()) do grads[name] = p.grad and p.grad:detach():clone() or false end
    optimizer:step()
    optimizer:zero_grad()
    out[step] = { y:detach(), grads }
  end
  local state = {}
  for name, t in pairs(model:state_dict()) do state[name] = t:clone() end
  return out, state
end
local DDP <const>, JOIN <const> = "tests/stdlib/dist/ddp_test.lua", "tests/stdlib/dist/join_test.lua"
local FSDP <const> = "tests/stdlib/shard/options_test.lua"
s:recipe(N .. "DistributedDataParallel", {
  base = function() return { module = net() } end,
  run = together(function(call, given)
    if given.ignored_parameters then given.ignored_parameters = { given.module[1].weight } end
    return trained(call())
  end),
  values = { process_group = { alone }, broadcast_buffers = { false }, init_sync = { false },
    ignored_parameters = { true }, device_ids = { { 0 } }, output_device = { 1 }, dim = { 1 }, check_reduction = { true } },
  elsewhere = { bucket_cap_mb = DDP, first_bucket_mb = DDP, find_unused_parameters = DDP, static_graph = DDP, gradient_as_bucket_view = DDP,
    deterministic = DDP },
})
local function block(f)
  return together(function(call)
    local made = call(f())
    if type(made) == "string" then return made end
    local _ <close> = made
    return "block"
  end)
end
local called = { function() return "called" end }
s:recipe(N .. "DistributedDataParallel:no_sync", { run = block(function() return nn.parallel.DistributedDataParallel(net()) end),
  values = { fn = called }, passes_on = true })
s:leave(N .. "DistributedDataParallel:join", JOIN)
s:leave({ N .. "FullyShardedDataParallel" }, FSDP .. "; plugins: accelerator_settings_test.lua")
local function sharded() return nn.parallel.FullyShardedDataParallel(net()) end
s:recipe(N .. "FullyShardedDataParallel:no_sync", { run = block(sharded), values = { fn = called }, passes_on = true })
s:recipe(N .. "FullyShardedDataParallel:state_dict", {
  run = together(function(call)
    local names = {}
    for name in pairs(call(sharded())) do names[#names + 1] = name end
    return names
  end),
  values = { prefix = { "own." } },
})
s:leave(N .. "FullyShardedDataParallel:summon_full_params", FSDP)
s:leave({ N .. "PipelineParallel", N .. "PipelineParallel:generate" }, "tests/stdlib/parallel/mesh_test.lua")
s:finish()
