--- Communication of tensor parallelism inside of forward's products (tp_comm_overlap). A layer's operand is cut into parts, and while
--- one is multiplied, another is transferred. A layer with sharded inputs begins the sum of each part as soon as it has been
--- multiplied. With sequence parallelism, layers with sharded outputs multiply a part as soon as the ranks have it.
---
---   local x = chunks.enter(x, axis)              as collectives.gather along the sequence, in parts. nil if it does not apply
---   local y = chunks.columns(x, fn)              fn of every part, which has come by then
---   local y = chunks.leave(x, fn, axis, true)    fn(x), then as collectives.scatter along the sequence, without true as collectives.reduce
---
--- Every value is the same sum as without it. Gradients of weights become sums over the parts. It gains if transfers run in
--- parallel with products, between machines and GPUs. If the processors that multiply also move the bytes, parts cost more than
--- they hide. After Wang et al. 2023, "Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning
--- Models".
local accel = require "accel"
local absent = require "accel.parallel.absent"
local collectives = require "accel.parallel.collectives"
local overlap = require "accel.parallel.overlap"

local M = {}

local MOST_PARTS <const> = 4
local least_rows = 16

--- The least rows of a part: fewer are not worth a collective. Tests on small models ask for parts of one.
---@param n integer
function M.least_rows(n) least_rows = n end

--- The parts for products of `rows` rows, cut along n of something. nil: too few.
local function count(rows, n, divides)
  for parts = MOST_PARTS, 2, -1 do
    if rows // parts >= least_rows and (not divides or n % parts == 0) then return parts end
  end
end

local function idle(x, axis) return axis.size == 1 or absent.is(x) or x.device == "meta" and not absent.simulated end

-- A started collective ends when forward needs it: x, its result, and the work. Backward is the whole collective's.

local Gather = accel.Function {
  name = "gather_part",
  forward = function(ctx, _, axis, y, work)
    ctx.axis = axis
    work:wait()
    return y
  end,
  backward = function(ctx, dy) return collectives.sum_part(dy, ctx.axis, 1) end,
}

local Sum = accel.Function {
  name = "sum_part",
  forward = function(ctx, _, axis, dim, y, work)
    ctx.axis, ctx.dim = axis, dim
    work:wait()
    return y
  end,
  backward = function(ctx, dy) return ctx.dim and collectives.all_parts(dy, ctx.axis, ctx.dim) or dy end,
}

--- The whole sequence of which x is a part, on its way in parts.
---@class accel.parallel.Chunks
---@field parts (fun(): accel.Tensor)[] each (ranks, batch, part of a rank's sequence, features), when it has come
---@field shape integer[] of the whole
local Chunks = {}

---@param x any
---@return boolean
function M.is(x) return getmetatable(x) == Chunks end

---@param x accel.Tensor (batch, own part of the sequence, features)
---@param axis accel.parallel.Axis
---@param late? boolean sum gradients in parallel with weight gradients as well (overlap.lua)
---@return accel.parallel.Chunks?
function M.enter(x, axis, late)
  if idle(x, axis) or x.ndim ~= 3 then return nil end
  local batch, own, width = table.unpack(x.shape, 1, 3)
  local n = count(batch * own * axis.size, own, true)
  if not n then return nil end
  local parts = {}
  for j = 1, n do
    local part, come = x:narrow(2, (j - 1) * (own // n) + 1, own // n):unsqueeze(1), nil
    local y, work = collectives.start_parts(part:detach(), axis)
    parts[j] = function()
      if not come and late and overlap.applies(part, axis) then come = overlap.enter(part, axis, 1, y, work)
      elseif not come then come = Gather(part, axis, y, work) end
      return come
    end
  end
  return setmetatable({ parts = parts, shape = { batch, own * axis.size, width } }, Chunks)
end

---@param x accel.parallel.Chunks
---@param fn fun(part: accel.Tensor): accel.Tensor of rows, each by itself
---@return accel.Tensor (batch, sequence, ...)
function M.columns(x, fn)
  local out = {}
  for j, part in ipairs(x.parts) do out[j] = fn(part()):transpose(1, 2) end
  local y = accel.cat(out, 3)
  return y:reshape(x.shape[1], x.shape[2], y.shape[4])
end

---@param x accel.Tensor (..., features that are here)
---@param fn fun(part: accel.Tensor): accel.Tensor the product of rows, each by itself
---@param axis accel.parallel.Axis
---@param sequence? boolean every rank gets its part of dim 2 of the sum, else all of it
---@return accel.Tensor?
function M.leave(x, fn, axis, sequence)
  if idle(x, axis) or x.ndim < 2 or sequence and (x.ndim ~= 3 or x.shape[2] % axis.size ~= 0) then return nil end
  local shape, width, parts, begun = x.shape, x.shape[x.ndim], {}, {}
  local rows, own = x:numel() // width, sequence and shape[2] // axis.size or nil
  local n = count(rows, own, sequence)
  if not n then return nil end
  local whole, dim = x:reshape(rows, width), 1
  if sequence then whole, dim = x:reshape(shape[1], axis.size, own, width), 3 end
  local extent, cut = own or rows, sequence and 2 or nil
  for j = 1, n do
    local first, last = (j - 1) * extent // n, j * extent // n
    parts[j] = fn(whole:narrow(dim, first + 1, last - first))
    begun[j] = table.pack(collectives.start_sum(parts[j]:detach(), axis, cut))
  end
  for j = 1, n do parts[j] = Sum(parts[j], axis, cut, table.unpack(begun[j], 1, 2)) end
  local y = accel.cat(parts, dim)
  local out = table.move(shape, 1, x.ndim, 1, {})
  out[2] = own or out[2]
  out[x.ndim] = y.shape[y.ndim]
  return y:reshape(out)
end

return M
