--- accel.accelerator.DataLoader: a loader that was prepared. Every rank gets its part of each global batch. The loader
--- knows which rows are padding, when the last batch is being processed, and the run's position in the data.
--- prepare_data_loader makes it from a data.DataLoader. One class serves indexed data, streams and data that only rank
--- 0 reads.
---
---   for batch in loader() do ... end      -- a pass. The next one has the next epoch's order, even after a break
---   local state = loader:state_dict()     -- in any batch
---   loader:load_state_dict(state)         -- continues with the next one, on any number of ranks
---
--- Batches come from a Source, a table with
---   begin(self, epoch, first, start) -> next, closing   a pass without its first `first` batches, which begin after
---       `start` samples. start is 0 unless the Source sets starts_anywhere
---       next() -> batch, rows, row0, last, over. nil at the end. rows as in accel.data.shards, nil if unknown. row0 is the
---       offset of the first row in the pass over all ranks. last: whether it is this rank's final batch, nil if
---       unknown (then one batch is read ahead). over: whether it is the final one of every rank (default: last)
---   len(self, skipped, epoch, start) -> batches of this rank in a pass, nil if unknown
---   total_batch_size(self), total_length(self)   rows of a global batch and of a pass over all ranks, nil if unknown
---   round(self)     if the Source has it: batches of this rank in a global batch, which is an update then
---   seed            set by the loader. The order is a function of seed and epoch
---   even_batches    if the Source has it, you may set it between passes
---   reads()         if the Source has it: whether this rank reads the data set, whose files are then compared at a resume
---   late_remainder  the remainder is known with the last batch only
local accel = require "accel"
local agree = require "accel.accelerator.agreement"
local batches_ahead = require "accel.data.ahead"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local fingerprint = require "accel.data.fingerprint"
local loop = require "accel.util.loop"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local data_place = require("accel.accelerator.parallelism").data_place
local loader_position = require "accel.accelerator.loader_position"
local to_default_device = require "accel.data.to_default_device"
local raise = require "accel.util.raise"
local spans = require "accel.util.spans"
local stream = require "accel.data.stream"

--- example: local set = accel.data.TensorDataset(accel.arange(3))
---   local loader = accel.Accelerator {}:prepare(accel.data.DataLoader(set, { batch_size = 2 }))
---   for batch in loader() do return batch[1], #loader, loader.remainder end --> { 0, 1 }, 2, 1
---@class accel.accelerator.DataLoader
---@field base accel.data.DataLoader
---@field dataset table
---@field iteration integer epoch of the pass under way, or of the coming one
---@field end_of_dataloader boolean whether the batch handed out last is the last one of its pass
---@field remainder integer rows of the data set in the last global batch, 0 if that is full, -1 if not known
---@field total_batch_size integer? rows of a global batch
---@field total_dataset_length integer? samples of a pass over all ranks
---@field rows table? the known row counts of the last batch: { counts =, valid =, full = }, lists over ranks
---@field row0 integer place of that batch's first row in the pass
---@field gradient_state accel.accelerator.GradientState
local DataLoader = class("accel.accelerator.DataLoader")

-- ---- making one ----

local declared = {
  accelerator = options.none, source = options.none, seed = options.none, device = options.none, non_blocking = false,
  rng_types = options.none, drop_last = options.none,
}

