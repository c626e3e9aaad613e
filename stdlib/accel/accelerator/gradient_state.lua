--- The position of a training loop: whether gradients are averaged at this step, how many micro-steps make an update, and the
--- prepared loaders whose loops are running. Each Accelerator makes its own, and its wrappers read it. Scripts read it as
--- accelerator.gradient_state, or by accel.GradientState(), a view of the one of the Accelerator made last
--- (gradient_view.lua).
---
--- Loops stand on one stack, whichever Accelerator prepared their loader. All running loops are on one stack, regardless of the
--- Accelerator that prepared their loader. A state is in the innermost loop over one of its loaders. Without one, for example if two
--- Accelerators train on one loader, it is in the innermost loop of the process. Metrics use this as well.
local class = require "accel.util.class"

--- The training loop of one Accelerator, as accelerator.gradient_state.
--- example: local a = accel.Accelerator { gradient_accumulation_steps = 2 } local s, flags = a.gradient_state, {}
---   for k = 1, 4 do a:accumulate(function() flags[k] = s.sync_gradients end) end return flags
---   --> { false, true, false, true }
---@class accel.accelerator.GradientState
---@field sync_gradients boolean whether this micro-step ends an update
---@field step integer micro-steps since the last update that the loader ended
---@field micro_steps integer micro-steps so far
---@field num_steps integer micro-steps of an update, settable
---@field adjust_scheduler boolean accepted: schedules advance by applied updates
---@field sync_with_dataloader boolean the last batch of a loader ends an update
---@field sync_each_batch boolean average gradients at every micro-step
---@field active_dataloader accel.accelerator.DataLoader? the loader of the innermost running loop
---@field dataloader_references accel.accelerator.DataLoader[] the loaders of all running loops, the innermost last
---@field in_dataloader boolean
---@field end_of_dataloader boolean whether the innermost loop handles its last batch
---@field remainder integer rows of the whole data set in its last global batch. -1: unknown, or outside loops
---@field plugin accel.accelerator.GradientAccumulationPlugin which holds the settings
---@field initialized boolean true
local GradientState = class("accel.accelerator.LoopState")

GradientState.is_xla_gradients_synced = false -- there is no XLA

local weak_values, weak_keys = { __mode = "v" }, { __mode = "k" }

-- States by the order in which they were made, and loaders of running loops, outermost first. Both have holes left by
-- collected entries.
local states, n_states = setmetatable({}, weak_values), 0
local loops, n_loops = setmetatable({}, weak_values), 0
local described = setmetatable({}, weak_keys) -- known row counts of batches

---@param plugin table a GradientAccumulationPlugin, which holds the settings: nobody else keeps a copy
function GradientState:init(plugin)
  self.plugin = plugin
  self.sync_gradients, self.step, self.micro_steps = true, 0, 0
  self.stale = false -- the script left a loop inside an update: its accumulated gradients belong to no update
  self._ends = setmetatable({}, weak_values) -- last: the loader whose loop ended last. group: the loader of the update
  local n = 0
  for i = 1, n_states do
    local other = states[i]
    states[i] = nil
    if other then n, states[n + 1] = n + 1, other end
  end
  n_states, states[n + 1] = n + 1, self
end

--- The state of the Accelerator that was made last and is still there, nil without one.
---@return accel.accelerator.GradientState?
function GradientState.current()
  while n_states > 0 and not states[n_states] do n_states = n_states - 1 end
  return states[n_states]
end

--- Forgets the states that were made so far.
function GradientState._reset_state() states, n_states = setmetatable({}, weak_values), 0 end

--- The loader of the innermost loop under way, of any state or of one.
---@param state? accel.accelerator.GradientState
---@return accel.accelerator.DataLoader?
function GradientState.innermost(state)
  local i = n_loops
  while i > 0 do
    local loader = loops[i]
    if not loader then
      if i == n_loops then n_loops = i - 1 end
    elseif not state or loader.gradient_state == state then
      loader:_settle() -- takes itself off if its loop was left
      if loops[i] == loader then return loader end
    end
    i = math.min(i - 1, n_loops)
  end
