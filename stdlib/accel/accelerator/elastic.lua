--- An elastic job (accel-run --num-machines 1:1): the training loop continues when ranks are lost. Made by the Accelerator.
--- This file leads the loop of an unchanged script: it decides which batch ends an update, which calls do nothing, and
--- which rank gets which micro-batches. accel.elastic.transaction has the phases of an update.
local Transaction = require "accel.elastic.transaction"
local accel = require "accel"
local checkpoint = require "accel.accelerator.checkpoint"
local class = require "accel.util.class"
local calls = require "accel.accelerator.elastic_calls"
local data_place = require("accel.accelerator.parallelism").data_place
local guard = require "accel.util.guard"
local heal = require "accel.accelerator.heal"
local norms = require "accel.nn.batch_norm"
local quota = require "accel.dist.quota"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local state = require "accel.accelerator.state"
local trackers = require "accel.accelerator.elastic_trackers"

---@class accel.accelerator.Elastic : accel.elastic.Owner
---@field transaction accel.elastic.Transaction
---@field loader accel.accelerator.DataLoader? that trains
local Elastic = class("accel.accelerator.Elastic")

local current = setmetatable({}, { __mode = "v" })

local REFUSED <const> = {
  fsdp_plugin = "FSDP", deepspeed_plugin = "DeepSpeed", megatron_lm_plugin = "Megatron-LM", parallelism_config = "a mesh of ranks",
}

local ONE_LOADER <const> = "DataLoader: an elastic job takes all batches of an update from one loader; join the data sets in one, or start it"
  .. " with --num-processes"

--- For the Accelerator's constructor. nil if the job is not elastic.
---@param accelerator accel.Accelerator
---@return accel.accelerator.Elastic?
function Elastic.of(accelerator)
  local core = require "accel.elastic.core"
  if not core.active() then return nil end
  for key, what in accel.pairs(REFUSED) do
    if accelerator[key] then
      raise("Accelerator: an elastic job cannot continue without a rank that holds a part of the model, as with %s; leave out %s, or start it with"
        .. " --num-processes", what, key)
    end
  end
  if current[1] then raise "Accelerator: an elastic job has one Accelerator, which counts its updates; use that one" end
  return Elastic(accelerator, core)
end

---@param accelerator accel.Accelerator
---@param core table accel.elastic.core
function Elastic:init(accelerator, core)
  self.accelerator = setmetatable({ accelerator }, { __mode = "v" })
  self.core, self.transaction = core, Transaction(core, self, accelerator.micro_batches)
  self.callbacks, self.buffers, self.rows = {}, setmetatable({}, { __mode = "k" }), calls.rows()
  self.first, self.share = quota.of(accelerator.micro_batches, accelerator.num_processes, accelerator.process_index)
  self.main = accelerator.is_main_process
  self.observing = core.observes()
  if self.observing then heal.observe(accelerator, self) end
  current[1] = self
  calls.install(self, accelerator)
  trackers.install(self, accelerator)
end

local function models(self) return self.accelerator[1]._prepared.models end

--- A prepared model: its gradients are averaged in a fixed order of buckets, and its buffers stay each rank's own, since both would take
--- collectives that a rank may miss when it begins an update again.
---@param model accel.nn.Module wrapped in DistributedDataParallel
function Elastic:adopt(model)
  model.reducer.rebuilt, model.reducer.transactional = true, true
  model.options.broadcast_buffers = false
end

--- By tensor: the statistics of batch norm, which accel.nn.parallel.batch_statistics changes once per update.
local function counted_of(model)
  local counted = {}
  for module in model:modules() do
    for _, cls in next, norms do
      if class.isinstance(module, cls) then
        for _, b in ipairs(module:buffers()) do counted[b] = true end
      end
    end
  end
  return counted
end

--- The other buffers of the prepared models, as they are when an update begins.
local function note_buffers(self)
  local notes, core = self.buffers, self.core
  for _, model in ipairs(models(self)) do
    local own = notes[model] or { counted = counted_of(model) }
    notes[model] = own
    for name, b in pairs(model:named_buffers()) do
      local version, known = core.version(b), own[name]
      if not own.counted[b] and not (known and known.now == b and known.version == version) then
        own[name] = { now = b, version = version, before = accel.unscoped(b.clone, b) }
      end
    end
  end
end

