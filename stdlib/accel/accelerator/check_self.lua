--- The error of a method that was called with a dot, as in Python: `accelerator.prepare(model)` passes the model as
--- self. For methods that would do something else then, or nothing, instead of failing.
local raise = require "accel.util.raise"

--- Raises unless self is an Accelerator, or a state of the process.
---@param self any
---@param name string of the method
return function(self, name)
  if type(self) == "table" and self.num_processes ~= nil then return end
  raise("%s: write accelerator:%s(...), with a colon", name, name)
end
