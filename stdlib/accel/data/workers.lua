--- The workers of a loader with num_workers > 0: threads that read batches ahead (they run accel.data.worker). Used by
--- accel.data.reader.
---
--- Work goes round: job k of a pass to worker k % n, and its result is taken from there, so that the order is the one
--- without workers, whoever is slow. The order is therefore the same as without workers, even if some are slow. Each
--- worker has prefetch_factor jobs. Tensors are received without a copy. After an error a pass is over. Workers end
--- with the pass, or, with persistent_workers, with the loader.
local accel = require "accel.core"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local worker_spec = require "accel.data.worker_spec"

local worker = accel.worker
local SLICE <const> = 0.1 -- seconds of waiting between two looks at interrupts

---@class accel.data.Workers
---@field n integer
---@field busy boolean a pass is under way
local Workers = class("accel.data.Workers")

-- Closing all at once lets them end side by side.
function Workers.__gc(self) self:close() end

--- The construction of a loader's workers. Raises if its data set or its functions cannot be sent.
---@param base accel.data.DataLoader
---@return table
function Workers.describe(base)
  local who = ("DataLoader: num_workers = %d: "):format(base.num_workers)
  return {
    dataset = worker_spec.pack(base.dataset, who .. "the data set"),
    collate = worker_spec.pack_callable(base.given_collate_fn, who .. "collate_fn"),
    init = worker_spec.pack_callable(base.given_worker_init, who .. "worker_init"),
  }
end

--- reader: the kind of reading: { unbatched = } for positions; { stream = true, size =, unbatched =, drop_last = },
--- with global_batches = true, ranks =, rank =, even = for the global batches of several ranks.
---@param base accel.data.DataLoader
---@param reader table
function Workers:init(base, reader)
  local setup = Workers.describe(base)
  self.handles, self.n, self.reader, self.pass, self.busy = {}, base.num_workers, reader, 0, false
  self.timeout, self.name = base.timeout, worker_spec.name_of(base.dataset)
  setup.num_workers, setup.seed, setup.reader = self.n, base.seed, reader
  for id = 0, self.n - 1 do
    setup.id = id
    self.handles[id + 1] = worker.start("accel.data.worker", setup,
      { name = ("accel-data-%d"):format(id), most = base.prefetch_factor + 4 })
  end
end

--- Ends the threads.
function Workers:close()
  local handles = self.handles
  self.handles, self.closed = {}, true
  worker.close(handles or {})
end

--- Begins a pass and drops the rest of another one.
---@param epoch integer
---@param seed integer
---@param sets_epoch boolean whether set_epoch of the data sets is called
function Workers:begin(epoch, seed, sets_epoch)
  self.pass, self.busy, self.failure = self.pass + 1, true, nil
  local job = { pass = self.pass, begin = true, epoch = epoch, seed = seed, sets_epoch = sets_epoch }
  for id = 0, self.n - 1 do
    self.handles[id + 1]:clear()
    self:send(id, job)
  end
end

--- The end of a pass: persistent workers forget it, others end.
---@param keep boolean
function Workers:over(keep)
  self.busy = false
  if not keep or self.failure or self.closed then return self:close() end
  for _, handle in ipairs(self.handles) do
    handle:clear()
    handle:send { pass = self.pass, over = true }
  end
end

function Workers:send(id, job) self.handles[id + 1]:send(job) end

--- An error object from a worker's report: message, code, worker, position.
local function failed(self, id, text, code, what)
  local head = ("DataLoader: worker %d of %d%s"):format(id, self.n, what)
  local _, err = pcall(accel.process.raise, code or "callback", head)
  err.message = ("%s: %s"):format(err.message, text)
  err.worker = id
  self.failure = err
  return err
end

local function samples(job, result)
  if result.position then return ", sample " .. result.position end
  local positions = job and job.positions
  if not positions then return ", a batch" end
  local n = #positions
  return (", samples %s%s"):format(table.concat(positions, ", ", 1, math.min(n, 8)), n > 8 and ", ..." or "")
end

