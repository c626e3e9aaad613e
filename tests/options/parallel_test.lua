-- Options of accel.parallel, on two ranks: each one changes what a rank computes, has or sends, warns, or raises (support/option_sweep.lua).
-- tier: slow
--   accel-run tests/options/parallel_test.lua [NAME]
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
if ranks.start { 2, args = arg[1] } then return end
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "parallel"
local parallel, nn, dist = accel.parallel, accel.nn, accel.dist

local me = dist.get_rank()
local function mesh() return parallel.DeviceMesh({ "dp", "tp" }, { 1, 2 }) end
s:recipe("accel.parallel.DeviceMesh", {
  base = function() return { names = { "dp", "tp" }, shape = { 1, 2 } } end,
  run = function(call) return call():axis("all").size end, values = { joints = { { all = { "dp", "tp" } } } },
})
s:recipe("accel.parallel.init_device_mesh", {
  base = function() return { device = "cpu", shape = { 2 } } end,
  run = function(call) return call().mesh_dim_names end, values = { mesh_dim_names = { { "tp" } } },
})
s:leave("accel.parallel.DeviceMesh:get_local_rank", "0 on rank 0 of every dimension: tests/stdlib/parallel/mesh_test.lua")
s:recipe({ "accel.parallel.DeviceMesh:size", "accel.parallel.DeviceMesh:get_group" }, {
  run = function(call, given, entry)
    local made
    if entry.name:find "size" or given.name then made = call(mesh()) else made = call(parallel.DeviceMesh({ "tp" }, { 2 })) end
    return type(made) == "number" and made or made ~= nil
  end,
  values = { name = { "dp", "tp", any = true } },
})
local axis = mesh():axis "tp"
s:recipe("accel.parallel.parallel_cross_entropy", {
  base = function()
    accel.manual_seed(2)
    return { logits = accel.randn(3, 4):narrow(2, 1 + 2 * me, 2), target = accel.tensor { 1, 3, 2 }, axis = axis }
  end,
  values = { first = { 2 * me + 1 }, ignore_index = { 3 }, reduction = { "sum", "none" } },
})
do -- the ranks' own first classes give the loss of the whole
  accel.manual_seed(2)
  local logits, target = accel.randn(3, 4), accel.tensor { 1, 3, 2 }
  local got = parallel.parallel_cross_entropy(logits:narrow(2, 1 + 2 * me, 2), target, axis, { first = 2 * me })
  assert(accel.allclose(got, accel.cross_entropy(logits, target)))
end

local function net()
  accel.manual_seed(3 + me) -- ranks differ before they are made the same
  return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.LayerNorm(4))
end
local PLAN <const> = { ["0"] = "colwise", ["2"] = "rowwise" }
--- What a rank has and computes.
local function trained(call)
  local model = call()
  local x = accel.arange(2 * 4, { dtype = "f32" }):view(1, 2, 4)
  local y = model(x)
  y:sum():backward()
  local seen = {}
  for name, p in pairs(model:named_parameters()) do seen[name] = { p:detach(), p.grad } end
  return y, seen
end
local OVERLAP <const> = "tests/stdlib/parallel/comm_overlap_test.lua"
s:recipe("accel.parallel.parallelize_module", {
  base = function() return { model = net(), where = mesh(), plan = PLAN } end, run = trained,
  values = { plan = { { ["0"] = "colwise_rep" } }, init_sync = { false } },
  elsewhere = { sequence_parallel = "tests/stdlib/parallel/overlap_test.lua", enable_async_tp = OVERLAP, tp_comm_overlap = OVERLAP },
})
s:finish()
