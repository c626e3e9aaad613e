-- Options of accel.dist, on two ranks: each one changes what a rank gets, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/dist_test.lua [NAME]
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
if ranks.start { 2, args = arg[1] } then return end
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "dist"

local dist = accel.dist
local me = dist.get_rank()
local alone
for r = 0, 1 do
  local group = dist.new_group { r }
  if r == me then alone = group end
end

local HOOKS = "tests/stdlib/dist/hooks_test.lua"
local OBJECTS = "tests/stdlib/dist/objects_test.lua"
s:recipe("accel.dist.all_gather_object", {
  base = function() return { object = { rank = me, text = ("x"):rep(100) } } end,
  values = { group = { alone }, max_bytes = { 10 } }, raises = { max_bytes = "10" },
})
s:recipe("accel.dist.gather_object", {
  base = function() return { object = { rank = me, text = ("x"):rep(100) } } end,
  run = function(call, given)
    if given.group then given.dst = me end
    return call()
  end,
  values = { dst = { 1 }, group_dst = { 1 }, group = { alone }, max_bytes = { 10 } }, raises = { max_bytes = "10" },
})
s:recipe("accel.dist.broadcast_object_list", {
  base = function() return { list = { me, ("x"):rep(100) } } end,
  run = function(call, given)
    call()
    return given.list
  end,
  values = { src = { 1 }, group_src = { 1 }, max_bytes = { 10 }, group = { alone } }, raises = { max_bytes = "10" },
  elsewhere = { group = OBJECTS },
})
s:recipe("accel.dist.scatter_object_list", {
  base = function() return { list = { "a" .. me .. ("x"):rep(100), "b" .. me .. ("x"):rep(100) } } end,
  values = { src = { 1 }, group_src = { 1 }, max_bytes = { 10 } }, raises = { max_bytes = "10" }, elsewhere = { group = OBJECTS },
})
s:leave({ "accel.dist.send_object_list", "accel.dist.recv_object_list" }, "as their tensors' own send and recv: tests/stdlib/dist/objects_test.lua")
s:recipe("accel.dist.P2POp", {
  base = function() return { op = dist.isend, tensor = accel.ones(1), peer = 1 } end,
  run = function(call)
    local op = call()
    return op.tag, op.group ~= nil -- what batch_isend_irecv hands on
  end,
  values = { tag = { 3 }, group = { alone } },
})
local function trained(call, given)
  local model = given.model or accel.nn.Linear(2, 2)
  given.model = model
  for _, p in ipairs(model:parameters()) do accel.no_grad(function() p:fill_(me + 1) end) end
  local sgd = call()
  local list = {}
  for i = 1, 3 do
    sgd:step()
    list[i] = model.weight:sum():item()
  end
  sgd:close()
  return list
end
s:recipe("accel.dist.LocalSGD", { base = function() return { local_sgd_steps = 2 } end, run = trained,
  values = { local_sgd_steps = { 3 }, process_group = { alone }, enabled = { false }, model = { accel.nn.Linear(2, 2) } },
  elsewhere = { model = "tests/options/dist_test.lua" } })
--- How many products a hook makes in a step of a model of three matrices of one shape.
local function products(state, hook)
  local model = accel.nn.Sequential(accel.nn.Linear(30, 30), accel.nn.Linear(30, 30), accel.nn.Linear(30, 30))
  local ddp = accel.nn.parallel.DistributedDataParallel(model)
  ddp:register_comm_hook(state, hook)
  local prof = accel.profiler.Profile()
  for i = 1, 2 do
    if i == 2 then prof:start() end
    ddp(accel.ones(2, 30)):square():sum():backward()
  end
  prof:stop()
  local n = 0
  for _, e in ipairs(prof:events()) do n = n + (e.name == "matmul" and 1 or 0) end
  return n
end
local function hooked(hook)
  return function(call, given)
    local model = accel.nn.Linear(40, 20)
    if given.batch_tensors_with_same_shape ~= nil then return products(call(), hook) end
    local ddp = accel.nn.parallel.DistributedDataParallel(model)
    ddp:register_comm_hook(call(), hook)
    local list = {}
    for i = 1, 5 do
      model.weight.grad = nil
      ddp((accel.arange(80):to "f32" * (me + 0.3 + i)):sin():reshape(2, 40)):square():sum():backward()
      list[i] = model.weight.grad:clone()
    end
    return list
  end
end
s:recipe("accel.dist.hooks.QuantizedState", { run = hooked(dist.hooks.int8_all_gather_hook),
  values = { block_size = { 16 }, use_error_feedback = { false }, process_group = { alone } } })
s:recipe("accel.dist.hooks.PowerSGDState", {
  base = function() return { start_powerSGD_iter = 2 } end, run = hooked(dist.hooks.powerSGD_hook),
  values = {
    matrix_approximation_rank = { 2 }, start_powerSGD_iter = { 3 }, min_compression_rate = { 1000 }, use_error_feedback = { false },
    warm_start = { false }, orthogonalization_epsilon = { 0.5 }, random_seed = { 7 }, process_group = { alone },
    batch_tensors_with_same_shape = { true },
  },
  with = { batch_tensors_with_same_shape = { batch_tensors_with_same_shape = false, start_powerSGD_iter = 0 } },
})
s:variant("accel.dist.hooks.by_name", "with_state", {
  base = function() return { hook = "power_sgd" } end,
  run = function(call, given)
    local state, fn = call()
    return state and state.matrix_approximation_rank, fn == dist.hooks.powerSGD_hook, given.hook
  end,
  values = { wrapper = { "fp16", "bf16" }, state_option = { { matrix_approximation_rank = 3 } } }, passes_on = true,
})
s:variant("accel.dist.hooks.by_name", "without_state", {
  base = function() return { hook = "fp16" } end, run = function(call) return select("#", call()) end,
  values = { wrapper = { "bf16" }, state_option = { { matrix_approximation_rank = 3 } } },
  elsewhere = { wrapper = HOOKS }, passes_on = true,
})
s:leave("accel.dist.hooks.Future", "its argument is the work that is waited for")

s:finish()
