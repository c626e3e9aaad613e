-- Convolutions one by one: milliseconds of the result (f), of the gradient of the input (x) and of the weight
-- (w), best of some; and of 3 x 3 max pooling by 2. Prints one JSON object.
--   accel-run conv.lua --dtype f32 --shapes "n,channels,size,outputs,kernel,stride,padding,groups;..."
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { dtype = "f32", shapes = "8,64,56,64,3,1,1,1" }
local dtype, shapes = o.dtype, o.shapes

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
local function tensor(shape) return accel.randn(shape, { dtype = dtype }) end
local function gradient(y, of, dy)
  return best(function() return (accel.grad(y, of, { grad_outputs = dy, retain_graph = true })) end)
end

local out, i = {}, 0
for text in shapes:gmatch("[^;]+") do
  local s = {}
  for v in text:gmatch("%d+") do s[#s + 1] = tonumber(v) end
  local n, c, size, o, k, stride, padding, groups = table.unpack(s)
  local x, w = tensor { n, c, size, size }, tensor { o, c // groups, k, k }
  local options = { stride = stride, padding = padding, groups = groups }
  i = i + 1
  out["f" .. i] = best(function() return accel.conv2d(x, w, options) end)
  x.requires_grad = true
  local y = accel.conv2d(x, w, options)
  local dy = tensor(y.shape)
  out["x" .. i] = gradient(y, x, dy)
  x.requires_grad, w.requires_grad = false, true
  out["w" .. i] = gradient(accel.conv2d(x, w, options), w, dy)
end
do
  local x = tensor { 8, 64, 112, 112 }
  out.pool_f = best(function() return accel.max_pool2d(x, 3, 2, 1) end)
  x.requires_grad = true
  local y = accel.max_pool2d(x, 3, 2, 1)
  out.pool_x = gradient(y, x, tensor(y.shape))
end
side.finish(out)
