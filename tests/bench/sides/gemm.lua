-- Matrix products one by one, in GFLOP/s: y = x W^T (y1, y2, ...), dx = dy W, dW = dy^T x, and their geometric means.
-- Numbers come from a file that --make FOLDER writes; means of |y| show that both sides multiplied the same.
--   accel-run gemm.lua --dtype f32 --data FOLDER --shapes "rows,outputs,inputs;..."
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { dtype = "f32", shapes = "256,768,768", data = "", make = "" }

if o.make ~= "" then
  accel.manual_seed(1)
  -- enough for dy of 1024 rows and 50304 columns
  side.save(o.make, "numbers", { x = accel.randn(1024 * 3072), w = accel.randn(o.quick and 1 << 20 or 1024 * 50304) })
  return
end

local numbers = side.load(o.data, "numbers")
local function matrix(from, rows, columns)
  return from:narrow(1, 1, rows * columns):view(rows, columns):to(o.dtype, { copy = true })
end

-- Operands by turns, more than the caches hold, unless they are that large alone.
local CACHE <const> = 64e6
local function copies(make)
  local list = { make() }
  local bytes = list[1]:numel() * (o.dtype == "f32" and 4 or 2)
  for i = 2, math.min(8, math.ceil(CACHE / bytes)) do list[i] = list[1]:clone() end
  return list
end

local figures, means, logs = {}, {}, { y = 0, dx = 0, dw = 0 }
local count = 0
accel.no_grad(function()
  for shape in o.shapes:gmatch "[^;]+" do
    local m, n, k = shape:match "(%d+),(%d+),(%d+)"
    m, n, k = tonumber(m), tonumber(n), tonumber(k)
    count = count + 1
    local x = copies(function() return matrix(numbers.x, m, k) end)
    local w = copies(function() return matrix(numbers.w, n, k) end)
    local dy = matrix(numbers.w, m, n)
    means[count] = side.mean_abs(accel.linear(x[1], w[1]))
    local turn = 0
    local function rate(name, f)
      local seconds = side.time(function()
        turn = turn + 1
        local out <close> = f(x[turn % #x + 1], w[turn % #w + 1])
      end, o.quick)
      local g = 2 * m * n * k / seconds / 1e9
      figures[name .. count], logs[name] = g, logs[name] + math.log(g)
    end
    rate("y", function(a, b) return accel.linear(a, b) end)
    rate("dx", function(_, b) return dy:matmul(b) end)
    local dy_t = dy:transpose(1, 2)
    rate("dw", function(a) return dy_t:matmul(a) end)
    accel.collect()
  end
end)
for name, sum in pairs(logs) do figures[name .. "_mean"] = math.exp(sum / count) end
figures.means = means
side.finish(figures)