end
require "accel.data.active".innermost = GradientState.innermost

local innermost = GradientState.innermost

local function active(self) return innermost(self) or innermost() end

local settings = { num_steps = true, adjust_scheduler = true, sync_with_dataloader = true, sync_each_batch = true }

local computed = {
  active_dataloader = active,
  initialized = function() return true end,
  in_dataloader = function(self) return active(self) ~= nil end,
  dataloader_references = function(self)
    local list, last = {}, active(self) -- which settles the stack
    for i = 1, n_loops do
      if loops[i] and loops[i].gradient_state == (last and last.gradient_state) then list[#list + 1] = loops[i] end
    end
    return list
  end,
  end_of_dataloader = function(self)
    local loader = active(self)
    return loader ~= nil and loader.end_of_dataloader
  end,
  remainder = function(self)
    local loader = active(self)
    return loader and loader.remainder or -1
  end,
}

function GradientState.__index(self, key)
  local value = GradientState[key]
  if value ~= nil then return value end
  if settings[key] then return rawget(self, "plugin")[key] end
  local compute = computed[key]
  if compute then return compute(self) end
  return nil
end

function GradientState.__newindex(self, key, value)
  if settings[key] then self.plugin[key] = value else rawset(self, key, value) end
end

--- A loop over `loader` begins.
---@param loader accel.accelerator.DataLoader
function GradientState:_add_dataloader(loader) -- luacheck: ignore self
  n_loops = n_loops + 1
  loops[n_loops] = loader
end

--- A loop over `loader` ended. One that is left by break inside an update takes the update with it: its gradients are
--- dropped when the next one begins, rather than leaking into it.
---@param loader accel.accelerator.DataLoader
---@param finished boolean
function GradientState:_remove_dataloader(loader, finished)
  for i = n_loops, 1, -1 do
    if loops[i] == loader then
      for k = i, n_loops do loops[k] = loops[k + 1] end
      n_loops = n_loops - 1
      break
    end
  end
  self._ends.last = loader
  if not finished and self.sync_with_dataloader and self._ends.group == loader and not self.sync_gradients then
    self.step, self.sync_gradients, self.stale = 0, true, true
  end
end

--- Counts a micro-step and decides whether it ends an update. Returns whether an update was abandoned before.
---@param ends? boolean whether a loader ends the update, as agreed on by ranks of different length
---@return boolean
function GradientState:_count(ends)
  local loader = n_loops > 0 and active(self) or nil
  local stale = self.stale
  self.stale, self.micro_steps = false, self.micro_steps + 1
  self._ends.group = loader
  if self.elastic and self.elastic:leads(loader) then return stale end -- the loader has said what this batch ends
  if ends == nil then ends = self.sync_with_dataloader and loader and loader.end_of_dataloader end
  if ends then
    self.step, self.sync_gradients = 0, true
  else
    self.step = self.step + 1
    self.sync_gradients = self.step % self.num_steps == 0
  end
  return stale
end

--- Stores the known row counts of a batch.
---@param batch any
---@param rows table?
function GradientState:_describe(batch, rows) -- luacheck: ignore self
  if type(batch) == "table" or type(batch) == "userdata" then described[batch] = rows end
end

--- Each rank's rows of a batch, and how many of them are not padding: { counts =, valid =, full = }, lists over ranks
--- from rank 0. Without a batch: of the one that the innermost loop handles, or that the last loop ended with.
---@param batch? any
---@return table? rows
function GradientState:rows(batch)
  if batch ~= nil then return described[batch] end
  local loader = active(self) or self._ends.last
  return loader and loader.rows
end

function GradientState.__tostring(self)
  local text = "GradientState(sync_gradients=%s, step=%d, num_steps=%d, in_dataloader=%s, end_of_dataloader=%s, remainder=%d)"
  return text:format(self.sync_gradients, self.step, self.num_steps, self.in_dataloader, self.end_of_dataloader,
    self.remainder)
end

return GradientState
