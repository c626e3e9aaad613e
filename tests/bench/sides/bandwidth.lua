-- Bandwidth of memory-bound ops on 16M elements (--elements): one JSON object, GB/s by op, best of the repeats. Every tensor that an op
-- must read or write counts once: what a kernel moves beyond that lowers its figure.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local clock = accel.clock
local o = side.options { dtype = "f32", elements = 16 << 20 }
local dtype = o.dtype
local N, ROW = o.quick and math.min(o.elements, 1 << 20) or o.elements, 1024
local size = dtype == "f32" and 4 or 2

local function best(bytes, fn)
  local b = math.huge
  if o.device ~= "cpu" then
    return bytes / side.time(function() local out <close> = fn() end, o.quick) / 1e9
  end
  for i = 1, 9 do
    local t = clock()
    local out <close> = fn()
    local took = clock() - t
    if i > 2 then b = math.min(b, took) end
  end
  return bytes / b / 1e9
end

local out = {}
local function random() return accel.rand(N // ROW, ROW, { dtype = dtype }) end
local x, y = random(), random()
local function measure(name, n_arrays, fn) out[name] = best(n_arrays * N * size, fn) end

accel.no_grad(function()
  measure("copy_", 2, function() y:copy_(x) end)
  measure("neg", 2, function() return -x end)
  measure("add", 3, function() return x + y end)
  measure("exp", 2, function() return x:exp() end)
  measure("gelu_tanh", 2, function() return x:gelu { approximate = "tanh" } end)
  measure("silu", 2, function() return x:silu() end)
  measure("mul_", 3, function() x:mul_(y) end)
  measure("softmax", 2, function() return x:softmax(-1) end)
  local w, b = accel.ones(ROW, { dtype = dtype }), accel.zeros(ROW, { dtype = dtype })
  measure("layer_norm", 2, function() return accel.layer_norm(x, { ROW }, w, b) end)
  measure("rms_norm", 2, function() return accel.rms_norm(x, { ROW }, w) end)
  measure("sum", 1, function() return x:sum() end)
  measure("sum_dim1", 1, function() return x:sum(1) end)
  measure("sum_dim2", 1, function() return x:sum(2) end)
  measure("amax", 1, function() return x:amax() end)
  measure("argmax", 1, function() return x:argmax(2) end)
  if accel.norm then measure("norm", 1, function() return accel.norm(x) end) end
  if accel.var then measure("var_dim2", 1, function() return accel.var(x, { dim = 2 }) end) end
  if accel.mse_loss then measure("mse_loss", 2, function() return accel.mse_loss(x, y) end) end
  local g, m, v = random(), accel.zeros_like(x), accel.zeros_like(x)
  local lr, step = accel.full({}, 1e-3, { dtype = "f64" }), accel.zeros({}, { dtype = "i64" })
  measure("adamw", 7, function() accel.adamw_step_({ x }, { g }, { m }, { v }, lr, step) end)
  measure("sgd_momentum", 5, function() accel.sgd_step_({ x }, { g }, { m }, lr, { momentum = 0.9 }) end)
end)
-- gradients: backward of a map reads dy and a saved tensor and writes dx
do
  local xg = random():requires_grad_(true)
  local function backward(name, n, fn)
    local r = fn(xg)
    local dy = accel.ones_like(r)
    out[name] = best(n * N * size, function()
      xg.grad = nil
      r:backward(dy, { retain_graph = true })
    end)
  end
  backward("gelu_backward", 3, function(t) return t:gelu { approximate = "tanh" } end)
  backward("softmax_backward", 3, function(t) return t:softmax(-1) end)
  backward("layer_norm_backward", 3, function(t) return accel.layer_norm(t, { ROW }) end)
end
side.finish(out)
