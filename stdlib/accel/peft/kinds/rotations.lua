--- Orthogonal matrices from skew-symmetric ones, by blocks. Used by OFT and BOFT.
local accel = require "accel"

local M = {}

local layouts = {} -- block size -> positions and signs on the CPU

--- Where the entries above the diagonal, in rows, go in a skew-symmetric block.
local function layout(n, t)
  local known = layouts[n]
  if not known then
    local position, sign, at = {}, {}, 0
    for i = 1, n * n do position[i], sign[i] = 0, 0 end
    for i = 1, n do
      for j = i + 1, n do
        position[(i - 1) * n + j], sign[(i - 1) * n + j] = at, 1
        position[(j - 1) * n + i], sign[(j - 1) * n + i] = at, -1
        at = at + 1
      end
    end
    known = { accel.tensor(position, { dtype = "i64" }), accel.tensor(sign, { dtype = "f32" }) }
    layouts[n] = known
  end
  return known[1]:to(t.device), known[2]:to { dtype = t.dtype, device = t.device }
end

--- v [blocks, n (n - 1) / 2] -> Q [blocks, n, n] with Q = -Q^T.
---@param v accel.Tensor
---@param n integer
---@return accel.Tensor
function M.skew(v, n)
  if n == 1 then return accel.zeros({ v.shape[1], 1, 1 }, { dtype = v.dtype, device = v.device }) end
  local position, sign = layout(n, v)
  return (v:index_select(2, position) * sign):reshape(-1, n, n)
end

local function identity(q) return accel.eye(q.shape[3], { dtype = q.dtype, device = q.device }) end

--- (I - Q) (I + Q)^-1, the Cayley transform: orthogonal for skew-symmetric Q [blocks, n, n].
---@param q accel.Tensor
---@return accel.Tensor
function M.cayley(q)
  local eye = identity(q)
  local u, r = (q + eye):qr() -- which is well conditioned: its eigenvalues are 1 + i x
  return accel.matmul(accel.solve_triangular(r, eye - q, true, false), u:transpose(2, 3))
end

--- The first terms of the same as a series, I + 2 Q + 2 Q^2 + ..., of which the last counts once.
---@param q accel.Tensor
---@param terms integer
---@return accel.Tensor
function M.cayley_series(q, terms)
  local sum = identity(q):expand(q.shape)
  if terms <= 1 then return sum end
  sum = sum + q * 2
  if terms == 2 then return sum end
  local power = accel.matmul(q, q)
  sum = sum + power * 2
  for _ = 3, terms - 2 do
    power = accel.matmul(power, q)
    sum = sum + power * 2
  end
  return sum + accel.matmul(power, q)
end

--- x [..., blocks * n] times block-diagonal matrices [blocks, n, n] from the right. One block stands for all.
---@param x accel.Tensor
---@param blocks accel.Tensor
---@return accel.Tensor
function M.turn(x, blocks)
  local shape, n = x.shape, blocks.shape[2]
  local rows = x:reshape(-1, shape[#shape] // n, n)
  if blocks.shape[1] == 1 then return accel.matmul(rows, blocks:squeeze(1)):reshape(shape) end
  return accel.matmul(rows:transpose(1, 2), blocks):transpose(1, 2):reshape(shape)
end

return M
