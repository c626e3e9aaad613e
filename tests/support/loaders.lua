-- What the tests of prepared loaders share, besides ranks.lua: making loaders, reading them.
local accel = require "accel"
local dist = accel.dist

local M = {}

function M.text(x)
  if type(x) ~= "table" then return tostring(x) end
  if x[1] == nil and next(x) ~= nil then
    local parts = {}
    for key, value in accel.pairs(x) do parts[#parts + 1] = key .. "=" .. M.text(value) end
    return "{" .. table.concat(parts, ",") .. "}"
  end
  local parts = {}
  for i, v in ipairs(x) do parts[i] = M.text(v) end
  return "[" .. table.concat(parts, ",") .. "]"
end

--- An accelerator with these loader options.
function M.accelerator(config)
  local options = { dispatch_batches = false }
  for key, value in next, config or {} do options[key] = value end
  return accel.Accelerator { dataloader_config = accel.accelerator.DataLoaderConfiguration(options) }
end

--- A data set of the numbers 0 .. n - 1.
function M.numbers(n) return accel.data.TensorDataset(accel.arange(n)) end

--- A stream of the numbers 0 .. n - 1 that counts how often it was begun and closed, and how much of it was read.
M.Count = accel.data.IterableDataset:extend "Count"
function M.Count:init(n, sized)
  self.n, self.opened, self.closed, self.read = n, 0, 0, 0
  if sized then self.len = function() return n end end
end
function M.Count:iterate()
  local i = -1
  self.opened, self.read = self.opened + 1, 0
  return function()
    i = i + 1
    if i >= self.n then return nil end
    self.read = self.read + 1
    return i
  end, nil, nil, setmetatable({}, { __close = function() self.closed = self.closed + 1 end })
end

--- The numbers of a batch.
function M.values(batch) return (type(batch) == "table" and batch[1] or batch):tolist() end

--- All batches of a pass.
function M.pass(loader)
  local all = {}
  for batch in loader() do all[#all + 1] = M.values(batch) end
  return all
end

--- What all ranks read in a pass without its padding, in the order of the rounds: a list of numbers.
function M.read_by_all(loader)
  local own, reported = {}, loader:len()
  for batch in loader() do
    local values = M.values(batch)
    local mask = loader:mask():tolist()
    assert(#mask == #values, "a mask for every row")
    local valid = {}
    for i, x in ipairs(values) do if mask[i] then valid[#valid + 1] = x end end
    own[#own + 1] = valid
    assert(loader.row0 == (#own - 1) * loader.total_batch_size + dist.get_rank() * loader.total_batch_size
      // dist.get_world_size(), "row0")
  end
  assert(#own == reported, ("reports %d batches, yields %d"):format(reported, #own))
  local all, rounds, out = dist.all_gather_object(own), 0, {}
  for _, batches in ipairs(all) do rounds = math.max(rounds, #batches) end
  for g = 1, rounds do
    for _, batches in ipairs(all) do
      for _, x in ipairs(batches[g] or {}) do out[#out + 1] = x end
    end
  end
  return out
end

--- Asserts that all ranks have the same value.
function M.alike(value, what)
  for r, other in ipairs(dist.all_gather_object(M.text(value))) do
    if other ~= M.text(value) then
      error(("%s differs: %s, on rank %d %s"):format(what, M.text(value), r - 1, other), 2)
    end
  end
end

return M
