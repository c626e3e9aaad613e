--- Offsets of parameters in a flat unit, and each rank's part: arithmetic on shapes alone, so that the memory of a sharded
--- model is known in advance (estimate), for accel's layout and for torch's FSDP. Used by units (unit.lua) and by
--- estimates.
---
--- A flat unit holds consecutive tensors, each at a multiple of `align` elements, and is cut into `world` equal parts.
--- Zeros fill the gaps and the end.
local buckets = require "accel.dist.buckets"

local M = {}

--- Our units are cut at multiples of so many elements.
M.CUT = 256

--- Lays tensors out.
---@param numels integer[]
---@param world integer ranks that share the unit
---@param align integer elements
---@param cut integer each rank's part is a multiple of so many elements
---@return {offsets: integer[], used: integer, count: integer, part: integer} offsets from 0. used: end of the last tensor
function M.layout(numels, world, align, cut)
  local offsets, at = {}, 0
  for i, n in ipairs(numels) do
    at = (at + align - 1) // align * align
    offsets[i], at = at, at + n
  end
  local step = world * cut
  local count = (at + step - 1) // step * step
  return { offsets = offsets, used = at, count = count, part = count // world }
end

--- Our layout of elements of `size` bytes each.
function M.unit(numels, world, size) return M.layout(numels, world, buckets.ALIGN // size, M.CUT) end

--- The layout of FSDP 1 with original parameters: tensors at multiples of 16 bytes, the whole a multiple of the ranks.
function M.fsdp1(numels, world, size) return M.layout(numels, world, math.max(1, 16 // size), 1) end

--- The part of tensor i of a layout in a rank's shard: the first and the last element, from 0, or nil.
---@param layout table
---@param numels integer[]
---@param i integer
---@param rank integer
---@return integer? first
---@return integer? last
function M.held(layout, numels, i, rank)
  local from = math.max(0, rank * layout.part - layout.offsets[i])
  local to = math.min(numels[i], (rank + 1) * layout.part - layout.offsets[i])
  if from < to then return from, to - 1 end
end

--- The extents of a rank's shard of a tensor cut along its first dimension, as in FSDP 2. padded: the size that all
--- reserve.
---@param shape integer[]
---@param world integer
---@param rank integer
---@return integer[] shape
---@return integer[] padded
function M.dim0(shape, world, rank)
  local own, padded = { table.unpack(shape) }, { table.unpack(shape) }
  local rows = shape[1] or 1
  local each = (rows + world - 1) // world
  own[1], padded[1] = math.max(0, math.min(each, rows - rank * each)), each
  return own, padded
end

local WIDTH <const> = { f64 = 8, f32 = 4, f16 = 2, bf16 = 2 }

--- Bytes of each of `world` ranks between two steps, by the part of training: parameters, gradients and states of an
--- optimizer with `states` tensors per parameter. gathered: of the largest unit, while it computes. If ranks share memory,
--- unsharded parameters are there once for all of them.
---@param units table[] of accel.shard.policy, with params, which may be on the meta device
---@param world integer
---@param cut {parameters: boolean, gradients: boolean, optimizer: boolean} which of them are sharded
---@param states? integer 2, as Adam's
---@param dtypes? fun(p: accel.Tensor): table of accel.shard.precision
---@return {parameters: integer, gradients: integer, optimizer: integer, gathered: integer}
function M.estimate(units, world, cut, states, dtypes)
  local out = { parameters = 0, gradients = 0, optimizer = 0, gathered = 0 }
  if world == 1 then cut = { parameters = false, gradients = false, optimizer = false } end
  for _, unit in ipairs(units) do
    for _, list in ipairs(M.kinds(unit.params, nil, dtypes)) do
      local d, numels = dtypes and dtypes(list[1]) or {}, {}
      for i, p in ipairs(list) do numels[i] = p:numel() end
      local dtype, master = d.dtype or list.dtype, d.master or list.dtype
      local wire, size, own = d.reduce or dtype, WIDTH[dtype] or 4, WIDTH[master] or 4
      local plan, rounds = M.unit(numels, world, math.min(size, own)), dtype ~= master
      local whole, part, kept = plan.count * size, plan.part * own, plan.part * own
      -- rounded copies for computation are separate from the kept part
      if not cut.parameters then kept = rounds and whole + part or whole end
      out.parameters = out.parameters + kept
      if list.learns then
        local added = plan.count * math.max(size, WIDTH[wire] or 4)
        out.gradients = out.gradients + (cut.gradients and part or wire ~= master and added + part or added)
        out.optimizer = out.optimizer + (states or 2) * (cut.optimizer and part or plan.count * own)
      end
      if cut.parameters then out.gathered = math.max(out.gathered, whole) end
    end
  end
  return out
end

--- Parameters of a unit grouped by properties of a flat tensor: dtype, device, and whether they are trained. In the
--- order in which each kind first comes.
---@param params accel.Tensor[]
---@param device? string the device for meta tensors [stay on meta]
---@param dtypes? fun(p: accel.Tensor): table dtypes of the unit (dtype, master, reduce) for a parameter
---@return table[] lists with fields dtype, device, learns
function M.kinds(params, device, dtypes)
  local lists, of = {}, {}
  for i, p in ipairs(params) do
    local at = p.device == "meta" and device or tostring(p.device)
    local d = dtypes and dtypes(p) or {}
    local key = ("%s %s %s %s %s %s"):format(p.dtype, at, p.requires_grad, d.dtype, d.master, d.reduce)
    local list = of[key]
    if not list then
      list = { dtype = p.dtype, device = at, learns = p.requires_grad, at = {} }
      of[key], lists[#lists + 1] = list, list
    end
    list[#list + 1], list.at[#list.at + 1] = p, i
  end
  return lists
end

return M
