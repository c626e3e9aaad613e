--- default_collate, and the walk over nested samples that other collations share.
local accel = require "accel"
local fetch = require "accel.data.fetch"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}
local DEEPEST <const> = 200 -- nesting of tables, as for values sent to a worker

local function at(path) return path == "" and "" or (" (entry '%s')"):format(path) end

--- The number of a list's sample i: its position in the data set if a loader reads one.
local function number(samples, i)
  local positions = fetch.collated
  return positions and #positions == #samples and positions[i] or i
end

local function kind_of(value) return tensors.is_tensor(value) and "tensor" or type(value) end

local function stack(samples, path)
  local first = samples[1]
  for i, t in ipairs(samples) do
    if not tensors.same_shape(first, t) then
      raise("collate: samples %d and %d have shapes %s and %s%s; PadCollate pads sequences of unequal lengths",
        number(samples, 1), number(samples, i), tensors.shape_string(first), tensors.shape_string(t), at(path))
    end
  end
  return accel.stack(samples, 1)
end

--- Collates the entries of tables one by one. All must have the same ones.
local function entries(samples, path, rules, depth)
  local first, n, batch = samples[1], 0, {}
  if depth > DEEPEST then
    raise("collate: sample %d nests more than %d tables deep, at '%s...'; does a table contain itself?",
      number(samples, 1), DEEPEST, path:sub(1, 40))
  end
  for _ in next, first do n = n + 1 end
  for i, sample in ipairs(samples) do
    local m = 0
    for key in next, sample do
      m = m + 1
      if first[key] == nil then
        raise("collate: sample %d has an entry '%s', sample %d has none%s", number(samples, i), tostring(key),
          number(samples, 1), at(path))
      end
    end
    if m < n then
      for key in ordered.iterate(first) do
        if sample[key] == nil then
          raise("collate: sample %d has no entry '%s', sample %d has%s; %s", number(samples, i), tostring(key), number(samples, 1), at(path),
            math.type(key) and "PadCollate pads lists of unequal lengths" or "fill it in by map, or use a collate_fn")
        end
      end
    end
  end
  for key in ordered.iterate(first) do
    local column = {}
    for i, sample in ipairs(samples) do column[i] = sample[key] end
    batch[key] = M.walk(column, path == "" and tostring(key) or path .. "." .. tostring(key), rules, key, depth + 1)
  end
  if rules and rules.after then rules.after(batch, path) end
  return batch
end

--- Collates a list of samples by default_collate's rules, except for columns that `rules` handles: leaf(samples, path,
--- key) returns a finished column, or nil to leave it. after(batch, path) sees every collated table. A path names the
--- entry, "input.ids", and key its last part. "" and nil are the samples themselves.
---@param samples any[]
---@param path string
---@param rules? {leaf: function, after: function}
---@param key? string|integer
---@param depth? integer tables that these samples are in
function M.walk(samples, path, rules, key, depth)
  local column = rules and rules.leaf(samples, path, key)
  if column ~= nil then return column end
  local first = samples[1]
  local kind = kind_of(first)
  for i, sample in ipairs(samples) do
    if kind_of(sample) ~= kind then
      raise("collate: sample %d is a %s, sample %d a %s%s", number(samples, i), kind_of(sample), number(samples, 1), kind,
        at(path))
    end
  end
  if kind == "tensor" then
    return stack(samples, path)
  elseif kind == "number" then
    local float = false
    for _, v in ipairs(samples) do float = float or math.type(v) == "float" end
    return accel.tensor(samples, { dtype = float and "f32" or "i64" })
  elseif kind == "boolean" then
    return accel.tensor(samples, { dtype = "bool" })
  elseif kind == "string" then
    return samples
  elseif kind == "table" then
    return entries(samples, path, rules, depth or 1)
  end
  raise("collate: sample %d: cannot make a batch of %s values%s; give DataLoader a collate_fn", number(samples, 1), kind,
    at(path))
end

--- A list of samples becomes one batch: tensors are stacked along a new first dimension, numbers become a tensor (i64
--- if all are integers, otherwise f32), booleans one of dtype bool, strings a list. Tables, nested up to 200 deep, are
--- collated entry by entry.
--- example: accel.data.default_collate { { x = { 1, "a" }, ok = true }, { x = { 2, "b" }, ok = false } }
---   --> { x = { { 1, 2 }, { "a", "b" } }, ok = { true, false } }
---@param samples any[]
---@return any
function M.default_collate(samples)
  if type(samples) ~= "table" or samples[1] == nil then
    raise "collate: expected a list of at least one sample"
  end
  return M.walk(samples, "")
end

return M
