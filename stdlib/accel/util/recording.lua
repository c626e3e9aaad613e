--- What runs of functions that are to be recorded (accel.graph) tell of the host's part of a step: who stepped, how often.
--- Optimizers and their like ask `running`, which is nil otherwise.
local M = {}

--- Object -> how often it stepped in the run under way; nil: no run.
---@type table<table, integer>?
M.running = nil

--- object made a step.
---@param object table
function M.count(object) M.running[object] = (M.running[object] or 0) + 1 end

--- What is done here cannot be replayed: why, in words that go on "... inside of it". Without a run nothing happens.
---@param why string
function M.note(why)
  if M.running then require "accel.graph.core".note(why) end
end

return M
