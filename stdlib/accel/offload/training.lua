--- Tiers of training: the storage of a sharded model's parameters, gradients and optimizer states while they are not in use.
--- One object for each engine (accel.shard.engine), which asks it for the tier of a unit's own part, and for each optimizer
--- that updates the engine's pieces (accel.offload.step does so).
---
---   parameters = "host" | "file"    the own part of every unit. The whole unit is gathered from it around its forward and backward, and
---                                   the units that come next are read meanwhile
---   optimizer  = "host" | "file"    states of the optimizer, and the reduced gradients from the moment they are reduced
---
--- Host memory has a separate pool with its own limit. Optimizers update its tensors in place. Files have no names: a process that is
--- killed leaves nothing. Tensors in files pass through memory piece by piece in a step.
local accel = require "accel"
local check = require "accel.util.check"
local creation = require "accel.offload.creation"
local class = require "accel.util.class"
local core = require "accel.offload.core"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local shard = require "accel.shard.core"
local Tiers = require "accel.offload.tiers"

local unscoped = accel.unscoped
local WHO <const> = "offload"
local WINDOW <const> = 64 << 20

---@class accel.offload.Training
---@field parameters "host"|"file"|nil
---@field optimizer "host"|"file"|nil
---@field slice integer elements that a step brings at a time
local Training = class("accel.offload.Training")

local WORDS <const> = { "host", "file" }

local function tier_of(name, value)
  if value == nil then return nil end
  return check.word(WHO, name, value, WORDS)
end

--- The store of created parameters is the units' (accel.offload.creation), if both use the same place.
local function store_in(tier, folder, what, phantom)
  local store = what == "parameters" and creation.store(tier, folder, phantom)
  if store or tier == "host" then return store end
  return creation.file_in(WHO, what, folder, phantom)
end

