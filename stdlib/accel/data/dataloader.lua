--- data.DataLoader(dataset, {batch_size=, shuffle=, sampler=, batch_sampler=, drop_last=, seed=, collate_fn=}),
--- or one table with `dataset` in it: batches in an order that depends on (seed, epoch) alone.
---
---   for batch in loader() do local x, y = batch[1], batch[2] ... end
---
--- Each loader() is a pass; the next one has the next epoch's order, also when this one was left by break.
--- state_dict tells the place inside a pass, so that a resumed run continues with the very next batch.
local check = require "accel.util.check"
local class = require "accel.util.class"
local fetch = require "accel.data.fetch"
local loop = require "accel.util.loop"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local samplers = require "accel.data.samplers"
local stream = require "accel.data.stream"

--- batch_size = false hands out samples as they are, one by one. The order is the data set's, a random one
--- (shuffle), or a sampler's; a batch_sampler makes the batches as well.
--- example: local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.arange(5)), { batch_size = 2 })
---   local sizes = {} for batch in loader() do sizes[#sizes + 1] = batch[1].shape[1] end return sizes --> { 2, 2, 1 }
--- example: local set = accel.data.ListDataset { 5, 6, 7 }
---   local sampler = accel.data.WeightedRandomSampler({ 0, 1, 0 }, 2)
---   local loader = accel.data.DataLoader(set, { sampler = sampler, batch_size = 2 })
---   for batch in loader() do return batch end --> { 6, 6 }
---@class accel.data.DataLoader
---@field epoch integer
---@field position integer batches of the pass that were handed out
---@field seed integer
---@field seed_given boolean by the loader's options or the sampler
local DataLoader = class("accel.data.DataLoader")

--- Ends a pass whose loop was left.
local function settle(self)
  local pass = rawget(self, "_pass")
  if pass and pass.watch and loop.left(pass.watch) then pass.finish() end
end

--- Where a loader is, epoch and position, is told after a pass that was left is over.
local places = { epoch = "_epoch", position = "_position" }

function DataLoader.__index(self, key)
  local value = DataLoader[key]
  if value ~= nil then return value end
  if key == 1 then -- as ipairs does
    raise "DataLoader: has no positions; write `for batch in loader() do`, with the brackets"
  end
  local place = places[key]
  if not place then return nil end
  settle(self)
  return rawget(self, place)
end

function DataLoader.__newindex(self, key, value) rawset(self, places[key] or key, value) end

local function is_stream(x) return type(x) == "table" and x.iterate ~= nil end

local function is_dataset(x)
  if type(x) ~= "table" then return false end
  return is_stream(x) or x.len ~= nil and (x.get ~= nil or x.get_batch ~= nil)
end

--- Raises if `given` has one of the options that `because` makes meaningless.
local function refuse(given, because, ...)
  for _, key in ipairs { ... } do
    if given[key] ~= nil and given[key] ~= false then raise("DataLoader: %s; leave out '%s'", because, key) end
  end
end

local function check_sampler(name, sampler)
  if not samplers.Sampler.is(sampler) then
    raise("DataLoader: %s must have the methods len and order, got %s", name, check.shown(sampler))
  end
  return sampler
end

--- The seed in use, the loader's or the sampler's (two that differ are a mistake), and whether it was given.
local function seed_of(o, sampler)
  local given, own = o.seed, sampler and sampler.seed
  if given ~= nil then check.integer("DataLoader", "seed", given) end
  if given ~= nil and own ~= nil and given ~= own then
    raise("DataLoader: seed is %d, but the sampler has its own, %d", given, own)
  end
  return own or given or 0, (own or given) ~= nil
end

---@param dataset table a data set, or the options with `dataset` among them
---@param opts? table batch_size, shuffle, sampler, batch_sampler, drop_last, seed, collate_fn
function DataLoader:init(dataset, opts)
  local positional = opts ~= nil or is_dataset(dataset)
  local given = positional and opts or not positional and dataset or nil
  local o = options("DataLoader", given, {
    dataset = options.none, batch_size = options.none, shuffle = false, drop_last = false,
    seed = options.none, sampler = options.none, batch_sampler = options.none, collate_fn = options.none,
  })
  if not positional then
    dataset = o.dataset
  elseif o.dataset ~= nil then
    raise "DataLoader: two data sets, one before the options and one in them"
  end
  if not is_dataset(dataset) then
    raise("DataLoader: dataset must have the methods len and get (or get_batch), or iterate, got %s",
      check.shown(dataset))
  end
  self.stream = is_stream(dataset)
  if self.stream then
    refuse(o, "an IterableDataset comes in its own order", "shuffle", "sampler", "batch_sampler")
  end
  if o.batch_sampler ~= nil then
    refuse(o, "batch_sampler makes the batches", "shuffle", "sampler", "drop_last")
    if o.batch_size ~= nil then raise "DataLoader: batch_sampler makes the batches; leave out 'batch_size'" end
    self.batch_sampler = check_sampler("batch_sampler", o.batch_sampler)
  else
    if o.sampler ~= nil then refuse(o, "sampler gives the order", "shuffle") end
    self.batch_size = o.batch_size ~= false
      and check.positive("DataLoader", "batch_size", o.batch_size == nil and 1 or o.batch_size)
    if not self.batch_size then refuse(o, "batch_size = false makes no batches", "drop_last", "collate_fn") end
    if not self.stream then
      self.sampler = o.sampler ~= nil and check_sampler("sampler", o.sampler)
        or (o.shuffle and samplers.RandomSampler or samplers.SequentialSampler)(dataset)
    end
  end
  if o.collate_fn ~= nil then check.callable("DataLoader", "collate_fn", o.collate_fn) end
  if (o.collate_fn or self.batch_size == false) and not (dataset.get or self.stream) then
    raise("DataLoader: %s needs a data set with the method get; this one has get_batch only",
      o.collate_fn and "collate_fn" or "batch_size = false")
  end
  self.dataset, self.shuffle, self.drop_last, self.collate_fn = dataset, o.shuffle, o.drop_last, o.collate_fn
  self.seed, self.seed_given = seed_of(o, self.batch_sampler or self.sampler)
  self.epoch, self.position = 0, 0
end

--- Samples in a pass; nil when the data set, a stream, cannot tell.
local function count_samples(self)
  if self.sampler then return self.sampler:len() end
  return self.dataset.len and self.dataset:len()
end

local function count_batches(self, n)
  local size = self.batch_size or 1
  return self.drop_last and n // size or -(-n // size)
end

--- Batches in a pass.
---@return integer
function DataLoader:len()
  if self.batch_sampler then return self.batch_sampler:len() end
  local n = count_samples(self)
  if not n then raise "DataLoader: the data set does not define len, so the number of batches is not known" end
  return count_batches(self, n)
end

function DataLoader.__len(self) return self:len() end

function DataLoader.__tostring(self)
  local n = not self.batch_sampler and count_samples(self)
  if self.batch_sampler then
    return ("DataLoader(batch_sampler, %d batches)"):format(self.batch_sampler:len())
  end
  return ("DataLoader(%s samples, batch_size=%s, shuffle=%s, drop_last=%s, %s batches)"):format(n or "?",
    self.batch_size, self.shuffle, self.drop_last, n and count_batches(self, n) or "?")
end

--- The order of an epoch: positions, or lists of them where a batch_sampler makes the batches.
---@param epoch? integer default: the coming one
function DataLoader:order(epoch)
  local source = self.batch_sampler or self.sampler
  if not source then raise "DataLoader: an IterableDataset comes in its own order" end
  return source:order(epoch or self.epoch, self.seed)
end

--- Makes the coming pass that of this epoch, from its start; one under way ends here.
---@param epoch integer
function DataLoader:set_epoch(epoch)
  self.epoch, self.position, self._pass = check.count("DataLoader:set_epoch", "epoch", epoch), 0, nil
end

--- The epoch of the pass under way (or coming) and the batches of it that were handed out.
function DataLoader:state_dict()
  return { epoch = self.epoch, position = self.position, seed = self.seed, batch_size = self.batch_size }
end

--- Makes the next loader() continue where state_dict was called; a pass under way ends here.
function DataLoader:load_state_dict(state)
  if type(state) ~= "table" or math.type(state.epoch) ~= "integer" or math.type(state.position) ~= "integer" then
    raise "DataLoader: not the state of a loader"
  end
  if state.position > 0 and state.batch_size ~= nil and state.batch_size ~= self.batch_size then
    raise("DataLoader: the state stands %d batches of %s inside a pass, batch_size is %s here; use the same, "
      .. "or set_epoch(%d) to begin the pass anew", state.position, tostring(state.batch_size),
      tostring(self.batch_size), state.epoch)
  end
  local own = (self.batch_sampler or self.sampler or {}).seed
  if own ~= nil and state.seed ~= nil and own ~= state.seed then
    raise("DataLoader: the state is of seed %d, this loader's sampler has %d", state.seed, own)
  end
  self.epoch, self.position, self.seed = state.epoch, state.position, state.seed or self.seed
  self._pass = nil
end

-- ---- passes ----
-- A pass is a function fetch(k) that returns batch k (from 0; k only grows by one), nil after the last, and a
-- value to close.

local function indexed_pass(self)
  local order, size = self:order(), self.batch_size
  if self.batch_sampler then
    return function(k) return order[k + 1] and fetch.batch(self.dataset, order[k + 1], self.collate_fn) end
  elseif not size then
    return function(k) return order[k + 1] and fetch.sample(self.dataset, order[k + 1]) end
  end
  local n = count_batches(self, #order)
  return function(k)
    if k >= n then return nil end
    local positions = table.move(order, k * size + 1, math.min((k + 1) * size, #order), 1, {})
    return fetch.batch(self.dataset, positions, self.collate_fn)
  end
end

local function stream_pass(self)
  local step, closing = stream.begin(self.dataset, self.epoch, self.seed)
  local size = self.batch_size
  local gather = self.collate_fn or require("accel.data.collate").default_collate
  local read = size and stream.batches(step, size, self.drop_last, gather) or step
  local dropped = self.position * (size or 1)
  return function()
    while dropped > 0 do
      dropped = step() ~= nil and dropped - 1 or 0
    end
    return read()
  end, closing
end

--- A pass over the data. A `for` that got the loader itself calls it with its two control values, each round
--- anew, which would begin a pass in every round.
function DataLoader.__call(self, ...)
  if select("#", ...) > 0 then raise "DataLoader: write `for batch in loader() do`, with the brackets" end
  settle(self)
  local pass = {}
  local next_of, closing = (self.stream and stream_pass or indexed_pass)(self)
  self._pass = pass
  local function finish()
    local open = closing
    closing = nil
    if self._pass == pass then
      self._pass, self._epoch, self._position = nil, self._epoch + 1, 0
    end
    stream.close(open)
  end
  pass.finish = finish
  local function next_batch()
    if pass.watch == nil then pass.watch = loop.watch(pass.step) end
    if self._pass ~= pass then
      if pass.done then return nil end
      raise "DataLoader: this pass is over: another one was begun, or the loader was set to another place"
    end
    local batch = next_of(self._position)
    if batch == nil then
      pass.done = true
      finish()
      return nil
    end
    self._position = self._position + 1
    return batch
  end
  pass.step = next_batch
  return loop.iterator(next_batch, finish)
end

return DataLoader
