-- Meshes, collectives with gradients, losses of shared-out classes, and what is said of plans that are wrong.
--   accel-run tests/stdlib/parallel/mesh_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local collectives = require "accel.parallel.collectives"
local dist, nn, parallel, says = accel.dist, accel.nn, accel.parallel, ranks.fails

if ranks.start { 1, 4 } then return end
local R, P = ranks.rank, ranks.size
local function close(a, b, what, tolerance) ranks.close(a:detach(), b:detach(), what, tolerance or 1e-5) end

local function mesh_of(...) return parallel.init_device_mesh("cpu", { ... }, { mesh_dim_names = { "dp", "tp" } }) end

-- ---- who is where ----
if P == 4 then
  local mesh = mesh_of(2, 2)
  assert(mesh:size() == 4 and mesh:size "dp" == 2 and tostring(mesh) == "DeviceMesh(dp=2, tp=2)")
  assert(mesh:get_local_rank "dp" == R // 2 and mesh:get_local_rank "tp" == R % 2)
  assert(mesh:axis "tp".ranks[1] == R // 2 * 2 and mesh:axis "dp".ranks[2] == R % 2 + 2)
  local t = accel.tensor { R + 0.0 }
  dist.all_reduce(t, { group = mesh:get_group "tp" })
  assert(t:item() == (R // 2 == 0 and 1 or 5))
  says("no dimension 'pt'; choose from dp, tp; did you mean 'tp'?", function() mesh:get_group "pt" end)
  local joint = parallel.DeviceMesh({ "a", "b", "c" }, { 2, 1, 2 }, { ab = { "a", "b" }, ac = { "a", "c" }, none = { "z" } })
  assert(joint:axis "ab".size == 2 and joint:axis "ac".size == 4 and joint:axis "none".size == 1)
end
says("3 need 3 ranks, but there are", function() parallel.init_device_mesh("cpu", { 3 }) end)

-- ---- collectives: values and gradients against plain ops on the whole ----
local axis = parallel.init_device_mesh("cpu", { P }, { mesh_dim_names = { "tp" } }):axis "tp"
local function part(t, dim, r) local n = t.shape[dim] // P return t:narrow(dim, (r or R) * n + 1, n) end
accel.manual_seed(5)
local whole = {}
for r = 1, P do whole[r] = accel.randn(2, 8, 4) end
local w = {}
for r = 1, P do w[r] = accel.randn(2, 8, 4) end
local function total(list) local s = list[1] for r = 2, P do s = s + list[r] end return s end

for dim = 1, 3 do
  local size = whole[1].shape[dim]
  if size % P == 0 then
    local x = whole[R + 1]:clone():requires_grad_(true)
    local y = collectives.scatter(x, axis, dim)
    close(y, part(total(whole), dim), "scatter")
    y:backward(part(w[1], dim):clone())
    close(x.grad, w[1], "scatter's gradient")

    local own = part(whole[1], dim):clone():requires_grad_(true)
    y = collectives.gather(own, axis, dim)
    close(y, whole[1], "gather")
    y:backward(w[R + 1])
    close(own.grad, part(total(w), dim), "gather's gradient")

    own = part(whole[1], dim):clone():requires_grad_(true)
    y = collectives.join(own, axis, dim)
    close(y, whole[1], "join")
    y:backward(w[1])
    close(own.grad, part(w[1], dim), "join's gradient")

    x = whole[1]:clone():requires_grad_(true)
    y = collectives.split(x, axis, dim)
    close(y, part(whole[1], dim), "split")
    y:backward(part(w[1], dim):clone())
    close(x.grad, w[1], "split's gradient")
  end
end
do
  local x = whole[R + 1]:clone():requires_grad_(true)
  close(collectives.reduce(x, axis), total(whole), "reduce")
  local y = collectives.copy(x, axis)
  close(y, x, "copy")
  y:backward(w[R + 1])
  close(x.grad, total(w), "copy's gradient")
  local own = part(whole[1], 2):clone():requires_grad_(true) -- (2, 8 / P, 4) -> (2, 8, 4 / P)
  y = collectives.exchange(own, axis, 3, 2)
  close(y, part(whole[1], 3), "exchange")
  y:backward(part(w[1], 3):clone())
  close(own.grad, part(w[1], 2), "exchange's gradient")
end

-- ---- cross entropy of 10 classes, 3 or 1 of them here ----
do
  local V, step = 10, -(-10 // P)
  local first, count = R * step, math.max(0, math.min(step, V - R * step))
  local logits, target = accel.randn(6, V) * 3, accel.tensor { 0, 9, 4, -100, 7, 2 }
  for _, reduction in ipairs { "mean", "sum", "none" } do
    local all = logits:clone():requires_grad_(true)
    local own = logits:narrow(2, first + 1, count):clone():requires_grad_(true)
    local a = accel.cross_entropy(all, target, { reduction = reduction })
    local b = parallel.parallel_cross_entropy(own, target, axis, { first = first, reduction = reduction })
    close(b, a, "loss", 1e-5)
    local seed = accel.full(a.shape, 0.7)
    a:backward(seed)
    b:backward(seed)
    close(own.grad, all.grad:narrow(2, first + 1, count), "gradient of the loss", 1e-6)
  end
end

-- ---- a schedule that has nothing to put off: said once ----
if P == 1 then
  local Scale = nn.Module:extend "Scale"
  function Scale:init() self.p = nn.Parameter(accel.ones(4)) end
  function Scale:forward(x) return x * self.p end
  local said, was = {}, warn
  function _G.warn(text) said[#said + 1] = text end
  local function train(...)
    local model = nn.parallel.PipelineParallel(nn.Sequential(...), parallel.init_device_mesh("cpu", { 1 }, { mesh_dim_names = { "pp" } }),
      { num_micro_batches = 2, schedule = "zero_bubble", loss_fn = function(y) return y:mean() end })
    for _ = 1, 2 do model(accel.ones(4, 4)) end
  end
  train(Scale(), nn.Linear(4, 4))
  assert(#said == 0, said[1])
  train(Scale(), Scale())
  _G.warn = was
  assert(#said == 1 and said[1]:find("'zero_bubble' has no effect on stage 0", 1, true), said[1])
end

-- ---- what is wrong with a plan, in one line ----
local function net() return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 6)) end
if P > 1 then
  says("'2.weigth' of the plan names no module of", function() parallel.parallelize_module(net(), axis, { ["2.weigth"] = "rowwise" }) end)
  says("'0' has the style 'columnwise', which is not known; did you mean 'colwise'?", function()
    parallel.parallelize_module(net(), axis, { ["0"] = "columnwise" })
  end)
  says("'2' has 6 outputs, which do not divide by tp_size 4", function() parallel.parallelize_module(net(), axis, { ["2"] = "colwise" }) end)
  says("'0' is named twice by the plan, by '*' and '0'", function()
    parallel.parallelize_module(nn.Sequential(nn.Linear(8, 8)), axis, { ["0"] = "colwise", ["*"] = "rowwise" })
  end)
  says("'1' is a accel.nn.ReLU, but rowwise is for Linear and Conv1D", function()
    parallel.parallelize_module(net(), axis, { ["1"] = "rowwise" })
  end)
  says("the ranks have different plan rows", function()
    parallel.parallelize_module(net(), axis, R == 2 and { ["0"] = "colwise" } or { ["0"] = "colwise", ["2"] = "rowwise" })
  end)
  says("n_head = 2 does not divide by tp_size 4", function() parallel.parallelize_module(accel.models.GPT2(accel.models.tiny.gpt2), axis) end)
  says("has no plan; give one", function() parallel.parallelize_module(net(), axis) end)
  says("no plan for sequence_parallel", function()
    local c = { num_attention_heads = 4 }
    for key, value in pairs(accel.models.tiny.vit) do c[key] = c[key] or value end
    parallel.parallelize_module(accel.models.ViTModel(c), axis, nil, { sequence_parallel = true })
  end)
  says("2 blocks are too few for 4 stages", function()
    accel.nn.parallel.PipelineParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), axis)
  end)
  says("schedule 'zero_bubble' has one part of the model on each rank; leave virtual_stages out", function()
    accel.nn.parallel.PipelineParallel(net(), axis, { schedule = "zero_bubble", virtual_stages = 2 })
  end)
  says("split_points: '9' is not a block", function()
    accel.nn.parallel.PipelineParallel(net(), axis, { split_points = { "1", "2", "9" } })
  end)
  says("needs whole matrices", function()
    local model = net()
    local muon = accel.optim.Muon({ model[1].weight }, {})
    parallel.parallelize_module(model, axis, { ["0"] = "colwise", ["2"] = "rowwise" })
    require("accel.parallel.optimizers").adopt(muon)
  end)
  local model = net()
  local out = parallel.parallelize_module(model, axis, { ["0"] = "colwise", ["2"] = { "rowwise" } })
  assert(out == model and model[1].weight.shape[1] == 3 and model[3].weight.shape[2] == 3)
end
