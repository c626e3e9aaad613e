--- Another recorder's data between two moments, with the methods of a recorder: for a script's own profile in a dry run, which records
--- itself (accel.cli.dry_run_rank). Memory over time is left to that one.
local class = require "accel.util.class"
local core = require "accel.profiler.core"

---@class accel.profiler.Window
local Window = class("accel.profiler.Window")

function Window:init(recorder)
  self.recorder, self.first, self.from = recorder, (recorder:count()), core.now()
end

function Window:stop() self.last, self.to = (self.recorder:count()), core.now() end

function Window:count() return (self.last or (self.recorder:count())) - self.first, 0 end

function Window:times() return self.from, self.to or core.now() end

local function renumbered(first, name, kind, start, stop, parent, ...)
  return name, kind, start, stop, math.max(parent - first, 0), ...
end

function Window:span(i) return renumbered(self.first, self.recorder:span(self.first + i)) end

function Window.memory() end

return Window
