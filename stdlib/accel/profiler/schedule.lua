--- Which steps are recorded: torch.profiler.schedule.
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- The actions of a step: nothing, a recording that is dropped, one that is kept, and the last step of one that is kept.
M.ProfilerAction = { NONE = "none", WARMUP = "warmup", RECORD = "record", RECORD_AND_SAVE = "record_and_save" }
local action = M.ProfilerAction

local DEFAULTS <const> = { wait = 0, warmup = 0, active = options.none, ["repeat"] = 0, skip_first = 0, skip_first_wait = 0 }

--- A function of the number of a step (from 0): after skip_first steps, cycles of `wait` steps without recording, `warmup` steps
--- whose recording is dropped and `active` steps that are kept. ["repeat"] cycles, 0 for as long as the run lasts. With
--- skip_first_wait the first cycle begins without its wait.
--- example: local s = accel.profiler.schedule { wait = 1, warmup = 1, active = 2, ["repeat"] = 1 }
---   return { s(0), s(1), s(2), s(3), s(4) } --> { "none", "warmup", "record", "record_and_save", "none" }
---@param opts {wait: integer?, warmup: integer?, active: integer, ["repeat"]: integer?, skip_first: integer?, skip_first_wait: integer?}
---@return fun(step: integer): string
function M.schedule(opts, ...)
  local o = options("schedule", opts, DEFAULTS, ...)
  if o.active == nil then raise "schedule: needs active, the number of steps to record" end
  check.positive("schedule", "active", o.active)
  for _, name in ipairs { "wait", "warmup", "repeat", "skip_first", "skip_first_wait" } do check.count("schedule", name, o[name]) end
  local cycle, times = o.wait + o.warmup + o.active, o["repeat"]
  return function(step)
    if step < o.skip_first then return action.NONE end
    step = step - o.skip_first
    if o.skip_first_wait ~= 0 then step = step + o.wait end
    if times > 0 and step // cycle >= times then return action.NONE end
    local at = step % cycle
    if at < o.wait then return action.NONE end
    if at < o.wait + o.warmup then return action.WARMUP end
    return at < cycle - 1 and action.RECORD or action.RECORD_AND_SAVE
  end
end

return M
