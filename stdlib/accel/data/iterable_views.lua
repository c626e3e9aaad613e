--- Streams made from other streams: results of data.IterableDataset's helpers. By `derived` and `chain` workers make
--- them again, when source and functions can be sent.
local check = require "accel.util.check"
local collate = require "accel.data.collate"
local IterableDataset = require "accel.data.iterable_dataset"
local raise = require "accel.util.raise"
local stream = require "accel.data.stream"
local worker_spec = require "accel.data.worker_spec"

local M = {}

-- kind -> make(step, ...), which returns the iterator function of a pass.
local makers = {}

function makers.map(step, fn)
  local i = 0
  return function()
    local sample = step()
    if sample == nil then return nil end
    i = i + 1
    local mapped = fn(sample, i)
    if mapped == nil then raise("IterableDataset:map: the function returned nil for sample %d", i) end
    return mapped
  end
end

function makers.filter(step, fn)
  local i = 0
  return function()
    while true do
      local sample = step()
      i = i + 1
      if sample == nil or fn(sample, i) then return sample end
    end
  end
end

function makers.batch(step, gather, n, drop_last)
  return stream.batches(step, n, drop_last, gather or collate.default_collate)
end

function makers.take(step, _, n)
  return function()
    n = n - 1
    if n >= 0 then return step() end
  end
end

function makers.skip(step, _, n)
  return function()
    while n > 0 do
      n = n - 1
      if step() == nil then
        n = 0
        return nil
      end
    end
    return step()
  end
end

local Derived = IterableDataset:extend("accel.data.IterableDataset")

function Derived:init(source, kind, fn, ...)
  self.source, self.kind, self.given, self.rest = source, kind, fn, { ... }
  local what = kind == "batch" and "collate_fn" or "the function"
  self.fn = fn ~= nil and worker_spec.callable("IterableDataset:" .. kind, what, fn) or nil
end

function Derived:iterate(epoch, seed)
  local step, closing = stream.begin(self.source, epoch, seed)
  return makers[self.kind](step, self.fn, table.unpack(self.rest)), nil, nil, closing
end

function Derived:worker_spec()
  local args = { self.source, self.kind, self.given, table.unpack(self.rest) }
  args.n = 3 + #self.rest
  return { module = "accel.data.iterable_views:derived", args = args }
end

--- The stream of this kind: map and filter by fn, batch by fn (may be nil) into n with drop_last, take and skip of n.
---@param source table
---@param kind "map"|"filter"|"batch"|"take"|"skip"
---@param fn (function|string)?
---@param ... any
function M.derived(source, kind, fn, ...) return Derived(source, kind, fn, ...) end

local Chain = IterableDataset:extend("accel.data.IterableDataset")

function Chain:init(sources) self.sources = sources end

function Chain:worker_spec() return { module = "accel.data.iterable_views:chain", args = { self.sources } } end

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

--- One stream after the other.
---@param sources table[]
function M.chain(sources)
  for i, source in ipairs(sources) do
    if type(source) ~= "table" or source.iterate == nil then
      raise("IterableDataset:concat: argument %d must have the method iterate, got %s", i - 1, check.shown(source))
    end
  end
  return Chain(sources)
end

return M
