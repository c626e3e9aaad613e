-- Causal attention, 4 x 12 heads of 64: milliseconds of the result (f<T>), and of it with the gradients of q, k and v
-- (b<T>), and GFLOP/s of both, of which the masked half is not counted. --make FOLDER writes the inputs.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { dtype = "f32", lengths = "256,1024", data = "", make = "" }
local B <const>, H <const>, D <const> = 4, 12, 64

if o.make ~= "" then
  accel.manual_seed(1)
  local tensors = {}
  for length in o.lengths:gmatch "%d+" do
    for _, name in ipairs { "q", "k", "v", "dy" } do
      tensors[name .. length] = accel.randn(B, H, tonumber(length), D)
    end
  end
  side.save(o.make, "inputs", tensors)
  return
end

local inputs, figures, means = side.load(o.data, "inputs"), {}, {}
local attention = accel.scaled_dot_product_attention
for length in o.lengths:gmatch "%d+" do
  local function input(name) return inputs[name .. length]:to(o.dtype, { copy = true }) end
  local q, k, v, dy = input "q", input "k", input "v", input "dy"
  local flops = 2 * B * H * length * length * D -- two products, half of each
  local function put(key, seconds, times)
    figures[key .. length], figures["gflops_" .. key .. length] = seconds * 1e3, times * flops / seconds / 1e9
  end
  accel.no_grad(function()
    put("f", side.time(function() local y <close> = attention(q, k, v, { is_causal = true }) end, o.quick, 0.5), 1)
  end)
  local leaves = { q, k, v }
  for _, t in ipairs(leaves) do t.requires_grad = true end
  local function both()
    local y = attention(q, k, v, { is_causal = true })
    y:backward(dy)
    return y
  end
  means[#means + 1] = side.mean_abs(both():detach())
  for _, t in ipairs(leaves) do
    means[#means + 1] = side.mean_abs(t.grad)
    t.grad = nil
  end
  put("b", side.time(function()
    both()
    for _, t in ipairs(leaves) do t.grad = nil end
  end, o.quick, 0.5), 3.5)
end
figures.means = means
side.finish(figures)
