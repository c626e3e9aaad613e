--- GradientState: where a training loop stands. Whether gradients are averaged at this step, how many micro-steps make an
--- update, and the prepared loaders whose loops are under way. One belongs to each Accelerator; its wrappers read it.
local class = require "accel.util.class"

--- example: local a = accel.Accelerator { gradient_accumulation_steps = 2 } local s, flags = a.gradient_state, {}
---   for k = 1, 4 do a:accumulate(function() flags[k] = s.sync_gradients end) end return flags
---   --> { false, true, false, true }
---@class accel.accelerator.GradientState
---@field sync_gradients boolean whether this micro-step ends an update
---@field step integer micro-steps since the last update that the loader ended
---@field num_steps integer micro-steps of an update; settable
---@field sync_with_dataloader boolean the last batch of a loader ends an update
---@field sync_each_batch boolean average gradients at every micro-step
---@field active_dataloader accel.accelerator.DataLoader? that of the innermost loop under way
---@field in_dataloader boolean
---@field end_of_dataloader boolean whether the innermost loop handles its last batch
---@field remainder integer rows of the whole data set in its last global batch; -1: not known, or outside of loops
local GradientState = class("accel.accelerator.GradientState")

local weak_values, weak_keys = { __mode = "v" }, { __mode = "k" }
local latest = setmetatable({}, weak_values)

---@param plugin table a GradientAccumulationPlugin, which holds the settings: nobody else keeps a copy
function GradientState:init(plugin)
  self.plugin = plugin
  self.sync_gradients, self.step = true, 0
  self.stale = false -- a loop was left inside an update: what was accumulated belongs to nothing
  self._loaders = setmetatable({}, weak_values) -- outermost first; holes where one was collected
  self._n = 0
  self._ends = setmetatable({}, weak_values) -- last: the loader whose loop ended last; group: that of the update
  self._rows = setmetatable({}, weak_keys)
  latest[1] = self
end

--- The state of the Accelerator that was made last, nil without one.
---@return accel.accelerator.GradientState?
function GradientState.current() return latest[1] end

--- Forgets the state of the Accelerator made last.
function GradientState._reset_state() latest[1] = nil end

local function innermost(self)
  local loaders = self._loaders
  while self._n > 0 do
    local loader = loaders[self._n]
    if loader then
      loader:_settle() -- takes itself off if its loop was left
      if loaders[self._n] == loader then return loader end
    else
      self._n = self._n - 1
    end
  end
end

local settings = { num_steps = true, adjust_scheduler = true, sync_with_dataloader = true, sync_each_batch = true }

local computed = {
  active_dataloader = innermost,
  in_dataloader = function(self) return innermost(self) ~= nil end,
  end_of_dataloader = function(self)
    local loader = innermost(self)
    return loader ~= nil and loader.end_of_dataloader
  end,
  remainder = function(self)
    local loader = innermost(self)
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
function GradientState:_add_dataloader(loader)
  self._n = self._n + 1
  self._loaders[self._n] = loader
end

--- A loop over `loader` ended. One that is left by break inside an update takes the update with it: its gradients are
--- dropped when the next one begins, rather than leaking into it.
---@param loader accel.accelerator.DataLoader
---@param finished boolean
function GradientState:_remove_dataloader(loader, finished)
  for i = self._n, 1, -1 do
    if self._loaders[i] == loader then
      for k = i, self._n do self._loaders[k] = self._loaders[k + 1] end
      self._n = self._n - 1
      break
    end
  end
  self._ends.last = loader
  if not finished and self.sync_with_dataloader and self._ends.group == loader and not self.sync_gradients then
    self.step, self.sync_gradients, self.stale = 0, true, true
  end
end

--- Counts a micro-step and decides whether it ends an update. Returns whether an update was abandoned before.
---@param ends? boolean what ranks that may part agreed on: whether a loader ends the update
---@return boolean
function GradientState:_count(ends)
  local loader = self._n > 0 and innermost(self) or nil
  local stale = self.stale
  self.stale = false
  self._ends.group = loader
  if ends == nil then ends = self.sync_with_dataloader and loader and loader.end_of_dataloader end
  if ends then
    self.step, self.sync_gradients = 0, true
  else
    self.step = self.step + 1
    self.sync_gradients = self.step % self.num_steps == 0
  end
  return stale
end

--- Remembers what is known of a batch.
---@param batch any
---@param rows table?
function GradientState:_describe(batch, rows)
  if type(batch) == "table" or type(batch) == "userdata" then self._rows[batch] = rows end
end

--- How many rows every rank has of a batch, and how many of these are no padding: { counts =, valid =, full = }, lists
--- over ranks from rank 0. Without a batch: of the one that the innermost loop handles, or that the last loop ended with.
---@param batch? any
---@return table? rows
function GradientState:rows(batch)
  if batch ~= nil then return self._rows[batch] end
  local loader = innermost(self) or self._ends.last
  return loader and loader.rows
end

function GradientState.__tostring(self)
  local text = "GradientState(sync_gradients=%s, step=%d, num_steps=%d, in_dataloader=%s, end_of_dataloader=%s, remainder=%d)"
  return text:format(self.sync_gradients, self.step, self.num_steps, self.in_dataloader, self.end_of_dataloader,
    self.remainder)
end

return GradientState
