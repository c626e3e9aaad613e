--- The orthogonal parametrisation: weight is a matrix with orthonormal columns (or rows, if it is wide).
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local parametrize = require "accel.nn.utils.parametrize"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local Orthogonal = Module:extend("accel.nn.utils.Orthogonal")

--- The matrix exponential of a small matrix: its Taylor series after halving, then squarings.
local function exponential(a)
  local n, halvings = a:size(-1), 0
  local size
  do
    local _ <close> = accel.no_grad()
    size = a:abs():sum(-1):amax():item()
  end
  while size > 0.5 do size, halvings = size / 2, halvings + 1 end
  a = a / 2 ^ halvings
  local one = accel.eye(n, { dtype = a.dtype, device = a.device })
  local sum = one + a / 14 -- Horner: 1 + a (1 + a / 2 (1 + a / 3 (...)))
  for k = 13, 1, -1 do sum = one + a:matmul(sum) / k end
  for _ = 1, halvings do sum = sum:matmul(sum) end
  return sum
end

--- (1 - a / 2)^-1 (1 + a / 2).
local function cayley(a)
  local one = accel.eye(a:size(-1), { dtype = a.dtype, device = a.device })
  local q, r = (one - a / 2):qr()
  return r:solve_triangular(q:transpose(-1, -2):matmul(one + a / 2), { upper = true })
end

--- The product of the reflections 1 - tau v v^T, v being the columns of a, with 1 on the diagonal: its first k columns.
local function reflections(a)
  local n, k = a:size(-2), a:size(-1)
  local make = { dtype = a.dtype, device = a.device }
  local one = accel.eye(n, make)
  local q = one:narrow(2, 1, k)
  local low = a:tril(-1)
  local v = low + one:narrow(2, 1, k)
  local tau = 2 / (1 + low:square():sum(-2))
  for i = k, 1, -1 do
    local column = v:narrow(-1, i, 1)
    q = q - column:matmul(column:transpose(-1, -2):matmul(q)) * tau:narrow(-1, i, 1)
  end
  return q
end

--- The columns of a matrix with orthonormal columns as reflections, and the signs on the diagonal.
local function as_reflections(q)
  local n, k = q:size(1), q:size(2)
  local a, out = q:clone(), accel.zeros_like(q)
  for j = 1, k do
    local x = a:narrow(1, j, n - j + 1)
    local head, norm = x:select(2, j):select(1, 1):item(), x:select(2, j):norm():item()
    local tail = math.sqrt(math.max(norm * norm - head * head, 0))
    if j == n or tail < 1e-12 * norm then
      out:select(1, j):narrow(1, j, 1):fill_(head < 0 and 1 or -1) -- no reflection, which tau = 2 / (1 + 0) is not
    else
      local beta = head < 0 and norm or -norm
      local v = x:select(2, j) / (head - beta)
      v:narrow(1, 1, 1):fill_(1)
      v = v:unsqueeze(2)
      x:sub_(v:matmul(v:t():matmul(x)) * ((beta - head) / beta))
      out:narrow(1, j, n - j + 1):select(2, j):copy_(v:squeeze(2))
      out:select(1, j):narrow(1, j, 1):fill_(beta < 0 and -1 or 1)
    end
  end
  return out
end

--- q with R's diagonal positive: the nearest choice among the factors of a.
local function orthonormal(a)
  local q, r = a:qr()
  return q * r:diagonal():sign():unsqueeze(1)
end

function Orthogonal:init(map, trivialization)
  self.map = map
  self.trivialization = trivialization
  self:register_buffer("base", nil)
end

function Orthogonal:forward(x)
  local wide = x:size(-2) < x:size(-1)
  if wide then x = x:transpose(-1, -2) end
  local n, k = x:size(-2), x:size(-1)
  local q
  if self.map == "householder" then
    q = reflections(x)
    local signs
    do
      local _ <close> = accel.no_grad()
      signs = x:diagonal():trunc() -- the signs are no parameters
    end
    q = q * signs:unsqueeze(1)
  else
    x = x:tril()
    if n ~= k then x = accel.cat({ x, accel.zeros(n, n - k, { dtype = x.dtype, device = x.device }) }, 2) end
    local a = x - x:transpose(-1, -2)
    q = self.map == "matrix_exp" and exponential(a) or cayley(a)
    if n ~= k then q = q:narrow(2, 1, k) end
  end
  if self.base then q = self.base:matmul(q) end
  return wide and q:transpose(-1, -2) or q
end

function Orthogonal:right_inverse(value)
  local _ <close> = accel.no_grad()
  local wide = value:size(-2) < value:size(-1)
  local q = wide and value:transpose(-1, -2) or value
  local n, k = q:size(-2), q:size(-1)
  if not self.trivialization then
    if self.map ~= "householder" then
      raise("orthogonal: a value cannot be assigned to %s with use_trivialization = false", self.map)
    end
    local a = as_reflections(orthonormal(q))
    return wide and a:transpose(-1, -2):contiguous() or a
  end
  if n ~= k then q = accel.cat({ q, accel.randn(n, n - k, { dtype = q.dtype, device = q.device }) }, 2) end
  self.base = orthonormal(q)
  return -accel.eye(value:size(1), value:size(2), { dtype = value.dtype, device = value.device })
end

local maps = { "matrix_exp", "cayley", "householder" }
local parse = arguments("orthogonal", { "name", "weight" }, { "orthogonal_map" }, { "use_trivialization", true })

--- weight becomes a matrix with orthonormal columns (rows, if it has more columns than rows), and is trained among these. orthogonal_map:
--- "matrix_exp" (default for square ones), "cayley" or "householder" (default for others). use_trivialization (true): around the
--- current weight. Without it the maps other than householder begin anywhere.
--- example: local m = accel.nn.utils.parametrizations.orthogonal(accel.nn.Linear(3, 1)) return m.weight:norm() --> 1
---@param module accel.nn.Module
---@param ... any name = "weight", orthogonal_map, use_trivialization = true by position or in one table
---@return accel.nn.Module
function M.orthogonal(module, ...)
  local o = parse(...)
  if not Module.is_module(module) then raise("orthogonal: %s", Module.not_a_module(module)) end
  local weight = module[o.name]
  if not tensors.is_tensor(weight) then raise("orthogonal: the module has no parameter '%s'", tostring(o.name)) end
  if weight.ndim ~= 2 then raise("orthogonal: '%s' must be a matrix, got shape %s", o.name, tensors.shape_string(weight)) end
  local map = o.orthogonal_map or (weight:size(1) == weight:size(2) and "matrix_exp" or "householder")
  check.word("orthogonal", "orthogonal_map", map, maps)
  local parametrization = Orthogonal(map, o.use_trivialization)
  if not o.use_trivialization and map ~= "householder" then
    parametrization.right_inverse = false -- the weight itself is the original
  end
  return parametrize.register_parametrization(module, o.name, parametrization)
end

return M