--- A buffer that a forward has changed would differ after an update that ranks did twice.
local function check_buffers(self)
  for model, own in next, self.buffers do
    for name, b in pairs(model:named_buffers()) do
      local known = own[name]
      if known and (known.now ~= b or known.version ~= self.core.version(b)) and not accel.equal(b, known.before) then
        raise("optimizer:step(): the forward changes the buffer '%s', which an elastic job cannot undo; use batch norm, or --num-processes", name)
      end
    end
  end
end

-- The owner of the transaction -------------------------------------------------------------------

function Elastic:settle()
  for _, model in ipairs(models(self)) do
    local reducer = rawget(model, "reducer")
    if reducer then reducer:recover() end
  end
end

--- The update is dropped on this rank. Its gradients count for nothing until the next batch. again: it begins again.
local function drop(self, again)
  local accelerator = self.accelerator[1]
  accelerator._update:discard(again)
  for _, model in ipairs(models(self)) do
    local reducer = rawget(model, "reducer")
    if reducer then reducer:void_update() end
  end
  local loop = accelerator.gradient_state
  loop.step, loop.sync_gradients = 0, false
end

function Elastic:regroup(change, again, place)
  local accelerator = self.accelerator[1]
  state.refresh()
  if again then trackers.settle(self, false) end
  if accelerator.is_main_process and not self.main then
    self.main = true
    trackers.take_over(self)
  end
  local taken = self.rows.taken
  calls.judge(self.rows, place)
  if again then
    check_buffers(self)
    drop(self, true)
    accelerator.gradient_state.random.again = true
  end
  self.first, self.share = quota.of(accelerator.micro_batches, accelerator.num_processes, accelerator.process_index)
  accelerator.gradient_state.plugin.num_steps = self.share
  for _, model in ipairs(models(self)) do
    local reducer = rawget(model, "reducer")
    if reducer then reducer:regroup() end
  end
  local ranks, rank = data_place(accelerator)
  for _, loader in ipairs(accelerator._prepared.dataloaders) do
    loader:_regroup(ranks, rank, again and loader == self.loader, loader == self.rows.loader and taken or 0)
  end
end

function Elastic:commit()
  check_buffers(self)
  for _, model in ipairs(models(self)) do
    local statistics = rawget(model, "reducer") and model.reducer.statistics
    if statistics then statistics:apply() end
  end
  trackers.settle(self, true)
end

-- The loop ---------------------------------------------------------------------------------------

--- Ranks that joined get the state of the job.
function Elastic:heal(change) heal.run(self.accelerator[1], self, change) end

--- No save is under way any more: a rank that joins has no part in it.
function Elastic:complete_saves()
  local accelerator = self.accelerator[1]
  self.transaction:repeat_call(function() checkpoint.wait_for_save(accelerator) end)
end

--- This rank was asked to leave: nobody waits for it any more.
function Elastic:leave() -- luacheck: ignore self
  os.exit(0, true)
end

--- A rank that runs the script alone has come to its first batch of training.
local function join(self, loader)
  self.observing, self.loader = false, loader
  heal.observed(self.accelerator[1], self)
  self.transaction:join()
end

--- Before a prepared loader hands out a batch.
---@param loader accel.accelerator.DataLoader
function Elastic:before_batch(loader)
  if self.observing and self:leads(loader) then join(self, loader) end
  if self.loader ~= loader then
    if not self:leads(loader) then return end
    if self.transaction.state == "void" then raise(ONE_LOADER) end -- its batches of the update that begins again would be lost
  end
  local accelerator = self.accelerator[1]
  for _, model in ipairs(models(self)) do
    local reducer = rawget(model, "reducer")
    if reducer and reducer.void then reducer:resume_updates() end
  end
  local starts = loader._position % self.share == 0 -- an update
  self.transaction:between(accelerator.gradient_state.sync_gradients, starts, function(change)
    accelerator:_resume_save()
    local random = accel.get_rng_state()
    local _ <close> = guard(function() accel.set_rng_state(random) end) -- an undisturbed run has no such calls
    for _, fn in ipairs(self.callbacks) do
      fn {
        generation = change.generation, step = change.step or self.transaction.step, kind = change.kind, reason = change.reason,
        lost = change.lost, joined = change.joined, machines = 1, num_processes = accelerator.num_processes,
        process_index = accelerator.process_index, process_index_before = change.rank_before >= 0 and change.rank_before or nil,
        seconds = change.seconds, level = "L1",
      }
    end
  end, not loader._over) -- at the end of a pass the script may have calls of its own
end