--- The result of a worker's oldest job. job: for messages. Raises the worker's error.
---@param id integer
---@param job table?
---@return table
function Workers:receive(id, job)
  if self.failure then error(self.failure, 0) end
  local handle, limit = self.handles[id + 1], self.timeout
  local ends = limit > 0 and accel.clock() + limit or math.huge
  while true do
    local wait = limit > 0 and math.max(0, math.min(SLICE, ends - accel.clock())) or SLICE
    local ok, result = handle:receive(wait)
    if ok and result.pass == self.pass then
      if not result.failed then return result end
      local err = failed(self, id, result.failed, result.code, ("%s of %s"):format(samples(job, result), self.name))
      err.position = result.position
      error(err, 0)
    elseif ok == nil then
      error(failed(self, id, result or "it ended by itself", "callback", (" (%s) ended"):format(self.name)), 0)
    elseif not ok and accel.clock() >= ends then
      error(failed(self, id, ("it gave no batch for %g s (timeout)"):format(limit), "timeout",
        ("%s of %s"):format(samples(job, {}), self.name)), 0)
    end
  end
end

-- ---- passes ----

local function same(a, b)
  for _, key in ipairs { "stream", "global_batches", "unbatched", "size", "drop_last", "ranks", "rank", "even" } do
    if a[key] ~= b[key] then return false end
  end
  return true
end

--- Workers for a pass: those that wait since the last one, else new ones.
local function acquire(base, reader)
  local kept = rawget(base, "_workers")
  if kept and not kept.busy and not kept.closed and same(kept.reader, reader) then return kept end
  local workers = Workers(base, reader)
  if base.persistent_workers and not (kept and kept.busy) then base._workers = workers end
  return workers
end

--- The value that ends a pass.
local function closing_of(base, workers)
  local open = true
  return setmetatable({}, { __close = function()
    if not open then return end
    open = false
    workers:over(rawget(base, "_workers") == workers)
  end })
end

--- Batches of the positions that feed() returns, in this order: feed() -> positions, offset of the first, nil at the
--- end. It is asked ahead of the batches. Returns next() -> batch, positions, sample_offset, and the value to close.
---@param base accel.data.DataLoader
---@param epoch integer
---@param seed integer
---@param feed fun(): integer[]?, integer?
---@param o {unbatched: boolean?, sets_epoch: boolean?}
---@return fun(): any, integer[]?, integer?
---@return any closing
function Workers.indexed(base, epoch, seed, feed, o)
  local workers = acquire(base, { unbatched = o.unbatched or false })
  local n, most = workers.n, workers.n * base.prefetch_factor
  local jobs, sent, taken, fed = {}, 0, 0, false
  workers:begin(epoch, seed, o.sets_epoch or false)

  local function fill()
    while not fed and sent - taken < most do
      local positions, sample_offset = feed()
      if positions == nil then
        fed = true
        break
      end
      local job = { pass = workers.pass, positions = positions, sample_offset = sample_offset }
      jobs[sent] = job
      workers:send(sent % n, job)
      sent = sent + 1
    end
  end

  local pass = workers.pass
  return function()
    if workers.pass ~= pass or workers.closed then raise "DataLoader: this pass is over: its workers were given up" end
    fill()
    if taken == sent then return nil end
    local job = jobs[taken]
    local batch = workers:receive(taken % n, job).batch
    jobs[taken] = nil
    taken = taken + 1
    fill()
    return batch, job.positions, job.sample_offset
  end, closing_of(base, workers)
end

--- Batches of a stream: each worker's in turn, until none has more. Returns next() -> batch, own rows, rows left of a
--- global batch, all nil at the end, and the value to close.
---@param base accel.data.DataLoader
---@param epoch integer
---@param seed integer
---@param reader table as for Workers(...)
---@param sets_epoch? boolean
---@return fun(): any, integer?, integer?
---@return any closing
function Workers.stream(base, epoch, seed, reader, sets_epoch)
  reader.stream = true
  local workers = acquire(base, reader)
  workers:begin(epoch, seed, sets_epoch or false)
  local pass, job, active, at = workers.pass, { pass = workers.pass }, {}, 1
  for id = 0, workers.n - 1 do
    active[id + 1] = id
    for _ = 1, base.prefetch_factor do workers:send(id, job) end
  end
  return function()
    if workers.pass ~= pass or workers.closed then raise "DataLoader: this pass is over: its workers were given up" end
    while #active > 0 do
      if at > #active then at = 1 end
      local id = active[at]
      local result = workers:receive(id)
      if not result.ended then
        workers:send(id, job)
        at = at + 1
        return result.batch, result.own, result.left
      end
      table.remove(active, at)
    end
    return nil
  end, closing_of(base, workers)
end

return Workers
