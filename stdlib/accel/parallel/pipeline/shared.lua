--- Parameters that stages on different ranks of a pipeline have, as a tied embedding and head, and the groups of ranks that sum their
--- gradients. Collective over the world: called once, when a pipeline is made.
local accel = require "accel"
local dist = require "accel.dist"

--- All axes of the world's pipelines, as lists of ranks, in the order of their first ranks. Every rank makes groups of them.
local function all_axes(axis)
  local P = dist.get_world_size()
  if axis.size == P then return { axis.ranks } end
  local all = accel.empty(P, axis.size, { dtype = "i64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor(axis.ranks, { dtype = "i64", device = "cpu" }))
  local lists, seen = {}, {}
  for _, ranks in ipairs(all:tolist()) do
    if not seen[ranks[1]] then
      seen[ranks[1]] = true
      lists[#lists + 1] = ranks
    end
  end
  table.sort(lists, function(a, b) return a[1] < b[1] end)
  return lists
end

---@param model accel.nn.Module
---@param owners table<accel.Tensor, table<integer, boolean>>
---@param axis accel.parallel.Axis
---@return {param: accel.Tensor, group: accel.dist.Group, first: boolean}[] this rank's ones. first: it is the first of its ranks
return function(model, owners, axis)
  local out, made = {}, {}
  if axis.size == 1 then return out end
  local lists
  for _, p in pairs(model:named_parameters()) do
    local set, members, key = {}, {}, {}
    for stage in next, owners[p] or {} do set[stage % axis.size] = true end
    for r = 0, axis.size - 1 do
      if set[r] then members[#members + 1], key[#key + 1] = r, r end
    end
    if #members > 1 then
      lists = lists or all_axes(axis)
      local name = table.concat(key, ",")
      if made[name] == nil then
        for _, ranks in ipairs(lists) do
          local group = {}
          for i, r in ipairs(members) do group[i] = ranks[r + 1] end
          local g = #group == dist.get_world_size() and dist.group.WORLD or dist.new_group(group)
          if ranks[1] == axis.ranks[1] then made[name] = g end
        end
      end
      if set[axis.rank] then
        out[#out + 1] = { param = p, group = made[name], first = members[1] == axis.rank }
      end
    end
  end
  return out
end
