--- How many steps of an optimizer were made and how many were left out, for optimizer.lua. Steps of a recorded run (accel.graph) are
--- counted on the device, which decides on them. Only a read of a count waits for it.
local accel = require "accel"
local class = require "accel.util.class"

---@class accel.accelerator.StepCounts
---@field made integer steps on the device, left out or not
---@field latest boolean whether the last step was one of those
local StepCounts = class "accel.accelerator.StepCounts"

function StepCounts:init()
  self.host = { applied = 0, skipped = 0, _in_a_row = 0, step_was_skipped = false }
  self.made, self.latest = 0, false
end

--- The counts that there are, as fields of an optimizer.
StepCounts.names = { applied = true, skipped = true, _in_a_row = true, step_was_skipped = true }

--- A step on the device, skipped if found is not 0. Queued there.
---@param found accel.Tensor f32, one element
function StepCounts:on_device(found)
  local _ <close> = accel.no_grad()
  if not self.left_out then
    self.left_out = accel.unscoped(accel.zeros, {}, { dtype = "f64", device = found.device })
    self.last = accel.unscoped(accel.zeros, {}, { dtype = "f32", device = found.device })
  end
  self.last:copy_(found)
  self.left_out:add_(found:gt(0):to "f64")
  self.made, self.latest = self.made + 1, true
end

--- A step that the host has decided on.
---@param skipped boolean
function StepCounts:on_host(skipped)
  local host = self.host
  if skipped then host.skipped, host._in_a_row = host.skipped + 1, host._in_a_row + 1
  else host.applied, host._in_a_row = host.applied + 1, 0 end
  host.step_was_skipped, self.latest = skipped, false
end

--- Adds the n steps of a replay, on the device (or on the host if the device has made none).
---@param n integer
function StepCounts:replayed(n)
  if self.left_out then self.made, self.latest = self.made + n, true
  else self.host.applied = self.host.applied + n end
end

--- Waits for the device if it has counted steps.
---@param name string
---@return integer|boolean
function StepCounts:get(name)
  local value = self.host[name]
  if self.made == 0 then return value end
  if name == "skipped" then return value + math.tointeger(self.left_out:item()) end
  if name == "applied" then return value + self.made - math.tointeger(self.left_out:item()) end
  if name == "step_was_skipped" and self.latest then return self.last:item() > 0 end
  return value
end

--- Goes on from a count that a checkpoint or another rank has.
---@param name string
---@param value integer|boolean
function StepCounts:set(name, value)
  if self.made > 0 then
    for _, each in ipairs { "applied", "skipped", "step_was_skipped" } do self.host[each] = self:get(each) end
    self.left_out:zero_()
    self.made, self.latest = 0, false
  end
  self.host[name] = value
end

return StepCounts
