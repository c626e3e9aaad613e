--- Joins what the ranks of FSDP wrote into one file each (Accelerate with use_dcp=False) to whole tensors. FSDP 2 writes torch's
--- DTensors, FSDP 1 its ShardedTensors: accel.load returns tables of their fields, with `class` and the `size` of the whole. Called by
--- accelerate.lua.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function shown(list) return "(" .. table.concat(list, ", ") .. ")" end

--- The whole of a ShardedTensor, whose parts name their places.
local function of_shards(at, parts)
  local size, whole, held = parts[1].size, nil, 0
  for _, part in ipairs(parts) do
    for _, shard in ipairs(part[1]) do -- its state is (shards, metadata, ...)
      whole = whole or accel.zeros(size, { dtype = shard.tensor.dtype })
      local box = whole
      for d, n in ipairs(shard.tensor.shape) do
        local from = shard.metadata.shard_offsets[d]
        if math.type(from) ~= "integer" or from < 0 or from + n > size[d] then
          raise("%s: a part of shape %s does not fit in %s", at, tensors.shape_string(shard.tensor), shown(size))
        end
        box = box:narrow(d, from + 1, n)
      end
      box:copy_(shard.tensor)
      held = held + shard.tensor:numel()
    end
  end
  if held ~= tensors.count(size) then raise("%s: the ranks hold %d of its %d elements", at, held, tensors.count(size)) end
  return whole
end

--- The whole of a DTensor on a mesh of one dim: rank r has the r-th part along the dim of Shard, or, with Replicate, everything.
local function of_placements(at, parts)
  local spec, list = parts[1]._spec, {}
  if #spec.placements ~= 1 then raise("%s: it lies on a mesh of %d dims; save with SHARDED_STATE_DICT", at, #spec.placements) end
  local placement = spec.placements[1]
  local dim = placement.class == "Shard" and placement.dim
  if not dim and placement.class ~= "Replicate" then
    raise("%s: its placement is %s; save with SHARDED_STATE_DICT", at, tostring(placement.class))
  end
  for r, part in ipairs(parts) do list[r] = part._local_tensor end
  local whole = dim and accel.cat(list, dim + 1) or list[1]
  if not tensors.same_sizes(whole.shape, parts[1].size) then
    raise("%s: its parts make %s, not %s", at, tensors.shape_string(whole), shown(parts[1].size))
  end
  return whole
end

local function join(at, values)
  local first = values[1]
  if type(first) ~= "table" or accel.is_tensor(first) then return first end -- all ranks have the same
  if first.class == "DTensor" or first.class == "ShardedTensor" then
    for r, value in ipairs(values) do
      if type(value) ~= "table" or value.class ~= first.class then raise("%s: rank %d has something else than rank 0", at, r - 1) end
    end
    return first.class == "DTensor" and of_placements(at, values) or of_shards(at, values)
  end
  local out = ordered.is(first) and ordered() or {}
  for key in ordered.iterate(first) do
    local below = {}
    for r, value in ipairs(values) do
      if type(value) ~= "table" or value[key] == nil then raise("%s.%s: rank %d lacks it", at, key, r - 1) end
      below[r] = value[key]
    end
    out[key] = join(("%s.%s"):format(at, key), below)
  end
  return out
end

--- The trees of the ranks as one, with whole tensors.
---@param trees table[] of rank 0, 1, ...
---@param files string[] their names
---@return table
function M.join(trees, files)
  local _ <close> = accel.no_grad()
  return join(files[1]:gsub("_?rank%d+%.bin$", ""), trees)
end

return M
