--- tree.sum(values): numbers added up in the order of accel.dist.counter, ((v1 + v2) + (v3 + v4)) + ..., for losses of
--- micro-batches: the sum has the same bits whichever ranks computed them.
local M = {}

---@param values number[]
---@return number
function M.sum(values)
  local stack = {}
  for _, v in ipairs(values) do
    local size, top = 1, stack[#stack]
    while top and top.size == size do
      v, size = top.v + v, 2 * size
      stack[#stack] = nil
      top = stack[#stack]
    end
    stack[#stack + 1] = { size = size, v = v }
  end
  local sum = stack[#stack] and stack[#stack].v or 0
  for i = #stack - 1, 1, -1 do sum = stack[i].v + sum end
  return sum
end

return M
