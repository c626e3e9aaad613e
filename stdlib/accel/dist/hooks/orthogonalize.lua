--- orthogonalize(t, epsilon): the columns of the last two dims of t [count, n, r] become orthonormal, in place.
--- Computed in f32 at least. Columns that depend on those before them become zero with epsilon = 0.
local accel = require "accel"

local SMALL = 0x1p-100 -- of a column's norm: nothing

--- Gram-Schmidt by columns. Each is made orthogonal twice, which keeps the result orthogonal to the last bit or two.
local function gram_schmidt(t, epsilon)
  local r, done = t.shape[3], nil
  for i = 1, r do
    local column = t:narrow(3, i, 1)
    local before = column:norm(2, { dim = 2, keepdim = true })
    for _ = 1, done and 2 or 0 do
      column = column - accel.bmm(done, accel.bmm(done:transpose(2, 3), column))
    end
    local norm = column:norm(2, { dim = 2, keepdim = true })
    local inverse
    if epsilon > 0 then
      inverse = 1 / (norm + epsilon)
    else -- the remainder of a column that depended on the others is noise
      local real = norm:gt(before * 1e-6 + SMALL)
      inverse = accel.where(real, 1 / accel.where(real, norm, 1), 0)
    end
    column = column * inverse
    done = done and accel.cat({ done, column }, 3) or column
  end
  return done
end

---@param t accel.Tensor
---@param epsilon number
return function(t, epsilon)
  if t:numel() == 0 then return end
  local wide = (t.dtype == "f32" or t.dtype == "f64") and t or t:to "f32"
  t:copy_(gram_schmidt(wide, epsilon))
end