local function default_window(device)
  local limit = accel.mem_stats(device).limit_bytes
  return limit > 0 and math.min(WINDOW, limit // 8) or WINDOW
end

---@param o table
---  parameters, optimizer string?: "host" or "file"
---  parameters_folder, optimizer_folder string?: folders of the files
---  host_limit integer = 0: maximum bytes of host memory. 0: no limit
---  slice integer: elements of each tensor that a step brings from files at a time (4 Mi)
---  phantom boolean = false: of a model on the meta device: bytes are counted alone
---  overlap boolean = false: the optimizer's step begins in the backward (accel.offload.overlap). Both must be in host memory
---  delayed_update boolean = false: an update runs during the next forward and backward, which compute with the parameters of the one
---    before (accel.offload.delayed). Only with optimizer = "host"
---  window integer: bytes of memory for tensors in files that scripts use, in addition to one use (64 MiB, at most an eighth
---    of the memory's limit)
function Training:init(o)
  o = options(WHO, o, {
    parameters = options.none, optimizer = options.none, parameters_folder = options.none, optimizer_folder = options.none,
    host_limit = 0, slice = 4 << 20, window = options.none, overlap = false, phantom = false, delayed_update = false,
  })
  self.parameters, self.optimizer = tier_of("parameters", o.parameters), tier_of("optimizer", o.optimizer)
  self.slice = check.positive(WHO, "slice", o.slice)
  self.tiers = Tiers { budget = o.window or default_window(o.phantom and "meta" or "cpu"), host_limit = o.host_limit,
    phantom = o.phantom }
  self.files = {
    parameters = self.parameters == "file" and store_in("file", o.parameters_folder, "parameters", o.phantom) or nil,
    optimizer = self.optimizer == "file" and store_in("file", o.optimizer_folder or o.parameters_folder, "optimizer", o.phantom)
      or nil,
  }
  if self.parameters == "host" and o.host_limit == 0 then self.tiers.host = store_in("host", nil, "parameters", o.phantom) end
  self.leaving = {}
  require "accel.offload.step" -- clipping, which may come before the first step, checks whether it is loaded
  if o.overlap then
    if self.optimizer ~= "host" then raise("%s: overlap updates states in host memory: set optimizer = 'host'", WHO) end
    self.overlap = not o.phantom and require "accel.offload.overlap"() or nil
  end
  if o.delayed_update then
    if self.optimizer ~= "host" or self.parameters or o.overlap then
      raise("%s: delayed_update is of optimizer = 'host' alone, without parameters and overlap", WHO)
    end
    self.apart = true
    self.delayed = not o.phantom and require "accel.offload.delayed"() or nil
  end
end

--- Whether optimizers update a copy of a unit's own part, next to their states: for delayed updates, and on a device with its own
--- memory, since the rule runs on the host. The computing copy is published from it.
---@param device string of the unit
---@return boolean
function Training:apart_from(device)
  return self.apart == true or (self.optimizer ~= nil and self.parameters == nil and device ~= "cpu" and device ~= "meta")
end

--- That copy.
---@param part accel.Tensor
---@return accel.Tensor
function Training:keep_apart(part)
  local own = self:flat(self.optimizer, "optimizer", part.device, part:numel(), part.dtype)
  if self.optimizer == "host" then return own:copy_(part) end
  core.move(true, own, 0, creation.in_memory(part)):wait()
  return own
end

--- A flat tensor on a tier, on the host for any device, since optimizers update it there. For host memory it can be used in place.
function Training:flat(tier, what, device, count, dtype)
  if tier == "host" then return unscoped(core.memory, self.tiers:host_store(), { count }, dtype) end
  return self.tiers:in_file(device == "meta" and "meta" or "cpu", self.files[what], { count }, dtype)
end

-- Parameters -------------------------------------------------------------------------------------

--- Takes a unit's own part to its tier. The result represents it.
---@param unit accel.shard.Unit
---@param own accel.Tensor
---@return accel.Tensor
function Training:keep(unit, own)
  if self.parameters == "host" then
    unit.home = self.tiers:in_host(own.device, { unit.part }, unit.master)
    local at = unscoped(core.home, unit.home)
    at:copy_(own)
    unit.at_home = at
    return at
  end
  unit.home = self:flat("file", "parameters", own.device, unit.part, unit.master)
  core.move(true, unit.home, 0, creation.in_memory(own)):wait()
  return unit.home
end

--- Begins to fetch a unit's own part for gathering, without waiting. A part in host memory of the CPU is there already, and is
--- gathered.
function Training:start(unit)
  local _ <close> = accel.no_grad()
  local on_cpu = unit.device == "cpu" or unit.device == "meta"
  if unit.at_home and on_cpu and unit.size > 1 and not unit.rounds then -- ranks gather it in place
    local whole = unscoped(accel.empty, unit.count, { dtype = unit.dtype, device = unit.device })
    local work = dist.all_gather_into_tensor(whole, unit.at_home, { group = unit.group, async_op = true })
    unit.coming = { whole = whole, work = work }
    return
  end
  local whole = on_cpu and unscoped(core.pages, { unit.count }, unit.dtype, unit.device)
    or unscoped(accel.empty, { unit.count }, { dtype = unit.dtype, device = unit.device })
  local mine = unscoped(whole.narrow, whole, 1, unit.rank * unit.part + 1, unit.part)
  local landing = on_cpu and not unit.rounds and mine or unscoped(core.pages, { unit.part }, unit.master, on_cpu and unit.device or "cpu")
  unit.coming = { whole = whole, mine = mine, landing = landing, read = core.move(false, unit.home, 0, landing) }
end

--- The unit is whole afterwards. A collective if several ranks share it.
function Training:finish(unit)
  local coming = unit.coming
  unit.coming = nil
  local _ <close> = accel.no_grad()
  if coming.work then
    coming.work:wait()
  else
    coming.read:wait()
    if coming.landing ~= coming.mine then
      coming.mine:copy_(coming.landing)
      coming.landing:release()
    end
    if unit.size > 1 then dist.all_gather_into_tensor(coming.whole, coming.mine, { group = unit.group }) end
    coming.mine:release()
  end
  shard.set(unit.flat, coming.whole)
  coming.whole:release() -- the unit keeps its memory, until it is given back
end

-- Gradients --------------------------------------------------------------------------------------

--- Takes the reduced gradient of a unit's own part to its tier. The memory of its accumulation is freed. Pieces of gradients that were
--- reduced before and are still there keep theirs.
---@param unit accel.shard.Unit
---@param all boolean whether every parameter of the unit has a gradient here
---@param last boolean? whether the backward is over
function Training:keep_gradient(unit, all, last)
  if self.delayed then -- the previous update still reads the last gradients
    if unit:has_reduced() then self.delayed:wait() end
    unit.grad_home, unit.grad_other = unit.grad_other, unit.grad_home
  end
  local grad, sum = not unit:has_reduced() and unit.grad_home or nil, unit.sum
  if not grad then
    grad = self:flat(self.optimizer, "optimizer", unit.device, unit.part, unit.master)
    unit.grad_home = unit.grad_home or grad
  end
  if self.optimizer == "host" then
    grad:copy_(sum)
  else
    if sum.dtype ~= unit.master then sum = sum:to(unit.master) end
    while #self.leaving > 0 do table.remove(self.leaving, 1):wait() end -- whose memory stays until it is written
    self.leaving[#self.leaving + 1] = core.move(true, grad, 0, creation.in_memory(sum))
  end
  local views, grads, wired, own = unit.views, unit.grads, unit.wired, unit.sum
  unit.sum, unit.wired = grad, nil
  unit:close_grads()
  -- at once: handles that wait for the collector would hold the gradients of the whole model
  for _, view in ipairs(views) do view:release() end
  if own ~= grads then own:release() end
  if wired and wired ~= grads and wired ~= own then wired:release() end
  grads:release()
  if self.overlap then self.overlap:begin(unit, grad, all, last) end
end

--- Waits for gradients in transfer. The first failed write raises an error.
function Training:settle()
  local leaving, failed, message = self.leaving, false, nil
  self.leaving = {}
  for _, transfer in ipairs(leaving) do
    local ok, err = pcall(transfer.wait, transfer)
    if not ok and not failed then failed, message = true, err end
  end
  if failed then error(message, 0) end
end

--- Bytes moved, as in Tiers:stats, with the files of parameters and of the optimizer. If updates have a separate thread, also
--- update = { busy_seconds, wait_seconds, hidden = the share of their time that no step waited for }.
---@return table
function Training:stats()
  local out, updates = self.tiers:stats(), self.overlap or self.delayed
  if updates then
    local busy, wait = updates.seconds.busy, updates.seconds.wait
    out.update = { busy_seconds = busy, wait_seconds = wait, hidden = busy > 0 and math.max(0, 1 - wait / busy) or 1 }
  end
  out.parameters = self.files.parameters and self.files.parameters:stats()
  out.optimizer = self.files.optimizer and self.files.optimizer:stats()
  for name, store in accel.pairs(self.files) do out[name].used_bytes = store:used() end
  return out
end

return Training
