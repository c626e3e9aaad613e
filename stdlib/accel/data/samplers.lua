--- Samplers: the order in which a pass visits a data set. A sampler has the methods len() and order(epoch, seed), which
--- returns a list of positions (from 1) and depends only on its arguments, so that a resumed run finds its position
--- again. A batch sampler's order is a list of such lists. `seed` comes from the DataLoader. A sampler made with a seed
--- uses its own.
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local Random = require "accel.util.random"
local raise = require "accel.util.raise"

local M = {}

--- The base of samplers. A subclass defines len() and order(epoch, seed).
--- example: local Backwards = accel.data.Sampler:extend "Backwards" function Backwards:len() return 3 end
---   function Backwards:order() return { 3, 2, 1 } end
---   local set = accel.data.ListDataset { 5, 6, 7 }
---   local loader = accel.data.DataLoader(set, { batch_size = 3, sampler = Backwards() })
---   for batch in loader() do return batch end --> { 7, 6, 5 }
---@class accel.data.Sampler
---@field seed integer? nil: the loader's
M.Sampler = class("accel.data.Sampler")

--- Positions in a pass (batches, of a batch sampler).
---@return integer
function M.Sampler:len() -- luacheck: ignore self
  raise("%s does not define len", getmetatable(self).__name)
end

--- The positions of an epoch, in order.
---@param epoch integer from 0
---@param seed integer
---@return integer[]
function M.Sampler:order(epoch, seed) -- luacheck: ignore
  raise("%s does not define order", getmetatable(self).__name)
end

function M.Sampler.__len(self) return self:len() end

--- Whether x has the methods of a sampler.
---@param x any
function M.Sampler.is(x) return type(x) == "table" and x.len ~= nil and x.order ~= nil end

--- The random numbers of an epoch.
---@param epoch? integer
---@param seed? integer
---@return accel.util.Random
function M.Sampler:random(epoch, seed, ...)
  check.surplus("Sampler:random", ...)
  return Random(self.seed or seed or 0, epoch or 0)
end

--- Keeps options.seed, which may be absent.
---@param seed integer?
function M.Sampler:set_seed(seed)
  self.seed = seed ~= nil and check.integer(getmetatable(self).__name:match "[^.]*$", "seed", seed) or nil
end

--- Returns a function that computes the length of a data set or a count.
local function length_of(who, source)
  if type(source) == "table" and source.len ~= nil then return function() return source:len() end end
  local n = check.count(who, "the source (a data set or a count)", source)
  return function() return n end
end

--- All positions, first to last.
--- example: accel.data.SequentialSampler(3):order(0) --> { 1, 2, 3 }
---@class accel.data.SequentialSampler : accel.data.Sampler
M.SequentialSampler = M.Sampler:extend("accel.data.SequentialSampler")

---@param source table|integer a data set, or how many samples it has
function M.SequentialSampler:init(source) self.n = length_of("SequentialSampler", source) end

function M.SequentialSampler:len() return self.n() end

function M.SequentialSampler:order()
  local order = {}
  for i = 1, self.n() do order[i] = i end
  return order
end

--- All positions in random order, different in every epoch. num_samples: draws in a pass (default: the number of
--- samples). Without replacement, no sample repeats before all have occurred. replacement: each draw is from all
--- samples.
--- example: local order = accel.data.RandomSampler(4, { seed = 1 }):order(0)
---   table.sort(order) return order --> { 1, 2, 3, 4 }
---@class accel.data.RandomSampler : accel.data.Sampler
M.RandomSampler = M.Sampler:extend("accel.data.RandomSampler")

---@param source table|integer a data set, or how many samples it has
---@param opts? {replacement: boolean?, num_samples: integer?, seed: integer?}
function M.RandomSampler:init(source, opts)
  local o = options("RandomSampler", opts, {
    replacement = false, num_samples = options.none, seed = options.none,
  })
  self.n, self.replacement = length_of("RandomSampler", source), o.replacement
  local wanted = o.num_samples
  self.num_samples = wanted ~= nil and check.positive("RandomSampler", "num_samples", wanted) or nil
  self:set_seed(o.seed)
end

function M.RandomSampler:len()
  local n = self.n()
  return n > 0 and self.num_samples or n
end

function M.RandomSampler:order(epoch, seed)
  local n, wanted, random, order = self.n(), self:len(), self:random(epoch, seed), {}
  if self.replacement then
    for k = 1, wanted do order[k] = random:below(n) + 1 end
    return order
  end
  local positions = {}
  for i = 1, n do positions[i] = i end
  repeat
    random:shuffle(positions)
    table.move(positions, 1, math.min(n, wanted - #order), #order + 1, order)
  until #order >= wanted
  return order
end

--- The given positions in random order.
--- example: local order = accel.data.SubsetRandomSampler({ 7, 3 }):order(0)
---   table.sort(order) return order --> { 3, 7 }
---@class accel.data.SubsetRandomSampler : accel.data.Sampler
M.SubsetRandomSampler = M.Sampler:extend("accel.data.SubsetRandomSampler")

---@param positions integer[]
---@param opts? {seed: integer?}
function M.SubsetRandomSampler:init(positions, opts)
  local o = options("SubsetRandomSampler", opts, { seed = options.none })
  if type(positions) ~= "table" then
    raise("SubsetRandomSampler: positions must be a list, got %s", check.shown(positions))
  end
  for i, position in ipairs(positions) do
    check.positive("SubsetRandomSampler", ("positions[%d]"):format(i), position)
  end
  self.positions = positions
  self:set_seed(o.seed)
end

function M.SubsetRandomSampler:len() return #self.positions end

function M.SubsetRandomSampler:order(epoch, seed)
  return self:random(epoch, seed):shuffle(table.move(self.positions, 1, #self.positions, 1, {}))
end

--- The order of a sampler, cut into batches: for DataLoader's batch_sampler.
--- example: accel.data.BatchSampler(accel.data.SequentialSampler(5), 2):order(0) --> { { 1, 2 }, { 3, 4 }, { 5 } }
---@class accel.data.BatchSampler : accel.data.Sampler
---@field sampler table
---@field batch_size integer
M.BatchSampler = M.Sampler:extend("accel.data.BatchSampler")

---@param sampler table
---@param batch_size integer
---@param opts? {drop_last: boolean?}
function M.BatchSampler:init(sampler, batch_size, opts)
  local o = options("BatchSampler", opts, { drop_last = false })
  if not M.Sampler.is(sampler) then
    raise("BatchSampler: sampler must have the methods len and order, got %s", check.shown(sampler))
  end
  self.sampler, self.batch_size = sampler, check.positive("BatchSampler", "batch_size", batch_size)
  self.drop_last, self.seed = o.drop_last, sampler.seed
end

function M.BatchSampler:len()
  local n = self.sampler:len()
  return self.drop_last and n // self.batch_size or -(-n // self.batch_size)
end

function M.BatchSampler:order(epoch, seed)
  local order, size, batches = self.sampler:order(epoch, seed), self.batch_size, {}
  for first = 1, #order, size do
    if first + size - 1 > #order and self.drop_last then break end
    batches[#batches + 1] = table.move(order, first, math.min(first + size - 1, #order), 1, {})
  end
  return batches
end

return M
