--- Streams made from other streams: results of data.IterableDataset's helpers. By `derived` and `chain` workers make
--- them again, when source and functions can be sent.
local check = require "accel.util.check"
local collate = require "accel.data.collate"
local copy_sample = require "accel.data.copy_sample"
local fingerprint = require "accel.data.fingerprint"
local IterableDataset = require "accel.data.iterable_dataset"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Random = require "accel.util.random"
local stream = require "accel.data.stream"
local worker_info = require "accel.data.worker_info"
local worker_spec = require "accel.data.worker_spec"

local M = {}

-- kind -> make(pass, step, ...), which returns the iterator function of a pass. pass: { epoch =, seed =, share = }.
local makers = {}

function makers.map(_, step, fn)
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

function makers.filter(_, step, fn)
  local i = 0
  return function()
    while true do
      local sample = step()
      i = i + 1
      if sample == nil or fn(sample, i) then return sample end
    end
  end
end

function makers.batch(_, step, gather, n, drop_last)
  return stream.batches(step, n, drop_last, gather or collate.default_collate)
end

function makers.take(pass, step, _, n)
  n = pass.share(n)
  return function()
    n = n - 1
    if n >= 0 then return step() end
  end
end

function makers.skip(pass, step, _, n)
  n = pass.share(n)
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

