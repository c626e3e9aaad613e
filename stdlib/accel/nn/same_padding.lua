--- Padding of convolutions that the op does not do by itself. Lists of amounts are as F.pad takes them: two
--- numbers per dimension, the last dimension first.
local M = {}

--- For "same" with stride 1: the amounts per dimension that the op can pad on both sides equally (0 when it cannot),
--- and the padding to add to the input before, or nil. An odd total pads one more at the end.
---@param kernel integer[]
---@param dilation integer[]
function M.same(kernel, dilation)
  local n, even, half, before = #kernel, true, {}, {}
  for i = 1, n do
    local total = dilation[i] * (kernel[i] - 1)
    even = even and total % 2 == 0
    half[i] = total // 2
    before[2 * (n - i) + 1], before[2 * (n - i) + 2] = total // 2, total - total // 2
  end
  if even then return half, nil end
  return 0, before
end

--- The same amount before and after each dimension.
---@param amounts integer|integer[]
---@param n integer
function M.both_sides(amounts, n)
  local before = {}
  for i = 1, n do
    local amount = type(amounts) == "table" and amounts[i] or amounts
    before[2 * (n - i) + 1], before[2 * (n - i) + 2] = amount, amount
  end
  return before
end

return setmetatable(M, { __call = function(_, ...) return M.same(...) end })
