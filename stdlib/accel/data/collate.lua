--- default_collate: a list of samples becomes one batch. Tensors are stacked along a new first dimension,
--- numbers and booleans become a tensor, strings a list; tables are collated entry by entry.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local function collate(samples)
  local first = samples[1]
  if tensors.is_tensor(first) then return accel.stack(samples, 1) end
  local kind = type(first)
  if kind == "number" then
    local float = false
    for _, v in ipairs(samples) do float = float or math.type(v) == "float" end
    return accel.tensor(samples, { dtype = float and "f32" or "i64" })
  elseif kind == "boolean" then
    return accel.tensor(samples, { dtype = "bool" })
  elseif kind == "string" then
    return samples
  elseif kind == "table" then
    local batch = {}
    for key in ordered.iterate(first) do
      local column = {}
      for i, sample in ipairs(samples) do
        if type(sample) ~= "table" or sample[key] == nil then
          raise("default_collate: sample %d has no entry '%s', sample 1 has", i, tostring(key))
        end
        column[i] = sample[key]
      end
      batch[key] = collate(column)
    end
    return batch
  end
  raise("default_collate: cannot make a batch of %s values; give DataLoader a collate_fn", kind)
end

return collate