--- After it: this batch ends the rank's share of an update, or does not, whether the script says accumulate or not.
---@param loader accel.accelerator.DataLoader
---@param place integer of the batch in the pass, from 1
function Elastic:handed_out(loader, place)
  if not loader.source:cuts() then return calls.take(self.rows, loader) end
  local accelerator, at = self.accelerator[1], (place - 1) % self.share + 1
  local loop = accelerator.gradient_state
  if at ~= 1 and self.transaction.state == "open" and self.loader ~= loader then raise(ONE_LOADER) end
  if at == 1 and self.transaction.state == "open" then -- the loop was left inside an update
    drop(self)
    for _, model in ipairs(models(self)) do model.reducer:resume_updates() end
    trackers.settle(self, false)
    self.transaction:abandon()
  end
  if at == 1 then
    note_buffers(self)
    calls.train(self.rows)
  end
  self.at = self.first + at
  loop.step, loop.sync_gradients = at % self.share, at == self.share
  for _, model in ipairs(models(self)) do
    if rawget(model, "reducer") then rawset(model, "require_backward_grad_sync", at == self.share) end
  end
end

--- Whether the loader decides which micro-steps end updates: accumulate does not count then.
---@param loader accel.accelerator.DataLoader?
---@return boolean
function Elastic:leads(loader) return loader ~= nil and loader.source.cuts ~= nil and loader.source:cuts() end -- luacheck: ignore self

-- Calls of the script ----------------------------------------------------------------------------

--- fn(...), which all ranks call, as in prepare. If ranks are lost meanwhile, the others call it again.
---@param accelerator accel.Accelerator of any job
---@param fn function
---@param ... any
---@return any ... results of fn
function Elastic.together(accelerator, fn, ...)
  local elastic = rawget(accelerator, "_elastic")
  if not elastic or elastic.transaction.nested then return fn(...) end
  local args = table.pack(...)
  return elastic.transaction:repeat_call(function() return fn(table.unpack(args, 1, args.n)) end)
end

--- In the loop over a loader that trains: the update under way begins with the script's first call of its first micro-batch.
---@param loader accel.accelerator.DataLoader
function Elastic:open(loader)
  if self.transaction.state ~= "idle" then return end
  self.transaction:begin(self.accelerator[1].step)
  self.loader = loader
end

--- A backward of the accelerator.
---@param fn fun(accelerator: accel.Accelerator, ...)
---@param loss accel.Tensor
---@param opts? table
function Elastic:backward(fn, loss, opts)
  local accelerator, transaction = self.accelerator[1], self.transaction
  local loader = accelerator.gradient_state.active_dataloader
  if not self:leads(loader) then
    raise "backward: an elastic job deals out the batches of a prepared loader; call it inside `for batch in loader() do`, in training mode"
  end
  if recording.running then raise "backward: an elastic job cannot replay recorded steps; leave out accel.graph" end
  if accelerator._prepared:active_join() then
    raise "join_uneven_inputs: an elastic job has updates of micro_batches, which ranks always share; leave it out"
  end
  if #accelerator._prepared.optimizers == 0 then
    raise "backward: an elastic job steps when its ranks have voted, so it needs the optimizer that prepare returns; give it to prepare"
  end
  if not transaction:begin(accelerator.step) then return end
  self.loader = loader
  if loss:numel() == 1 then
    local weight = type(opts) == "table" and opts.weight or 1
    if accel.is_tensor(weight) then weight = weight:item() end
    transaction:note(self.at, loss:item(), weight)
  end
  transaction:run(fn, accelerator, loss, opts)
end

--- Clipping: while nothing is clipped, it returns the last norm, for scripts that print it every time.
---@param fn fun(accelerator: accel.Accelerator, ...): accel.Tensor?
---@param ... any
---@return accel.Tensor
function Elastic:clip(fn, ...)
  local through, norm = self.transaction:run(fn, self.accelerator[1], ...)
  if through and norm then self.norm = accel.unscoped(norm.clone, norm) end
  self.norm = self.norm or accel.unscoped(accel.zeros, {})
  return norm or self.norm
end

--- Before an optimizer steps: gives gradients their last factor and votes. Returns whether to step.
---@return boolean
function Elastic:may_step()
  local accelerator = self.accelerator[1]
  if self.transaction.state == "open" then
    local update = accelerator._update
    local through = self.transaction:run(function()
      for _, optimizer in ipairs(accelerator._prepared.optimizers) do update:finish(optimizer) end
    end)
    if not through then return false end
  end
  return self.transaction:vote()
end

return Elastic
