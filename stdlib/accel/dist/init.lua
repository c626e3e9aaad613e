--- accel.dist: ranks that work together, with torch.distributed's names. A script started on several ranks by accel-run
--- --num_processes, torchrun, mpirun or srun is already connected to the others. Alone it is a world of one, and every
--- function here works as well.
---
---   local dist = accel.dist
---   dist.all_reduce(t)                                        -- sum over all ranks, in place
---   local work = dist.all_reduce(t, { op = "avg", async_op = true })
---   work:wait()
---
--- Ranks count from 0. `src` and `dst` are ranks of the world, `group_src` and `group_dst` are ranks of the group.
--- Tensors that are written follow the rules of ops in place: no leaf that requires gradients outside accel.no_grad().
--- All ranks must make the same calls in the same order. A mismatch, a leave or a death is an error that names ranks
--- and lines.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local class = require "accel.util.class"
local lazy = require "accel.util.lazy"
local raise = require "accel.util.raise"
local dist = require "accel.dist.core" -- native: bindings/comm/lac_dist.c and its neighbours

--- Modules of names loaded on first use.
local home = {
  all_gather_object = "objects", gather_object = "objects", broadcast_object_list = "objects",
  scatter_object_list = "objects", send_object_list = "objects", recv_object_list = "objects",
  hooks = "hooks", LocalSGD = "local_sgd", -- for data parallelism: nn.parallel
}

--- The reductions, for all_reduce, reduce and reduce_scatter: each is its name as a string. AVG is for floats. For
--- bools, SUM and MAX are or, PRODUCT and MIN are and.
dist.ReduceOp = { SUM = "sum", AVG = "avg", MIN = "min", MAX = "max", PRODUCT = "prod" }

--- Whether ranks can be used at all: always true here.
--- example: accel.dist.is_available() --> true
---@return boolean
function dist.is_available() return true end

--- One send or receive of a list for batch_isend_irecv.
--- example: accel.dist.P2POp(accel.dist.isend, accel.ones(2), 1).peer --> 1
---@class accel.dist.P2POp
---@field op function accel.dist.isend or accel.dist.irecv
---@field tensor accel.Tensor
---@field peer integer rank of the world
---@field group accel.dist.Group?
---@field tag integer
local P2POp = class("accel.dist.P2POp")

local p2p_arguments = arguments("P2POp", { "group" }, { "tag", 0 })

---@param op function accel.dist.isend or accel.dist.irecv
---@param tensor accel.Tensor
---@param peer integer
---@param ... any group, tag = 0, by position or in one table
function P2POp:init(op, tensor, peer, ...)
  if op ~= dist.isend and op ~= dist.irecv then raise("P2POp: op must be accel.dist.isend or accel.dist.irecv") end
  if not accel.is_tensor(tensor) then raise("P2POp: expected tensor, got %s", type(tensor)) end
  if math.type(peer) ~= "integer" then raise("P2POp: peer must be a rank, got %s", tostring(peer)) end
  local o = p2p_arguments(...)
  self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, o.group, o.tag
end

dist.P2POp = P2POp

--- Starts concurrent sends and receives. Returns a work for each.
--- example: accel.dist.batch_isend_irecv {} --> {}
---@param ops accel.dist.P2POp[]
---@return accel.dist.Work[]
function dist.batch_isend_irecv(ops)
  if type(ops) ~= "table" then raise("batch_isend_irecv: expected list of P2POp, got %s", type(ops)) end
  local works = {}
  for i, p in ipairs(ops) do
    if not class.isinstance(p, P2POp) then raise("batch_isend_irecv: entry %d is not a P2POp", i) end
  end
  for i, p in ipairs(ops) do works[i] = p.op(p.tensor, p.peer, { group = p.group, tag = p.tag }) end
  return works
end

return lazy("accel.dist", home, dist)