--- The random generators to synchronize before each pass: the requested ones, without "generator" if the sampler has
--- none.
local function generators(base, accelerator, asked)
  local list, sampler = {}, base.batch_sampler and base.batch_sampler.sampler or base.sampler
  local generator = (base.batch_sampler or {}).generator or (sampler or {}).generator
  if accelerator.num_processes > 1 then
    for _, kind in ipairs(asked or {}) do
      if kind ~= "generator" or generator ~= nil then list[#list + 1] = kind end
    end
  end
  return #list > 0 and list or nil, generator
end

--- seed: the value that all ranks agreed on. If it is nil, they agree now. device: batches are moved there. nil leaves
--- them on the device of an unprepared loader.
---@param base accel.data.DataLoader
---@param opts {accelerator: table, source: table, seed: integer?, device: string?, non_blocking: boolean?,
---  rng_types: string[]?, drop_last: boolean?}
function DataLoader:init(base, opts)
  local o = options("accelerator.DataLoader", opts, declared)
  if base == nil or o.accelerator == nil or o.source == nil then
    raise "accelerator.DataLoader: a prepared loader is made by accelerator:prepare; give it an accel.data.DataLoader"
  end
  self.base, self.dataset, self.source, self.gradient_state = base, base.dataset, o.source, o.accelerator.gradient_state
  self.batch_size, self.batch_sampler, self.sampler = base.batch_size, base.batch_sampler, base.sampler
  self.collate_fn, self.device, self.non_blocking = base.collate_fn, o.device, o.non_blocking
  self.drop_last = o.drop_last or base.drop_last or (base.batch_sampler or {}).drop_last or false
  self.rng_types, self.generator = generators(base, o.accelerator, o.rng_types)
  self.num_processes, self.process_index = data_place(o.accelerator)
  self.seed = o.seed or agree(base, o.accelerator, false)
  self.source.seed = self.seed
  self._epoch, self.end_of_dataloader, self.remainder, self._over = base.epoch, false, -1, false
  self.total_batch_size, self.total_dataset_length = o.source:total_batch_size(), o.source:total_length()
  self._position, self._start = 0, 0
  if base.position > 0 then -- the position of a resumed base
    self._position, self._start = loader_position.from_state(self, base:state_dict())
  end
  self._skipped = self._position
end

local function dispatches(base, config, moves, ranks)
  if config.dispatch_batches ~= nil then return config.dispatch_batches end
  local IterableSource = base.stream and require "accel.accelerator.iterable"
  return IterableSource and moves and ranks > 1 and not IterableSource.shards_itself(base.dataset, ranks) or false
end

--- Whether a pass that begins is one of training: a prepared model is in training mode, or there is none yet.
local function trains_of(accelerator)
  local weak = setmetatable({ accelerator }, { __mode = "v" })
  return function()
    local models = weak[1] and weak[1]._prepared.models or {}
    for _, model in ipairs(models) do
      if model.training then return true end
    end
    return #models == 0
  end
end

--- The prepared form of a loader, with the Source that it and the accelerator's dataloader_config ask for.
---@param base accel.data.DataLoader
---@param opts {accelerator: table, device: string?, slice_fn: function?}
---@return accel.accelerator.DataLoader
function DataLoader.prepare(base, opts, ...)
  check.surplus("accelerator.DataLoader.prepare", ...)
  opts = options("accelerator.DataLoader.prepare", opts, { accelerator = options.none, device = options.none, slice_fn = options.none })
  local accelerator = opts.accelerator
  local config = accelerator.dataloader_config
  local ranks, rank, meshed = data_place(accelerator) -- ranks that share a model out read the same
  if meshed and config.dispatch_batches then
    raise "prepare: dispatch_batches = true sends every process a different batch, but ranks that share a model need the same one; \z
      leave it out"
  end
  local dispatched = not meshed and dispatches(base, config, opts.device ~= nil, ranks)
  local micro_batches = accelerator.micro_batches
  if micro_batches and (dispatched or base.stream) then
    raise "prepare: micro_batches needs data with positions; give the loader a data set with len and get, and leave out dispatch_batches"
  end
  local seed = require("accel.accelerator.elastic").together(accelerator, agree, base, accelerator, not dispatched)
  ranks, rank = data_place(accelerator)
  local Source = require("accel.accelerator." .. (dispatched and "dispatch" or base.stream and "iterable" or "indexed"))
  local source = Source(base, {
    num_processes = ranks, process_index = rank, split_batches = config.split_batches,
    even_batches = config.even_batches, peers = meshed or ranks == dist.get_world_size(), slice_fn = dispatched and opts.slice_fn or nil,
    micro_batches = micro_batches, trains = micro_batches and trains_of(accelerator) or nil,
  })
  if dispatched then source.late_remainder = true
  elseif opts.slice_fn then
    no_effect.once("prepare_data_loader", "slice_fn_for_dispatch", "if no process reads for others; set dispatch_batches = true, or leave it out")
  end
  return DataLoader(base, {
    accelerator = accelerator, source = source, seed = seed, device = opts.device, non_blocking = config.non_blocking,
    rng_types = accelerator.rng_types,
  })
end

-- ---- the position ----

--- Ends a pass whose loop was left, before anyone asks for the loader's position.
function DataLoader:_settle()
  local pass = rawget(self, "_pass")
  if pass and pass.watch and loop.left(pass.watch) then pass.finish(false) end
end

function DataLoader.__index(self, key)
  local value = DataLoader[key]
  if value ~= nil then return value end
  if key == 1 then -- as ipairs does
    raise "DataLoader: it cannot be indexed; write `for batch in loader() do`, with the parentheses"
  end
  if key ~= "iteration" then return nil end
  self:_settle()
  return rawget(self, "_epoch")
end

function DataLoader.__newindex(self, key, value)
  if key == "iteration" then return self:set_epoch(value) end
  rawset(self, key, value)
end

local function end_pass(self)
  local pass = self._pass
  self._pass, self._over = nil, false
  if pass then pass.finish(false) end
end

--- Sets the epoch of the coming pass. A running pass of another epoch ends here. Batches skipped or loaded for this
--- very epoch stay skipped.
---@param epoch integer
function DataLoader:set_epoch(epoch)
  self:_settle()
  check.count("DataLoader:set_epoch", "epoch", epoch)
  if epoch == self._epoch then return end
  end_pass(self)
  self._epoch, self._position, self._skipped, self._start, self._restored = epoch, 0, 0, 0, nil
end

--- Leaves out the next n batches of the coming pass: the loader is shorter by n for that pass. A pass under way ends
--- here.
---@param n integer
---@return accel.accelerator.DataLoader self
function DataLoader:skip(n)
  self:_settle()
  check.count("DataLoader:skip", "n", n)
  if self._pass then
    end_pass(self)
    self._epoch, self._position, self._start = self._epoch + 1, 0, 0
  end
  self._position = self._position + n
  self._skipped = self._position
  return self
end

--- Batches of this rank in the pass under way, or in the coming one.
---@return integer
function DataLoader:len()
  self:_settle()
  local n = self.source:len(self._skipped, self._epoch, self._start)
  if not n then raise "DataLoader: the data set does not define len, so the number of batches is not known" end
  return n
end

function DataLoader.__len(self) return self:len() end

--- Whether this rank reads the data set itself.
local function reads(self) return self.source.reads == nil or self.source.reads() end

--- The position in the data, the same on all ranks: the epoch and its number of delivered samples (of all ranks), or
--- batches if these have no common size. After the last batch it is the start of the next epoch.
---@return table
function DataLoader:state_dict()
  self:_settle()
  local epoch, batches, start = self._epoch, self._position, self._start
  if self._over then epoch, batches, start = epoch + 1, 0, 0 end
  local total, state = self.source:total_batch_size(), { epoch = epoch, seed = self.seed }
  state.length = self.source:total_length()
  state.data = reads(self) and fingerprint.of(self.dataset) or nil
  if self.source.native_shards then state.shards, state.batches = self.num_processes, batches
  elseif total then state.samples = start + batches // (self.source.round and self.source:round() or 1) * total
  else state.batches = batches * self.num_processes end
  return state
end

--- Makes the next loader() continue at the position of state_dict, on any number of ranks and with any batch size. For
--- batches of a batch sampler, sharded streams and dispatched data, the position must be a whole number of global
--- batches. A pass under way ends here.
---@param state table
function DataLoader:load_state_dict(state)
  if type(state) ~= "table" or not loader_position.count(state, "epoch") then
    raise "DataLoader: not the state of a loader"
  end
  local batches, start = loader_position.from_state(self, state)
  if (batches > 0 or start > 0) and reads(self) then fingerprint.check(state, self.dataset) end
  local own = (self.batch_sampler or self.sampler or {}).seed
  if own ~= nil and state.seed ~= nil and own ~= state.seed then
    raise("DataLoader: the state is of seed %d, this loader's sampler has %d", state.seed, own)
  end
  end_pass(self)
  self.seed = state.seed or self.seed
  self.source.seed = self.seed
  self._epoch, self._position, self._skipped, self._start = state.epoch, batches, batches, start
end

--- Goes on by the state of a checkpoint. Batches that the coming pass skips count as its first batches, even if the
--- script skips the same number by skip_first_batches.
---@param state table
function DataLoader:_restore(state)
  self:load_state_dict(state)
  self._restored = true
end

--- The world has other ranks: this one has another share. again: the update under way begins again.
---@param ranks integer
---@param rank integer
---@param again boolean
---@param taken integer batches of a pass that does not train which count for nothing
function DataLoader:_regroup(ranks, rank, again, taken)
  self:_settle()
  local source, pass = self.source, self._pass
  local position, skipped = 0, 0
  if source:cuts() then
    local before = source:round()
    local updates = again and (self._position - 1) // before or self._position // before
    skipped = self._skipped // before
    source:regroup(ranks, rank)
    position, skipped = updates * source:round(), skipped * source:round()
  else
    if self._position > taken then -- the rows of all batches that count are the beginning of the pass
      local total, length = source:total_batch_size(), source:total_length()
      if not total or not length then
        raise "DataLoader: ranks were lost inside a pass of batches that have no common size, so its rest cannot be dealt out again; give the \z
          loader a batch_size"
      end
      self._start = math.min(self._start + (self._position - taken) * total, length)
    end
    source:regroup(ranks, rank)
  end
  self.num_processes, self.process_index, self._skipped = ranks, rank, skipped
  if pass then pass.move(position) else self._position = position end
end

-- ---- even batches, padding ----

--- Whether even_batches may be set for this loader.
---@return boolean
function DataLoader:overrides_even_batches() return self.source.even_batches ~= nil end

--- Sets even_batches for the coming passes. Returns the old value.
---@param even boolean
---@return boolean
function DataLoader:set_even_batches(even)
  local was = self.source.even_batches
  if was == nil then raise "set_even_batches: has no effect on a loader over a stream" end
  self.source.even_batches = even
  return was
end

--- Marks the rows of the last batch that are not padding, as a tensor of dtype bool. nil if that is unknown.
---@return accel.Tensor?
function DataLoader:mask()
  local rows, r = self.rows, self.process_index + 1
  if not rows then return nil end
  return accel.arange(rows.counts[r], { device = self.device }):lt(rows.valid[r])
end

-- ---- passes ----

--- Whether a tensor of the batch may lie on another device. Objects other than tables are asked to move each time.
local function elsewhere(x, device)
  if accel.is_tensor(x) then return tostring(x.device) ~= device end
  if type(x) ~= "table" then return false end
  if getmetatable(x) ~= nil then return true end
  for _, value in next, x do
    if elsewhere(value, device) then return true end
  end
  return false
end

local function move(self, batch)
  if not elsewhere(batch, self.device) then return batch end
  local send = require "accel.accelerator.operations".send_to_device
  return send(batch, self.device, { non_blocking = self.non_blocking })
end

--- Calls set_epoch of the samplers and of the data set, if they have it.
local function set_epochs(base, epoch)
  for _, x in ipairs { base.batch_sampler or false, base.sampler or (base.batch_sampler or {}).sampler or false,
    base.dataset } do
    if x and x.set_epoch ~= nil then x:set_epoch(epoch) end
  end
end

--- Rows of the data set in the last global batch.
local function remainder_at_start(self)
  local source = self.source
  self.total_batch_size, self.total_dataset_length = source:total_batch_size(), source:total_length()
  if self.drop_last or source.late_remainder or not self.total_batch_size or not self.total_dataset_length then
    return -1
  end
  return (self.total_dataset_length - self._start) % self.total_batch_size
end

local function sum(list)
  local n = 0
  for _, x in ipairs(list) do n = n + x end
  return n
end

--- Begins a pass at its first batch, not before: a pass that nobody reads changes nothing.
---@param skip? integer batches to leave out in addition
local function new_pass(self, skip)
  local pass, gradient_state = {}, self.gradient_state
  local step, closing, over, exhausted
  local held, h_batch, h_rows, h_row0, h_last, h_over = false, nil, nil, nil, nil, nil
  local device = self.device
  local ahead, reads_ahead -- copies on their way to the device, with non_blocking

  function pass.finish(finished)
    if over then return end
    over = true
    if not step then return end
    local open = closing
    closing, h_batch = nil, nil
    if ahead then ahead:close() end
    ahead = nil
    if self._pass == pass then
      self._pass, self._over = nil, false
      self._epoch, self._position, self._skipped, self._start = self._epoch + 1, 0, 0, 0
    end
    gradient_state:_remove_dataloader(self, finished)
    if gradient_state.random then gradient_state.random:leave() end
    stream.close(open)
  end

  local function start()
    if self._pass then self._pass.finish(false) end
    if skip then
      if self._restored and self._position ~= skip then self._position, self._start = skip, 0
      elseif not self._restored then self:skip(skip) end
    end
    self._restored = nil
    local inside = rawget(self, "_inside")
    self._inside = nil
    if self.rng_types and not inside then
      require "accel.accelerator.random".synchronize_rng_states(self.rng_types, self.generator)
    end
    set_epochs(self.base, self._epoch)
    step, closing = self.source:begin(self._epoch, self._position, self._start)
    ahead = device and self.non_blocking and batches_ahead(device) or nil
    reads_ahead = ahead ~= nil
    self._pass, self._over, self._skipped = pass, false, self._position
    self.end_of_dataloader, self.remainder, self.rows = false, remainder_at_start(self), nil
    gradient_state:_add_dataloader(self)
  end

  local function next_batch()
    if over then
      if exhausted then return nil end
      raise "DataLoader: this pass is over: another one was begun, or the loader was set to another place"
    end
    local elastic = gradient_state.elastic
    if elastic then elastic:before_batch(self) end
    local resume = gradient_state.resume
    if resume then resume:before_batch(self, not step) end
    if not step then
      start()
      pass.watch = loop.watch(pass.step)
    end
    local span = spans.running and spans.begin(spans.LOADER, "enumerate(DataLoader)")
    local batch, rows, row0, last, all_over
    local begun = held
    held = false
    if begun then
      batch, rows, row0, last, all_over = h_batch, h_rows, h_row0, h_last, h_over
    else
      batch, rows, row0, last, all_over = step()
    end
    if batch == nil then
      if span then spans.finish(span) end
      exhausted = true
      pass.finish(true)
      return nil
    end
    if ahead then -- this batch is on its way since the one before was handed out, but for the first
      if not begun then batch = ahead:begin(batch) end
      ahead:join()
    end
    if last == nil or (reads_ahead and not last) then
      held = true
      h_batch, h_rows, h_row0, h_last, h_over = step()
      if last == nil then last = h_batch == nil end
      if ahead and h_batch ~= nil then h_batch = ahead:begin(h_batch) end
    end
    self._position = self._position + 1
    self.rows, self.row0 = rows, row0
    if last then
      self.end_of_dataloader = true
      if rows and self.remainder == -1 and not self.drop_last then self.remainder = sum(rows.valid) end
    end
    if all_over == nil then self._over = last else self._over = all_over end
    batch = device and move(self, batch) or to_default_device(batch)
    if rows then gradient_state:_describe(batch, rows) end
    accel.micro_batch(row0)
    local random = gradient_state.random
    if random and self.source:cuts() then random:enter(self.source:micro_batch(self._position)) end
    if elastic then elastic:handed_out(self, self._position) end
    if span then spans.finish(span) end
    return batch
  end

  --- The pass goes on at another batch, for other ranks: batches that were read ahead are dropped.
  function pass.move(position)
    local open = closing
    closing, held, h_batch = nil, false, nil
    if ahead then ahead:close() end
    stream.close(open)
    step, closing = self.source:begin(self._epoch, position, self._start)
    ahead = reads_ahead and batches_ahead(device) or nil
    self._position, self._over = position, false
    self.end_of_dataloader, self.remainder, self.rows = false, remainder_at_start(self), nil
  end

  pass.step = next_batch
  return loop.iterator(next_batch, function() pass.finish(false) end)
end

--- A pass over this rank's part of the data, to be used as `for batch in loader() do`. Each pass is the next epoch,
--- even if the previous one was left by break. Only one pass can run at a time.
function DataLoader.__call(self, ...)
  if select("#", ...) > 0 then raise "DataLoader: write `for batch in loader() do`, with the parentheses" end
  return new_pass(self)
end

--- A pass without its next n batches, and how many it has, nil if unknown: for skip_first_batches.
function DataLoader:_pass_from(n) return new_pass(self, n) end

function DataLoader:_rest(n)
  self:_settle()
  if self._pass then return self.source:len(n, self._epoch + 1) end
  if self._restored then return self.source:len(n, self._epoch, self._position == n and self._start or 0) end
  return self.source:len(self._skipped + n, self._epoch, self._start)
end

function DataLoader.__tostring(self)
  local n = self.source:len(self._skipped, self._epoch, self._start)
  return ("DataLoader(process %d of %d, %s batches, total_batch_size=%s, epoch=%d)"):format(self.process_index,
    self.num_processes, n or "?", self.total_batch_size or "?", self._epoch)
end

return DataLoader
