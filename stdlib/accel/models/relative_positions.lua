--- Biases of attention scores by distance, in T5's buckets: one each for near distances, logarithmic ones up to a greatest distance. Used by
--- t5_stack.lua and encoder/stack.lua.
local accel = require "accel"

local M = {}

-- Distances are binned with arithmetic in single precision, as the models were trained with.
local function single(v) return (string.unpack("f", string.pack("f", v))) end

--- The bucket of a distance (key minus query): one each for the near half, logarithmic ones up to
--- max_distance. Without `both` ways, everything ahead of the query is in bucket 0.
---@param distance integer
---@param both boolean
---@param n integer buckets
---@param max_distance integer
---@return integer 0-based
local function bucket_of(distance, both, n, max_distance)
  local first = 0
  if both then
    n = n // 2
    if distance > 0 then first = n end
    distance = math.abs(distance)
  else
    distance = math.max(-distance, 0)
  end
  local exact = n // 2
  if distance < exact then return first + distance end
  local far = single(math.log(single(distance / exact)))
  far = single(single(far / single(math.log(max_distance / exact))) * (n - exact))
  return first + math.min(exact + math.floor(far), n - 1)
end

M.bucket_of = bucket_of

--- The addition to the scores of queries at past, past + 1, ...: [1, heads, T, keys]. The distances of one row are the next row's,
--- shifted: one bias for each, then laid out.
---@param table_ accel.nn.Module Embedding [buckets, heads]
---@param past integer
---@param T integer
---@param keys integer
---@param device string
---@param o {both: boolean, buckets: integer, distance: integer}
---@return accel.Tensor
function M.bias(table_, past, T, keys, device, o)
  local ids = {}
  for i = 1, T + keys - 1 do ids[i] = bucket_of(i - past - T, o.both, o.buckets, o.distance) end
  local by_distance = table_(accel.tensor(ids, { dtype = "i64", device = device }))
  local at = accel.arange(keys, { device = device }):unsqueeze(1) - accel.arange(T, { device = device }):unsqueeze(2) + (T - 1)
  return accel.embedding(at, by_distance):permute(3, 1, 2):unsqueeze(1)
end

return M
