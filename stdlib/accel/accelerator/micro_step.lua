--- The block of a micro-step, accelerator:accumulate(...): whether it is open, the pass and loader it belongs to, and
--- the settings that its end restores. Each Accelerator has a stack, with one more block for each accumulating loop
--- inside another. Used by accumulation.lua.
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.accelerator.MicroStep
---@field is_open boolean
---@field no_sync table? ends the no_sync of models
local MicroStep = class("accel.accelerator.MicroStep")

function MicroStep:init(stack, outer) self.stack, self.outer, self.is_open = stack, outer, false end

--- Begins the block, for a micro-step that does not end its update.
function MicroStep:open(loader, pass) self.is_open, self.loader, self.pass = true, loader, pass end

function MicroStep:close()
  local no_sync = self.no_sync
  self.is_open, self.loader, self.pass, self.no_sync = false, nil, nil, nil
  if self.outer then self.stack.current = self.outer end
  if no_sync then no_sync:close() end
end

MicroStep.__close = MicroStep.close

---@class accel.accelerator.MicroSteps
---@field current accel.accelerator.MicroStep the innermost
local MicroSteps = class("accel.accelerator.MicroSteps")

function MicroSteps:init() self.current = MicroStep(self) end

--- The block of the micro-step that begins. Another block open in the same pass was never closed. A block of an outer
--- loop stays. A block of an abandoned loop, for example in a coroutine, ends.
---@param loader accel.accelerator.DataLoader?
---@param pass table?
---@return accel.accelerator.MicroStep
function MicroSteps:begin(loader, pass)
  local scope = self.current
  if not scope.is_open then return scope end
  if scope.pass ~= pass and scope.pass and rawget(scope.loader, "_pass") == scope.pass then
    self.current = MicroStep(self, scope)
    return self.current
  end
  local same = scope.pass == pass
  scope:close()
  if same then
    raise("accumulate: the block of the previous micro-step is still open; write `local _ <close> = "
      .. "accelerator:accumulate(model)`, which ends it with the round of the loop, or give a function")
  end
  return self.current
end

return MicroSteps
