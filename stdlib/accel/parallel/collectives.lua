--- Differentiable collectives over an axis of a mesh, between the parts of a model on several ranks. In pairs, of which one is the
--- other's backward (Shoeybi et al. They come in pairs, each the other's backward (Shoeybi et al. 2022 for sequences). 2022 for
--- sequences). On meta, and on an axis with one rank, only shapes change.
---
---   copy(x)          x                    backward: sum over ranks       before layers whose outputs are shared out
---   reduce(x)        sum over ranks       backward: x                    after layers with sharded inputs
---   gather(x, dim)   all parts            backward: sum, own part        between parts of a sequence and whole layers
---   scatter(x, dim)  sum, own part        backward: all parts
---   join(x, dim)     all parts            backward: own part             if all ranks continue with the same whole
---   split(x, dim)    own part             backward: all parts            if all ranks had the same whole
---   total(x)         sum over ranks       backward: sum over ranks       of which every rank makes the same loss
---   exchange(x, from, to)  cuts dim `from` and joins dim `to`           all-to-all, backward: the other way
---   send_rows(x, to, from)  to[r] rows go to rank r, from[r] come from it   all-to-all, backward: the other way
local accel = require "accel"
local absent = require "accel.parallel.absent"
local dist = require "accel.dist"

local M = {}

local function idle(x, axis) return axis.size == 1 or absent.is(x) end

--- Dim `dim` n times as long (or an n-th of it, with part), with undefined contents.
local function shaped(x, dim, n, part)
  local shape = table.move(x.shape, 1, x.ndim, 1, {})
  shape[dim] = part and shape[dim] // n or shape[dim] * n
  return accel.empty(shape, { dtype = x.dtype, device = x.device })
end

--- (n, a, .., d, .., z) -> (a, .., n d, .., z): consecutive parts, side by side in dim.
local function side_by_side(parts, x, dim, n)
  if dim == 1 then return parts end
  local order, shape = {}, table.move(x.shape, 1, x.ndim, 1, {})
  for d = 1, dim - 1 do order[d] = d + 1 end
  order[dim] = 1
  for d = dim, x.ndim do order[d + 1] = d + 1 end
  shape[dim] = shape[dim] * n
  return parts:permute(order):reshape(shape)
end

--- The inverse: consecutive parts of dim, contiguous.
local function one_behind_other(x, dim, n)
  if dim == 1 then return x:contiguous() end
  local shape, order = {}, { dim }
  for d = 1, dim - 1 do shape[d], order[d + 1] = x.shape[d], d end
  shape[dim], shape[dim + 1] = n, x.shape[dim] // n
  for d = dim + 1, x.ndim do shape[d + 1] = x.shape[d] end
  for d = dim + 1, x.ndim + 1 do order[d] = d end
  return x:view(shape):permute(order):contiguous()
end

local function sum(x, axis)
  if idle(x, axis) then return x end
  x = x:contiguous():clone()
  dist.all_reduce(x, { group = axis.group })
  return x
end

local function all_parts(x, axis, dim)
  if axis.size == 1 then return x end
  if absent.is(x) then return shaped(x, dim, axis.size) end
  x = x:contiguous()
  local shape = { axis.size, table.unpack(x.shape, 1, x.ndim) }
  if dim == 1 then
    shape = table.move(x.shape, 1, x.ndim, 1, {})
    shape[1] = shape[1] * axis.size
  end
  local out = accel.empty(shape, { dtype = x.dtype, device = x.device })
  dist.all_gather_into_tensor(out, x, { group = axis.group })
  return side_by_side(out, x, dim, axis.size)
end

local function own_part(x, axis, dim)
  if axis.size == 1 then return x end
  if absent.is(x) then return shaped(x, dim, axis.size, true) end
  local n = x.shape[dim] // axis.size
  return x:narrow(dim, axis.rank * n + 1, n):contiguous()
end

local function sum_part(x, axis, dim)
  if axis.size == 1 then return x end
  local out = shaped(x, dim, axis.size, true)
  if absent.is(x) then return out end
  dist.reduce_scatter_tensor(out, one_behind_other(x:contiguous(), dim, axis.size), { group = axis.group })
  return out
end

--- The same two, started: the future sum, or with dim its own part, and the work that computes it.
local function start_sum(x, axis, dim)
  if dim then
    local out = shaped(x, dim, axis.size, true)
    local sent = one_behind_other(x:contiguous(), dim, axis.size)
    return out, dist.reduce_scatter_tensor(out, sent, { group = axis.group, async_op = true })
  end
  x = x:contiguous():clone()
  return x, dist.all_reduce(x, { group = axis.group, async_op = true })
end

--- all_parts of dim 1, begun.
local function start_parts(x, axis)
  x = x:contiguous()
  local out = shaped(x, 1, axis.size)
  return out, dist.all_gather_into_tensor(out, x, { group = axis.group, async_op = true })
end

local function trade(x, axis, from, to)
  if axis.size == 1 then return x end
  local cut = shaped(x, from, axis.size, true)
  if absent.is(x) then return shaped(cut, to, axis.size) end
  local sent = one_behind_other(x:contiguous(), from, axis.size)
  local shape = { axis.size, table.unpack(cut.shape, 1, cut.ndim) }
  local got = accel.empty(shape, { dtype = x.dtype, device = x.device })
  dist.all_to_all_single(got, sent:view(shape), { group = axis.group })
  if to == 1 then return got:view(shaped(cut, 1, axis.size).shape) end
  return side_by_side(got, cut, to, axis.size)
end

local function trade_rows(x, axis, to, from)
  if axis.size == 1 then return x end
  local rows = 0
  for _, n in ipairs(from) do rows = rows + n end
  local out = accel.empty({ rows, table.unpack(x.shape, 2, x.ndim) }, { dtype = x.dtype, device = x.device })
  if not absent.is(x) then
    dist.all_to_all_single(out, x:contiguous(), { input_split_sizes = to, output_split_sizes = from, group = axis.group })
  end
  return out
end

--- A function with a gradient of two plain ones. If the axis is idle and nothing changes, x is passed through.
local function pair(name, forward, backward)
  local apply = accel.Function {
    name = name,
    forward = function(ctx, x, axis, a, b)
      ctx.axis, ctx.a, ctx.b = axis, a, b
      local y = forward(x, axis, a, b)
      return y == x and x:view(x.shape) or y
    end,
    backward = function(ctx, dy) return backward(dy, ctx.axis, ctx.a, ctx.b) end,
  }
  return function(x, axis, a, b)
    if axis.size == 1 then return x end
    return apply(x, axis, a, b)
  end
end

local function same(x) return x end

M.copy = pair("copy_to_parallel", same, sum)
M.reduce = pair("reduce_from_parallel", sum, same)
M.gather = pair("gather_sequence", all_parts, sum_part)
M.scatter = pair("scatter_sequence", sum_part, all_parts)
M.join = pair("join_parts", all_parts, own_part)
M.split = pair("split_parts", own_part, all_parts)
M.exchange = pair("exchange_parts", trade, function(dy, axis, from, to) return trade(dy, axis, to, from) end)
M.total = pair("total_over_ranks", sum, sum)
M.send_rows = pair("send_rows", trade_rows, function(dy, axis, to, from) return trade_rows(dy, axis, from, to) end)

--- Without gradients: the sum over the ranks as a new tensor, all parts, the own part, the own part of the sum.
M.sum, M.all_parts, M.own_part, M.sum_part = sum, all_parts, own_part, sum_part
M.start_sum, M.start_parts = start_sum, start_parts

return M
