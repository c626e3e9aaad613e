-- Sampling, resizing, pools of three dims and CTC: milliseconds of the result (_f) and of all gradients (_b), best of some. Prints
-- one JSON object.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options()
local F = accel.nn.functional

local function best(f)
  local least = math.huge
  f()
  for _ = 1, o.quick and 1 or 10 do
    local t = accel.clock()
    f():release()
    least = math.min(least, accel.clock() - t)
  end
  return least * 1e3
end

local out = {}
local function measure(name, inputs, f)
  out[name .. "_f"] = accel.no_grad(function() return best(function() return f(table.unpack(inputs)) end) end)
  local leaves = {}
  for i, t in ipairs(inputs) do leaves[i] = t:detach():requires_grad_() end
  local y = f(table.unpack(leaves))
  local dy = accel.ones_like(y)
  out[name .. "_b"] = best(function() return accel.grad(y, leaves, { grad_outputs = dy, retain_graph = true })[1] end)
end

local n = o.quick and 1 or 8
local x, grid = accel.randn(n, 32, 64, 64), accel.rand(n, 64, 64, 2) * 2.2 - 1.1
measure("grid_bilinear", { x, grid }, function(t, g) return F.grid_sample(t, g) end)
measure("grid_bicubic", { x, grid }, function(t, g) return F.grid_sample(t, g, "bicubic", "border") end)
local image = accel.randn(n, 3, 224, 224)
local function resized(mode) return function(t) return F.interpolate(t, { size = { 96, 96 }, mode = mode, antialias = true }) end end
measure("antialias_bilinear", { image }, resized "bilinear")
measure("antialias_bicubic", { image }, resized "bicubic")
measure("bicubic_up", { x }, function(t) return F.interpolate(t, { scale_factor = 2, mode = "bicubic" }) end)
local volume = accel.randn(n, 8, 16, 32, 32)
measure("max_pool3d", { volume }, function(t) return F.max_pool3d(t, 3, 2, 1) end)
measure("avg_pool3d", { volume }, function(t) return F.avg_pool3d(t, 3, 2, 1) end)
local T, S = o.quick and 50 or 200, o.quick and 10 or 40
local targets, inputs, lengths = accel.randint(1, 40, { 2 * n, S }), {}, {}
for i = 1, 2 * n do inputs[i], lengths[i] = T, S end
measure("ctc", { accel.randn(T, 2 * n, 40):log_softmax(3) }, function(t) return F.ctc_loss(t, targets, inputs, lengths) end)
side.finish(out)