--- A full buffer of samples, from which one is drawn each time and replaced by the next.
function makers.shuffle(pass, step, _, size, seed)
  local random = Random((seed or pass.seed) ~ 0x5b0ff1e, pass.epoch)
  local buffer, ended = {}, false
  return function()
    while not ended and #buffer < size do
      local sample = step()
      ended = sample == nil
      buffer[#buffer + 1] = sample
    end
    local n = #buffer
    if n == 0 then return nil end
    local k = random:below(n) + 1
    local sample = buffer[k]
    buffer[k] = buffer[n]
    buffer[n] = nil
    return sample
  end
end

function makers.columns(_, step, _, names)
  return function()
    local sample = step()
    if sample == nil then return nil end
    local out = {}
    for _, name in ipairs(names) do
      if sample[name] == nil then raise("IterableDataset:select_columns: a sample has no '%s'", name) end
      out[name] = sample[name]
    end
    return out
  end
end

local Derived = IterableDataset:extend("accel.data.IterableDataset")

function Derived:init(source, kind, fn, ...)
  self.source, self.kind, self.given, self.rest = source, kind, fn, table.pack(...)
  self.splits = source.splits -- whether workers share the samples
  local what = kind == "batch" and "collate_fn" or "the function"
  self.fn = fn ~= nil and worker_spec.callable("IterableDataset:" .. kind, what, fn) or nil
end

--- This worker's part of n samples: of a stream that its workers share.
local function share_of(splits)
  local info = splits and worker_info.get_worker_info()
  return function(n)
    if not info then return n end
    return n // info.num_workers + (info.id < n % info.num_workers and 1 or 0)
  end
end

function Derived:iterate(epoch, seed)
  local step, closing = stream.begin(self.source, epoch, seed)
  local pass = { epoch = epoch or 0, seed = seed or 0, share = share_of(self.splits) }
  return makers[self.kind](pass, step, self.fn, table.unpack(self.rest, 1, self.rest.n)), nil, nil, closing
end

function Derived:worker_spec()
  local args = { self.source, self.kind, self.given, table.unpack(self.rest, 1, self.rest.n) }
  args.n = 3 + self.rest.n
  return { module = "accel.data.iterable_views:derived", args = args }
end

function Derived:fingerprint()
  local what = { self.kind }
  for i = 1, self.rest.n do
    local x = self.rest[i]
    what[#what + 1] = type(x) == "table" and table.concat(x, ",") or x ~= nil and tostring(x) or nil
  end
  return fingerprint.over(table.concat(what, " "), self.source)
end

--- The stream of this kind: map and filter by fn, batch by fn (may be nil) into n with drop_last, take and skip of n,
--- shuffle by a buffer of n with a seed, columns by a list of names.
---@param source table
---@param kind "map"|"filter"|"batch"|"take"|"skip"|"shuffle"|"columns"
---@param fn (function|string)?
---@param ... any
function M.derived(source, kind, fn, ...) return Derived(source, kind, fn, ...) end

local Chain = IterableDataset:extend("accel.data.IterableDataset")

function Chain:init(sources)
  self.sources, self.splits = sources, true
  for _, source in ipairs(sources) do self.splits = self.splits and source.splits end
end

function Chain:worker_spec() return { module = "accel.data.iterable_views:chain", args = { self.sources } } end

function Chain:fingerprint() return fingerprint.over("concat", table.unpack(self.sources)) end

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

local Interleaved = IterableDataset:extend("accel.data.IterableDataset")

local FIRST <const>, ALL <const>, ONCE <const> = "first_exhausted", "all_exhausted", "all_exhausted_without_replacement"

local function check_probabilities(p, n, stop)
  local who, total = "IterableDataset:interleave", 0
  if type(p) ~= "table" or #p ~= n then raise("%s: probabilities must be %d numbers, one for each stream", who, n) end
  for k, w in ipairs(p) do
    total = total + check.number(who, ("probability %d"):format(k), w, 0)
    if w == 0 and stop == ALL then
      raise("%s: stream %d has the probability 0, and all_exhausted waits for its end; leave it out, or use another stopping_strategy", who, k)
    end
  end
  if total == 0 or total == math.huge then raise("%s: probabilities must be finite and not all 0", who) end
end

function Interleaved:init(sources, opts)
  self.sources, self.given = sources, opts
  self.o = options("IterableDataset:interleave", opts, {
    probabilities = options.none, seed = options.none, stopping_strategy = FIRST,
  })
  local stop, p = self.o.stopping_strategy, self.o.probabilities
  if stop ~= FIRST and stop ~= ALL and stop ~= ONCE then
    raise("IterableDataset:interleave: stopping_strategy must be %s, %s or %s, got %s", FIRST, ALL, ONCE, check.shown(stop))
  end
  if p ~= nil then
    check_probabilities(p, #sources, stop)
  elseif self.o.seed ~= nil then
    no_effect.once("IterableDataset:interleave", "seed", "without probabilities; leave it out")
  end
  self.splits = true
  for _, source in ipairs(sources) do self.splits = self.splits and source.splits end
end

function Interleaved:worker_spec()
  return { module = "accel.data.iterable_views:interleaved", args = { self.sources, self.given, n = 2 } }
end

function Interleaved:fingerprint()
  local o = self.o
  local what = ("interleave %s %s %s"):format(o.stopping_strategy, table.concat(o.probabilities or {}, ","), o.seed or "")
  return fingerprint.over(what, table.unpack(self.sources))
end

--- Which stream is read next: in turn, or drawn. `over` has those that have ended at least once.
local function chooser(self, epoch, seed, over)
  local n, p, once = #self.sources, self.o.probabilities, self.o.stopping_strategy == ONCE
  local at = 0
  if not p then
    return function()
      repeat at = at % n + 1 until not (once and over[at])
      return at
    end
  end
  local random = Random((self.o.seed or seed or 0) ~ 0x1e7ea5e, epoch or 0)
  return function()
    local weights = {}
    for k, w in ipairs(p) do weights[k] = once and over[k] and 0 or w end
    return random:choice(weights)
  end
end

--- One sample of each stream is read ahead, so that the pass ends with the last sample of the stream that ends it, as in Hugging Face's
--- datasets.
function Interleaved:iterate(epoch, seed)
  local n, stop, p = #self.sources, self.o.stopping_strategy, self.o.probabilities
  local steps, closings, ahead, over, left = {}, {}, {}, {}, 0
  local function close(k)
    local open = closings[k]
    closings[k] = nil -- first, so that it is closed once only
    stream.close(open)
  end
  local function begin(k)
    close(k)
    steps[k], closings[k] = stream.begin(self.sources[k], epoch, seed)
    ahead[k] = nil
  end
  for k = 1, n do
    begin(k)
    if not p or p[k] > 0 then left = left + 1 end -- others are never read
  end
  local choose, ended = chooser(self, epoch, seed, over), false
  local closing = setmetatable({}, { __close = function()
    for k = 1, n do close(k) end
  end })
  return function()
    while left > 0 and not ended do
      local k = choose()
      local sample = ahead[k]
      if sample == nil then sample = steps[k]() end
      ahead[k] = steps[k]()
      if ahead[k] == nil then
        ended = stop == FIRST
        if not over[k] then over[k], left = true, left - 1 end
        if stop == ALL and left > 0 then begin(k) end
      end
      if sample ~= nil then return sample end
    end
  end, nil, nil, closing
end

--- Samples of several streams in turn, or drawn with probabilities.
---@param sources table[]
---@param opts? table
function M.interleaved(sources, opts) return Interleaved(sources, opts) end

local Cached = IterableDataset:extend("accel.data.IterableDataset")

function Cached:init(source) self.source, self.splits = source, source.splits end

function Cached:worker_spec() return { module = "accel.data.iterable_views:cached", args = { self.source } } end

function Cached:fingerprint() return fingerprint.of(self.source) end

function Cached:iterate(epoch, seed)
  local kept, i = self.kept, 0
  if kept then
    return function()
      i = i + 1
      return copy_sample(kept[i])
    end
  end
  local step, closing = stream.begin(self.source, epoch, seed)
  kept = {}
  return function()
    local sample = step()
    if sample == nil then self.kept = kept else kept[#kept + 1] = copy_sample(sample) end
    return sample
  end, nil, nil, closing
end

--- The stream, which is read once and kept in memory.
---@param source table
function M.cached(source) return Cached(source) end

return M
