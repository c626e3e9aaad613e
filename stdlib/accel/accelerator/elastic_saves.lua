--- Checkpoints of an elastic job. save_state is a call that the ranks that are left make again (elastic_calls.lua), with a folder of their own:
--- the older checkpoint stays until the new one is complete. A save that runs beside training (asynchronous) is lost with any rank
--- that writes a part of it, and begins again before the next update, with the state that the run has then.
local accel = require "accel"
local dist = require "accel.dist"

local M = {}

--- The counters of automatic names, and the save under way. Returns a function that brings them back, for a save that begins again.
---@param accelerator accel.Accelerator
---@return fun()
function M.remember(accelerator)
  local project, kept = accelerator.project_configuration, accelerator._checkpointing
  local iteration, number, pending = project.iteration, kept.next, kept.pending
  return function() project.iteration, kept.next, kept.pending = iteration, number, pending end
end

--- Whether a save of lost ranks is complete. Part 0 alone knows, since it commits. A collective.
local function is_complete(pending)
  local mine = pending.part == 0 and pending.save:done() and pending.save:wait(0) and 1 or 0
  local t = accel.tensor({ mine }, { dtype = "i64", device = "cpu" })
  dist.all_reduce(t, "max")
  return t:item() == 1
end

--- Ends a save that ranks were lost in, or makes it again. All ranks call it.
---@param accelerator accel.Accelerator
---@param pending table of checkpoint.lua
---@param committed fun(self: accel.Accelerator, pending: table) of checkpoint.lua
---@param beside? boolean the new save may be asynchronous, as the old one
function M.settle(accelerator, pending, committed, beside)
  local kept = accelerator._checkpointing
  kept.pending = nil
  local ok, why = pcall(function()
    if is_complete(pending) then return committed(accelerator, pending) end
    pending.save:abort()
    pending.forget()
    local o, again = pending.o, {}
    for key, value in next, o do again[key] = value end
    again.asynchronous = beside and o.asynchronous or false
    accelerator:_save(pending.output_dir, again, pending.always)
  end)
  if ok then return end
  kept.pending = kept.pending or pending
  error(why, 0)
end

return M
