--- A rank that joins an elastic job: up to its first batch of training it runs the script alone, then it takes the state of the job from
--- the memory of a member. Used by elastic.lua. Nothing is read from a disk.
---
--- The members wait between two updates, where no gradient is pending. The lowest rank that has the state sends it: what save_state would
--- write, with the position in the data, and the counters of the loop. The new rank compares it with its own objects as load_state does,
--- and changes nothing before all has come. If the sender is lost, the next member sends. If the new rank is lost, or if its script made
--- other objects, the members continue without it.
local accel = require "accel"
local ckpt_content = require "accel.accelerator.checkpoint_content"
local class = require "accel.util.class"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local loading = require "accel.accelerator.checkpoint_load"
local raise = require "accel.util.raise"

local M = {}

-- Alone ------------------------------------------------------------------------------------------

-- Methods whose collectives every rank makes alike. Alone they return at once.
local PREPARING <const> = { "prepare", "prepare_model", "prepare_optimizer", "prepare_scheduler", "prepare_data_loader" }

local depth = 0

--- The accelerator of a rank that runs the script alone.
---@param accelerator accel.Accelerator
---@param elastic accel.accelerator.Elastic
function M.observe(accelerator, elastic)
  local core = elastic.core
  local function alone(fn, ...)
    depth = depth + 1
    core.preamble(true)
    local _ <close> = guard(function()
      depth = depth - 1
      if depth == 0 then core.preamble(false) end
    end)
    return fn(...)
  end
  elastic.transaction.alone = alone
  for _, name in ipairs(PREPARING) do
    local method = accelerator[name]
    rawset(accelerator, name, function(...) return alone(method, ...) end)
  end
end

--- It is a member from now on.
---@param accelerator accel.Accelerator
---@param elastic accel.accelerator.Elastic
function M.observed(accelerator, elastic)
  elastic.transaction.alone = nil
  for _, name in ipairs(PREPARING) do rawset(accelerator, name, nil) end
end

-- The state --------------------------------------------------------------------------------------

local ALL <const> = math.maxinteger -- bytes of a message of plain data, at most

local function place_of(list, x)
  for i, y in ipairs(list) do
    if x == y then return i end
  end
end

