-- Chains of elementwise operations and reductions on 2000 x 2000 elements of f32, forward alone and with its backward, compiled and as single
-- calls, by turns: milliseconds, the least of many.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options {}

local n = o.quick and 400 or 2000
local x, y, b = accel.randn(n, n), accel.randn(n, n), accel.randn(n)
local chains = {
  five = function(u, v) return ((u + v) * 0.5 - u):abs():neg() end,
  eleven = function(u, v, w)
    local h = (u * 2.5 + v):gelu()
    h = h * h:sigmoid() + w
    h = (h - 0.1):tanh() * v
    return h:exp():clamp(0, 5)
  end,
  loss = function(u, v) return (u - v):square():mean() end,
  columns = function(u, v, w) return (u * v + w):sum(1) end,
  softmax = function(u, v)
    local s = u * 0.125 + v
    local e = (s - s:amax(-1, true)):exp()
    return e / e:sum(-1, true)
  end,
  layer_norm = function(u, v, w)
    local d = u - u:mean(-1, true)
    return d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * w + v
  end,
}

local figures = {}
for name, f in accel.pairs(chains) do
  local compiled = accel.compile(f)
  for _, gradients in ipairs { false, true } do
    x.requires_grad = gradients
    local seed = accel.ones_like(f(x, y, b)):detach()
    local best = { math.huge, math.huge }
    for _ = 1, o.quick and 2 or gradients and 20 or 40 do
      for i, g in ipairs { compiled, f } do
        x.grad = nil
        local t = accel.clock()
        local out = g(x, y, b)
        if gradients then out:backward(seed) end
        best[i] = math.min(best[i], (accel.clock() - t) * 1e3)
      end
    end
    local key = name .. (gradients and "_grad" or "")
    figures[key .. "_compiled"], figures[key .. "_single"] = best[1], best[2]
  end
end
side.finish(figures)
