--- accel.nn.alibi: the slopes of attention with linear biases (Press et al. 2022), for alibi_slopes of
--- scaled_dot_product_attention. Head i of n has 2^(-8 i / n). If n is not a power of two, the heads beyond the next
--- smaller one take every other slope of twice as many heads.
local accel = require "accel"
local raise = require "accel.util.raise"

local function power_of_two(n)
  local p = 1
  while 2 * p <= n do p = 2 * p end
  return p
end

--- example: accel.nn.functional.alibi_slopes(4) --> { 0.25, 0.0625, 0.015625, 0.00390625 }
--- example: accel.nn.functional.alibi_slopes(3) --> { 0.0625, 0.00390625, 0.25 }
---@param n_heads integer
---@param options? {dtype: string?, device: string?}
---@return accel.Tensor slopes (n_heads)
local function alibi_slopes(n_heads, options)
  if math.type(n_heads) ~= "integer" or n_heads < 1 then
    raise("alibi_slopes: n_heads must be a positive integer, got %s", tostring(n_heads))
  end
  local base, slopes = power_of_two(n_heads), {}
  for i = 1, base do slopes[i] = 2.0 ^ (-8 * i / base) end
  for i = 1, n_heads - base do slopes[base + i] = 2.0 ^ (-8 * (2 * i - 1) / (2 * base)) end
  return accel.tensor(slopes, options)
end

return alibi_slopes
