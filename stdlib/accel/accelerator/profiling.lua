--- accelerator:profile: a profile by a ProfileKwargs, whose trace every rank writes.
local accel = require "accel"
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"
local constants = require "accel.accelerator.constants"
local raise = require "accel.util.raise"
local class = require "accel.util.class"

local M = {}

--- Writes this rank's trace into output_trace_dir, then waits for the others.
local function write_trace(self, handler, prof)
  local ranks = require "accel.profiler.ranks"
  assert(accel.makedirs(handler.output_trace_dir))
  local offset = ranks.clock_offset()
  if prof._recorder then
    local path = ("%s/%s"):format(handler.output_trace_dir,
      (constants.PROFILE_PATTERN_NAME:gsub("{suffix}", tostring(self.process_index))))
    local ok, why = prof:export_chrome_trace(path, { clock_offset = offset })
    if not ok then self:_warn("profile: the trace is not written: " .. why) end
  else
    self:_warn(("profile: no trace for %s: the schedule did not come to its active steps in %d steps"):format(
      handler.output_trace_dir, prof.step_num))
  end
  self:wait_for_everyone()
end

--- Profiles until the end of the block: `local prof <close> = accelerator:profile()`. The handler, a ProfileKwargs, is by default
--- the one among the constructor's kwargs_handlers. With a schedule, call prof:step() at the end of each step. With output_trace_dir
--- every rank writes profile_<rank>.json there at the end, in Chrome's format and on one clock, and waits for the others. Given a
--- function, it is profiled: profile(handler, fn) or profile(fn), fn gets the profile.
--- example: local a = accel.Accelerator() local prof = a:profile(nil, function() return accel.ones(2) + 1 end)
---   return prof:key_averages():find("add").count --> 1
---@param handler? accel.accelerator.ProfileKwargs
---@param fn? fun(prof: accel.profiler.Profile)
---@return accel.profiler.Profile
---@return any ... fn's results
function M.profile(self, handler, fn, ...)
  check.surplus("profile", ...)
  check_self(self, "profile")
  local ProfileKwargs = require "accel.accelerator.handlers".ProfileKwargs
  if type(handler) == "function" and fn == nil then handler, fn = nil, handler end
  if handler == nil then handler = self.profile_handler or ProfileKwargs() end
  if not class.isinstance(handler, ProfileKwargs) then
    raise("profile: expected a ProfileKwargs, got %s", check.shown(handler))
  end
  local prof = handler:build()
  if handler.output_trace_dir then
    prof._after = function() write_trace(self, handler, prof) end
  end
  prof:start()
  if fn == nil then return prof end
  check.callable("profile", "fn", fn)
  local function run()
    local _ <close> = prof
    return fn(prof)
  end
  return prof, run()
end

return M
