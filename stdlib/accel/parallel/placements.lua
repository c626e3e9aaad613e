--- The range of a whole parameter that this rank has after a plan sharded it. This module owns that information for everything that
--- reads or writes whole states (checkpoints, Hugging Face folders, norms of gradients).
---
--- A sharded parameter keeps its identity, so that optimizers made before continue with it. Its shape becomes the
--- shard's.
local accel = require "accel"
local core = require "accel.parallel.core"
local dist = require "accel.dist"

---@class accel.parallel.Placement
---@field axis accel.parallel.Axis ranks that share the parameter out
---@field dim integer
---@field pieces integer blocks of dim that are cut one by one: 3 for queries, keys and values in one matrix
---@field whole integer extent of dim in the whole parameter
---@field step integer extent of a piece's part. The last rank's may be shorter
local M = { of = setmetatable({}, { __mode = "k" }) }

require "accel.nn.divided".placements = M

--- Parameters of experts that ranks have divided among them (experts.lua), and the axis that did so. A rank has some whole, and shapes of
--- the others.
M.experts = setmetatable({}, { __mode = "k" })

--- First position (from 0) and number of rank r's part of a piece.
---@param p accel.parallel.Placement
---@param r integer
---@return integer first
---@return integer count
function M.range(p, r)
  local n = p.whole // p.pieces
  local first = math.min(r * p.step, n)
  return first, math.min(p.step, n - first)
end

--- The part of rank r of a tensor with the whole extent, contiguous.
---@param p accel.parallel.Placement
---@param t accel.Tensor
---@param r integer
---@return accel.Tensor
function M.part(p, t, r)
  local first, count = M.range(p, r)
  local n, list = p.whole // p.pieces, {}
  for i = 1, p.pieces do list[i] = t:narrow(p.dim, (i - 1) * n + first + 1, count) end
  return #list == 1 and list[1]:clone() or accel.cat(list, p.dim)
end

--- Cuts a parameter: this rank keeps its part of dim. It happens once: a tied parameter is visited again, already
--- sharded.
---@param param accel.Tensor
---@param axis accel.parallel.Axis
---@param dim integer
---@param pieces? integer
function M.cut(param, axis, dim, pieces)
  if M.of[param] or axis.size == 1 then return end
  pieces = pieces or 1
  local whole = param.shape[dim]
  local p = { axis = axis, dim = dim, pieces = pieces, whole = whole, step = -(-(whole // pieces) // axis.size) }
  local _ <close> = accel.no_grad()
  core.replace(param, accel.unscoped(M.part, p, param:detach(), axis.rank))
  M.of[param] = p
end

--- The whole of a tensor that is cut as a parameter is: a parameter's own, its gradient, a state of an optimizer. A collective over
--- the axis. Every rank gets it.
---@param p accel.parallel.Placement
---@param t accel.Tensor this rank's part
---@return accel.Tensor
function M.join(p, t)
  local _ <close> = accel.no_grad()
  local axis, shape = p.axis, table.move(t.shape, 1, t.ndim, 1, {})
  shape[p.dim] = p.step * p.pieces
  local _, count = M.range(p, axis.rank)
  local own = t:contiguous()
  if count < p.step then
    own = accel.zeros(shape, { dtype = t.dtype, device = t.device })
    for i = 1, p.pieces do
      own:narrow(p.dim, (i - 1) * p.step + 1, count):copy_(t:narrow(p.dim, (i - 1) * count + 1, count))
    end
  end
  local all = accel.empty({ axis.size, table.unpack(shape) }, { dtype = t.dtype, device = t.device })
  dist.all_gather_into_tensor(all, own, { group = axis.group })
  local list = {}
  for i = 1, p.pieces do
    for r = 0, axis.size - 1 do
      local _, n = M.range(p, r)
      if n > 0 then list[#list + 1] = all[r + 1]:narrow(p.dim, (i - 1) * p.step + 1, n) end
    end
  end
  return accel.cat(list, p.dim)
end

return M
