--- Quantised parameters of a sharded model (QLoRA). They are never trained, and their packed bytes and scales are one tensor that ops read
--- as a whole, so no unit takes them: every rank has them whole, like buffers, in an eighth of the bytes of f32. Ranks of one machine that
--- share memory have them there once. Used by nn.parallel.FullyShardedDataParallel.
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"

local M = {}

--- The quantised parameters of a model, except in modules left out of the sharding.
---@param model accel.nn.Module
---@param ignored? accel.nn.Module[]
---@return accel.Tensor[]
function M.list(model, ignored)
  local skip, list = {}, {}
  for _, module in ipairs(ignored or {}) do
    for _, p in ipairs(module:parameters()) do skip[p] = true end
  end
  for _, p in ipairs(model:parameters()) do
    if p.quant_state and not skip[p] then list[#list + 1] = p end
  end
  return list
end

--- Puts them, which all ranks of the group have alike, into memory that the group maps, once for all. A collective.
---@param list accel.Tensor[]
---@param group any
function M.share(list, group)
  if dist.get_world_size(group) == 1 or not core.shares(group) then return end
  local _ <close> = accel.no_grad()
  local first, moved = dist.get_rank(group) == 0, {}
  for i, p in ipairs(list) do
    if p.device == "cpu" then
      local bytes = accel.unscoped(core.shared, group, p:numel(), "u8", i % dist.get_world_size(group))
      bytes:quantized_like_(p)
      if first then bytes:copy_(p:detach()) end
      moved[#moved + 1] = { p, bytes }
    end
  end
  dist.barrier { group = group }
  for _, m in ipairs(moved) do core.bind(m[1], m[2], 0) end
end

return M
