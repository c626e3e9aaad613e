--- data.DataLoader(dataset, options), or one table with `dataset` in it: batches in an order that depends on (seed,
--- epoch) alone. The order is made by samplers.lua, batches by reader.lua and, in threads, workers.lua.
local accel = require "accel.core"
local check = require "accel.util.check"
local class = require "accel.util.class"
local fetch = require "accel.data.fetch"
local fingerprint = require "accel.data.fingerprint"
local loop = require "accel.util.loop"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local to_default_device = require "accel.data.to_default_device"
local raise = require "accel.util.raise"
local reader = require "accel.data.reader"
local samplers = require "accel.data.samplers"
local spans = require "accel.util.spans"
local stream = require "accel.data.stream"
local worker_spec = require "accel.data.worker_spec"

--- Batches of a data set, in an order that depends on (seed, epoch) alone:
---
---   for batch in loader() do local x, y = batch[1], batch[2] ... end
---
--- Each loader() is a pass. The next one has the next epoch's order, even if this one was left by break. state_dict
--- contains the position inside a pass, so that a resumed run continues with the next batch.
---
--- The order is the data set's, a random one (shuffle), or a sampler's. A batch_sampler also makes the batches. Random
--- numbers drawn while a data set is read (accel.rand, math.random) depend only on (seed, epoch, offset of the sample in
--- the pass), and do not change the script's own random numbers.
---
--- Batches are on the default device: CPU tensors are moved there, with workers and without. Tensors that a data set
--- has on another device stay on it. A prepared loader moves its batches to the accelerator's device.
---
--- num_workers = n reads ahead in n threads, each with a separate Lua state. The data set, collate_fn and worker_init
--- are sent to it by the name of a module, the data set with plain arguments:
---
---   local rows = data.worker_dataset("my.rows", "train.csv") -- my/rows.lua returns a class or a function
---   local loader = data.DataLoader(rows, { num_workers = 4, collate_fn = "my.rows:collate" })
---
--- Batches are returned without copies of their tensors, which must have no history: detach() results computed while
--- gradients are recorded. A batch that is nil is an error, with workers and without.
---
--- example: local set = accel.data.TensorDataset(accel.arange(5))
---   local loader, sizes = accel.data.DataLoader(set, { batch_size = 2 }), {}
---   for batch in loader() do sizes[#sizes + 1] = batch[1].shape[1] end
---   return sizes --> { 2, 2, 1 }
--- example: local set = accel.data.worker_dataset("accel.data.list_dataset", { 5, 6, 7 })
---   local loader, sum = accel.data.DataLoader(set, { num_workers = 2 }), 0
---   for batch in loader() do sum = sum + batch:item() end
---   return sum --> 18
--- example: local set = accel.data.ListDataset { 5, 6, 7 }
---   local sampler = accel.data.WeightedRandomSampler({ 0, 1, 0 }, 2)
---   local loader = accel.data.DataLoader(set, { sampler = sampler, batch_size = 2 })
---   for batch in loader() do return batch end --> { 6, 6 }
---@class accel.data.DataLoader
---@field epoch integer
---@field position integer batches of the pass that were handed out
---@field seed integer
---@field seed_given boolean by the loader's options or the sampler
---@field num_workers integer threads that read ahead. 0: batches are read on request
---@field prefetch_factor integer batches that each worker has in hand
---@field persistent_workers boolean workers stay from one pass to the next
---@field timeout number seconds to wait for a worker's batch. 0: no limit
---@field pin_memory boolean accepted: memory of the CPU needs none
local DataLoader = class("accel.data.DataLoader")

--- Ends a pass whose loop was left.
local function settle(self)
  local pass = rawget(self, "_pass")
  if pass and pass.watch and loop.left(pass.watch) then pass.finish() end
end

--- Ends a pass that another place, or another pass, takes over from.
local function give_up(self)
  local pass = rawget(self, "_pass")
  self._pass = nil
  if pass then pass.finish() end
end

--- epoch and position are read after a pass whose loop was left has been ended.
local fields = { epoch = "_epoch", position = "_position" }

function DataLoader.__index(self, key)
  local value = DataLoader[key]
  if value ~= nil then return value end
  if key == 1 then -- as ipairs does
    raise "DataLoader: it cannot be indexed; write `for batch in loader() do`, with the parentheses"
  end
  local field = fields[key]
  if not field then return nil end
  settle(self)
  return rawget(self, field)
end

function DataLoader.__newindex(self, key, value) rawset(self, fields[key] or key, value) end

local MOST_WORKERS <const> = 256

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

--- A list or a tensor is not a data set. The error names the class that wraps it.
local function expect_dataset(dataset)
  if is_dataset(dataset) then return dataset end
  local wrap = accel.is_tensor(dataset) and "data.TensorDataset(t)"
    or type(dataset) == "table" and rawlen(dataset) > 0 and "data.ListDataset(list)"
  raise("DataLoader: dataset must have the methods len and get (or get_batch), or iterate, got %s%s",
    wrap == "data.ListDataset(list)" and "a list" or check.shown(dataset), wrap and "; wrap it in " .. wrap or "")
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

--- Options for workers. worker_init (worker_init_fn in PyTorch): the name of a function, called with the worker's id.
local function set_workers(self, o, given)
  if o.worker_init ~= nil and o.worker_init_fn ~= nil then
    raise "DataLoader: worker_init and worker_init_fn are two names of one option"
  end
  self.num_workers = check.count("DataLoader", "num_workers", o.num_workers)
  self.prefetch_factor = check.positive("DataLoader", "prefetch_factor", o.prefetch_factor)
  self.timeout = check.number("DataLoader", "timeout", o.timeout, 0)
  self.persistent_workers, self.pin_memory = o.persistent_workers, o.pin_memory
  self.given_collate_fn, self.given_worker_init = o.collate_fn, o.worker_init
  if o.worker_init == nil then self.given_worker_init = o.worker_init_fn end
  no_effect("accel.data.DataLoader", { pin_memory = o.pin_memory })
  if self.num_workers == 0 then
    for _, name in ipairs { "prefetch_factor", "persistent_workers", "timeout", "worker_init", "worker_init_fn" } do
      local value = given and given[name]
      if value and value ~= 0 then no_effect.once("DataLoader", name, "with num_workers = 0; leave it out, or read in workers") end
    end
  end
  if self.num_workers > MOST_WORKERS then
    raise("DataLoader: num_workers must be at most %d, got %d", MOST_WORKERS, self.num_workers)
  end
  if self.given_worker_init ~= nil then worker_spec.callable("DataLoader", "worker_init", self.given_worker_init) end
  if self.num_workers == 0 then return end
  local setup = require("accel.data.workers").describe(self) -- raises for an object that cannot be sent
  if not self.persistent_workers and (worker_spec.has(setup.dataset, "accel.data.iterable_views:cached")
    or worker_spec.has(setup.dataset, "accel.data.column_views:CacheDataset")) then
    no_effect.once("DataLoader", "cache() of the data set", "with workers that end with each pass, and the samples with them; \z
      set persistent_workers = true")
  end
end

---@param dataset table a data set, or the options with `dataset` among them
---@param opts? table
---  dataset table: if it is not the first argument
---  batch_size integer = 1: samples of a batch. false: single samples, without collation
---  shuffle boolean = false: a random order, another one in each epoch
---  sampler accel.data.Sampler: gives the order instead
---  batch_sampler accel.data.BatchSampler: makes the batches as well
---  drop_last boolean = false: leave out a last batch that is not full
---  seed integer = 0: of the order and of random numbers during reading. The sampler's own takes precedence
---  collate_fn function: from a list of samples to a batch. With workers its name, "module" or "module:field"
---    (default: data.default_collate)
---  num_workers integer = 0: threads that read ahead. 0: batches are read on request
---  prefetch_factor integer = 2: batches that each worker has in hand
---  persistent_workers boolean = false: workers stay from one pass to the next
---  worker_init string: the name of a function that each worker calls with its id, from 0
---  worker_init_fn string: PyTorch's name of worker_init
---  timeout number = 0: seconds to wait for a worker's batch. 0: no limit
---  pin_memory boolean = false: true warns, because CPU memory needs no pinning
function DataLoader:init(dataset, opts)
  local positional = opts ~= nil or is_dataset(dataset) or accel.is_tensor(dataset)
    or type(dataset) == "table" and rawlen(dataset) > 0
  local given = positional and opts or not positional and dataset or nil
  local o = options("DataLoader", given, {
    dataset = options.none, batch_size = options.none, shuffle = false, drop_last = false,
    seed = options.none, sampler = options.none, batch_sampler = options.none, collate_fn = options.none,
    num_workers = 0, prefetch_factor = 2, persistent_workers = false, timeout = 0, pin_memory = false,
    worker_init = options.none, worker_init_fn = options.none,
  })
  if not positional then
    dataset = o.dataset
  elseif o.dataset ~= nil then
    raise "DataLoader: two data sets, one before the options and one in them"
  end
  expect_dataset(dataset)
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
  local collate = o.collate_fn ~= nil and worker_spec.callable("DataLoader", "collate_fn", o.collate_fn) or nil
  if (o.collate_fn or self.batch_size == false) and not (dataset.get or self.stream) then
    raise("DataLoader: %s needs a data set with the method get; this one has get_batch only",
      o.collate_fn and "collate_fn" or "batch_size = false")
  end
  self.dataset, self.shuffle, self.drop_last, self.collate_fn = dataset, o.shuffle, o.drop_last, collate
  self.seed, self.seed_given = seed_of(o, self.batch_sampler or self.sampler)
  self.epoch, self.position = 0, 0
  set_workers(self, o, given)
end

--- Samples in a pass. nil if the data set, a stream, has no known length.
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

--- The order of an epoch: positions, or lists of them if a batch_sampler makes the batches.
---@param epoch? integer default: the coming one
function DataLoader:order(epoch, ...)
  check.surplus("DataLoader:order", ...)
  local source = self.batch_sampler or self.sampler
  if not source then raise "DataLoader: an IterableDataset comes in its own order" end
  return source:order(epoch or self.epoch, self.seed)
end

--- Sets the coming pass to this epoch, from its start. A running pass ends here.
---@param epoch integer
function DataLoader:set_epoch(epoch)
  check.count("DataLoader:set_epoch", "epoch", epoch)
  give_up(self)
  self.epoch, self.position = epoch, 0
end

--- The epoch of the pass under way (or coming), the batches of it that were handed out, and which data it reads.
function DataLoader:state_dict()
  return { epoch = self.epoch, position = self.position, seed = self.seed, batch_size = self.batch_size,
    num_workers = self.stream and self.num_workers or nil, data = fingerprint.of(self.dataset) }
end

--- Makes the next loader() continue at the position of state_dict. A running pass ends here. Raises if the state is from the middle of a
--- pass over other data: other files, another length, or other views.
---@param state table result of state_dict()
function DataLoader:load_state_dict(state)
  if type(state) ~= "table" or math.type(state.epoch) ~= "integer" or math.type(state.position) ~= "integer" then
    raise "DataLoader: not the state of a loader"
  end
  if state.position > 0 and state.batch_size ~= nil and state.batch_size ~= self.batch_size then
    raise("DataLoader: the state is %d batches of %s into a pass, but batch_size is %s; use the same, "
      .. "or set_epoch(%d) to begin the pass anew", state.position, tostring(state.batch_size),
      tostring(self.batch_size), state.epoch)
  end
  local workers = self.stream and math.max(1, self.num_workers)
  if workers and state.position > 0 and math.max(1, state.num_workers or 0) ~= workers then
    raise("DataLoader: the state is from a pass over a stream by %d workers, and %d workers read it in another order; "
      .. "use the same num_workers, or set_epoch(%d) to begin the pass anew", state.num_workers or 0, self.num_workers,
      state.epoch)
  end
  if state.position > 0 then fingerprint.check(state, self.dataset) end
  local own = (self.batch_sampler or self.sampler or {}).seed
  if own ~= nil and state.seed ~= nil and own ~= state.seed then
    raise("DataLoader: the state is of seed %d, this loader's sampler has %d", state.seed, own)
  end
  give_up(self)
  self.epoch, self.position, self.seed = state.epoch, state.position, state.seed or self.seed
end

-- ---- passes ----
-- A pass is a function that returns the next batch, nil after the last, and a value to close. It begins at the loader's
-- position.

--- Asks for batch after batch of the order: positions and the offset of the first.
local function feed_of(self, order)
  local size, k = self.batch_size, self.position
  if self.batch_sampler then
    local sample_offset = 0
    for i = 1, math.min(k, #order) do sample_offset = sample_offset + #order[i] end
    return function()
      k = k + 1
      local positions, first = order[k], sample_offset
      if positions then sample_offset = sample_offset + #positions end
      return positions, first
    end
  elseif not size then
    return function()
      k = k + 1
      return order[k] and { order[k] }, k - 1
    end
  end
  local n = count_batches(self, #order)
  return function()
    if k >= n then return nil end
    local first = k * size
    k = k + 1
    return table.move(order, first + 1, math.min(first + size, #order), 1, {}), first
  end
end

local function indexed_pass(self)
  return reader.indexed(self, self.epoch, self.seed, feed_of(self, self:order()),
    { unbatched = not self.batch_sampler and not self.batch_size })
end

local function stream_pass(self)
  local size, left = self.batch_size, self.position
  if self.num_workers > 0 then
    local read, closing = require("accel.data.workers").stream(self, self.epoch, self.seed,
      { size = size or nil, unbatched = not size, drop_last = self.drop_last })
    return function()
      for _ = 1, left do read() end
      left = 0
      return (read())
    end, closing
  end
  local within, step, closing = fetch.begin_stream(self.dataset, self.epoch, self.seed)
  local gather = self.collate_fn or require("accel.data.collate").default_collate
  local read = size and stream.batches(step, size, self.drop_last, gather) or step
  local dropped = left * (size or 1)
  local function next_batch()
    while dropped > 0 do
      dropped = step() ~= nil and dropped - 1 or 0
    end
    return read()
  end
  return function() return within(next_batch) end, closing
end

--- A pass over the data. A `for` that got the loader itself calls it with its two control values, each round
--- anew, which would begin a pass in every round.
function DataLoader.__call(self, ...)
  if select("#", ...) > 0 then raise "DataLoader: write `for batch in loader() do`, with the parentheses" end
  local before = rawget(self, "_pass")
  if before then before.finish() end -- left by break, or waiting in a coroutine: the next pass is the next epoch's
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
    local span = spans.running and spans.begin(spans.LOADER, "enumerate(DataLoader)")
    local batch = next_of()
    if span then spans.finish(span) end
    if batch == nil then
      pass.done = true
      finish()
      return nil
    end
    self._position = self._position + 1
    return to_default_device(batch)
  end
  pass.step = next_batch
  return loop.iterator(next_batch, finish)
end

return DataLoader
