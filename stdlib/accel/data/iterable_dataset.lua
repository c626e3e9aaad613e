--- data.IterableDataset: the base of data sets that are read in one direction: streams, generators, what does
--- not fit. A subclass defines iterate(epoch, seed), which begins a pass and returns what a generic `for`
--- takes (an iterator function, and up to three values with a value to close last); the samples are what it
--- returns, nil ends. It may define len(). Any table with this method serves as well.
---
---   local Lines = data.IterableDataset:extend "Lines"
---   function Lines:init(path) self.path = path end
---   function Lines:iterate() return io.lines(self.path) end
---   for batch in data.DataLoader(Lines("a.txt"):map(encode), { batch_size = 32 })() do ... end
---
--- A loader takes its samples as they come; a pass that is resumed reads and drops those that were handed out.
local check = require "accel.util.check"
local class = require "accel.util.class"
local collate = require "accel.data.collate"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local stream = require "accel.data.stream"

--- example: local Count = accel.data.IterableDataset:extend "Count"
---   function Count:iterate() local i = 0 return function() i = i + 1 return i <= 5 and i or nil end end
---   local sums = {} for batch in accel.data.DataLoader(Count():skip(1), { batch_size = 3 })() do
---   sums[#sums + 1] = batch:sum() end return sums --> { 9, 5 }
---@class accel.data.IterableDataset
local IterableDataset = class("accel.data.IterableDataset")

--- Begins a pass.
---@param epoch integer from 0
---@param seed integer
---@return fun(state: any, control: any): any
---@return any state
---@return any control
---@return any closing a value with __close, called when the pass ends
function IterableDataset:iterate(epoch, seed) -- luacheck: ignore
  raise("%s does not define iterate", getmetatable(self).__name)
end

-- A stream made from another one: make(next) returns the iterator function of a pass.
local Derived = IterableDataset:extend("accel.data.IterableDataset")

function Derived:init(source, make) self.source, self.make = source, make end

function Derived:iterate(epoch, seed)
  local step, closing = stream.begin(self.source, epoch, seed)
  return self.make(step), nil, nil, closing
end

--- fn(sample, i) in place of every sample.
---@param fn fun(sample: any, i: integer): any
---@return accel.data.IterableDataset
function IterableDataset:map(fn)
  check.callable("IterableDataset:map", "the function", fn)
  return Derived(self, function(step)
    local i = 0
    return function()
      local sample = step()
      if sample == nil then return nil end
      i = i + 1
      local mapped = fn(sample, i)
      if mapped == nil then raise("IterableDataset:map: the function returned nil for sample %d", i) end
      return mapped
    end
  end)
end

--- The samples for which fn(sample, i) is true.
---@param fn fun(sample: any, i: integer): boolean
---@return accel.data.IterableDataset
function IterableDataset:filter(fn)
  check.callable("IterableDataset:filter", "the function", fn)
  return Derived(self, function(step)
    local i = 0
    return function()
      while true do
        local sample = step()
        i = i + 1
        if sample == nil or fn(sample, i) then return sample end
      end
    end
  end)
end

--- Batches of n neighbours, each one sample of the new stream.
---@param n integer
---@param opts? {drop_last: boolean?, collate_fn: (fun(samples: any[]): any)?}
---@return accel.data.IterableDataset
function IterableDataset:batch(n, opts)
  check.positive("IterableDataset:batch", "n", n)
  local o = options("IterableDataset:batch", opts, { drop_last = false, collate_fn = options.none })
  local gather = o.collate_fn ~= nil and check.callable("IterableDataset:batch", "collate_fn", o.collate_fn)
    or collate.default_collate
  return Derived(self, function(step) return stream.batches(step, n, o.drop_last, gather) end)
end

--- The first n samples.
---@param n integer
---@return accel.data.IterableDataset
function IterableDataset:take(n)
  check.count("IterableDataset:take", "n", n)
  return Derived(self, function(step)
    local left = n
    return function()
      left = left - 1
      if left >= 0 then return step() end
    end
  end)
end

--- All but the first n samples.
---@param n integer
---@return accel.data.IterableDataset
function IterableDataset:skip(n)
  check.count("IterableDataset:skip", "n", n)
  return Derived(self, function(step)
    local left = n
    return function()
      while left > 0 do
        left = left - 1
        if step() == nil then
          left = 0
          return nil
        end
      end
      return step()
    end
  end)
end

local Chain = IterableDataset:extend("accel.data.IterableDataset")

function Chain:init(sources) self.sources = sources end

function Chain:iterate(epoch, seed)
  local k, step, closing = 0, nil, nil
  local function close()
    local open = closing
    closing = nil -- first, so that it is closed once only
    stream.close(open)
  end
  return function()
    while k <= #self.sources do
      local sample
      if step then sample = step() end
      if sample ~= nil then return sample end
      close()
      k, step = k + 1, nil
      if self.sources[k] then step, closing = stream.begin(self.sources[k], epoch, seed) end
    end
  end, nil, nil, setmetatable({}, { __close = close })
end

--- These samples, then those of the others.
---@param ... table
---@return accel.data.IterableDataset
function IterableDataset:concat(...)
  local sources = { self, ... }
  for i, source in ipairs(sources) do
    if type(source) ~= "table" or source.iterate == nil then
      raise("IterableDataset:concat: argument %d must have the method iterate, got %s", i - 1, check.shown(source))
    end
  end
  return Chain(sources)
end

return IterableDataset
