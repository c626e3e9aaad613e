--- Methods of Accelerator: what a script learns of the ranks of an elastic job. elastic.lua leads its loop.
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"

local M = {}

--- Has fn called after ranks were lost in an elastic job, or joined or left it, on the script's thread, before the next batch of the loader
--- that trains. It gets { generation, step, kind, reason, lost, joined, machines, num_processes, process_index, process_index_before,
--- seconds, level } and may use collectives. kind is "lost", "joined", "left" or "resized" (accel-run scale). If ranks are lost meanwhile, it
--- is called again. In other jobs it is never called.
--- example: local a, n = accel.Accelerator(), 0 a:on_membership_change(function() n = n + 1 end) return n --> 0
---@param fn fun(change: table)
function M.on_membership_change(self, fn, ...)
  check_self(self, "on_membership_change")
  check.surplus("on_membership_change", ...)
  check.callable("on_membership_change", "fn", fn)
  local elastic = rawget(self, "_elastic")
  if elastic then elastic.callbacks[#elastic.callbacks + 1] = fn end
end

return M