--- What a member sends: plain data, and the tensors whose list it has.
local function collect(accelerator, elastic)
  local content = ckpt_content.collect(accelerator, ckpt_content.weights(accelerator, false))
  local list, tensors = {}, {}
  for _, object in ipairs(content.objects) do
    for _, entry in ipairs(object.entries) do
      local t = entry.tensor:detach()
      tensors[#tensors + 1] = t
      list[#list + 1] = { object = object.name, name = entry.name, dtype = t.dtype, shape = table.move(t.shape, 1, #t.shape, 1, {}) }
    end
  end
  local transaction, project = elastic.transaction, accelerator.project_configuration
  local _, random = next(content.own)
  local kept = elastic.tracked
  local tracked = kept and {
    rows = kept.rows, first = kept.first, count = kept.count, names = kept.names, step = kept.step, places = kept.places,
  } or nil
  return {
    record = ckpt_content.record(accelerator, {}), data = content.data, random = random, tensors = list,
    step = transaction.step, done = transaction.done, last_update = transaction.last_update, micro_batches = accelerator.micro_batches,
    loader = place_of(accelerator._prepared.dataloaders, elastic.loader), iteration = project.iteration, tracked = tracked,
    next = accelerator._checkpointing.next,
  }, tensors
end

--- The received state in the form of an open checkpoint, for checkpoint_load.
local Received = class("accel.accelerator.heal.Received")

function Received:init(state, tensors)
  self.manifest = { state = state.record, files = {} }
  self.plain, self.random, self.order, self.list, self.read_from = state.data, state.random, {}, {}, {}
  for i, entry in ipairs(state.tensors) do
    local name = entry.object
    if not self.list[name] then
      self.list[name], self.read_from[name] = {}, {}
      self.order[#self.order + 1] = name
    end
    table.insert(self.list[name], entry)
    self.read_from[name][entry.name] = tensors[i]
  end
end

function Received:objects() return self.order end
function Received:tensors(object) return self.list[object] end
function Received:value(name)
  local value = name:find "^random_states_" and self.random or self.plain[name]
  if value == nil then return nil, name .. " is missing" end
  return value
end
function Received:read(object, name, tensor)
  tensor:copy_(self.read_from[object][name])
  return true
end

-- Members and the new rank -----------------------------------------------------------------------

local function give(accelerator, elastic, rank)
  local _ <close> = accel.no_grad()
  local ok, state, tensors = pcall(collect, accelerator, elastic)
  if ok then ok, state = pcall(accel.encode, state, { max_bytes = ALL }) end
  -- a state that cannot be sent ends the new rank, not the job
  dist.send_object_list({ ok, ok and state or tostring(state) }, rank, { max_bytes = ALL })
  for _, t in ipairs(ok and tensors or {}) do
    if t:numel() > 0 then dist.send(t:contiguous(), rank) end
  end
end

--- Receives the state. Returns it and its bytes.
local function receive(source)
  local _ <close> = accel.no_grad()
  local box, tensors, bytes = { false, false }, {}, 0
  dist.recv_object_list(box, source, { max_bytes = ALL })
  if not box[1] then raise("this rank cannot join the job, whose state cannot be sent: %s", box[2]) end
  local state = accel.decode(box[2], { max_bytes = ALL })
  for i, entry in ipairs(state.tensors) do
    tensors[i] = accel.unscoped(accel.empty, entry.shape, { dtype = entry.dtype, device = "cpu" })
    if tensors[i]:numel() > 0 then dist.recv(tensors[i], source) end
    bytes = bytes + tensors[i]:numel() * tensors[i]:element_size()
  end
  return state, tensors, bytes
end

--- Compares it with what the script has made here, and takes it over.
local function adopt(accelerator, elastic, state, tensors)
  local own, position = accelerator._prepared.dataloaders, elastic.loader
  if state.micro_batches ~= accelerator.micro_batches then
    raise("the job makes updates of %d micro-batches, and this script of %d", state.micro_batches, accelerator.micro_batches)
  end
  if state.loader and own[state.loader] ~= position then
    raise("the job trains on its loader %d, and this script begins with loader %d", state.loader, place_of(own, position))
  end
  state.record.world.num_processes = ALL -- the random state of any rank is that of the sender
  loading.apply(accelerator, loading.check(accelerator, Received(state, tensors), {}))
  local transaction = elastic.transaction
  transaction.step, transaction.done, transaction.last_update = state.step, state.done, state.last_update
  for _, change in ipairs(transaction.changes) do change.step = nil end -- they are of this update
  accelerator.project_configuration.iteration, accelerator._checkpointing.next = state.iteration, state.next
  accelerator._resume.moved = true
  local tracked = elastic.tracked
  if tracked and state.tracked then -- this rank may be the one that continues the runs
    for key, value in accel.pairs(state.tracked) do tracked[key] = value end
  end
  if position._position > 0 then rawset(position, "_inside", true) end -- the others began this pass before
end

--- Gives the state to the ranks of a new generation that lack it. A collective of all its ranks.
---@param accelerator accel.Accelerator
---@param elastic accel.accelerator.Elastic
---@param change table of recover, change or join
function M.run(accelerator, elastic, change)
  local lacks, source = {}, 0
  for _, rank in ipairs(change.healing) do lacks[rank] = true end
  while lacks[source] do source = source + 1 end
  for _, rank in ipairs(change.healing) do
    if change.rank == source then
      give(accelerator, elastic, rank)
    elseif change.rank == rank then
      local began = accel.clock()
      local state, tensors, bytes = receive(source)
      local ok, why = pcall(adopt, accelerator, elastic, state, tensors)
      if not ok then
        raise("a rank of this script cannot join the job, whose state does not fit: %s", (tostring(why):gsub("^[^\n:]*%.lua:%d+: ", "")))
      end
      elastic.core.healed(bytes, accel.clock() - began)
    end
  end
  dist.barrier()
end

return M
