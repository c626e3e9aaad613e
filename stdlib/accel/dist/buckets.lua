--- The layout of gradients in buckets: the parameters of each bucket, and their positions. Used by the reducer.
local M = {}

--- Every gradient and every bucket begins at a multiple of so many bytes, so that kernels and reductions meet whole
--- vectors. The bytes in between are zero and stay zero.
M.ALIGN = 64

--- Cuts parameters, visited in `order`, into buckets of one dtype and device each: a bucket is full as soon as it
--- holds `cap` bytes, the first one of its kind `first` bytes. Buckets are ordered by their last parameter, which is
--- when their gradients are complete.
---@param order integer[] positions in params
---@param params accel.Tensor[]
---@param first integer bytes
---@param cap integer bytes
---@return integer[][]
function M.assign(order, params, first, cap)
  local open, kinds, done = {}, {}, {}
  for at, i in ipairs(order) do
    local p = params[i]
    local kind = p.dtype .. " " .. tostring(p.device)
    local b = open[kind]
    if not b then
      b = { list = {}, bytes = 0, limit = kinds[kind] and cap or first }
      open[kind], kinds[kind] = b, true
      done[#done + 1] = b
    end
    b.list[#b.list + 1], b.bytes, b.last = i, b.bytes + p:numel() * p:element_size(), at
    if b.bytes >= b.limit then open[kind] = nil end
  end
  table.sort(done, function(x, y) return x.last < y.last end)
  for k, b in ipairs(done) do done[k] = b.list end
  return done
end

--- Places for the buckets, one piece of memory per dtype and device: for each bucket {kind =, offset =, count =,
--- offsets = {of each parameter, within the bucket}}, and the elements that each kind needs in all.
---@param buckets integer[][]
---@param params accel.Tensor[]
---@return table[] places
---@return table<string, {count: integer, dtype: string, device: string}> kinds
function M.place(buckets, params)
  local places, kinds = {}, {}
  for k, list in ipairs(buckets) do
    local p = params[list[1]]
    local kind = p.dtype .. " " .. tostring(p.device)
    local total = kinds[kind]
    if not total then
      total = { count = 0, dtype = p.dtype, device = tostring(p.device) }
      kinds[kind] = total
    end
    local unit, count, offsets = M.ALIGN // p:element_size(), 0, {}
    for j, i in ipairs(list) do
      offsets[j] = count
      count = count + (params[i]:numel() + unit - 1) // unit * unit
    end
    places[k] = { kind = kind, offset = total.count, count = count, offsets = offsets }
    total.count = total.count + count
  end
  return places, kinds
end

return M
