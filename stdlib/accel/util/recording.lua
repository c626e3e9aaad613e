--- Functions that are being recorded (accel.graph) report the host's part of a step: which objects stepped, and how often.
--- Optimizers and their like ask `running`, which is nil otherwise.
local M = {}

--- Object -> number of steps in the current run. nil: no run.
---@type table<table, integer>?
M.running = nil

--- object made a step.
---@param object table
function M.count(object) M.running[object] = (M.running[object] or 0) + 1 end

--- The current operation cannot be replayed. The reason is a text that continues "... inside of it". Without a run
--- nothing happens.
---@param why string
function M.note(why)
  if M.running then require "accel.graph.core".note(why) end
end

return M
